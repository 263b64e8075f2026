"""The programs in tests/cases/, in the shapes of public bug reports: exactly the findings of their comments."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import pytest

from ampclip_lint.lint.registry import validate
from ampclip_lint.lint.rule import Rule
from ampclip_lint.lint.run import lint_source
from ampclip_lint.testing import check_expectations, parse_expectations
from ampclip_rules import RULES

CASES = sorted((Path(__file__).parent / "cases").glob("*.py"))


@functools.cache
def implemented() -> Mapping[str, Rule]:
    return validate(RULES)


def test_names_are_verdicts() -> None:
    assert CASES
    for path in CASES:
        expected = parse_expectations(path.read_text(encoding="utf-8"), path.name)
        assert bool(expected) == path.name.startswith("bad_"), path.name


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lacking = {expectation.code for expectation in parse_expectations(text, path.name)} - implemented().keys()
    if lacking:
        pytest.skip(f"not implemented: {', '.join(sorted(lacking))}")
    lint = functools.partial(lint_source, rules=implemented())
    assert [str(mismatch) for mismatch in check_expectations(text, path.name, lint=lint)] == []
