"""The rule packs that are installed, by their entry points. Knows nothing of rules.

`importlib.metadata` takes longer to load than a small file to check. What it would find in folders is read here; only
what is installed in some other way is left to it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

GROUP = "ampclip_lint.rules"


def entry_points() -> list[tuple[str, str]]:
    """Name and value of every installed rule pack, sorted."""
    if _only_folders():
        return sorted({point for text in _texts() for point in _points(text)})
    from importlib.metadata import entry_points as installed

    return sorted({(point.name, point.value) for point in installed(group=GROUP)})


def _only_folders() -> bool:
    """Whether all that is installed has a folder of its own in a folder of the path."""
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_distributions")]
    return len(finders) <= 1 and not any(place.endswith(".egg") or os.path.isfile(place) for place in sys.path)


def _texts() -> Iterator[str]:
    """What each installed distribution says of its entry points, if it speaks of rules; the first of a name counts."""
    seen = set()
    for place in sys.path:
        try:
            names = os.listdir(place or ".")
        except OSError:
            continue
        for name in names:
            if not name.endswith((".dist-info", ".egg-info")):
                continue
            distribution = name.rpartition(".")[0].partition("-")[0].replace(".", "_").lower()
            if distribution in seen:
                continue
            seen.add(distribution)
            try:
                with open(os.path.join(place, name, "entry_points.txt"), encoding="utf-8") as stream:
                    text = stream.read()
            except (OSError, ValueError):
                continue
            if f"[{GROUP}]" in text:
                yield text


def _points(text: str) -> Iterator[tuple[str, str]]:
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif section == GROUP and "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            yield name.strip(), value.strip()
