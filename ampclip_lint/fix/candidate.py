"""A guess at a fix, and the one guess that needs no syntax tree: taking a code out of a comment."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from ampclip_lint.diagnostics import Applicability, Diagnostic, Edit, Position, Span
from ampclip_lint.records import dataclass
from ampclip_lint.syntax.source import SourceFile

SAFE, UNSAFE = Applicability.SAFE, Applicability.UNSAFE

#: What stands between a code and the next one, or the one before, in one list.
_NEXT_CODE = re.compile(r"[\s,]+(?=[A-Za-z]+[0-9]+(?!\w))")
_CODE_BEFORE = re.compile(r"(?<=[0-9])[\s,]+$")


@dataclass(frozen=True)
class Candidate:
    """A guess; its edits are in rows of the texts of the files."""

    message: str
    edits: tuple[Edit, ...]
    applicability: Applicability


def proposed(message: str, edits: Iterable[Edit | None], applicability: Applicability) -> Candidate | None:
    """A candidate; None where one of its edits can't be made, or two of them would meet."""
    made = tuple(edits)
    if any(edit is None for edit in made):
        return None
    whole = tuple(sorted((edit for edit in made if edit is not None), key=lambda edit: edit.span))
    for left, right in pairwise(whole):
        if left.span.filename == right.span.filename and left.span.end > right.span.start:
            return None
    return Candidate(message, whole, applicability)


def place_of(source: SourceFile, span: Span) -> tuple[Position, Position]:
    """A span as users see it, in rows of the text of the file."""
    first = next((cell.first for cell in source.cells if cell.number == span.cell), 1)
    return (
        Position(span.start.row + first - 1, span.start.column),
        Position(span.end.row + first - 1, span.end.column),
    )


def without_rows(source: SourceFile, first: int, last: int) -> Edit:
    """Take whole rows out, in a notebook without leaving their cell."""
    shown = source.shown(Span(source.name, Position(last, 1), Position(last, 1)))
    lines = source.text.split("\n")
    start, end = Position(first, 1), Position(last, len(lines[last - 1]) + 1)
    if shown.start.row < len(source.part(shown.cell)):
        end = Position(last + 1, 1)
    elif shown.start.row - (last - first) > 1:
        start = Position(first - 1, len(lines[first - 2]) + 1)
    return Edit(Span(source.name, start, end), "")


def without_suppression(source: SourceFile, unneeded: Diagnostic) -> Candidate:
    """Remove a code from a comment, or the comment with its last code; what other tools read stays."""
    start, end = place_of(source, unneeded.span)
    line = source.text.split("\n")[start.row - 1]
    before, after = line[: start.column - 1], line[end.column - 1 :]
    message = f"remove `{line[start.column - 1 : end.column - 1]}`"
    first, last = start.column, end.column
    if rest := _NEXT_CODE.match(after):
        last += rest.end()
    elif rest := _CODE_BEFORE.search(before):
        first = rest.start() + 1
    else:
        message = "remove the comment"
        opening, following = before.rindex("#"), after.find("#")
        code = before[:opening].rstrip()
        if not code and following < 0:
            edit = without_rows(source, start.row, start.row)
            return Candidate(message, (edit,), Applicability.SAFE)
        first = (len(code) if following < 0 else opening) + 1
        last = len(line) + 1 if following < 0 else end.column + following
    span = Span(source.name, Position(start.row, first), Position(start.row, last))
    return Candidate(message, (Edit(span, ""),), Applicability.SAFE)
