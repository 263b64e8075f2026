"""The verdicts on real projects: the stored file, the page made of it, and the script that finds changed verdicts."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from ampclip_lint.diagnostics import Severity
from ampclip_rules import RULES
from benchmarks import corpus
from benchmarks.corpus import Known, Outcome, Place, Project

ROOT = Path(__file__).resolve().parent.parent
PROJECTS = corpus.load(corpus.CORPUS)

WRONG_PROGRAM = """\
from torch.nn.utils import clip_grad_norm_


def train(model, loader, optimizer, scaler, loss_fn):
    for batch in loader:
        optimizer.zero_grad()
        scaler.scale(loss_fn(model(batch))).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""
CLIP = Place("train.py", 8, "AMP101")


def page_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_corpus", ROOT / "docs" / "build_corpus.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = page_script()


def project(*verdicts: Place, **fields: object) -> Project:
    return replace(Project("o/n", corpus.REPOSITORY, "0" * 40, "u", verdicts=verdicts), **fields)


# --- the file --------------------------------------------------------------------------------------------------------


def test_the_file_is_as_it_would_be_written() -> None:
    text = corpus.CORPUS.read_text(encoding="utf-8")
    assert text == corpus.dump(PROJECTS), "run `python benchmarks/corpus.py --write`"


def test_the_file_holds_what_its_keys_promise() -> None:
    codes = {rule.code for rule in RULES if rule.severity is not Severity.INFO}
    for entry in PROJECTS:
        assert entry.kind in corpus.KINDS
        assert entry.url.startswith("https://github.com/")
        assert (len(entry.version) == 40) == (entry.kind != corpus.RELEASE), entry.folder
        assert entry.files >= len(entry.read), entry.folder
        known = (*entry.mistakes, *entry.doubts, *entry.sound)
        for place in (*entry.verdicts, *(item.place for item in known)):
            assert place.code in codes, place
            assert place.line > 0, place
            assert place.file.endswith(".py"), place
            assert not place.file.startswith(("/", ".")), place
        assert len({item.place for item in known}) == len(known), entry.folder
        assert all(item.fact for item in known)
        assert len(set(entry.verdicts)) == len(entry.verdicts)
        assert {item.place.file for item in entry.mistakes} <= set(entry.read), entry.folder
    folders = [entry.folder for entry in PROJECTS]
    assert len(set(folders)) == len(folders)


def test_every_kind_of_project_is_there() -> None:
    assert {entry.kind for entry in PROJECTS} == set(corpus.KINDS)
    assert sum(len(entry.mistakes) for entry in PROJECTS) > 50
    assert sum(len(entry.read) for entry in PROJECTS) > 400


def test_a_file_survives_being_read_and_written(tmp_path: Path) -> None:
    also = frozenset({Place("b.py", 1, "AMP201")})
    entries = [project(CLIP, mistakes=(Known(CLIP, "why", also),), doubts=(Known(Place("c.py", 2, "AMP102"), "?"),))]
    path = tmp_path / "corpus.json"
    path.write_text(corpus.dump(entries))
    assert corpus.load(path) == entries
    (stored,) = json.loads(path.read_text())["projects"]
    assert stored["verdicts"] == [{"file": "train.py", "line": 8, "code": "AMP101", "judgement": "right"}]


# --- judgement -------------------------------------------------------------------------------------------------------


def at(line: int, code: str = "AMP101") -> Place:
    return Place("train.py", line, code)


def test_a_verdict_is_judged_by_what_is_known_of_its_place() -> None:
    entry = project(
        mistakes=(Known(at(10), "m", frozenset({Place("other.py", 3, "AMP201")})),),
        doubts=(Known(at(30), "d"),),
        sound=(Known(at(50), "s"),),
    )
    words = {
        at(10): "right",
        at(12): "right",
        at(13): "unread",
        at(10, "AMP102"): "unread",
        Place("other.py", 3, "AMP201"): "right",
        Place("other.py", 4, "AMP201"): "unread",
        at(29): "unsure",
        at(51): "wrong",
    }
    assert {place: entry.judgement(place) for place in words} == words


def test_of_two_mistakes_side_by_side_a_verdict_tells_one() -> None:
    first, second = Known(at(10), "a"), Known(at(11), "b")
    assert project(at(11), mistakes=(first, second)).found() == {second}
    assert project(at(12), mistakes=(first, second)).found() == {first, second}, "between both nothing decides"


# --- the comparison --------------------------------------------------------------------------------------------------


def test_new_vanished_and_moved_verdicts_are_told_apart() -> None:
    assert corpus.differences([at(5)], [at(5)]) == []
    stored = [at(5), at(40), at(41), at(90, "AMP201"), at(200)]
    fresh = [at(5), at(42), at(91), at(300)]
    assert corpus.differences(stored, fresh) == [
        ("vanished", at(40), None),
        ("moved", at(41), at(42)),
        ("vanished", at(90, "AMP201"), None),
        ("new", at(91), None),
        ("vanished", at(200), None),
        ("new", at(300), None),
    ]


def test_a_report_tells_how_changes_are_judged_and_when_the_code_is_another() -> None:
    entry = project(at(5), at(20), files=2, sound=(Known(at(20), "s"),))
    assert list(corpus.report(entry, Outcome(2, (at(5), at(20))))) == []
    assert list(corpus.report(entry, Outcome(3, (at(7), at(60))))) == [
        "  files     3, not 2: other code?",
        "  moved     train.py:5 AMP101 to line 7 (unread)",
        "  vanished  train.py:20 AMP101 (wrong)",
        "  new       train.py:60 AMP101 (unread)",
    ]


@pytest.fixture
def compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """The script on a checkout with one wrong program, of which nothing is stored but that there is one file."""
    root = tmp_path / "checkouts" / "o+n"
    root.mkdir(parents=True)
    (root / "train.py").write_text(WRONG_PROGRAM)
    monkeypatch.setattr(corpus, "CORPUS", tmp_path / "corpus.json")
    corpus.CORPUS.write_text(corpus.dump([project(files=1, mistakes=(Known(CLIP, "no unscale_"),))]))
    return lambda *options: corpus.main(
        ["--repositories", str(tmp_path / "checkouts"), "--jobs", "1", "--only", "O/N", *options]
    )


def test_a_changed_verdict_fails_until_it_is_stored(
    compare: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare() == 1
    assert "  new       train.py:8 AMP101 (right)" in capsys.readouterr().out
    assert compare("--write") == 0
    assert corpus.load(corpus.CORPUS)[0].verdicts == (CLIP,)
    capsys.readouterr()
    assert compare() == 0
    assert capsys.readouterr().out.startswith("o+n: 1 verdicts, ")


def test_what_is_not_there_is_no_success(
    compare: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = corpus.dump([project(files=1, kind=corpus.BEFORE_FIX, read=("gone.py",))])
    corpus.CORPUS.write_text(text)
    assert compare() == 2, "there is no folder for that state"
    (tmp_path / "checkouts" / "o+n").rename(tmp_path / "checkouts" / "o+n@000000000")
    assert compare("--write") == 2
    out = capsys.readouterr().out
    assert "not compared: FileNotFoundError" in out
    assert "gone.py" in out
    assert corpus.CORPUS.read_text() == text, "verdicts of a run that failed are not stored"


def test_of_a_state_before_a_fix_only_what_was_read_is_the_program(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WRONG_PROGRAM)
    (tmp_path / "other.py").write_text(WRONG_PROGRAM)
    before = Path.cwd()
    try:
        outcome = corpus.run_part(tmp_path, project(kind=corpus.BEFORE_FIX, read=("train.py",)))
    finally:
        os.chdir(before)
    assert (outcome.files, outcome.places, outcome.problem) == (1, (CLIP,), None)


def test_a_release_is_unpacked_once(tmp_path: Path) -> None:
    entry = replace(project(), name="n", kind=corpus.RELEASE, version="1.0")
    (tmp_path / "n-1.0").mkdir()
    assert corpus.unpacked(entry, tmp_path) == tmp_path / "n-1.0"


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_page_is_fresh() -> None:
    assert build.PAGE.read_text(encoding="utf-8") == build.page(PROJECTS), "run `python docs/build_corpus.py`"


def test_the_page_counts_and_lists() -> None:
    entry = project(
        at(10),
        at(30),
        at(50),
        at(70, "AMP501"),
        files=9,
        read=("train.py",),
        mistakes=(Known(at(10), "found"), Known(at(90, "AMP201"), "not seen")),
        doubts=(Known(at(30), "who knows"),),
        sound=(Known(at(50), "fine"),),
    )
    text = build.page([entry])
    assert "| [o/n](u/tree/" + "0" * 40 + ") | 000000000 | 9 | 1 | 2 | 1 | 4 | 1 | 1 | 1 |" in text
    assert "| all rules | 1 of 2 (50 %) | 1 of 2 (50 %) |" in text
    assert "| [AMP501](rules/scaled-norm-read.md) | 0 of 0 | 0 of 0 |" in text
    where = "in o/n 000000000, [`train.py:{0}`](u/blob/" + "0" * 40 + "/train.py#L{0})"
    parts = text.split("\n## ")
    assert parts[-3].endswith(f"\n- AMP101 {where.format(50)}: fine\n")
    assert parts[-2].endswith(f"\n- AMP201 {where.format(90)}: not seen\n")
    assert parts[-1].endswith(f"\n- AMP101 {where.format(30)}: who knows\n- AMP501 {where.format(70)}: unread\n")
    assert build.page([]).count("At present there is none.") == 3
