"""One line a finding: ``path:row:column: CODE message``, in a notebook ``path:cell N:row:column: CODE message``."""

from __future__ import annotations

from collections.abc import Iterator

from ampclip_lint.diagnostics import Confidence, Diagnostic
from ampclip_lint.lint.run import RunResult
from ampclip_lint.report.text import Line, clean, leading


def render(result: RunResult) -> Iterator[Line]:
    """All findings."""
    for diagnostic in result.diagnostics:
        yield headline(diagnostic)


def headline(diagnostic: Diagnostic) -> Line:
    """Place, code, name, severity and message of a finding."""
    start, cell = diagnostic.span.start, diagnostic.span.cell
    severity = diagnostic.severity.value
    kind = severity if diagnostic.confidence is Confidence.DEFINITE else f"{severity}, possible"
    return [
        (leading(diagnostic.span.filename), "path"),
        (f":{'' if cell is None else f'cell {cell}:'}{start.row}:{start.column}: ", "dim"),
        (diagnostic.code, severity),
        (f" {diagnostic.name} ", ""),
        (f"[{kind}]", severity),
        (f" {clean(diagnostic.message)}", ""),
    ]
