"""Pieces of source for reports: the text of a span, a place in words, the rows around a path. Knows no format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ampclip_lint.diagnostics import Diagnostic, Span
from ampclip_lint.lint.run import RunResult
from ampclip_lint.report.text import clean, shortened

_CONTEXT = 1
_ROWS = 48
_LONGEST = 8
"""Rows of a span that are shown; of a longer one, the first."""


def place(span: Span) -> str:
    """``train.py:12``, in a notebook ``train.ipynb:cell 3:12``."""
    cell = "" if span.cell is None else f"cell {span.cell}:"
    return f"{span.filename}:{cell}{span.start.row}"


def near(span: Span, home: Span) -> str:
    """A place as it is told beside another one: ``line 12`` where it is in the same text."""
    return f"line {span.start.row}" if same_file(span, home) else place(span)


def same_file(one: Span, other: Span) -> bool:
    """Whether two spans count the rows of the same text."""
    return (one.filename, one.cell) == (other.filename, other.cell)


def searchable(*texts: str) -> str:
    """What a search looks in."""
    return shortened(" ".join(texts).lower(), 600)


def excerpt(span: Span, result: RunResult, widest: int = 64) -> str:
    """The source of a span on one line; the rest of its first line where it is empty or goes on below."""
    line = row_text(span, span.start.row, result)
    single = span.end.row == span.start.row and span.end.column > span.start.column
    text = line[span.start.column - 1 : span.end.column - 1 if single else None]
    return shortened(clean(" ".join(text.split())), widest)


def row_text(span: Span, row: int, result: RunResult) -> str:
    """A line of the file, or the cell, that a span stands in; empty outside it."""
    source = result.source(span.filename)
    lines = source.part(span.cell) if source is not None else ()
    return lines[row - 1] if 1 <= row <= len(lines) else ""


def regions(diagnostic: Diagnostic, result: RunResult) -> Iterator[tuple[Span, Sequence[int]]]:
    """
    The rows around a finding and its path, by file and cell, the finding's own first.

    Each with a span that says where; the rows are ascending, and where one is missing between two, nothing is shown.
    """
    spans = [diagnostic.span, *(step.span for step in diagnostic.trace)]
    by_place: dict[tuple[str, int | None], list[Span]] = {}
    for span in spans:
        by_place.setdefault((span.filename, span.cell), []).append(span)
    for first, *others in by_place.values():
        here = (first, *others)
        source = result.source(first.filename)
        last = len(source.part(first.cell)) if source is not None else 0
        # Of a statement on the path its first line says what matters; of the finding, all of it may.
        rows = sorted({row for span in here for row in _around(span, span is diagnostic.span) if 1 <= row <= last})
        if rows:
            yield first, _nearest(rows, first.start.row)


def _around(span: Span, whole: bool) -> Iterable[int]:
    stop = min(span.end.row, span.start.row + _LONGEST) if whole else span.start.row
    return range(span.start.row - _CONTEXT, stop + _CONTEXT + 1)


def _nearest(rows: Sequence[int], row: int) -> Sequence[int]:
    """So many rows as may be shown, those that are next to a certain one."""
    if len(rows) <= _ROWS:
        return rows
    return sorted(sorted(rows, key=lambda other: abs(other - row))[:_ROWS])
