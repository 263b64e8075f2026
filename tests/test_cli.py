"""The command line: options, exit codes, what goes to which stream. The analysis behind it is a stub."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tokenize
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ampclip_lint import __version__
from ampclip_lint.cli import FORMATS, main
from ampclip_lint.lint import registry
from ampclip_lint.report import formats

ROOT = Path(__file__).resolve().parent.parent

BAD = """\
from torch.nn.utils import clip_grad_norm_


def fit(model, loader, optimizer, scaler):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""
GOOD = BAD.replace("        clip", "        scaler.unscale_(optimizer)\n        clip")
BROKEN = "scaler.unscale_((optimizer)\n"

pytestmark = pytest.mark.usefixtures("stub")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    result = CliRunner().invoke(main, list(arguments), input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def write(name: str, text: str | bytes) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def codes(result: Result) -> list[tuple[str, str]]:
    """(file, code) of every finding of a concise report."""
    lines = result.stdout.splitlines()
    return [(line.split(":")[0], line.split(": ")[1].split()[0]) for line in lines]


def check(*arguments: str) -> Result:
    return run("check", "--output-format", "concise", *arguments)


# --- streams and exit codes


def test_findings_go_to_stdout_and_the_summary_to_stderr() -> None:
    write("train.py", BAD)
    result = check()
    assert result.exit_code == 1
    assert result.stdout == (
        "train.py:7:9: AMP101 clip-before-unscale [error] "
        "gradients of `optimizer` are clipped while they carry the loss scale of `scaler`\n"
    )
    assert result.stderr == "Found 1 error (1 file read, 1 analysed).\n"


def test_a_clean_run_is_silent_on_stdout() -> None:
    write("train.py", GOOD)
    write("other.py", "x = 1\n")
    result = check()
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "No findings (2 files read, 1 analysed).\n"


def test_without_files_there_is_a_warning() -> None:
    result = check()
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no Python files found" in result.stderr


def test_a_missing_path_is_exit_code_2_and_the_others_are_still_checked() -> None:
    write("train.py", BAD)
    result = check("nowhere.py", "train.py")
    assert result.exit_code == 2
    assert codes(result) == [("train.py", "AMP101")]
    assert "error: nowhere.py: no such file or directory" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), 1),
        (("--fail-on", "error"), 1),
        (("--fail-on", "info"), 1),
        (("--fail-on", "never"), 0),
        (("--exit-zero",), 0),
        (("--ignore", "AMP101"), 0),
    ],
)
def test_exit_code_of_an_error(arguments: tuple[str, ...], code: int) -> None:
    write("train.py", BAD)
    assert check(*arguments).exit_code == code


def test_exit_zero_does_not_hide_wrong_usage() -> None:
    assert check("--exit-zero", "nowhere.py").exit_code == 2
    assert check("--no-such-option").exit_code == 2


# --- bad input


def test_a_broken_file_is_a_finding_and_the_others_are_checked() -> None:
    write("a_broken.py", BROKEN)
    write("train.py", BAD)
    result = check()
    assert codes(result) == [("a_broken.py", "AMP001"), ("train.py", "AMP101")]
    assert result.exit_code == 1


def test_a_broken_file_without_a_scaler_is_nobody_s_business() -> None:
    write("template.py", "def {{ name }}(:\n")
    assert (check().exit_code, check().stdout) == (0, "")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"x = '\xe9'\n", "not valid utf-8 at byte 5"),
        (b"\xff\xfex\x00\n\x00", "not valid utf-8 at byte 0 (it looks like utf-16)"),
        (b"x = '\x00'\n", "null byte at byte 5"),
        (b"# coding: nonsense\nscaler.unscale_(o)\n", "unknown encoding: nonsense"),
    ],
)
def test_undecodable_files_are_named_and_skipped(content: bytes, reason: str) -> None:
    write("bad.py", content)
    write("train.py", BAD)
    result = check()
    assert result.exit_code == 1
    assert codes(result) == [("train.py", "AMP101")]
    assert f"warning: bad.py: {reason}" in result.stderr


def test_unreadable_files_are_named_and_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    write("secret.py", BAD)
    write("train.py", BAD)
    opened = os.open

    def refuse(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if Path(path).name == "secret.py":
            raise PermissionError(13, "Permission denied")
        return opened(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", refuse)
    result = check()
    assert result.exit_code == 1
    assert codes(result) == [("train.py", "AMP101")]
    assert "warning: secret.py: permission denied" in result.stderr


def test_no_rules_is_an_error_and_not_a_clean_report(monkeypatch: pytest.MonkeyPatch) -> None:
    write("train.py", BAD)
    monkeypatch.setattr(registry, "entry_points", list)
    registry.load_rules.cache_clear()
    try:
        result = check()
    finally:
        registry.load_rules.cache_clear()
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no rules are installed" in result.stderr
    assert "pip install -e ." in result.stderr


def test_a_crash_of_the_analysis_costs_only_its_file_and_is_exit_code_2() -> None:
    write("a.py", BAD + "# stub: crash\n")
    write("b.py", BAD)
    result = check()
    assert result.exit_code == 2
    assert codes(result) == [("b.py", "AMP101")]
    assert "error: a.py: internal error in analysis: ValueError: the stub was asked to crash" in result.stderr


# --- standard input and output


def test_stdin_with_a_name() -> None:
    result = run("check", "--output-format", "concise", "--stdin-filename", "pkg/train.py", "-", stdin=BAD)
    assert codes(result) == [("pkg/train.py", "AMP101")]
    assert result.exit_code == 1


def test_stdin_without_a_name() -> None:
    assert codes(run("check", "--output-format", "concise", "-", stdin=BAD)) == [("<stdin>", "AMP101")]


def test_the_output_file_is_replaced_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    write("train.py", BAD)
    write("report.json", "old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    result = run("check", "--output-format", "json", "--output-file", "report.json")
    assert result.exit_code == 2
    assert "report.json: can't be written: no space left on device" in result.stderr
    assert Path("report.json").read_text() == "old"
    assert sorted(os.listdir()) == ["report.json", "train.py"]


@pytest.mark.parametrize("name", FORMATS)
def test_an_output_file_has_what_would_have_been_printed(name: str) -> None:
    write("train.py", BAD)
    printed = run("check", "--output-format", name).stdout
    result = run("check", "--output-format", name, "--output-file", "report", "--color", "always")
    assert (result.exit_code, result.stdout) == (1, "")
    assert Path("report").read_bytes().decode() == printed


def test_output_file_takes_the_findings() -> None:
    write("train.py", BAD)
    result = check("--output-file", "report.txt")
    assert (result.exit_code, result.stdout) == (1, "")
    assert Path("report.txt").read_text().startswith("train.py:7:9: AMP101")


def test_an_output_file_that_cannot_be_written_is_exit_code_2() -> None:
    write("train.py", BAD)
    result = check("--output-file", "no/such/folder/report.txt")
    assert result.exit_code == 2
    assert "can't be written" in result.stderr


def test_reports_in_other_formats_are_written_beside_the_one_that_is_printed() -> None:
    write("train.py", BAD)
    printed = {
        name: run("check", "--quiet", "--output-format", name).stdout for name in ("github", "gitlab", "concise")
    }
    result = run(
        "check", "--output-format", "github", "--report", "gitlab=out.json", "--report", "concise=a=b.txt", "--quiet"
    )
    assert (result.exit_code, result.stdout) == (1, printed["github"])
    assert Path("out.json").read_text() == printed["gitlab"]
    assert Path("a=b.txt").read_text() == printed["concise"]


def test_a_report_is_written_where_there_is_nothing_to_find() -> None:
    write("plain.py", "x = 1\n")
    assert run("check", "--report", "json=out.json", "plain.py").exit_code == 0
    assert Path("out.json").read_text() == "[]\n"


@pytest.mark.parametrize("value", ["json", "json=", "=x", "xml=x"])
def test_a_report_needs_a_format_and_a_file(value: str) -> None:
    result = run("check", "--report", value)
    assert result.exit_code == 2
    assert f"`{value}` is no FORMAT=FILE; formats are full, concise, json" in result.stderr
    assert os.listdir() == []


def test_a_report_that_cannot_be_written_is_exit_code_2() -> None:
    write("train.py", BAD)
    result = check("--report", "json=no/such/folder/x.json")
    assert result.exit_code == 2
    assert "can't be written" in result.stderr


def test_quiet_keeps_problems_and_drops_the_summary() -> None:
    write("train.py", BAD)
    write("bad.py", b"\xe9")
    assert check("--quiet").stderr == "warning: bad.py: not valid utf-8 at byte 0\n"


def test_verbose_tells_what_was_analysed() -> None:
    write("train.py", BAD + "# later\n")
    assert "analysed train.py" in check("--verbose").stderr


def test_statistics_go_to_stderr() -> None:
    write("a.py", BAD)
    write("b.py", BAD)
    result = check("--statistics")
    assert "2  AMP101  clip-before-unscale\n" in result.stderr
    assert len(codes(result)) == 2


def test_show_files_lists_and_checks_nothing() -> None:
    write("b.py", BAD)
    write("a/x.py", "")
    write("a/build/y.py", "")
    result = run("check", "--show-files")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "b.py\na/x.py\n", "")
    assert run("check", "--show-files", "nowhere").exit_code == 2


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_no_file_name_is_a_command_to_the_runner_of_github() -> None:
    write("::stop-commands::x.py", BAD)
    assert run("check", "--show-files").stdout == "./::stop-commands::x.py\n"
    assert check().stdout.startswith("./::stop-commands::x.py:7:9: AMP101")


# --- selection


def test_possible_findings_are_shown_on_request() -> None:
    write("train.py", BAD.replace("1.0)", "1.0)  # stub: possible"))
    assert (check().exit_code, check().stdout) == (0, "")
    pedantic = check("--pedantic")
    assert pedantic.exit_code == 1
    assert "[error, possible]" in pedantic.stdout


def test_incomplete_functions_are_counted_and_shown_on_request_and_never_fail() -> None:
    write("train.py", GOOD + "pass  # stub: gap\n")
    result = check()
    assert (result.exit_code, result.stdout) == (0, "")
    assert "1 function was analysed incompletely; --extend-select AMP003 shows where." in result.stderr
    selected = check("--select", "AMP003", "--fail-on", "info")
    assert codes(selected) == [("train.py", "AMP003")]
    assert selected.exit_code == 0
    assert "1 function was analysed incompletely" in selected.stderr


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("--select", "AMP101"), ["AMP101"]),
        (("--select", "clip-before-unscale"), ["AMP101"]),
        (("--select", "AMP1"), ["AMP101"]),
        (("--select", "amp201,AMP1"), ["AMP101"]),
        (("--select", "AMP201"), []),
        (("--select", "AMP201", "--extend-select", "AMP101"), ["AMP101"]),
        (("--select", "ALL", "--ignore", "AMP1"), []),
        (("--ignore", "AMP1", "--extend-select", "AMP101"), ["AMP101"]),
        (("--select", "AMP1", "--ignore", "AMP101"), []),
    ],
)
def test_selection(arguments: tuple[str, ...], found: list[str]) -> None:
    write("train.py", BAD)
    assert [code for _, code in codes(check(*arguments))] == found


@pytest.mark.parametrize(
    ("word", "hint"), [("AMP11", "AMP101"), ("clip-befor-unscale", "clip-before-unscale"), ("Z", "")]
)
def test_unknown_codes_are_errors_that_name_the_nearest(word: str, hint: str) -> None:
    for option in ("--select", "--extend-select", "--ignore"):
        result = check(option, word)
        assert result.exit_code == 2
        assert f"no rule `{word}`" in result.stderr
        assert hint in result.stderr


def test_suppressions_are_counted() -> None:
    write("train.py", BAD.replace("1.0)", "1.0)  # ampclip: ignore[AMP101] S is 1 here"))
    result = check("--verbose")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "1 finding suppressed by comments." in result.stderr


def test_a_suppression_without_a_code_silences_nothing_and_is_named() -> None:
    write("train.py", BAD.replace("1.0)", "1.0)  # ampclip: ignore"))
    result = check()
    assert codes(result) == [("train.py", "AMP101")]
    assert "warning: train.py:7: `ampclip: ignore` needs a code" in result.stderr


def test_an_unused_suppression_is_a_warning_at_its_code() -> None:
    write("train.py", GOOD.replace("1.0)", "1.0)  # ampclip: ignore[AMP101] later"))
    result = check()
    assert result.exit_code == 1
    assert result.stdout == (
        "train.py:8:69: AMP002 unused-suppression [warning] `AMP101` is suppressed, but is not reported on this line\n"
    )
    assert result.stderr == "Found 1 warning (1 file read, 1 analysed).\n"
    assert check("--fail-on", "error").exit_code == 0
    assert check("--ignore", "AMP002").stdout == ""
    assert check("--select", "AMP201,AMP002").stdout == ""


def test_unused_suppressions_in_json() -> None:
    write(
        "train.py",
        BAD.replace("1.0)", "1.0)  # noqa: E501, AMP102, AMP101") + "# ampclip: ignore-file[AMP201,AMP999]\n",
    )
    findings = json.loads(run("check", "--output-format", "json").stdout)
    assert [(finding["location"], finding["end_location"], finding["message"]) for finding in findings] == [
        (
            {"row": 7, "column": 65},
            {"row": 7, "column": 71},
            "`AMP102` is suppressed, but is not reported on this line",
        ),
        (
            {"row": 10, "column": 24},
            {"row": 10, "column": 30},
            "`AMP201` is suppressed, but is not reported in this file",
        ),
        ({"row": 10, "column": 31}, {"row": 10, "column": 37}, "no such rule: `AMP999`"),
    ]
    first = findings[0]
    assert (first["code"], first["name"], first["severity"]) == ("AMP002", "unused-suppression", "warning")
    assert (first["confidence"], first["function"], first["trace"]) == ("definite", None, [])
    assert first["fix"]["message"] == "remove `AMP102`"
    assert first["url"] == "docs/rules/unused-suppression.md"


def test_suppressions_in_files_without_a_scaler_are_judged_too() -> None:
    write("a.py", "x = 1  # ampclip: ignore[AMP101]\n")
    write("b.py", "import torch.optim  # noqa: F401\n")
    write("c.py", b"# coding: latin-1\ny = '\xe4'  # noqa: amp101\n")
    write("sub/d.py", "x = 1  # noqa: AMP101\n")
    write("sub/ampclip-lint.toml", 'ignore = ["AMP002"]\n')
    result = check()
    assert codes(result) == [("a.py", "AMP002"), ("c.py", "AMP002")]
    assert result.stderr == "Found 2 warnings (4 files read, 0 analysed).\n"
    shown = run("check", "c.py").stdout
    assert "2 | y = 'ä'  # noqa: amp101\n" in shown
    assert "^^^^^^\n" in shown


def test_only_files_that_may_hold_suppressions_are_tokenized(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def tokens(readline: Callable[[], str]) -> Iterator[tokenize.TokenInfo]:
        read.append(readline())
        return iter(())

    monkeypatch.setattr(tokenize, "generate_tokens", tokens)
    write("a.py", "x = 1  # noqa: E501\n")
    write("b.py", "ampclip = 'noqa'  # noqa\n")
    write("c.py", "x = 1  # noqa: AMP101\n")
    write("d.py", GOOD)
    write("e.py", GOOD.replace("\n", "  # noqa: E501\n", 1))
    check()
    assert read == ["x = 1  # noqa: AMP101\n"]
    read.clear()
    check("--ignore", "AMP002")
    assert read == []


def test_a_suppression_of_the_rule_itself() -> None:
    write("a.py", "x = 1  # ampclip: ignore[AMP101, AMP002]\n")
    write("b.py", "# ampclip: ignore-file[AMP002]\nx = 1  # noqa: AMP101\n")
    result = check("--verbose")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "2 findings suppressed by comments." in result.stderr


def test_after_a_crash_no_suppression_is_called_unused() -> None:
    write("a.py", BAD + "# stub: crash\n")
    write("b.py", GOOD + "# ampclip: ignore-file[AMP101, AMP999]\n")
    result = check()
    assert result.exit_code == 2
    assert "no such rule: `AMP999`" in result.stdout
    assert "AMP101" not in result.stdout


# --- formats


def test_the_table_of_formats_is_the_option_s() -> None:
    assert tuple(formats.FORMATS) == FORMATS


def test_json_keys_and_order() -> None:
    write("train.py", BAD)
    result = run("check", "--output-format", "json")
    (finding,) = json.loads(result.stdout)
    assert list(finding) == [
        "code", "name", "severity", "confidence", "message", "filename", "cell", "function",
        "location", "end_location", "trace", "fix", "url", "fingerprint",
    ]  # fmt: skip
    assert finding["location"] == {"row": 7, "column": 9}
    assert finding["end_location"] == {"row": 7, "column": 49}
    assert list(finding["trace"][0]) == ["filename", "cell", "location", "message", "unit"]
    assert finding["trace"][0]["unit"] == "S"
    assert finding["url"] == "docs/rules/clip-before-unscale.md"
    assert (finding["cell"], finding["function"]) == (None, "fit")
    assert list(finding["fix"]) == ["applicability", "message", "edits"]


def test_json_without_findings_is_an_empty_array() -> None:
    assert json.loads(run("check", "--output-format", "json").stdout) == []


def test_jsonl_is_the_same_line_by_line() -> None:
    write("a.py", BAD)
    write("b.py", BAD)
    lines = run("check", "--output-format", "jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines] == json.loads(run("check", "--output-format", "json").stdout)


# --- colour


def test_piped_output_has_no_escape_codes() -> None:
    write("train.py", BAD)
    assert "\x1b" not in run("check").stdout + run("check").stderr


def test_colour_on_request_changes_nothing_but_the_style(monkeypatch: pytest.MonkeyPatch) -> None:
    import re

    write("train.py", BAD)
    monkeypatch.setenv("TERM", "xterm")
    colored = run("check", "--color", "always").stdout
    assert "\x1b[" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == run("check").stdout


def test_no_color_beats_a_terminal_but_not_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    write("train.py", BAD)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in run("check").stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run("check").stdout


def test_machine_formats_are_never_coloured() -> None:
    write("train.py", BAD)
    for name in set(FORMATS) - formats.HUMAN:
        assert "\x1b" not in run("check", "--color", "always", "--output-format", name).stdout


# --- configuration


def test_nearest_configuration_of_each_file() -> None:
    write("pyproject.toml", '[tool.ampclip-lint]\nignore = ["AMP101"]\n')
    write("a.py", BAD)
    write("sub/ampclip-lint.toml", 'select = ["AMP101"]\n')
    write("sub/deep/b.py", BAD)
    write("other/pyproject.toml", "[tool.black]\n")
    write("other/c.py", BAD)
    assert codes(check()) == [("sub/deep/b.py", "AMP101")]
    assert [file for file, _ in codes(check("--isolated"))] == ["a.py", "other/c.py", "sub/deep/b.py"]


def test_the_command_line_beats_the_configuration() -> None:
    write("ampclip-lint.toml", 'ignore = ["AMP101"]\nfail-on = "never"\n')
    write("train.py", BAD)
    assert check("--select", "AMP101").exit_code == 0
    assert check("--extend-select", "AMP101", "--fail-on", "error").exit_code == 1


def test_a_named_configuration_is_the_only_one() -> None:
    write("conf/mine.toml", 'ignore = ["AMP1"]\n')
    write("ampclip-lint.toml", 'select = ["AMP101"]\n')
    write("train.py", BAD)
    assert codes(check("--config", "conf/mine.toml")) == []
    assert check("--config", "conf/mine.toml", "--isolated").exit_code == 2
    missing = check("--config", "conf/none.toml")
    assert missing.exit_code == 2
    assert "conf/none.toml: can't be read" in missing.stderr


def test_per_file_ignores() -> None:
    write("ampclip-lint.toml", '[per-file-ignores]\n"legacy/*" = ["AMP1"]\n')
    write("legacy/a.py", BAD)
    write("b.py", BAD)
    assert codes(check()) == [("b.py", "AMP101")]


def test_what_is_named_is_read_unless_excludes_are_forced() -> None:
    write("ampclip-lint.toml", 'extend-exclude = ["gen/"]\n')
    write("gen/deep/a.py", BAD)
    write("b.py", BAD)
    assert codes(check("gen/deep/a.py", "b.py")) == [("b.py", "AMP101"), ("gen/deep/a.py", "AMP101")]
    assert codes(check("--force-exclude", "gen/deep/a.py", "b.py")) == [("b.py", "AMP101")]
    forced = ("check", "--force-exclude", "--output-format", "concise", "--stdin-filename")
    assert codes(run(*forced, "b.py", "-", stdin=BAD)) == [("b.py", "AMP101")]
    left_out = run(*forced, "gen/deep/a.py", "-", stdin=BAD)
    assert (left_out.exit_code, left_out.stdout) == (0, "")


def test_excludes_of_the_configuration_and_the_command_line() -> None:
    write("ampclip-lint.toml", 'extend-exclude = ["old_*.py", "/vendor/"]\n')
    for name in ("old_a.py", "vendor/b.py", "src/vendor/c.py", "d.py"):
        write(name, BAD)
    assert [file for file, _ in codes(check())] == ["d.py", "src/vendor/c.py"]
    assert [file for file, _ in codes(check("--extend-exclude", "d.py"))] == ["src/vendor/c.py"]
    assert [file for file, _ in codes(check("--exclude", "src"))] == ["d.py"]
    # A file that is named is taken.
    assert codes(check("old_a.py")) == [("old_a.py", "AMP101")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('selct = ["AMP101"]', "unknown key `selct`; did you mean `select`?"),
        ('fail_on = "error"', "unknown key `fail_on`; did you mean `fail-on`?"),
        ('fail-on = "errors"', "`fail-on` is none of error, warning, info, never: 'errors'"),
        ('select = "AMP101"', "`select` is not a list of strings"),
        ('ignore = ["AMP11"]', "`ignore`: no rule `AMP11`"),
        ("per-file-ignores = 3", "`per-file-ignores` is not a table"),
        ("select = [", "not valid TOML"),
    ],
)
def test_wrong_configuration_is_exit_code_2(text: str, message: str) -> None:
    write("ampclip-lint.toml", text)
    write("train.py", BAD)
    result = check()
    assert (result.exit_code, result.stdout) == (2, "")
    assert "ampclip-lint.toml: " in result.stderr
    assert message in result.stderr
    assert check("--isolated").exit_code == 1


def test_fail_on_of_the_file_that_has_the_finding() -> None:
    write("strict/ampclip-lint.toml", 'fail-on = "error"\n')
    write("lax/ampclip-lint.toml", 'fail-on = "never"\n')
    write("lax/a.py", BAD)
    assert check().exit_code == 0
    write("strict/b.py", BAD)
    assert check().exit_code == 1


# --- the other commands


def test_explain_by_code_and_by_name() -> None:
    by_code = run("explain", "amp101")
    assert by_code.exit_code == 0
    assert by_code.stdout.startswith("# clip-before-unscale (AMP101)\n")
    assert "## Why is this bad?" in by_code.stdout
    assert "# expect:" not in by_code.stdout
    assert run("explain", "clip-before-unscale").stdout == by_code.stdout


def test_explain_of_an_unknown_code_names_the_nearest() -> None:
    result = run("explain", "AMP111")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no rule `AMP111`; did you mean `AMP101`?" in result.stderr


def test_rules_lists_every_rule() -> None:
    lines = run("rules").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(registry.load_rules())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("columns", "arguments"), [(80, ("rules",)), (110, ("rules",)), (100, ("check", "train.py"))])
def test_long_lines_are_broken_for_a_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: int, arguments: tuple[str, ...]
) -> None:
    write("train.py", BAD)
    piped, terminal = run(*arguments).stdout, Terminal()
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stdout", terminal)
    with pytest.raises(SystemExit):
        main([*arguments, "--color", "never"])
    shown = terminal.getvalue()
    assert max(map(len, shown.splitlines())) <= columns < max(map(len, piped.splitlines()))
    assert shown.split() == piped.split()


def test_version() -> None:
    assert run("--version").stdout == f"ampclip-lint {__version__}\n"


@pytest.fixture
def explain_module(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("ampclip_lint.amp.explain")
    module.trace_text = lambda files, function, models, *, width: f"trace {files[0].name} {function}\x1b\n"  # type: ignore[attr-defined]
    module.graph_text = lambda files, function, models, *, dot: f"graph {function} {dot}\n"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ampclip_lint.amp.explain", module)


FUNCTIONS = "class Trainer:\n    def fit(self):\n        def inner(): ...\n    def save(self): ...\ndef main(): ...\n"


@pytest.mark.usefixtures("explain_module")
@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("t.py", "None"),
        ("t.py::main", "main"),
        ("t.py::Trainer.fit", "Trainer.fit"),
        ("t.py::fit", "Trainer.fit"),
        ("t.py::Trainer.fit.inner", "Trainer.fit.inner"),
        ("t.py::Trainer.fit.<locals>.inner", "Trainer.fit.inner"),
    ],
)
def test_trace_finds_the_function(target: str, name: str) -> None:
    write("t.py", FUNCTIONS)
    result = run("trace", target)
    assert (result.exit_code, result.stdout) == (0, f"trace t.py {name}\\x1b\n")


@pytest.mark.usefixtures("explain_module")
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("t.py::fitt", "no function `fitt`; did you mean `Trainer.fit`?"),
        ("t.py::xyz", "no function `xyz`; there are `Trainer.fit`"),
        ("none.py::fit", "none.py: no such file"),
        ("broken.py", "broken.py: not valid Python: '(' was never closed (line 1)"),
    ],
)
def test_trace_of_what_is_not_there_is_exit_code_2(target: str, message: str) -> None:
    write("t.py", FUNCTIONS)
    write("broken.py", "f((\n")
    result = run("trace", target)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


@pytest.mark.usefixtures("explain_module")
def test_graph() -> None:
    write("t.py", FUNCTIONS)
    assert run("graph", "t.py::main").stdout == "graph main False\n"
    assert run("graph", "--dot", "t.py::main").stdout == "graph main True\n"
    assert run("graph", "t.py").exit_code == 2


# --- completion


def completed(line: str) -> list[str]:
    """What the shell offers behind the line, by way of what its script asks for."""
    environment = {
        "_AMPCLIP_LINT_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    }
    result = CliRunner().invoke(main, [], prog_name="ampclip-lint", env=environment)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_the_shell_completes_commands_options_and_rules() -> None:
    assert completed("ampclip-lint che") == ["plain,check"]
    assert completed("ampclip-lint check --output-format s") == ["plain,sarif"]
    assert completed("ampclip-lint check --report s") == ["plain,sarif="]
    assert completed("ampclip-lint check --write-b") == ["plain,--write-baseline"]
    assert completed("ampclip-lint explain amp30") == [
        f"plain,{code}" for code in registry.load_rules() if code.startswith("AMP30")
    ]
    assert completed("ampclip-lint explain clip-before-u") == ["plain,clip-before-unscale"]
    assert completed("ampclip-lint check --ignore AMP2,amp101") == ["plain,AMP2,AMP101"]
    assert completed("ampclip-lint check src/tr") == ["file,src/tr"], "the shell knows its files itself"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    environment = {"_AMPCLIP_LINT_COMPLETE": f"{shell}_source"}
    result = CliRunner().invoke(main, [], prog_name="ampclip-lint", env=environment)
    assert result.exit_code == 0
    assert f"_AMPCLIP_LINT_COMPLETE={shell}_complete" in result.stdout


# --- what is imported


def imported_by(*arguments: str, stderr: int = subprocess.PIPE) -> set[str]:
    """The modules that a run of the command loads, in a process of its own."""
    program = (
        "import sys\n"
        "from ampclip_lint.lint import registry\n"
        "registry.entry_points = lambda: [('builtin', 'ampclip_rules:RULES')]\n"
        "from ampclip_lint.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit:\n    pass\n"
        "print('\\n'.join(sys.modules))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "rules")])}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env=environment,
        check=True,
    )
    return set(done.stdout.split())


def test_a_file_that_cannot_matter_loads_nothing_heavy() -> None:
    write("plain.py", "x = 1\n")
    loaded = imported_by("check", "plain.py")
    assert "ampclip_lint.lint.run" not in loaded
    assert not loaded & {"libcst", "nbformat", "rich", "torch", "numpy", "pathspec"}


def test_suppressions_alone_load_nothing_heavy() -> None:
    write("plain.py", "x = 1  # noqa: AMP101\n")
    assert not imported_by("check", "plain.py") & {"libcst", "nbformat", "rich", "torch", "numpy", "pathspec"}


def test_help_and_version_load_only_click() -> None:
    assert not imported_by("--version") & {"libcst", "rich", "ampclip_lint.lint.run"}
