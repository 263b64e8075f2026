"""One line a finding: ``path:row:column: CODE message``."""

from __future__ import annotations

from collections.abc import Iterator

from ampclip_lint.diagnostics import Confidence, Diagnostic
from ampclip_lint.lint.run import RunResult
from ampclip_lint.report.text import Line, clean


def render(result: RunResult) -> Iterator[Line]:
    """All findings."""
    for diagnostic in result.diagnostics:
        yield headline(diagnostic)


def headline(diagnostic: Diagnostic) -> Line:
    """Place, code, name, severity and message of a finding."""
    start = diagnostic.span.start
    severity = diagnostic.severity.value
    kind = severity if diagnostic.confidence is Confidence.DEFINITE else f"{severity}, possible"
    return [
        (clean(diagnostic.span.filename), "path"),
        (f":{start.row}:{start.column}: ", "dim"),
        (diagnostic.code, severity),
        (f" {diagnostic.name} ", ""),
        (f"[{kind}]", severity),
        (f" {clean(diagnostic.message)}", ""),
    ]
