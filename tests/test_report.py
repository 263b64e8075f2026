"""What findings look like: frames, underlines, paths, and that a file's content can't act on the terminal."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from ampclip_lint.diagnostics import Confidence, Diagnostic, Position, Severity, Span, TraceStep
from ampclip_lint.lint.run import RunResult
from ampclip_lint.report import formats, summary
from ampclip_lint.report.text import Line, clean, expand, plain, write_lines
from ampclip_lint.syntax.source import FileProblem, SourceFile

TEXT = """\
import torch

def fit(model, scaler, optimizer, loss):
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(
        model.parameters(),
        max_norm=1.0,
    )
    scaler.step(optimizer)
"""


def span(row: int, column: int, end_row: int, end_column: int, filename: str = "train.py") -> Span:
    return Span(filename, Position(row, column), Position(end_row, end_column), "fit")


def finding(at: Span, *trace: TraceStep, effect: str | None = "the effect") -> Diagnostic:
    return Diagnostic(
        "AMP101",
        "clip-before-unscale",
        Severity.ERROR,
        Confidence.DEFINITE,
        "the message",
        at,
        effect,
        trace,
        "docs/rules/clip-before-unscale.md",
    )


def show(diagnostic: Diagnostic, *sources: SourceFile, name: str = "full") -> str:
    result = RunResult((diagnostic,), sources={source.name: source for source in sources})
    return written(list(formats.renderer(name)(result)))


def written(lines: list[Line]) -> str:
    stream = io.StringIO()
    write_lines(lines, stream, color=False)
    return stream.getvalue()


def source(text: str = TEXT, name: str = "train.py") -> SourceFile:
    return SourceFile(name, None, text)


def test_full_report_of_a_call_over_several_lines() -> None:
    scaled = TraceStep(span(4, 5, 4, 34), "scaled gradients are added", "S")
    clipped = TraceStep(span(5, 5, 8, 6), "clipped here", "S")
    assert (
        show(finding(span(5, 5, 8, 6), scaled, clipped), source())
        == """\
train.py:5:5: AMP101 clip-before-unscale [error] the message
  |
3 | def fit(model, scaler, optimizer, loss):
4 |     scaler.scale(loss).backward()
5 |     torch.nn.utils.clip_grad_norm_(
  |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
6 |         model.parameters(),
  |         ^^^^^^^^^^^^^^^^^^^
7 |         max_norm=1.0,
  |         ^^^^^^^^^^^^^
8 |     )
  |     ^
9 |     scaler.step(optimizer)
  |
  = path: 4 | scaler.scale(loss).backward()    scaled gradients are added, unit S
          5 | torch.nn.utils.clip_grad_norm_(  clipped here, unit S
  = effect: the effect
  = help: ampclip-lint explain AMP101
"""
    )


def test_path_through_another_file_and_without_units() -> None:
    helper = SourceFile("helpers.py", None, "def clip(p):\n    norm(p)\n")
    step = TraceStep(span(2, 5, 2, 12, "helpers.py"), "called from here")
    shown = show(finding(span(9, 5, 9, 27), step, effect=None), source(), helper)
    assert "  = path: helpers.py:2 | norm(p)  called from here\n" in shown
    assert "effect:" not in shown


def test_the_frame_keeps_to_the_file_and_drops_empty_lines_at_its_edges() -> None:
    shown = show(finding(span(2, 1, 2, 8)), source("\nclip(p)\n\n"))
    assert shown.splitlines()[1:5] == ["  |", "2 | clip(p)", "  | ^^^^^^^", "  |"]


def test_a_row_that_is_not_shown_takes_no_room() -> None:
    shown = show(finding(span(9, 5, 9, 27)), source()).splitlines()
    assert shown[1:6] == [
        "  |",
        "7 |         max_norm=1.0,",
        "8 |     )",
        "9 |     scaler.step(optimizer)",
        "  |     " + "^" * 22,
    ]


def test_row_numbers_are_aligned() -> None:
    text = "\n" * 8 + "a()\nb()\nc()\n"
    shown = show(finding(span(10, 1, 10, 4)), source(text))
    assert shown.splitlines()[1:6] == ["   |", " 9 | a()", "10 | b()", "   | ^^^", "11 | c()"]


def test_the_middle_of_a_long_span_is_left_out() -> None:
    text = "f(\n" + "    x,\n" * 30 + ")\n"
    lines = show(finding(span(1, 1, 32, 2)), source(text)).splitlines()
    assert len(lines) < 30
    assert [line for line in lines if line.endswith(". |")] == [".. |"]


def test_underline_counts_cells_not_characters() -> None:
    # A tab, a wide character, a combining accent: before the span and inside it.
    shown = show(finding(span(1, 6, 1, 11)), source("\t损e\u0301=clip_\n")).splitlines()
    assert shown[2] == "1 |     损e\u0301=clip_"
    assert shown[3] == "  |         ^^^^^"
    assert expand("ab\tc", 4) == ("ab  c", 4)


def test_a_span_without_width_has_one_mark() -> None:
    assert "  |   ^\n" in show(finding(span(1, 3, 1, 3)), source("f()\n"))


def test_without_the_source_there_is_no_frame() -> None:
    assert show(finding(span(5, 5, 5, 6))).splitlines()[1] == "  = effect: the effect"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\x9bb\x7f", "a\\x9bb\\x7f"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("line\u2028break", "line\\u2028break"),
        ("lone \udc80", "lone \\udc80"),
        ("ok\té", "ok\té"),
        ("\U000e0001", "\\U000e0001"),
    ],
)
def test_what_acts_on_a_terminal_is_escaped(text: str, shown: str) -> None:
    assert clean(text) == shown


@pytest.mark.parametrize("name", formats.FORMATS)
def test_no_format_lets_control_characters_through(name: str) -> None:
    evil = "\x1b]0;title\x07"
    text = f"f('{evil}')  # \u202e\n"
    diagnostic = replace(finding(span(1, 1, 1, 4, evil)), message=evil, effect=evil)
    step = TraceStep(span(1, 1, 1, 4, evil), evil, evil)
    shown = show(replace(diagnostic, trace=(step,)), source(text, evil), name=name)
    assert not any(char in shown for char in "\x1b\x07\u202e")


def test_every_format_of_nothing_is_empty_or_an_empty_list() -> None:
    for name in ("full", "concise", "jsonl", "github"):
        assert written(list(formats.renderer(name)(RunResult()))) == ""
    for name in ("json", "gitlab"):
        assert written(list(formats.renderer(name)(RunResult()))) == "[]\n"


# --- on a terminal of some width


def on_terminal(diagnostic: Diagnostic, width: int, text: str = TEXT) -> list[str]:
    result = RunResult((diagnostic,), sources={"train.py": source(text)})
    return written(list(formats.renderer("full", width)(result))).splitlines()


def test_long_lines_go_on_under_their_own_text() -> None:
    scaled = TraceStep(span(4, 5, 4, 34), "the gradients of all parameters are added up", "1 + S")
    diagnostic = replace(
        finding(span(7, 9, 7, 21), scaled, effect="the threshold acts as M/S and not as M, whatever S is then"),
        message="gradients of `optimizer` are clipped while they carry the scale of `scaler`",
    )
    assert on_terminal(diagnostic, 60) == [
        "train.py:7:9: AMP101 clip-before-unscale [error] gradients",
        "    of `optimizer` are clipped while they carry the scale of",
        "    `scaler`",
        "  |",
        "5 |     torch.nn.utils.clip_grad_norm_(",
        "6 |         model.parameters(),",
        "7 |         max_norm=1.0,",
        "  |         ^^^^^^^^^^^^",
        "8 |     )",
        "  |",
        "  = path: 4 | scaler.scale(loss).ba…  the gradients of all",
        "                                      parameters are added",
        "                                      up, unit 1 + S",
        "  = effect: the threshold acts as M/S and not as M, whatever",
        "            S is then",
        "  = help: ampclip-lint explain AMP101",
    ]


def test_long_paths_are_cut_in_front() -> None:
    step = TraceStep(span(2, 1, 2, 9, "some/deep/folder/of/the/project/helpers.py"), "clipped here")
    lines = on_terminal(finding(span(4, 5, 4, 34), step), 70)
    assert "  = path: …roject/helpers.py:2 |   clipped here" in lines
    assert "  = path: some/deep/folder/of/the/project/helpers.py:2 |   clipped here" in on_terminal(
        finding(span(4, 5, 4, 34), step), 200
    )


def test_what_fits_is_the_same_at_any_width() -> None:
    diagnostic = finding(span(5, 5, 8, 6), TraceStep(span(4, 5, 4, 34), "scaled gradients are added", "S"))
    assert on_terminal(diagnostic, 120) == on_terminal(diagnostic, 1000) == show(diagnostic, source()).splitlines()


@pytest.mark.parametrize("width", [30, 40, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    text = f"f({', '.join(['argument'] * 40)}, clip(x), {', '.join(['損失'] * 40)})\n"
    at = text.index("clip(x)") + 1
    step = TraceStep(span(1, 1, 1, len(text)), "word " * 30, "S")
    diagnostic = finding(span(1, at, 1, at + 7), step, effect="word " * 40)
    lines = on_terminal(replace(diagnostic, message="word " * 30), width, text)
    assert max(sum(2 if char > "\u2e80" else 1 for char in line) for line in lines) <= width
    frame = next(index for index, line in enumerate(lines) if line.startswith("1 | "))
    assert "clip(x)" in lines[frame]
    assert lines[frame].index("clip(x)") == lines[frame + 1].index("^^^^^^^")


def test_the_frame_shows_where_a_wide_line_was_cut() -> None:
    text = f"{'a' * 100} clip() {'b' * 100}\n"
    lines = on_terminal(finding(span(1, 102, 1, 108), effect=None), 60, text)
    shown, mark = lines[-4:-2]
    assert shown.startswith("1 | …a")
    assert shown.endswith("b…")
    assert shown[mark.index("^") : mark.rindex("^") + 1] == "clip()"


def test_a_long_underline_ends_where_the_line_is_cut() -> None:
    lines = on_terminal(finding(span(1, 1, 1, 201), effect=None), 50, f"{'a' * 200}\n")
    assert lines[-4:-2] == ["1 | " + "a" * 45 + "…", "  | " + "^" * 45]


def test_concise_has_one_line_a_finding_at_any_width() -> None:
    diagnostic = replace(finding(span(1, 1, 1, 2)), message="word " * 60)
    assert len(list(formats.renderer("concise", 40)(RunResult((diagnostic,))))) == 1


def test_a_stream_that_can_not_say_a_character_gets_an_escape() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", newline="\n")
    write_lines([plain("損失")], stream, color=False)
    assert raw.getvalue() == b"\\u640d\\u5931\n"


def test_summary_counts_by_severity() -> None:
    warning = replace(finding(span(1, 1, 1, 2)), severity=Severity.WARNING)
    info = replace(warning, severity=Severity.INFO)
    result = RunResult((finding(span(1, 1, 1, 2)), warning, warning, info), files=4, incomplete=2)
    assert written(list(summary.summary(result))) == (
        "Found 1 error, 2 warnings and 1 info (4 files read, 0 analysed).\n"
        "2 functions were analysed incompletely; --extend-select AMP003 shows where.\n"
    )


def test_problems_name_file_and_reason() -> None:
    result = RunResult(problems=(FileProblem("a.py", "permission denied"),), missing=("b",))
    assert written(list(summary.problems(result))) == (
        "error: b: no such file or directory\nwarning: a.py: permission denied\n"
    )
