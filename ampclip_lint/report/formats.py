"""The table of output formats. A format is a module here and a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
}


def renderer(name: str) -> Renderer:
    """The function that turns a result into lines of that format."""
    return cast(Renderer, import_module(FORMATS[name]).render)
