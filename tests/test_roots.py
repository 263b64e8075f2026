"""Roots that other processes analyse before their turn comes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.config import Selection, Settings
from ampclip_lint.lint.registry import load_rules
from ampclip_lint.lint.rule import Violation, rule
from ampclip_lint.lint.run import RunResult, lint_paths
from ampclip_lint.processes import can_fork

pytestmark = pytest.mark.skipif(not can_fork(), reason="processes can't be copied here")

LOOP = """\
from torch.nn.utils import clip_grad_norm_


def train(net, loader, opt, scaler, crit):
    for xb, yb in loader:
        opt.zero_grad()
        scaler.scale(crit(net(xb), yb)).backward()
{unscale}        clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
"""
#: Too much for the budget that the tests give.
LONG = "        scaler.unscale_(opt)\n" + "        net(xb).sum().item()\n" * 200


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("ampclip_lint.amp.builder.Builder.MAX_WORK", 200)
    for number in range(24):
        unscale = "" if number % 5 == 0 else "        scaler.unscale_(opt)\n"
        text = LOOP.format(unscale=LONG if number == 7 else unscale)
        (tmp_path / f"loop{number}.py").write_text(text)
    return tmp_path


def said(folder: Path, jobs: int, **options: Any) -> tuple[object, ...]:
    result: RunResult = lint_paths(
        [folder], Settings(isolated=True, selection=Selection(extend_select=("AMP003",))), jobs=jobs, **options
    )
    assert len([found for found in result.diagnostics if found.code == "AMP101"]) >= 5
    assert result.incomplete == 1
    return result.diagnostics, result.problems, result.incomplete


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The shares that go to other processes."""
    from ampclip_lint.amp import roots

    made: list[object] = []

    class Noted(roots.Child):
        def __init__(self, work: Any) -> None:
            made.append(work)
            super().__init__(work)

    monkeypatch.setattr(roots, "Child", Noted)
    return made


def test_the_answers_do_not_depend_on_the_number_of_processes(folder: Path, forks: list[object]) -> None:
    alone = said(folder, 1)
    assert not forks
    assert said(folder, 3) == alone
    assert len(forks) == 2


def test_a_process_that_dies_costs_nothing_but_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = said(folder, 1)
    monkeypatch.setattr("ampclip_lint.processes.Child.answer", lambda _child: None)
    assert said(folder, 3) == alone


def test_few_roots_are_analysed_here(folder: Path, forks: list[object]) -> None:
    for file in list(folder.iterdir())[6:]:
        file.unlink()
    lint_paths([folder], Settings(isolated=True), jobs=8)
    assert not forks


def test_a_rule_of_others_sees_functions_without_faults(folder: Path, forks: list[object]) -> None:
    from ampclip_lint.amp.ops import Clip

    seen = []

    @rule("XYZ001", severity=Severity.WARNING, since="1.0")
    def every_clip(fn: Any) -> Iterator[Violation]:
        """A rule that looks at all clips."""
        seen.extend(site.span.filename for site in fn.sites(Clip))
        yield from ()

    lint_paths([folder], Settings(isolated=True), rules={**load_rules(), "XYZ001": every_clip}, jobs=3)
    assert len(set(seen)) == 23  # all but the one that is too long
    assert not forks
