"""Suppression comments: which findings they cover, and what is none."""

from __future__ import annotations

import pytest

from ampclip_lint.diagnostics import Confidence, Diagnostic, Position, Severity, Span
from ampclip_lint.lint.suppress import Suppressions, suppressions
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
