"""Where a finding stands, for formats that know lines of files and nothing else. A notebook's file has no such lines.

A place in a notebook is the file's first line, and the message says which cell is meant. A file name never holds what a
reader of the report would take for something else; what is no text in it is shown escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ampclip_lint.diagnostics import Diagnostic, Position, Span, TraceStep
from ampclip_lint.report.text import clean

_TOP = Position(1, 1)


def lines_of(span: Span) -> tuple[Position, Position]:
    """Begin and end of a span in the lines of its file."""
    return (span.start, span.end) if span.cell is None else (_TOP, _TOP)


def where(span: Span) -> str:
    """Row and column, in a notebook with the cell: ``12:5``, ``cell 3:2:5``."""
    cell = "" if span.cell is None else f"cell {span.cell}:"
    return f"{cell}{span.start.row}:{span.start.column}"


def message_of(diagnostic: Diagnostic) -> str:
    """What the finding says, with its place in a notebook; free of controls."""
    message = clean(diagnostic.message)
    return message if diagnostic.span.cell is None else f"{where(diagnostic.span)}: {message}"


def happening(step: TraceStep) -> str:
    """What a step of the path does, with the unit of the gradients after it; free of controls."""
    return clean(step.message if step.unit is None else f"{step.message}, {unit_text(step.unit)}")


def unit_text(unit: str) -> str:
    """The unit of gradients in words: ``unit S``, ``no gradients``."""
    return unit if unit == "no gradients" else f"unit {unit}"


def numbered(diagnostics: Iterable[Diagnostic]) -> Iterator[tuple[Diagnostic, int]]:
    """Each finding with its number among those of the same fingerprint, from 1: together they name it alone."""
    seen: Counter[str] = Counter()
    for diagnostic in diagnostics:
        seen[diagnostic.fingerprint] += 1
        yield diagnostic, seen[diagnostic.fingerprint]
