"""The run over few files that have nothing to do with scaling: seen before anything that takes time is loaded.

This is what a hook before each commit asks for, again and again. Whoever is in doubt here says so, and the usual run
decides; what that would say without doubt, this says sooner.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ampclip_lint.lint.packs import entry_points
from ampclip_lint.syntax.neighbours import follow
from ampclip_lint.syntax.prefilter import is_seed
from ampclip_lint.syntax.reading import Found, display_name
from ampclip_lint.syntax.scan import look

_WORD = b"ampclip-lint"
_MOST_FILES = 32


def nothing_to_find(paths: Sequence[str]) -> int | None:
    """How many files these are if nothing can be found in them; None where that takes a closer look."""
    if len(paths) > _MOST_FILES or not all(path.endswith(".py") and os.path.isfile(path) for path in paths):
        return None
    origins = []
    known = set()
    for path in paths:
        told = look(Found(display_name(path), Path(path)), may_suppress=_may_suppress)
        if told.problem is not None or told.is_seed or told.may_suppress or told.data is None:
            return None
        known.add(os.path.realpath(path))
        origins.append((path, told.data))
    if any(_configured(os.path.dirname(os.path.abspath(path))) for path in paths):
        return None
    from ampclip_lint.syntax.prefilter import import_lines, imports_of

    followed = follow([(Path(path), imports_of(import_lines(data))) for path, data in origins], known)
    if followed.problems or any(is_seed(data) for _, data in followed.files):
        return None
    return len(known) if entry_points() else None  # without any rules, a linter must say so


def _may_suppress(data: bytes) -> bool:
    lowered = data.lower()
    return b"ampclip" in lowered or b"noqa" in lowered


def _configured(folder: str) -> bool:
    """Whether a configuration may stand in a folder or above."""
    while True:
        if os.path.exists(os.path.join(folder, "ampclip-lint.toml")):
            return True
        try:
            with open(os.path.join(folder, "pyproject.toml"), "rb") as stream:
                if _WORD in stream.read():
                    return True
        except FileNotFoundError:
            pass
        except OSError:
            return True
        parent = os.path.dirname(folder)
        if parent == folder:
            return False
        folder = parent
