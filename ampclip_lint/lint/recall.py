"""Results as plain data and back, for the cache: what is not exactly as it was written is no result."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from ampclip_lint.syntax.reading import FileProblem, read_bytes

if TYPE_CHECKING:
    from ampclip_lint.syntax.source import SourceFile


def plain_findings(diagnostics: Iterable[Diagnostic]) -> list[Any]:
    """Findings as JSON can say them."""
    return [
        [
            found.code,
            found.name,
            found.severity.value,
            found.confidence.value,
            found.message,
            _plain_span(found.span),
            found.effect,
            [[_plain_span(step.span), step.message, step.unit] for step in found.trace],
            found.url,
            found.line_text,
            found.fix
            and [
                found.fix.message,
                [[_plain_span(edit.span), edit.content] for edit in found.fix.edits],
                found.fix.applicability.value,
            ],
        ]
        for found in diagnostics
    ]


def findings(plain: Iterable[Any]) -> tuple[Diagnostic, ...]:
    """What `plain_findings` made into data; raises `ValueError` or `TypeError` for anything else."""
    return tuple(
        Diagnostic(
            code,
            name,
            Severity(severity),
            Confidence(confidence),
            message,
            _span(span),
            effect,
            tuple(TraceStep(_span(place), text, unit) for place, text, unit in trace),
            url,
            line_text,
            None if fix is None else _fix(*fix),
        )
        for code, name, severity, confidence, message, span, effect, trace, url, line_text, fix in plain
    )


def _fix(message: str, edits: Iterable[Any], applicability: str) -> Fix:
    return Fix(message, tuple(Edit(_span(span), content) for span, content in edits), Applicability(applicability))


def _plain_span(span: Span) -> list[Any]:
    start, end = span.start, span.end
    return [span.filename, start.row, start.column, end.row, end.column, span.function, span.cell]


def _span(plain: Any) -> Span:
    filename, row, column, end_row, end_column, function, cell = plain
    return Span(filename, Position(row, column), Position(end_row, end_column), function, cell)


def problems(plain: Iterable[Any]) -> tuple[FileProblem, ...]:
    """Problems from lists of their fields."""
    return tuple(FileProblem(filename, reason, internal) for filename, reason, internal in plain)


class Sources(Mapping[str, "SourceFile"]):
    """Files by name that are opened when a report shows a line of them."""

    def __init__(self, places: Mapping[str, str | None]) -> None:
        self._places = dict(places)
        self._open: dict[str, SourceFile] = {}

    def __getitem__(self, name: str) -> SourceFile:
        if name not in self._open:
            self._open[name] = _opened(name, self._places[name])
        return self._open[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _opened(name: str, place: str | None) -> SourceFile:
    from ampclip_lint.syntax.notebook import read_source
    from ampclip_lint.syntax.source import SourceFile

    path = None if place is None else Path(place)
    data = b"" if path is None else read_bytes(name, path)
    source = data if isinstance(data, FileProblem) else read_source(name, path, data)
    # It was there a moment ago: a report without its lines is better than none.
    return source if isinstance(source, SourceFile) else SourceFile(name, path, "")


def places(sources: Mapping[str, SourceFile]) -> dict[str, str | None]:
    """Where the files of a result stand."""
    return {name: None if source.path is None else os.fspath(source.path) for name, source in sources.items()}


def attempt(recall: Callable[[], Any]) -> Any:
    """What `recall` makes of an entry, None where that is not what this version writes."""
    try:
        return recall()
    except (KeyError, TypeError, ValueError):
        return None
