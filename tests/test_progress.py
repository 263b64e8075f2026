"""The line that tells what a long run is at: only for a person, only once it has lasted, and gone in the end."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from ampclip_lint.lint.run import lint_paths
from ampclip_lint.report.progress import Progress
from test_cli import imported_by

TRAIN = "def fit(scaler, loss):\n    scaler.scale(loss).backward()\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


def test_a_run_tells_what_it_is_at(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(TRAIN)
    told: list[str] = []
    lint_paths([tmp_path], progress=told.append)
    assert told == ["analysing 1 file"]


def test_what_lasts_is_shown_and_wiped_away(terminal: Terminal) -> None:
    with Progress(terminal, patience=0) as progress:
        assert progress.shown.wait(60)
        assert "reading files" in terminal.getvalue()
        progress.show("analysing [7] files")
    text = terminal.getvalue()
    assert "\x1b[2K" in text.rpartition("files")[2], "the line is erased in the end"


def test_what_is_done_soon_is_never_shown(terminal: Terminal) -> None:
    with Progress(terminal, patience=3600) as progress:
        progress.show("analysing 7 files")
    assert terminal.getvalue() == ""
    assert not progress.shown.is_set()


def test_an_error_ends_it_too(terminal: Terminal) -> None:
    def fail() -> None:
        with Progress(terminal, patience=0) as progress:
            assert progress.shown.wait(60)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert "\x1b[2K" in terminal.getvalue().rpartition("files")[2]


def test_a_pipe_is_shown_nothing_and_loads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.py").write_text(TRAIN)
    assert not imported_by("check", "a.py") & {"ampclip_lint.report.progress", "rich"}


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("arguments", [(), ("--quiet",)])
def test_on_a_terminal_a_short_run_loads_no_rich(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    import pty

    monkeypatch.chdir(tmp_path)
    Path("a.py").write_text(TRAIN)
    controller, follower = pty.openpty()
    try:
        loaded = imported_by("check", "a.py", "--color", "never", *arguments, stderr=follower)
    finally:
        os.close(follower)
        os.close(controller)
    assert ("ampclip_lint.report.progress" in loaded) == (not arguments)
    assert "rich" not in loaded
