"""Workflow commands of GitHub Actions: one annotation a finding."""

from __future__ import annotations

from collections.abc import Iterator

from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.run import RunResult
from ampclip_lint.report.place import lines_of, message_of
from ampclip_lint.report.text import Line, clean, plain

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def render(result: RunResult) -> Iterator[Line]:
    """A line for each finding; GitHub shows columns only where the finding stands on one line."""
    for diagnostic in result.diagnostics:
        start, end = lines_of(diagnostic.span)
        properties = {"file": diagnostic.span.filename, "line": start.row, "endLine": end.row}
        if start.row == end.row and diagnostic.span.cell is None:
            properties |= {"col": start.column, "endColumn": end.column}
        properties["title"] = f"{diagnostic.code} {diagnostic.name}"
        text = message_of(diagnostic)
        if diagnostic.effect is not None:
            text += f"\neffect: {clean(diagnostic.effect)}"
        if diagnostic.fix is not None:
            text += f"\nfix: {clean(diagnostic.fix.message)}"
        listed = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items())
        yield plain(f"::{_LEVELS[diagnostic.severity]} {listed}::{_data(text)}")


def _data(text: str) -> str:
    """The runner reads a message up to the end of the line and decodes these three."""
    return clean(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def _property(text: str) -> str:
    """... and a property up to the next comma or the two colons."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
