"""The table of output formats. A format is a module here and a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from typing import cast

from ampclip_lint.lint.run import RunResult
from ampclip_lint.report.text import Line

Renderer = Callable[[RunResult], Iterable[Line]]

FORMATS = {
    "full": "ampclip_lint.report.full",
    "concise": "ampclip_lint.report.concise",
    "json": "ampclip_lint.report.json",
    "jsonl": "ampclip_lint.report.jsonl",
    "sarif": "ampclip_lint.report.sarif",
    "github": "ampclip_lint.report.github",
    "gitlab": "ampclip_lint.report.gitlab",
    "junit": "ampclip_lint.report.junit",
}
HUMAN = frozenset(("full", "concise"))
"""The formats that people read: only they are coloured."""
WITH_FIXES = frozenset(("full", "json", "jsonl", "sarif", "github", "junit"))
"""The formats that tell how a finding can be fixed."""


def renderer(name: str, width: int | None = None) -> Renderer:
    """The function that turns a result into lines of that format; `width` is that of the terminal, if it is one."""
    render = import_module(FORMATS[name]).render
    return cast(Renderer, partial(render, width=width) if name == "full" else render)
