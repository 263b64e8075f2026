"""The findings as one JSON array."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ampclip_lint.diagnostics import Diagnostic, Fix, Position
from ampclip_lint.lint.run import RunResult
from ampclip_lint.report.text import Line, plain


def render(result: RunResult) -> Iterator[Line]:
    """An array, one finding after the other. Only ASCII leaves here, so that nothing can act on a terminal."""
    text = json.dumps([as_dict(diagnostic) for diagnostic in result.diagnostics], indent=2)
    for line in text.split("\n"):
        yield plain(line)


def as_dict(diagnostic: Diagnostic) -> dict[str, Any]:
    """A finding with the keys of the documented format, in its order."""
    return {
        "code": diagnostic.code,
        "name": diagnostic.name,
        "severity": diagnostic.severity.value,
        "confidence": diagnostic.confidence.value,
        "message": diagnostic.message,
        "filename": diagnostic.span.filename,
        "cell": diagnostic.span.cell,
        "function": diagnostic.span.function or None,
        "location": _position(diagnostic.span.start),
        "end_location": _position(diagnostic.span.end),
        "trace": [
            {
                "filename": step.span.filename,
                "cell": step.span.cell,
                "location": _position(step.span.start),
                "message": step.message,
                "unit": step.unit,
            }
            for step in diagnostic.trace
        ],
        "fix": None if diagnostic.fix is None else _fix(diagnostic.fix),
        "url": diagnostic.url,
        "fingerprint": diagnostic.fingerprint,
    }


def _fix(fix: Fix) -> dict[str, Any]:
    return {
        "applicability": fix.applicability.value,
        "message": fix.message,
        "edits": [
            {
                "content": edit.content,
                "filename": edit.span.filename,
                "cell": edit.span.cell,
                "location": _position(edit.span.start),
                "end_location": _position(edit.span.end),
            }
            for edit in fix.edits
        ],
    }


def _position(position: Position) -> dict[str, int]:
    return {"row": position.row, "column": position.column}
