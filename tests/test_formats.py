"""The formats that other programs read: SARIF, GitHub's annotations, GitLab's code quality, JUnit."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import junitparser
import pytest

from ampclip_lint import __version__
from ampclip_lint.diagnostics import (
    Applicability,
    Confidence,
    Diagnostic,
    Edit,
    Fix,
    Position,
    Severity,
    Span,
    TraceStep,
)
from ampclip_lint.lint.run import RunResult, lint_paths
from ampclip_lint.report import formats
from ampclip_lint.report.text import write_lines
from ampclip_lint.syntax.source import FileProblem, SourceFile
from ampclip_rules import RULES
from test_notebook import notebook

TRAIN = """\
from torch.nn.utils import clip_grad_norm_


class Trainer:
    def fit(self, model, loader, optimizer, scaler):
        for batch in loader:
            scaler.scale(model(batch)).backward()
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
"""
#: Names that a file may have where it is allowed to.
NAMES = [
    "plain.py",
    "with blank.py",
    "100%.py",
    "a:b,c;d.py",
    "::error::x.py",
    "new\nline\r.py",
    "quo'te\"<&>.py",
    "\x1b[31mred\x07.py",
    "損失/\u202egnp.py",
    "not-utf-8-\udce9.py",
    "#frag?query.py",
]


def show(name: str, result: RunResult) -> str:
    stream = io.StringIO()
    write_lines(formats.renderer(name)(result), stream, color=False)
    return stream.getvalue()


def at(row: int, column: int, end_row: int, end_column: int, name: str = "train.py", cell: int | None = None) -> Span:
    return Span(name, Position(row, column), Position(end_row, end_column), "Trainer.fit", cell)


def finding(span: Span, *trace: TraceStep, **changes: Any) -> Diagnostic:
    made = Diagnostic(
        "AMP101", "clip-before-unscale", Severity.ERROR, Confidence.DEFINITE, "the message", span, "the effect", trace
    )
    return replace(made, **changes)


def result_of(*diagnostics: Diagnostic, **fields: Any) -> RunResult:
    return RunResult(
        diagnostics, codes=tuple(rule.code for rule in RULES), registry={rule.code: rule for rule in RULES}, **fields
    )


@pytest.fixture
def linted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str | bytes, str], RunResult]:
    """The result of a run on a file with that content and name."""
    monkeypatch.chdir(tmp_path)

    def run(content: str | bytes, name: str = "train.py") -> RunResult:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return lint_paths(".")

    return run


# --- SARIF


def sarif(result: RunResult) -> dict[str, Any]:
    """The one run of the log, after a look at the schema."""
    log = json.loads(show("sarif", result))
    validate = pytest.importorskip("sarif_kit.validate", reason="sarif-kit needs Python 3.11")
    assert validate.validation_errors(log) == []
    assert log["version"] == "2.1.0"
    assert log["$schema"] == validate.load_schema()["id"]
    (run,) = log["runs"]
    assert isinstance(run, dict)
    return run


def test_sarif_of_a_run(linted: Callable[..., RunResult]) -> None:
    run = sarif(linted(TRAIN, "src/train.py"))
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["semanticVersion"]) == ("ampclip-lint", __version__)
    assert run["columnKind"] == "unicodeCodePoints"
    assert run["originalUriBaseIds"].keys() == {"%SRCROOT%"}
    assert run["invocations"] == [{"executionSuccessful": True, "toolExecutionNotifications": []}]
    (found,) = run["results"]
    assert (found["ruleId"], found["level"]) == ("AMP101", "error")
    assert driver["rules"][found["ruleIndex"]]["id"] == "AMP101"
    assert found["message"]["text"].startswith("gradients of `optimizer` are clipped while they carry the loss scale")
    assert "Effect: the threshold M acts as M/S" in found["message"]["text"]
    (location,) = found["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "src/train.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 8, "startColumn": 13, "endLine": 8, "endColumn": 53},
    }
    assert location["logicalLocations"] == [
        {"name": "fit", "fullyQualifiedName": "Trainer.fit", "kind": "function"},
    ]
    assert found["properties"] == {"confidence": "definite"}


def test_sarif_shows_the_path_with_the_units(linted: Callable[..., RunResult]) -> None:
    (found,) = sarif(linted(TRAIN))["results"]
    ((flow,),) = [[flow["threadFlows"][0]["locations"] for flow in found["codeFlows"]]]
    rows = [step["location"]["physicalLocation"]["region"]["startLine"] for step in flow]
    assert rows == [7, 8]
    assert [step["state"] for step in flow] == [{"gradients": {"text": "unit S"}}] * 2
    assert flow[0]["location"]["message"]["text"] == "backward adds scaled gradients, unit S"
    # The finding's own place is not said twice.
    assert [(place["id"], place["message"]["text"]) for place in found["relatedLocations"]] == [
        (1, "backward adds scaled gradients, unit S")
    ]


def test_sarif_rules_carry_their_documentation() -> None:
    rules = sarif(result_of())["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == sorted(rule.code for rule in RULES)
    by_code = {rule["id"]: rule for rule in rules}
    clip = by_code["AMP101"]
    assert clip["name"] == "clip-before-unscale"
    assert clip["shortDescription"]["text"].startswith("Flags clipping of gradients")
    assert "## Use instead" in clip["help"]["markdown"]
    assert "# expect:" not in clip["help"]["text"]
    assert clip["defaultConfiguration"] == {"enabled": True, "level": "error"}
    assert clip["properties"]["problem.severity"] == "error"
    assert by_code["AMP003"]["defaultConfiguration"] == {"enabled": False, "level": "note"}
    assert by_code["AMP002"]["properties"]["tags"] == ["maintainability"]
    assert not any("Uri" in key for rule in rules for key in rule), "there is no page on the web to lead to"


def test_sarif_says_where_the_level_is_warning_or_note() -> None:
    levels = [Severity.ERROR, Severity.WARNING, Severity.INFO]
    found = [finding(at(1, 1, 1, 2), severity=severity) for severity in levels]
    assert [item["level"] for item in sarif(result_of(*found))["results"]] == ["error", "warning", "note"]


def test_sarif_without_the_rules_at_hand_still_has_those_of_the_findings() -> None:
    run = sarif(RunResult((finding(at(1, 1, 1, 2)),)))
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["AMP101"]


def test_sarif_fingerprints_survive_moved_code_and_tell_twins_apart() -> None:
    first = finding(at(3, 1, 3, 9), line_text="clip(p)")
    later, twin = replace(first, span=at(30, 1, 30, 9)), replace(first, span=at(40, 1, 40, 9))
    other = replace(first, line_text="clip(q)")

    def prints(*findings: Diagnostic) -> list[str]:
        results = sarif(result_of(*findings))["results"]
        return [item["partialFingerprints"]["primaryLocationLineHash"] for item in results]

    assert prints(first) == prints(later)
    assert prints(first)[0].endswith(":1")
    assert prints(first, twin) == [*prints(first), prints(first)[0].replace(":1", ":2")]
    assert prints(first) != prints(other)


def test_sarif_fixes_replace_regions_of_files() -> None:
    insertion = Edit(at(5, 5, 5, 5), "scaler.unscale_(optimizer)\n    ")
    deletion = Edit(at(2, 1, 3, 1), "")
    elsewhere = Edit(at(1, 1, 1, 4, "other.py"), "ü\x1b")
    fix = Fix("unscale first", (insertion, deletion, elsewhere), Applicability.UNSAFE)
    (found,) = sarif(result_of(finding(at(5, 5, 5, 9), fix=fix)))["results"]
    (shown,) = found["fixes"]
    assert shown["description"]["text"] == "unscale first"
    assert shown["properties"] == {"applicability": "unsafe"}
    train, other = shown["artifactChanges"]
    assert train["artifactLocation"]["uri"] == "train.py"
    assert [edit["deletedRegion"]["startLine"] for edit in train["replacements"]] == [2, 5]
    assert train["replacements"][1] == {
        "deletedRegion": {"startLine": 5, "startColumn": 5, "endLine": 5, "endColumn": 5},
        "insertedContent": {"text": "scaler.unscale_(optimizer)\n    "},
    }
    assert other["replacements"][0]["insertedContent"]["text"] == "ü\x1b"


def test_sarif_of_a_notebook_names_the_cell_and_the_file_s_first_line(linted: Callable[..., RunResult]) -> None:
    run = sarif(linted(notebook("import torch", TRAIN), "train.ipynb"))
    (found,) = run["results"]
    (location,) = found["locations"]
    assert location["physicalLocation"]["region"] == {"startLine": 1}
    assert location["logicalLocations"][0] == {"name": "cell 2", "fullyQualifiedName": "cell 2:8:13", "kind": "cell"}
    assert found["message"]["text"].startswith("cell 2:8:13: gradients of")
    step = found["codeFlows"][0]["threadFlows"][0]["locations"][0]
    assert step["location"]["message"]["text"].startswith("cell 2:7:13: backward adds")
    edit = Edit(replace(at(1, 1, 1, 1, "train.ipynb"), cell=2), "x")
    fix = Fix("do", (edit,), Applicability.SAFE)
    (fixed,) = sarif(result_of(finding(at(1, 1, 1, 2, "train.ipynb", 2), fix=fix)))["results"]
    assert "fixes" not in fixed, "a cell has no regions of the file"


def test_sarif_tells_what_could_not_be_done() -> None:
    problems = (FileProblem("a.py", "permission denied"), FileProblem("b.py", "internal error", internal=True))
    (unread,) = sarif(result_of(problems=problems[:1]))["invocations"]
    assert unread == {
        "executionSuccessful": True,
        "toolExecutionNotifications": [{"level": "warning", "message": {"text": "a.py: permission denied"}}],
    }
    (failed,) = sarif(result_of(problems=problems, missing=("no\x1bwhere",)))["invocations"]
    assert failed["executionSuccessful"] is False
    assert [note["level"] for note in failed["toolExecutionNotifications"]] == ["error", "warning", "error"]
    assert failed["toolExecutionNotifications"][0]["message"]["text"].startswith("no\\x1bwhere: no such file")


@pytest.mark.parametrize("name", NAMES)
def test_sarif_uris_are_the_names_percent_encoded(name: str) -> None:
    step = TraceStep(at(1, 1, 1, 4, name), "m", "S")
    (found,) = sarif(result_of(finding(at(1, 1, 1, 4, name), step)))["results"]
    location = found["locations"][0]["physicalLocation"]["artifactLocation"]
    assert unquote_to_bytes(location["uri"]) == name.encode("utf-8", "surrogateescape")
    assert re.fullmatch(r"(?:[A-Za-z0-9._~/-]|%[0-9A-F]{2})+", location["uri"])
    assert location["uriBaseId"] == "%SRCROOT%"


@pytest.mark.parametrize(
    ("name", "uri"),
    [("/tmp/a b.py", "file:///tmp/a%20b.py"), ("C:/code/a.py", "file:///C:/code/a.py"), ("../up.py", "../up.py")],
)
def test_sarif_uris_of_files_elsewhere(name: str, uri: str) -> None:
    (found,) = sarif(result_of(finding(at(1, 1, 1, 4, name))))["results"]
    location = found["locations"][0]["physicalLocation"]["artifactLocation"]
    assert location["uri"] == uri
    assert ("uriBaseId" in location) == (not uri.startswith("file:"))


# --- GitHub


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    """What the runner makes of the lines: level, properties, message. Written after its `ActionCommand.TryParse`."""
    found = []
    for line in text.splitlines():
        match = re.fullmatch(r"::(?P<level>[a-z]+) (?P<properties>.*?)::(?P<data>.*)", line)
        assert match is not None, line
        properties = dict(item.split("=", 1) for item in match["properties"].split(","))
        found.append(
            (
                match["level"],
                {key: unescaped(value, ("%3A", ":"), ("%2C", ",")) for key, value in properties.items()},
                unescaped(match["data"]),
            )
        )
    return found


def unescaped(text: str, *more: tuple[str, str]) -> str:
    for code, char in (*more, ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        text = text.replace(code, char)
    return text


def test_github_annotation_to_the_letter() -> None:
    text = show("github", result_of(finding(at(7, 9, 7, 49), message="100% of: a, b")))
    assert text == (
        "::error file=train.py,line=7,endLine=7,col=9,endColumn=49,title=AMP101 clip-before-unscale"
        "::100%25 of: a, b%0Aeffect: the effect\n"
    )


def test_github_has_columns_only_within_a_line() -> None:
    ((_, properties, _),) = commands(show("github", result_of(finding(at(7, 9, 9, 6)))))
    assert (properties["line"], properties["endLine"]) == ("7", "9")
    assert not properties.keys() & {"col", "endColumn"}


def test_github_levels() -> None:
    found = [finding(at(1, 1, 1, 2), severity=severity) for severity in Severity]
    assert [level for level, _, _ in commands(show("github", result_of(*found)))] == ["error", "warning", "notice"]


def test_github_of_a_notebook_names_the_cell_and_the_file_s_first_line() -> None:
    ((_, properties, message),) = commands(show("github", result_of(finding(at(4, 2, 4, 8, "a.ipynb", 3)))))
    assert (properties["line"], properties["endLine"], "col" in properties) == ("1", "1", False)
    assert message.startswith("cell 3:4:2: the message")


def test_github_says_what_a_fix_would_do() -> None:
    fix = Fix("unscale first", (Edit(at(1, 1, 1, 1), "x"),), Applicability.SAFE)
    ((_, _, message),) = commands(show("github", result_of(finding(at(1, 1, 1, 2), fix=fix))))
    assert message.splitlines() == ["the message", "effect: the effect", "fix: unscale first"]


@pytest.mark.parametrize("name", NAMES)
def test_github_names_and_messages_stay_what_they_are(name: str) -> None:
    text = show(
        "github", result_of(finding(at(1, 1, 1, 2, name), message=f"see {name}::warning::"), finding(at(2, 1, 2, 2)))
    )
    first, second = commands(text)
    assert second[1]["file"] == "train.py", "nothing of the first has become a line of its own"
    shown = first[1]["file"]
    assert shown.isprintable() or "\n" in shown
    if re.fullmatch(r"[ -~\r\n損失/]+", name):
        assert shown == name
    assert first[2].endswith("::warning::\neffect: the effect")


# --- GitLab


def test_gitlab_issue() -> None:
    (issue,) = json.loads(show("gitlab", result_of(finding(at(7, 9, 8, 4)))))
    assert issue == {
        "description": "AMP101 clip-before-unscale: the message",
        "check_name": "AMP101",
        "fingerprint": finding(at(7, 9, 8, 4)).fingerprint,
        "severity": "critical",
        "location": {
            "path": "train.py",
            "positions": {"begin": {"line": 7, "column": 9}, "end": {"line": 8, "column": 4}},
        },
    }


def test_gitlab_severities_are_of_its_list() -> None:
    found = [finding(at(1, 1, 1, 2), severity=severity) for severity in Severity]
    assert [issue["severity"] for issue in json.loads(show("gitlab", result_of(*found)))] == [
        "critical", "major", "info",
    ]  # fmt: skip


def test_gitlab_fingerprints_are_all_different_and_the_same_after_a_move() -> None:
    twins = [finding(at(row, 1, row, 2), line_text="clip(p)") for row in (3, 9, 12)]
    moved = [replace(twin, span=at(twin.span.start.row + 50, 1, 90, 1)) for twin in twins]

    def prints(findings: list[Diagnostic]) -> list[str]:
        return [issue["fingerprint"] for issue in json.loads(show("gitlab", result_of(*findings)))]

    assert len(set(prints(twins))) == 3
    assert prints(twins) == prints(moved)
    assert prints(twins)[:2] == prints(twins[:2])


def test_gitlab_of_a_notebook_names_the_cell_and_the_file_s_first_line() -> None:
    (issue,) = json.loads(show("gitlab", result_of(finding(at(4, 2, 4, 8, "a.ipynb", 3)))))
    assert issue["description"].endswith(": cell 3:4:2: the message")
    assert issue["location"]["positions"]["begin"] == {"line": 1, "column": 1}


# --- JUnit


def suites(result: RunResult) -> junitparser.JUnitXml:
    return junitparser.JUnitXml.fromstring(show("junit", result).encode())


def test_junit_has_a_suite_for_each_file(linted: Callable[..., RunResult]) -> None:
    linted(TRAIN.replace("            clip", "            scaler.unscale_(optimizer)\n            clip"), "src/good.py")
    read = suites(linted(TRAIN, "src/train.py"))
    assert (read.name, read.tests, read.failures, read.errors) == ("ampclip-lint", 2, 1, 0)
    good, bad = read
    assert (good.name, good.tests, good.failures) == ("src/good.py", 1, 0)
    assert (bad.name, bad.tests, bad.failures) == ("src/train.py", 1, 1)
    (passed,), (failed,) = good, bad
    assert (passed.name, passed.classname, passed.is_passed) == ("ampclip-lint", "src/good", True)
    assert (failed.name, failed.classname) == ("AMP101 clip-before-unscale", "src/train")
    (failure,) = failed.result
    assert failure.type == "error"
    assert failure.message.startswith("gradients of `optimizer` are clipped")
    assert failure.text.splitlines()[:2] == [
        f"src/train.py:8:13: {failure.message}",
        "path: src/train.py:7:13: backward adds scaled gradients, unit S",
    ]
    assert "effect: the threshold M acts as M/S" in failure.text


def test_junit_without_files_has_a_case_that_passes() -> None:
    read = suites(result_of())
    ((case,),) = read
    assert (read.tests, read.failures, case.is_passed) == (1, 0, True)


def test_junit_shows_what_could_not_be_read_as_errors() -> None:
    read = suites(result_of(problems=(FileProblem("a.py", "permission denied"),), missing=("gone.py",)))
    assert (read.tests, read.failures, read.errors) == (2, 0, 2)
    assert {suite.name: next(iter(suite)).result[0].message for suite in read} == {
        "a.py": "permission denied",
        "gone.py": "no such file or directory",
    }


def test_junit_of_a_notebook_has_the_cell_and_no_line() -> None:
    text = show("junit", result_of(finding(at(4, 2, 4, 8, "a.ipynb", 3))))
    assert " line=" not in text
    assert 'message="cell 3:4:2: the message"' in text
    assert ">a.ipynb:cell 3:4:2: the message" in text


def test_junit_has_no_character_that_xml_forbids() -> None:
    forbidden = "".join(map(chr, range(32))) + "\x7f\x80\ufffe\uffff\udc80]]>&\"'<!--"
    step = TraceStep(at(1, 1, 1, 2, forbidden), forbidden, forbidden)
    diagnostic = finding(at(1, 1, 1, 2, forbidden), step, message=forbidden, effect=forbidden)
    result = result_of(diagnostic, problems=(FileProblem(forbidden, forbidden),), missing=(forbidden,))
    read = suites(replace(result, sources={forbidden: SourceFile(forbidden, None, "")}))
    (suite,) = read
    failed = next(case for case in suite if case.result and isinstance(case.result[0], junitparser.Failure))
    assert "\\x00\\x01" in failed.result[0].message
    assert "]]>&\"'<!--" in failed.result[0].text
    assert (read.failures, read.errors) == (1, 2)


# --- all of them


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("format_name", formats.FORMATS)
def test_no_file_name_acts_on_a_terminal_or_breaks_a_line(format_name: str, name: str) -> None:
    plain, odd = (
        show(format_name, result_of(finding(at(1, 1, 1, 4, file), TraceStep(at(1, 1, 1, 4, file), "m", "S"))))
        for file in ("train.py", name)
    )
    assert len(odd.splitlines()) == len(plain.splitlines())
    assert all(line.isprintable() for line in odd.split("\n"))
    assert format_name == "github" or not any(line.lstrip().startswith("::") for line in odd.splitlines())
    odd.encode("utf-8")
