"""GitLab's Code Quality report: one JSON array."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.run import RunResult
from ampclip_lint.report.place import lines_of, message_of, numbered
from ampclip_lint.report.text import Line, clean, plain

_SEVERITIES = {Severity.ERROR: "critical", Severity.WARNING: "major", Severity.INFO: "info"}


def render(result: RunResult) -> Iterator[Line]:
    """An array of issues. GitLab takes two of one fingerprint for one, so that the second has its number in it."""
    issues = []
    for diagnostic, number in numbered(result.diagnostics):
        start, end = lines_of(diagnostic.span)
        issues.append(
            {
                "description": f"{diagnostic.code} {diagnostic.name}: {message_of(diagnostic)}",
                "check_name": diagnostic.code,
                "fingerprint": diagnostic.fingerprint + (f"-{number}" if number > 1 else ""),
                "severity": _SEVERITIES[diagnostic.severity],
                "location": {
                    "path": clean(diagnostic.span.filename),
                    "positions": {
                        "begin": {"line": start.row, "column": start.column},
                        "end": {"line": end.row, "column": end.column},
                    },
                },
            }
        )
    for line in json.dumps(issues, indent=2).split("\n"):
        yield plain(line)
