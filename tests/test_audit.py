"""The audit as a whole and in the terminal: verdicts, settings, texts, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import audited
from ampclip_lint.lint.audit import Audit, Verdict, audit_paths
from ampclip_lint.lint.config import Selection, Settings
from ampclip_lint.report.audit_text import render
from console import run


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    audited.repository(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def audit(*paths: str, **settings: object) -> Audit:
    return audit_paths(paths or (".",), Settings(isolated=True, **settings))  # type: ignore[arg-type]


def verdicts(found: Audit) -> dict[str, str]:
    return {judged.loop.span.filename: judged.verdict.value for judged in found.loops}


def lines(found: Audit, width: int = 100) -> list[str]:
    return ["".join(text for text, _ in line) for line in render(found, width)]


def test_every_loop_has_a_verdict(repository: Path) -> None:
    assert verdicts(audit()) == {
        "engine/apply.py": "not decided",
        "engine/possible.py": "possibly wrong",
        "engine/silenced.py": "silenced",
        "hostile/<img src=x onerror=alert(1)>.py": "wrong",
        "many/two.py": "wrong",
        "right/train.py": "right",
        "train.py": "wrong",
    }


def test_findings_have_pictures_and_loops_know_their_findings(repository: Path) -> None:
    found = audit("train.py", "engine/possible.py")
    (possible,), (definite,) = found.possible, found.definite
    assert definite.history is not None and definite.curve is not None
    assert [moment.event for moment in definite.history.moments] == ["zero_grad", "backward", "clip"]
    assert possible.curve is None
    for judged in found.loops:
        (number,) = judged.findings
        assert found.findings[number].diagnostic.span.filename == judged.loop.span.filename


def test_rules_that_are_not_selected_leave_a_loop_silenced_and_not_right(repository: Path) -> None:
    found = audit("train.py", selection=Selection(ignore=("AMP101",)))
    assert (found.findings, verdicts(found)) == ((), {"train.py": "silenced"})
    assert found.loops[0].silenced == 1


def test_info_alone_makes_nothing_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    each = audited.RIGHT.replace(
        "clip_grad_norm_(model.parameters(), max_norm=0.5)",
        "for p in model.parameters():\n                clip_grad_norm_(p, 0.5)",
    )
    (tmp_path / "train.py").write_text(audited.program(each))
    monkeypatch.chdir(tmp_path)
    assert verdicts(audit()) == {"train.py": "right"}
    found = audit(selection=Selection(extend_select=("AMP108",)))
    assert [f.diagnostic.code for f in found.findings] == ["AMP108"]
    assert verdicts(found) == {"train.py": "right"}


def test_configuration_and_excludes_hold(repository: Path) -> None:
    (repository / "ampclip-lint.toml").write_text('ignore = ["AMP402"]\nextend-exclude = ["hostile", "engine"]\n')
    found = audit_paths(["."], Settings())
    assert verdicts(found) == {"many/two.py": "silenced", "right/train.py": "right", "train.py": "wrong"}


def test_a_notebook_is_told_by_its_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [audited.HEADER.strip(), audited.WRONG.strip()]
    notebook = {
        "cells": [
            {"cell_type": "code", "source": text, "metadata": {}, "outputs": [], "execution_count": None, "id": f"c{i}"}
            for i, text in enumerate(cells)
        ],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (tmp_path / "n.ipynb").write_text(json.dumps(notebook))
    monkeypatch.chdir(tmp_path)
    found = audit()
    (judged,), (finding,) = found.loops, found.findings
    assert (judged.loop.span.cell, judged.verdict) == (2, Verdict.WRONG)
    assert finding.history is not None
    assert {moment.span.cell for moment in finding.history.moments} == {2}
    assert "  n.ipynb:cell 2:1  train" in lines(found)


@pytest.mark.parametrize("width", [80, 120])
def test_the_report_keeps_to_its_width(repository: Path, width: int) -> None:
    found = lines(audit(), width)
    assert max(map(len, found)) <= width
    assert found[:3] == [
        "9 files read, 8 analysed",
        "7 training loops: 3 wrong, 1 possibly wrong, 1 not decided, 1 silenced, 1 right",
        "findings: 4 errors, 1 possible, 1 suppressed",
    ]


def test_the_report_tells_what_a_loop_is(repository: Path) -> None:
    text = "\n".join(lines(audit("right", "engine")))
    assert text.endswith(
        """\
Possibly wrong (1)
  engine/possible.py:5  train
      line 10: AMP306 step-without-gradients (possible): `scaler` steps `opt`, which has no
        gradients here
      scaler: `scaler`, from outside: an argument or an attribute
      optimizers: `opt`

Not decided (1)
  engine/apply.py:5  apply
      scaler: `scaler`, from outside: an argument or an attribute
      optimizers: `opt`
      not decided: line 6 the gradients of `opt` are unknown here: a backward that makes them is
        not seen

Silenced (1)
  engine/silenced.py:5  train
      1 fault suppressed, or of rules that are not selected
      scaler: `scaler`, from outside: an argument or an attribute
      optimizers: `opt`
      clip: line 9 by norm with threshold `1.0`; gradients: S

Right (1)
  right/train.py:5  train
      scaler: `scaler`, made at line 7, device `"cuda"`, enabled `use_amp`, init_scale `2.0**10`
      optimizers: `opt`
      steps where: `(i + 1) % accumulate == 0`
      clip: line 12 by norm with threshold `0.5`; gradients: 1

Left out (2)
      engine/latin.py: not valid utf-8 at byte 18
      engine/broken.py:1: not valid Python: '(' was never closed"""
    )


def test_nothing_to_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    assert lines(audit()) == ["1 file read, 0 analysed", "0 training loops", "findings: none"]


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_exit_code_is_no_verdict(repository: Path) -> None:
    result = run("audit", "--isolated", ".")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "\x1b" not in result.stdout
    assert run("audit", "--isolated", "--color", "always", ".").stdout.count("\x1b[") > 10
    missing = run("audit", "--isolated", "train.py", "nowhere.py")
    assert missing.exit_code == 2
    assert "nowhere.py: no such file or directory" in missing.stdout
    assert run("audit", "--isolated", "--select", "AMP999").exit_code == 2
    assert run("audit", "--config", "x.toml", "--isolated").exit_code == 2


def test_standard_input(repository: Path) -> None:
    result = run("audit", "--isolated", "-", "--stdin-filename", "a/b.py", stdin=audited.program(audited.WRONG))
    assert "  a/b.py:5  train\n      line 9: AMP101 clip-before-unscale: " in result.stdout


def test_the_page_is_written_beside_the_report(repository: Path) -> None:
    plain = run("audit", "--isolated", "train.py")
    result = run("audit", "--isolated", "train.py", "--html", "out.html")
    assert (result.exit_code, result.stdout) == (0, plain.stdout)
    first = Path("out.html").read_bytes()
    assert first.startswith(b"<!DOCTYPE html>")
    run("audit", "--isolated", "train.py", "--html", "out.html")
    assert Path("out.html").read_bytes() == first


def test_a_page_that_cannot_be_written_is_an_error(repository: Path) -> None:
    result = run("audit", "--isolated", "train.py", "--html", "no/such/folder/out.html")
    assert result.exit_code == 2
    assert "error: no/such/folder/out.html: can't be written: no such file or directory" in result.stderr


def test_a_crash_costs_one_loop_and_is_told(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ampclip_lint.amp.inventory as inventory

    def training_loop(function: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(inventory, "training_loop", training_loop)
    result = run("audit", "--isolated", "train.py")
    assert result.exit_code == 2
    assert "internal error in the audit of `train`: ZeroDivisionError: boom" in " ".join(result.stdout.split())
    assert "AMP101" in result.stdout
