"""One JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ampclip_lint.lint.run import RunResult
from ampclip_lint.report.json import as_dict
from ampclip_lint.report.text import Line, plain


def render(result: RunResult) -> Iterator[Line]:
    """The findings, each for itself."""
    for diagnostic in result.diagnostics:
        yield plain(json.dumps(as_dict(diagnostic)))
