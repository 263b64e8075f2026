"""The static judge over every program in fixtures/: what is reported is what is expected, and names are verdicts."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import pytest

from ampclip_lint.diagnostics import Diagnostic, Severity
from ampclip_lint.lint.registry import validate
from ampclip_lint.lint.rule import Rule
from ampclip_lint.lint.run import lint_source
from ampclip_lint.testing import Program, check_expectations, parse_expectations, read_programs
from ampclip_rules import RULES

FIXTURES = sorted((Path(__file__).parent.parent / "fixtures").glob("*.py"))
PROGRAMS = [
    pytest.param(path, program, id=f"{path.stem}::{program.name}")
    for path in FIXTURES
    for program in read_programs(path.read_text(encoding="utf-8"), path.name)
]


@functools.cache
def rules() -> Mapping[str, Rule]:
    return validate(RULES)


@functools.cache
def findings(path: Path) -> tuple[Diagnostic, ...]:
    # What a run shows by default, and the rule that the file is about.
    shown = [
        code
        for code, rule in rules().items()
        if rule.severity is not Severity.INFO or rule.name.replace("-", "_") == path.stem
    ]
    return tuple(lint_source(path.read_text(encoding="utf-8"), path.name, select=shown, rules=rules()))


def test_there_are_fixtures() -> None:
    assert PROGRAMS


@pytest.mark.parametrize(("path", "program"), PROGRAMS)
def test_reported_is_expected(path: Path, program: Program) -> None:
    text = path.read_text(encoding="utf-8")
    mismatches = check_expectations(text, path.name, lint=lambda text, name: findings(path))
    assert [str(mismatch) for mismatch in mismatches if program.holds(mismatch.row)] == []


@pytest.mark.parametrize(("path", "program"), PROGRAMS)
def test_flagged_as_its_name_says(path: Path, program: Program) -> None:
    reported = [finding.code for finding in findings(path) if program.holds(finding.span.start.row)]
    assert bool(reported) == program.is_flagged, reported


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_every_finding_belongs_to_a_program(path: Path) -> None:
    programs = read_programs(path.read_text(encoding="utf-8"), path.name)
    stray = [f for f in findings(path) if not any(program.holds(f.span.start.row) for program in programs)]
    assert not stray


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_named_after_the_rule_that_it_tests(path: Path) -> None:
    codes = [code for code, rule in rules().items() if rule.name.replace("-", "_") == path.stem]
    assert codes, f"no rule is called {path.stem.replace('_', '-')}"
    expected = parse_expectations(path.read_text(encoding="utf-8"), path.name)
    assert codes[0] in {expectation.code for expectation in expected}


@pytest.mark.parametrize(("path", "program"), PROGRAMS)
def test_known_misjudgements_say_why(path: Path, program: Program) -> None:
    if program.name.startswith(("fp_ok_", "fn_bad_")):
        assert program.reasons, "say in a comment why it is judged wrongly"
