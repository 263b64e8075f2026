"""Files that nobody named and that the named ones import: a clip may stand in any of them.

Imports are looked up on disk as Python would from the importing file's folder and the folders above it, up to the top
of the project. Installed packages are never read: what they do is in the API table.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ampclip_lint.syntax import prefilter
from ampclip_lint.syntax.outside import is_outside
from ampclip_lint.syntax.reading import FileProblem, Found, display_name, read_bytes

#: So many files are followed; a run over more is a run over a folder.
MAX_FILES = 400
_TOP_MARKERS = frozenset({".git", "pyproject.toml", "setup.py", "setup.cfg"})


#: (module, name, bound as), as the prefilter tells them.
Import = tuple[str, str, str]


class Followed(NamedTuple):
    """Files with their content, in the order in which they were met, and what could not be read."""

    files: tuple[tuple[Found, bytes], ...] = ()
    problems: tuple[FileProblem, ...] = ()
    watched: tuple[str, ...] = ()
    """The folders and files that were looked at."""


def follow(origins: Iterable[tuple[Path, Sequence[Import]]], known: Iterable[str]) -> Followed:
    """What the `origins` (path, imports) import, directly or through others, without the files that are `known`."""
    walk = _Walk(known)
    for path, imports in origins:
        walk.queue.append((os.path.abspath(path), imports, None))
    walk.run()
    return Followed(tuple(walk.files), tuple(walk.problems), (*walk.listings, *walk.imports))


class _Walk:
    def __init__(self, known: Iterable[str]) -> None:
        self.known = frozenset(known)
        self.files: list[tuple[Found, bytes]] = []
        self.problems: list[FileProblem] = []
        #: Absolute path, imports, and the names that are wanted from it; None for all that it imports.
        self.queue: deque[tuple[str, Sequence[Import], frozenset[str] | None]] = deque()
        self.imports: dict[str, Sequence[Import] | None] = {}
        self._wanted: set[tuple[str, str]] = set()
        self.listings: dict[str, frozenset[str]] = {}
        self._roots: dict[str, tuple[str, ...]] = {}
        self._found: dict[tuple[str, str], str | None] = {}

    def run(self) -> None:
        while self.queue:
            path, imports, wanted = self.queue.popleft()
            folder = os.path.dirname(path)
            for module, name, bound in imports:
                if wanted is not None and bound not in wanted and name != "*":
                    continue
                for target, names in self._targets(folder, module, name, wanted):
                    if not self._take(target, names):
                        return

    def _targets(
        self, folder: str, module: str, name: str, wanted: frozenset[str] | None
    ) -> Iterator[tuple[str, frozenset[str] | None]]:
        """The files that an import leads to, with the names that are wanted from those that only pass names on."""
        if name and name != "*":
            whole = module + name if module.endswith(".") else f"{module}.{name}"
            inner = self._find(folder, whole)
            if inner is not None:
                yield inner, None
                return
        found = self._find(folder, module)
        if found is not None:
            names = wanted if name == "*" else frozenset({name}) if name else None
            yield found, names if os.path.basename(found) == "__init__.py" else None

    def _take(self, path: str, names: frozenset[str] | None) -> bool:
        """Note a file that is imported, once, and go on from it; False where there are too many."""
        first = path not in self.imports
        if first:
            # What is known is looked at by whoever knows it.
            self.imports[path] = None
            identity = os.path.realpath(path)
            data = None if identity in self.known else self._read(path)
            if data is not None:
                if len(self.files) == MAX_FILES:
                    reason = f"imports lead to more than {MAX_FILES} files; this one and others were not read"
                    self.problems.append(FileProblem(display_name(path), reason))
                    return False
                self.files.append((Found(display_name(path), Path(path), identity), data))
                self.imports[path] = prefilter.imports_of(prefilter.import_lines(data))
        imports = self.imports[path]
        if imports is None:
            return True
        if names is None:
            if first:
                self.queue.append((path, imports, None))
        else:
            fresh = frozenset(name for name in names if (path, name) not in self._wanted)
            self._wanted.update((path, name) for name in fresh)
            if fresh:
                self.queue.append((path, imports, fresh))
        return True

    def _read(self, path: str) -> bytes | None:
        """The content of a file that can matter."""
        name = display_name(path)
        data = read_bytes(name, path)
        if isinstance(data, FileProblem):
            self.problems.append(data)
            return None
        return data if prefilter.is_candidate(name, data) else None

    def _find(self, folder: str, dotted: str) -> str | None:
        key = (folder, dotted)
        if key not in self._found:
            self._found[key] = self._look_up(folder, dotted)
        return self._found[key]

    def _look_up(self, folder: str, dotted: str) -> str | None:
        bare = dotted.lstrip(".")
        level = len(dotted) - len(bare)
        parts = bare.split(".") if bare else []
        if not level:
            if is_outside(bare):
                return None
            return next(filter(None, (self._module(root, parts) for root in self._roots_of(folder))), None)
        for _ in range(level - 1):
            folder = os.path.dirname(folder)
        return self._module(folder, parts)

    def _module(self, root: str, parts: list[str]) -> str | None:
        """The file of a module below a folder."""
        for part in parts[:-1]:
            if part not in self._listing(root):
                return None
            root = os.path.join(root, part)
        last = parts[-1] if parts else ""
        if last:
            names = self._listing(root)
            if f"{last}.py" in names:
                return os.path.join(root, f"{last}.py")
            if last not in names:
                return None
            root = os.path.join(root, last)
        return os.path.join(root, "__init__.py") if "__init__.py" in self._listing(root) else None

    def _listing(self, folder: str) -> frozenset[str]:
        found = self.listings.get(folder)
        if found is None:
            try:
                found = frozenset(os.listdir(folder))
            except OSError:
                found = frozenset()
            self.listings[folder] = found
        return found

    def _roots_of(self, folder: str) -> tuple[str, ...]:
        """Where absolute imports of a file in `folder` are looked up: its folder and those above, up to the top."""
        found = self._roots.get(folder)
        if found is None:
            parent = os.path.dirname(folder)
            names = self._listing(folder)
            above: tuple[str, ...] = ()
            if parent != folder and not names & _TOP_MARKERS:
                # Without a marker on the way up, a package ends where `__init__.py` does.
                inside = "__init__.py" in names or any(self._listing(up) & _TOP_MARKERS for up in _ancestors(folder))
                above = self._roots_of(parent) if inside else ()
            elif "src" in names:
                above = (os.path.join(folder, "src"),)
            found = self._roots[folder] = (folder, *above)
        return found


def _ancestors(folder: str) -> Iterator[str]:
    while (parent := os.path.dirname(folder)) != folder:
        yield parent
        folder = parent
