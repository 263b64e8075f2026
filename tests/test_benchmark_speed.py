"""The measurement of speed and its page. Nothing is timed here."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from benchmarks import speed
from benchmarks.speed import Report, Timing

ROOT = Path(__file__).resolve().parent.parent
REPORT = Report(
    "2 processors",
    "3 files",
    (
        Timing("Group", "ruff", (2.0, 1.0, 4.0), (3.0, 3.0, 3.0)),
        Timing("Group", "own", (1.0, 0.5, 3.0), (0.25, 0.25, 0.25)),
    ),
)


def test_the_page_is_fresh() -> None:
    spec = importlib.util.spec_from_file_location("build_speed", ROOT / "docs" / "build_speed.py")
    assert spec is not None
    assert spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    assert build.main(["--check"]) == 0, "run `python docs/build_speed.py`"


def test_the_store_is_written_as_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "speed.json"
    path.write_text(speed.dump(REPORT))
    assert speed.load(path) == REPORT
    assert speed.dump(speed.load(speed.STORE)) == speed.STORE.read_text(encoding="utf-8")


def test_ratios_are_those_of_medians() -> None:
    rows = ["| `ruff` | 3 | 2.00 s | 3.00 s | 1.00 |", "| `own` | 3 | 1.00 s | 250 ms | 0.50 |"]
    assert list(speed.table(REPORT))[-2:] == rows


def test_commands_run_in_turn_and_the_first_round_does_not_count(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def command(word: str) -> list[str]:
        return [sys.executable, "-c", f"open({str(log)!r}, 'a').write({word!r})"]

    timings = speed.measure("g", {"a": command("a"), "b": command("b")}, 2, tmp_path)
    assert log.read_text() == "ababab"
    assert [len(timing.wall) for timing in timings] == [2, 2]
    with pytest.raises(SystemExit, match="failed"):
        speed.measure("g", {"c": [sys.executable, "-c", "exit(3)"]}, 1, tmp_path)


def test_the_long_script_is_as_long_as_it_says(tmp_path: Path) -> None:
    text = speed.longest_script(tmp_path).read_text()
    assert 1000 <= text.count("\n") <= 1030
    compile(text, "long.py", "exec")


@pytest.mark.parametrize("place", ["fixtures/programs/callbacks", "tests/cases"])
def test_shortcuts_change_no_finding(place: str) -> None:
    folder = ROOT / place
    if not folder.is_dir():
        folder = sorted(p for p in (ROOT / "fixtures" / "programs").iterdir() if p.is_dir())[0]
    assert list(speed.differing(folder)) == []
