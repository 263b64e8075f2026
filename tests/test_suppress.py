"""Suppression comments: which findings they cover, and what is none."""

from __future__ import annotations

import pytest

from ampclip_lint.diagnostics import Confidence, Diagnostic, Position, Severity, Span
from ampclip_lint.lint.run import lint_source
from ampclip_lint.lint.suppress import Suppressions, hint, suppressions
from ampclip_lint.syntax.source import SourceFile


def read(text: str) -> Suppressions:
    return suppressions(SourceFile("a.py", None, text))


def covered(text: str, row: int = 1, end_row: int | None = None, code: str = "AMP101") -> bool:
    span = Span("a.py", Position(row, 1), Position(end_row or row, 5))
    return read(text).covers(Diagnostic(code, "x", Severity.ERROR, Confidence.DEFINITE, "m", span))


@pytest.mark.parametrize(
    "comment",
    [
        "# ampclip: ignore[AMP101]",
        "#ampclip:ignore[AMP101] S is 1 in this script",
        "# ampclip: ignore[AMP201, AMP101]",
        "# type: ignore[misc]  # ampclip: ignore[AMP101]",
        "# Ampclip: Ignore[amp101]",
        "# noqa: AMP101",
        "# noqa:E501,AMP101",
        "# NOQA: E501 AMP101 because",
        "# pylint: disable=x # noqa: AMP101",
    ],
)
def test_comments_that_silence_their_line(comment: str) -> None:
    assert covered(f"clip(p)  {comment}\n")
    assert not covered(f"x = 1  {comment}\nclip(p)\n", row=2)
    assert not covered(f"clip(p)  {comment}\n", code="AMP102")


@pytest.mark.parametrize(
    "line",
    [
        "clip(p)  # noqa",
        "clip(p)  # noqa: E501",
        "clip(p)  # ampclip ignore[AMP101]",
        "clip('# noqa: AMP101')",
        "clip('''\n# ampclip: ignore-file[AMP101]\n''')",
        "clip(p)  # ampclip: ignore",
        "clip(p)  # ampclip: ignore[]",
        "clip(p)  # ampclip: ignore[clip]",
        "clip(p)  # ampclip: silence[AMP101]",
    ],
)
def test_what_silences_nothing(line: str) -> None:
    assert not covered(line + "\n")


def test_a_comment_at_the_end_of_a_statement_speaks_of_all_of_it() -> None:
    text = "clip(\n    p,\n    1.0,\n)  # ampclip: ignore[AMP101]\nclip(p)\n"
    assert covered(text, 1)
    assert covered(text, 2)
    assert not covered(text, 5)


def test_a_comment_on_any_line_of_the_finding_counts() -> None:
    text = "clip(  # noqa: AMP101\n    p,\n)\n"
    assert covered(text, 1, 3)
    assert not covered(text, 2, 3)


def test_the_header_of_a_block_is_a_statement_of_its_own() -> None:
    text = "if a:\n    clip(p)\n    x = 1  # noqa: AMP101\n"
    assert not covered(text, 2)
    assert covered(text, 3)


def test_ignore_file_speaks_of_the_whole_file_from_anywhere() -> None:
    text = "clip(p)\nx = 1\n# ampclip: ignore-file[AMP101] generated\n"
    assert covered(text, 1)
    assert not covered(text, 1, code="AMP201")


def test_a_file_that_does_not_parse_can_be_silenced_too() -> None:
    assert covered("# ampclip: ignore-file[AMP001]\nf((\n", 2, code="AMP001")
    assert covered("x = 1  # noqa: AMP001\n  y = (\n", 1, code="AMP001")


@pytest.mark.parametrize(
    ("comment", "reason"),
    [
        ("# ampclip: ignore", "`ampclip: ignore` needs a code"),
        ("# ampclip: ignore-file[]", "`ampclip: ignore-file` needs a code"),
        ("# ampclip: ignore[all]", "`ampclip: ignore` needs a code"),
        ("# ampclip: off[AMP101]", "`ampclip: off` is no suppression comment"),
    ],
)
def test_malformed_comments_are_named(comment: str, reason: str) -> None:
    (problem,) = read(f"x = 1\ny = 2  {comment}\n").malformed
    assert problem.filename == "a.py:2"
    assert problem.reason.startswith(reason)


def test_prose_about_the_tool_is_no_comment_of_its_kind() -> None:
    assert read("x = 1  # see the docs of ampclip: they say why\n").malformed == ()


# --- what silences nothing (AMP002)

TRAIN = """\
from torch.nn.utils import clip_grad_norm_


def fit(model, loader, optimizer, scaler):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        clip_grad_norm_(model.parameters(), 1.0){comment}
        scaler.step(optimizer)
        scaler.update()
"""


def unused(text: str, select: tuple[str, ...] | None = None, *, pedantic: bool = False) -> list[tuple[int, int, str]]:
    """Row, first column and the text that is underlined, of every AMP002."""
    found = []
    for diagnostic in lint_source(text, "a.py", select=select, pedantic=pedantic):
        start, end = diagnostic.span.start, diagnostic.span.end
        if diagnostic.code == "AMP002":
            assert start.row == end.row
            found.append((start.row, start.column, text.split("\n")[start.row - 1][start.column - 1 : end.column - 1]))
    return found


@pytest.mark.usefixtures("stub")
@pytest.mark.parametrize(
    ("comment", "codes"),
    [
        ("# ampclip: ignore[AMP101]", []),
        ("# noqa: AMP101", []),
        ("# ampclip: ignore-file[AMP101]", []),
        ("# noqa: AMP101  # ampclip: ignore[AMP101]", []),  # each does it
        ("# ampclip: ignore[AMP102]", ["AMP102"]),
        ("# ampclip: ignore[ amp101 ,amp102, AMP201 ] why", ["amp102", "AMP201"]),
        ("# ampclip: ignore-file[AMP201,AMP101]", ["AMP201"]),
        ("# noqa: AMP102, E501, AMP101, F401", ["AMP102"]),
        ("# noqa: E501 AMP201 because", ["AMP201"]),
        ("# noqa", []),
        ("# noqa: E501", []),
        ("# noqa: AMP999", []),  # some other tool may be called so
        ("# ampclip: ignore[AMP999, AMP101]", ["AMP999"]),
        ("# ampclip: ignore-file[E501]", ["E501"]),
        ("# ampclip: ignore[AMP108]", []),  # an info rule, not selected
        ("# ampclip: ignore[AMP001]", ["AMP001"]),
        ("# ampclip: ignore", []),  # named as malformed
        ("# ampclip: ignore[AMP002]", []),
        ("# ampclip: ignore[AMP102, AMP002]", []),
        ("# noqa: AMP102  # ampclip: ignore[AMP002] found when all files are checked", []),
        ("# ampclip: ignore[AMP102, AMP999]  # ampclip: ignore-file[AMP002]", []),
    ],
)
def test_each_code_that_silences_nothing_is_reported(comment: str, codes: list[str]) -> None:
    text = TRAIN.format(comment="  " + comment)
    found = unused(text)
    assert [(row, word) for row, _, word in found] == [(7, code) for code in codes]


@pytest.mark.usefixtures("stub")
def test_columns_count_characters() -> None:
    text = TRAIN.format(comment="; x = 'äß𝔘'  # ä: ampclip  # ampclip: ignore[AMP101,AMP102]")
    ((_, column, word),) = unused(text)
    assert (column, word) == (text.split("\n")[6].index("AMP102") + 1, "AMP102")


@pytest.mark.usefixtures("stub")
def test_a_comment_on_the_line_above_silences_nothing_and_is_reported() -> None:
    text = TRAIN.format(comment="").replace("        clip", "        # ampclip: ignore[AMP101]\n        clip")
    assert unused(text) == [(7, 27, "AMP101")]
    assert len(lint_source(text, "a.py")) == 2


@pytest.mark.usefixtures("stub")
def test_strings_are_no_comments() -> None:
    assert unused('x = \'# noqa: AMP101\'\ny = """\n# ampclip: ignore-file[AMP999]\n"""\n') == []


@pytest.mark.usefixtures("stub")
def test_only_selected_codes_are_judged() -> None:
    text = TRAIN.format(comment="  # ampclip: ignore[AMP102, AMP201, AMP999]")
    assert [word for *_, word in unused(text, ("AMP002", "AMP201"))] == ["AMP201", "AMP999"]
    assert [word for *_, word in unused(text, ("AMP002",))] == ["AMP999"]
    assert unused(text, ("AMP1", "AMP201")) == []


@pytest.mark.usefixtures("stub")
def test_a_comment_that_a_pedantic_run_needs_is_used_in_every_run() -> None:
    text = TRAIN.format(comment="  # stub: possible  # ampclip: ignore[AMP101]")
    assert unused(text) == unused(text, pedantic=True) == []


@pytest.mark.usefixtures("stub")
def test_nothing_is_judged_in_what_was_analysed_in_part() -> None:
    comment = "  # ampclip: ignore[AMP102, AMP999]"
    assert [word for *_, word in unused(TRAIN.format(comment=comment))] == ["AMP102", "AMP999"]
    assert [word for *_, word in unused(TRAIN.format(comment=comment) + "pass  # stub: gap\n")] == ["AMP999"]
    assert [word for *_, word in unused(TRAIN.format(comment=comment) + "f((\n")] == ["AMP999"]


@pytest.mark.usefixtures("stub")
def test_the_code_of_the_rule_at_the_end_of_a_statement_speaks_of_all_of_it() -> None:
    text = "f(\n    1,  # noqa: AMP101\n)  # ampclip: ignore[AMP002]\n"
    assert unused(text) == []
    assert unused(text.replace("AMP002", "AMP201")) == [(2, 17, "AMP101"), (3, 22, "AMP201")]


@pytest.mark.parametrize(
    ("data", "read"),
    [
        (b"x = 1  # ampclip: ignore[X]", True),
        (b"x = 1  # AmpClip : ignore", True),
        (b"x = 1  # noqa: E501, amp101", True),
        (b"x = 1  # NOQA:ACME001", True),
        (b"x = 1  # noqa: E501", False),
        (b"x = 1  # noqa\ny = 'AMP101'", False),
        (b"import ampclip_lint", False),
    ],
)
def test_most_files_are_ruled_out_by_their_bytes(data: bytes, read: bool) -> None:
    assert hint(["AMP101", "AMP102", "ACME001"])(data) is read
