"""The dynamic judge over every program in fixtures/: what the names claim is what torch does."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from ampclip_lint.testing import (
    Program,
    Verdict,
    judge,
    judge_overflow,
    load_module,
    parse_expectations,
    read_programs,
)

torch = pytest.importorskip("torch")

FIXTURES = sorted((Path(__file__).parent.parent / "fixtures").glob("*.py"))
PROGRAMS = [
    pytest.param(path, program, id=f"{path.stem}::{program.name}")
    for path in FIXTURES
    for program in read_programs(path.read_text(encoding="utf-8"), path.name)
]
no_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=no_cuda)]

# What these rules flag applies gradients that depend on S, or raises.
UNIT_RULES = frozenset(f"AMP{number}" for number in (101, 102, 104, 105, 106, 201, 202, 301, 303, 304, 308, 401, 402))
# What these rules flag fares differently from a right program once a gradient overflows.
OVERFLOW_RULES = frozenset({"AMP302", "AMP305", "AMP307", "AMP503"})

module = functools.cache(load_module)


def function(path: Path, program: Program) -> Callable[..., object]:
    found: Callable[..., object] = getattr(module(path), program.name)
    return found


def codes(path: Path, program: Program) -> set[str]:
    expectations = parse_expectations(path.read_text(encoding="utf-8"), path.name)
    return {expectation.code for expectation in expectations if program.holds(expectation.row)}


def stops_as_documented(program: Program, verdict: Verdict) -> bool:
    """Whether the program is one that torch stops, having checked that it does so exactly if it says so."""
    if program.raises is None:
        assert verdict.error is None, f"write '# raises: {verdict.error}' if that is what the program shows"
        assert verdict.steps, "no step was applied"
        return False
    kind, text = program.raises
    assert verdict.error is not None, f"{kind} is documented, and nothing was raised"
    assert verdict.error.type == kind
    assert text in verdict.error.text
    return True


def shows_in_gradients(path: Path, program: Program) -> bool:
    return program.name.startswith("fn_bad_") or bool(codes(path, program) & UNIT_RULES)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("path", "program"), PROGRAMS)
def test_torch_agrees_with_the_name(path: Path, program: Program, device: str) -> None:
    verdict = judge(function(path, program), device=device)
    if stops_as_documented(program, verdict):
        assert program.is_wrong
    elif not program.is_wrong:
        assert verdict.invariant, verdict.rows
        assert verdict.clip_active, "no gradient was clipped, so invariance proves nothing"
    elif shows_in_gradients(path, program):
        assert not verdict.invariant, verdict.rows
    elif codes(path, program) & OVERFLOW_RULES:
        overflow = judge_overflow(function(path, program), device=device)
        assert overflow.applied or overflow.hidden or overflow.error is not None
    else:
        pytest.skip("what this rule flags shows neither in the gradients nor under an overflow")


@no_cuda
@pytest.mark.parametrize(("path", "program"), PROGRAMS)
def test_torch_agrees_in_half_precision(path: Path, program: Program) -> None:
    verdict = judge(function(path, program), device="cuda", autocast=True)
    if stops_as_documented(program, verdict):
        assert program.is_wrong
    elif not program.is_wrong:
        assert verdict.invariant, verdict.rows
    elif shows_in_gradients(path, program):
        assert not verdict.invariant, verdict.rows


def test_the_evidence_page_is_what_torch_does() -> None:
    assert load_module(Path(__file__).parent.parent / "docs" / "build_evidence.py").main(["--check"]) == 0
