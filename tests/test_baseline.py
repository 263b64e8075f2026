"""Baselines: what is accepted, what moves with the code, what a run may judge, and what is no baseline."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from ampclip_lint.lint.baseline import Entry, Outcome, hold
from console import run

CLIP = "        clip_grad_norm_(model.parameters(), 1.0)\n"
TRAIN = f"""\
from torch.nn.utils import clip_grad_norm_


def fit(model, loader, optimizer, scaler):
    for batch in loader:
        scaler.scale(model(batch)).backward()
{CLIP}        scaler.step(optimizer)
        scaler.update()
"""
TWICE = TRAIN.replace(CLIP, CLIP * 2)
GOOD = TRAIN.replace(CLIP, f"        scaler.unscale_(optimizer)\n{CLIP}")
BASE = "base.json"

pytestmark = pytest.mark.usefixtures("stub")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text, encoding="utf-8")


def check(*arguments: str) -> Result:
    result = run("check", "--output-format", "concise", *arguments)
    assert result.exit_code in (0, 1, 2), result.output
    return result


def accept(*arguments: str) -> Result:
    result = check("--write-baseline", BASE, *arguments)
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    return result


def places(*arguments: str) -> list[str]:
    """``file:row`` of every finding that the baseline does not cover."""
    return [":".join(line.split(":")[:2]) for line in check("--baseline", BASE, *arguments).stdout.splitlines()]


def entries() -> list[dict[str, Any]]:
    found = json.loads(Path(BASE).read_text())["findings"]
    assert isinstance(found, list)
    return found


# --- what is accepted


def test_what_is_written_is_accepted_and_counted() -> None:
    write("a.py", TRAIN)
    write("b.py", TWICE)
    assert accept().stderr == "Wrote 3 findings to base.json.\n"
    result = check("--baseline", BASE)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "No findings (2 files read, 2 analysed).\n3 findings accepted by the baseline.\n"
    assert check().exit_code == 1, "without it they are findings"


def test_the_file_to_the_letter() -> None:
    write("b.py", TWICE)
    write("a.py", TRAIN)
    accept()
    line = "clip_grad_norm_(model.parameters(), 1.0)"
    assert (
        Path(BASE).read_text()
        == f"""\
{{
  "version": 1,
  "findings": [
    {{
      "path": "a.py",
      "function": "fit",
      "code": "AMP101",
      "line": "{line}"
    }},
    {{
      "path": "b.py",
      "function": "fit",
      "code": "AMP101",
      "line": "{line}",
      "count": 2
    }}
  ]
}}
"""
    )


def test_moved_lines_and_other_blanks_change_nothing() -> None:
    write("a.py", TRAIN)
    accept()
    write("a.py", "import torch\n" * 20 + TRAIN.replace("(), 1.0", "(),  1.0"))
    assert places() == []
    before = Path(BASE).read_bytes()
    accept()
    assert Path(BASE).read_bytes() == before


def test_one_more_of_the_same_is_a_finding() -> None:
    write("a.py", TWICE)
    accept()
    write("a.py", TRAIN.replace(CLIP, CLIP * 3))
    assert places() == ["a.py:9"], "the last of them"


def test_another_text_or_file_or_rule_is_a_finding() -> None:
    write("a.py", TRAIN)
    accept()
    write("b.py", TRAIN)
    assert places() == ["b.py:7"]
    write("b.py", GOOD)
    write("a.py", TRAIN.replace("1.0", "2.0"))
    assert places() == ["a.py:7"]
    write("a.py", TRAIN)
    write(BASE, Path(BASE).read_text().replace("AMP101", "AMP102"))
    assert places() == ["a.py:7"]


def test_what_moved_to_another_function_is_still_accepted() -> None:
    write("a.py", TRAIN)
    accept()
    write(BASE, Path(BASE).read_text().replace('"fit"', '"Trainer.fit"'))
    assert places() == []
    write("a.py", TWICE)
    assert places() == ["a.py:8"]


def test_an_entry_of_the_same_function_is_used_before_one_of_another() -> None:
    write("a.py", TRAIN)
    accept()
    other = {**entries()[0], "function": "aaa"}
    write(BASE, json.dumps({"version": 1, "findings": [other, *entries()]}))
    result = check("--baseline", BASE, "--verbose")
    assert "no longer occurs: a.py: AMP101 in aaa: clip_grad_norm_" in result.stderr


def test_a_file_that_was_moved_keeps_its_entries_and_gets_them_on_rewriting() -> None:
    write("a.py", TRAIN)
    accept()
    Path("sub").mkdir()
    os.rename("a.py", "sub/renamed.py")
    assert places() == []
    accept()
    assert [entry["path"] for entry in entries()] == ["sub/renamed.py"]


def test_a_copy_of_a_file_is_not_accepted() -> None:
    write("a.py", TRAIN)
    accept()
    write("copy.py", TRAIN)
    assert places() == ["copy.py:7"]


def test_paths_are_relative_to_the_baseline_and_not_to_where_the_command_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    write("src/a.py", TRAIN)
    accept()
    monkeypatch.chdir("src")
    assert check("--baseline", "../base.json").exit_code == 0
    assert check("--baseline", "../base.json", os.path.abspath("a.py")).exit_code == 0


def test_standard_input_has_the_entries_of_its_name() -> None:
    write("src/a.py", TRAIN)
    accept()
    assert run("check", "--baseline", BASE, "--stdin-filename", "src/a.py", "-", stdin=TRAIN).exit_code == 0
    assert run("check", "--baseline", BASE, "--stdin-filename", "src/b.py", "-", stdin=TRAIN).exit_code == 1


def test_who_accepts_a_possible_fault_does_not_accept_a_definite_one() -> None:
    # The stub reads the comment; the line is the same for the baseline.
    possible = TRAIN.replace("1.0)", "1.0)  # stub: possible")
    write("a.py", possible)
    accept("--pedantic")
    assert entries()[0]["confidence"] == "possible"
    assert places("--pedantic") == []
    assert "no longer" not in check("--baseline", BASE).stderr, "a run that does not look for it can't tell"
    write(BASE, Path(BASE).read_text().replace("  # stub: possible", "").replace(" # stub: possible", ""))
    write("a.py", TRAIN)
    assert places("--pedantic") == ["a.py:7"]


def test_suppressed_findings_are_not_written() -> None:
    write("a.py", TRAIN.replace("1.0)", "1.0)  # noqa: AMP101"))
    accept()
    assert entries() == []


# --- what no longer occurs


def test_entries_that_no_longer_occur_are_counted_and_go_on_rewriting() -> None:
    write("a.py", TWICE)
    write("b.py", TRAIN)
    accept()
    write("a.py", GOOD)
    result = check("--baseline", BASE)
    assert result.exit_code == 0
    assert result.stderr.endswith("1 finding accepted by the baseline, 2 entries no longer occur.\n")
    assert "no longer occurs: a.py: AMP101 in fit: clip_grad_norm_(model.parameters(), 1.0) (2 times)\n" in (
        check("--baseline", BASE, "-v").stderr
    )
    assert accept().stderr == "Wrote 1 finding to base.json (0 new, 2 that no longer occur removed).\n"
    assert [entry["path"] for entry in entries()] == ["b.py"]


def test_a_run_on_a_part_keeps_the_entries_of_the_rest() -> None:
    write("a/x.py", TRAIN)
    write("b/y.py", TRAIN)
    accept()
    write("a/x.py", GOOD)
    write("b/y.py", GOOD)
    assert check("--baseline", BASE, "a").stderr.endswith(
        "0 findings accepted by the baseline, 1 entry no longer occurs.\n"
    )
    assert accept("a").stderr == (
        "Wrote 1 finding to base.json (0 new, 1 that no longer occurs removed, 1 that this run can't judge kept).\n"
    )
    assert [entry["path"] for entry in entries()] == ["b/y.py"]


def test_a_deleted_file_s_entries_go_when_its_folder_is_checked() -> None:
    write("a/x.py", TRAIN)
    write("b/y.py", TRAIN)
    write("b/z.py", GOOD)
    accept()
    os.unlink("b/y.py")
    accept("a")
    assert [entry["path"] for entry in entries()] == ["a/x.py", "b/y.py"]
    accept("b")
    assert [entry["path"] for entry in entries()] == ["a/x.py"]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (GOOD, ("--ignore", "AMP101")),
        (GOOD, ("--select", "AMP2")),
        (GOOD + "pass  # stub: gap\n", ()),
        (GOOD + "f((\n", ()),
    ],
)
def test_what_a_run_does_not_look_for_is_not_called_gone(text: str, arguments: tuple[str, ...]) -> None:
    write("a.py", TRAIN)
    accept()
    write("a.py", text)
    assert "no longer" not in check("--baseline", BASE, *arguments).stderr
    check("--write-baseline", BASE, *arguments)
    assert "AMP101" in [entry["code"] for entry in entries()]


def test_nothing_is_called_gone_of_a_file_that_cannot_be_read() -> None:
    write("a.py", TRAIN)
    accept()
    Path("a.py").write_bytes(b"\xe9")
    assert "no longer" not in check("--baseline", BASE).stderr


FILES = st.sampled_from(["a.py", "b.py"])
ENTRIES = st.builds(
    Entry,
    path=FILES,
    function=st.sampled_from(["f", "g"]),
    code=st.sampled_from(["AMP101", "AMP102"]),
    line=st.sampled_from(["x", "y"]),
)


@given(
    st.dictionaries(ENTRIES, st.integers(1, 3)),
    st.lists(ENTRIES, max_size=8),
    st.sets(st.sampled_from(["a.py", "b.py"])),
)
def test_holding_and_renewing_agree(entries: dict[Entry, int], found: list[Entry], run_over: set[str]) -> None:
    # That no file is there only adds ways for an entry to fit.
    def judges(entry: Entry) -> bool:
        return entry.path in run_over

    def hold_against(held: dict[Entry, int]) -> tuple[Outcome, list[Any]]:
        return hold(Path("/no/such/folder/base.json"), held, [(entry, entry) for entry in found], judges)  # type: ignore[misc]

    outcome, left = hold_against(entries)
    accepted, stale = outcome.accepted, sum(count for _, count in outcome.stale)
    assert accepted + len(left) == len(found)
    assert accepted + stale + outcome.kept == sum(entries.values()), "each accepts one"
    assert not set(left) & set(Counter(entries) - Counter(found)), "an entry of its own would have fitted"
    again, nothing = hold_against(dict(outcome.renewed))
    assert (nothing, again.stale, again.kept, again.renewed) == ([], (), outcome.kept, outcome.renewed)


# --- in the configuration


def test_the_baseline_of_the_configuration_lies_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    write("ampclip-lint.toml", f'baseline = "{BASE}"\n')
    write("src/a.py", TRAIN)
    accept()
    assert check().exit_code == 0
    monkeypatch.chdir("src")
    assert check().exit_code == 0
    assert check("--no-baseline").exit_code == 1
    assert check("--isolated").exit_code == 1


def test_each_file_has_the_baseline_of_its_configuration() -> None:
    for name in ("a", "b"):
        write(f"{name}/ampclip-lint.toml", f'baseline = "{BASE}"\n')
        write(f"{name}/x.py", TRAIN)
        assert run("check", "--write-baseline", f"{name}/{BASE}", name).exit_code == 0
    write("c/x.py", TRAIN)
    write("b/x.py", TWICE)
    result = check()
    assert [line.split(":")[0] for line in result.stdout.splitlines()] == ["b/x.py", "c/x.py"]
    assert result.stderr.count("1 finding accepted by the baseline.") == 2


def test_rewriting_does_not_lose_what_the_configured_baseline_accepts() -> None:
    write("ampclip-lint.toml", f'baseline = "{BASE}"\n')
    write("a.py", TRAIN)
    accept()
    write("b.py", TRAIN)
    assert accept().stderr == "Wrote 2 findings to base.json (1 new).\n"
    assert check().exit_code == 0


# --- what is no baseline


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a baseline: not JSON"),
        ("[]", "not a baseline: it has no `version`"),
        ('{"findings": []}', "not a baseline: it has no `version`"),
        ('{"version": 2, "findings": []}', "a baseline of version 2; this ampclip-lint reads 1"),
        ('{"version": 1}', "`findings` is not a list"),
        ('{"version": 1, "findings": [3]}', "entry 1 of `findings` can't be read"),
        ('{"version": 1, "findings": [{"path": "a.py"}]}', "entry 1 of `findings` can't be read"),
    ],
)
def test_a_broken_baseline_ends_the_run(text: str, reason: str) -> None:
    write("a.py", TRAIN)
    write(BASE, text)
    for option in ("--baseline", "--write-baseline"):
        result = check(option, BASE)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(f"error: {BASE}: ")
        assert reason in result.stderr
        assert Path(BASE).read_text() == text
    write("ampclip-lint.toml", f'baseline = "{BASE}"\n')
    assert check().exit_code == 2


@pytest.mark.parametrize("count", ["0", "-1", "true", "1.5", '"2"'])
def test_a_count_is_a_number_from_1(count: str) -> None:
    entry = f'{{"path": "a.py", "function": "f", "code": "AMP101", "line": "x", "count": {count}}}'
    write(BASE, f'{{"version": 1, "findings": [{entry}]}}')
    assert check("--baseline", BASE).exit_code == 2


def test_a_missing_baseline_is_an_error_that_says_how_to_get_one() -> None:
    write("a.py", GOOD)
    result = check("--baseline", "none.json")
    assert result.exit_code == 2
    assert "error: none.json: no such baseline; `--write-baseline` writes one" in result.stderr
    write("ampclip-lint.toml", 'baseline = "conf.json"\n')
    assert "error: conf.json: no such baseline" in check().stderr
    assert check("--no-baseline").exit_code == 0


def test_a_baseline_that_cannot_be_written_is_exit_code_2() -> None:
    write("a.py", TRAIN)
    result = check("--write-baseline", "no/such/base.json")
    assert result.exit_code == 2
    assert "base.json: can't be written: no such file or directory" in result.stderr


@pytest.mark.parametrize(
    "options",
    [("--baseline", BASE, "--write-baseline", BASE), ("--baseline", BASE, "--no-baseline")],
)
def test_only_one_thing_can_be_done_with_a_baseline(options: tuple[str, ...]) -> None:
    write(BASE, '{"version": 1, "findings": []}')
    result = check(*options)
    assert result.exit_code == 2
    assert "exclude each other" in result.stderr


def test_a_missing_path_is_exit_code_2_although_a_baseline_was_written() -> None:
    write("a.py", TRAIN)
    result = check("--write-baseline", BASE, "a.py", "gone.py")
    assert result.exit_code == 2
    assert len(entries()) == 1


def test_two_entries_that_say_the_same_add_up() -> None:
    write("a.py", TWICE)
    accept()
    once = {key: value for key, value in entries()[0].items() if key != "count"}
    write(BASE, json.dumps({"version": 1, "findings": [once, once]}))
    assert places() == []


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_names_that_are_not_utf_8_come_back_from_the_file() -> None:
    name = os.fsdecode(b"caf\xe9.py")
    try:
        Path(name).write_text(TRAIN)
    except OSError:
        pytest.skip("the file system does not take the name")
    accept()
    assert entries()[0]["path"] == name
    assert check("--baseline", BASE).exit_code == 0
