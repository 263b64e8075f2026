"""The dynamic judge over every program in fixtures/: what the names claim is what torch does."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from ampclip_lint.testing import (
    Kit,
    Program,
    Verdict,
    judge,
    judge_overflow,
    load_module,
    parse_expectations,
    read_programs,
)
from ampclip_rules import RULES

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
UNIT_RULES = frozenset(f"AMP{number}" for number in (101, 102, 104, 105, 201, 202, 301, 303, 304, 308, 401, 402))
# What these rules flag fares differently from a right program once a gradient overflows.
OVERFLOW_RULES = frozenset({"AMP302", "AMP305", "AMP307", "AMP503"})
# What these rules flag shows in the one way or in the other.
EITHER_RULES = frozenset({"AMP305", "AMP307"})

module = functools.cache(load_module)


def function(path: Path, program: Program) -> Callable[..., object]:
    found: Callable[..., object] = getattr(module(path), program.name)
    return found


def codes(path: Path, program: Program) -> set[str]:
    if program.name.startswith("fn_bad_"):
        # Nothing is reported: what it would have to show is what its file's rule is about.
        return {rule.code for rule in RULES if rule.name.replace("-", "_") == path.stem}
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
    return bool(codes(path, program) & UNIT_RULES)


def logs(run: Callable[..., object], device: str) -> tuple[list[list[float]], list[float | None]]:
    """What a program appends to `writer`: scaler disabled, S = 1, 8, 64, S changing. And the norms that it applies."""
    kept: list[list[float]] = []

    def writer(kit: Kit) -> list[float]:
        kept.append([])
        return kept[-1]

    rows = judge(run, device=device, fill={"writer": writer}).rows
    return [[float(number) for number in log] for log in kept], [row.applied for row in rows]


def the_same(ours: list[float], theirs: list[float]) -> bool:
    return len(ours) == len(theirs) and all(math.isclose(a, b, rel_tol=1e-4) for a, b in zip(ours, theirs))


def measures_the_scale(path: Path, program: Program, device: str) -> bool:
    """What is logged, or done because of it, depends on S."""
    run = function(path, program)
    written, _ = logs(run, device)
    return not judge(run, device=device).invariant or not all(the_same(written[1], log) for log in written)


def forgets_the_scale(path: Path, program: Program, device: str) -> bool:
    """After an overflow in the first backward, the scaler of the last step still has its initial scale."""
    run, real = function(path, program), torch.amp.GradScaler.__init__
    scalers: list[Any] = []

    def init(self: Any, *args: object, **kwargs: object) -> None:
        real(self, *args, **kwargs)
        scalers.append(self)

    @functools.wraps(run)
    def twice(*args: object, **kwargs: object) -> None:  # as the loop around it does
        scalers.clear()
        run(*args, **kwargs)
        run(*args, **kwargs)

    with mock.patch.object(torch.amp.GradScaler, "__init__", init):
        judge_overflow(twice, device=device, at=1)
    return len(scalers) > 1 and bool(scalers[-1].get_scale() == scalers[-1]._judged_base)


def takes_one_norm_for_the_other(path: Path, program: Program, device: str) -> bool:
    """With a clip that returns the norm after it, the program logs or applies something else."""
    run: Any = function(path, program)
    real = torch.nn.utils.clip_grad_norm_

    def clip(parameters: Any, *args: object, **kwargs: object) -> object:
        params = list(parameters)
        real(params, *args, **kwargs)
        return torch.nn.utils.get_total_norm([p.grad for p in params])

    before = logs(run, device)
    names = mock.patch.dict(run.__globals__, clip_grad_norm_=clip)
    with names, mock.patch.object(torch.nn.utils, "clip_grad_norm_", clip):
        return before != logs(run, device)


def clips_nothing_that_is_applied(path: Path, program: Program, device: str) -> bool:
    """Nothing has changed a gradient between its backward and the step that applies it."""
    return not judge(function(path, program), device=device).clip_active


def clips_partial_sums(path: Path, program: Program, device: str) -> bool:
    """A clip has changed gradients that a later backward adds to."""
    return judge(function(path, program), device=device).clip_midway


def exceeds_its_bound(path: Path, program: Program, device: str) -> bool:
    """All gradients together are longer than 1, the bound in all these programs, although something was clipped."""
    verdict = judge(function(path, program), device=device)
    return verdict.clip_active and all(row.applied is not None and row.applied > 1.1 for row in verdict.rows)


def hides_an_overflow(path: Path, program: Program, device: str) -> bool:
    """A gradient that overflowed is finite when it is applied."""
    return judge_overflow(function(path, program), device=device).hidden


FACTS: dict[str, Callable[[Path, Program, str], bool]] = {
    "AMP103": clips_nothing_that_is_applied,
    "AMP106": hides_an_overflow,
    "AMP107": clips_nothing_that_is_applied,
    "AMP108": exceeds_its_bound,
    "AMP109": clips_partial_sums,
    "AMP404": forgets_the_scale,
    "AMP501": measures_the_scale,
    "AMP502": measures_the_scale,
    "AMP504": takes_one_norm_for_the_other,
}
MEASURING = [
    pytest.param(path, program, id=f"{path.stem}::{program.name}")
    for path in FIXTURES
    if path.stem in ("scaled_norm_read", "stale_scale_read")
    for program in read_programs(path.read_text(encoding="utf-8"), path.name)
    if not program.is_wrong
]


@pytest.mark.parametrize(("path", "program"), MEASURING)
def test_right_programs_measure_the_same_at_every_scale(path: Path, program: Program) -> None:
    written, _ = logs(function(path, program), "cpu")
    assert all(the_same(written[0], log) for log in written)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("path", "program"), PROGRAMS)
def test_torch_agrees_with_the_name(path: Path, program: Program, device: str) -> None:
    verdict = judge(function(path, program), device=device)
    if stops_as_documented(program, verdict):
        assert program.is_wrong
    elif not program.is_wrong:
        assert verdict.invariant, verdict.rows
        assert verdict.clip_active, "no gradient was clipped, so invariance proves nothing"
        if path.stem == "nonfinite_norm_raises":
            assert judge_overflow(function(path, program), device=device).error is None
        if path.stem == "overflow_hidden":
            assert not hides_an_overflow(path, program, device)
        if path.stem == "clip_mid_accumulation":
            assert not verdict.clip_midway
    elif shows_in_gradients(path, program):
        assert not verdict.invariant, verdict.rows
    elif codes(path, program) & EITHER_RULES and not verdict.invariant:
        pass
    elif codes(path, program) & OVERFLOW_RULES:
        overflow = judge_overflow(function(path, program), device=device)
        if "AMP503" in codes(path, program):
            assert overflow.error is not None
        assert overflow.applied or overflow.hidden or overflow.error is not None
    elif facts := [FACTS[code] for code in codes(path, program) if code in FACTS]:
        assert all(shows(path, program, device) for shows in facts)
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
