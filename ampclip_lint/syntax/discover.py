"""Which files a run is about: arguments to a list of files. Knows excludes and .gitignore, reads no source."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from ampclip_lint.records import dataclass
from ampclip_lint.syntax.reading import FileProblem, Found, display_name

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

STDIN = "-"

#: In one part of a pattern: with each, the time to match a name grows by a factor of its length.
MAX_STARS = 4

DEFAULT_EXCLUDES = (
    ".ampclip_lint_cache",
    ".bzr",
    ".direnv",
    ".eggs",
    ".git",
    ".git-rewrite",
    ".hg",
    ".hypothesis",
    ".ipynb_checkpoints",
    ".mypy_cache",
    ".nox",
    ".pants.d",
    ".pyenv",
    ".pytest_cache",
    ".pytype",
    ".ruff_cache",
    ".svn",
    ".tox",
    ".venv",
    ".vscode",
    "__pycache__",
    "__pypackages__",
    "_build",
    "buck-out",
    "build",
    "dist",
    "node_modules",
    "site-packages",
    "venv",
)


@dataclass(frozen=True)
class Excludes:
    """Patterns in gitignore syntax, relative to `base`."""

    base: Path
    patterns: tuple[str, ...] = DEFAULT_EXCLUDES

    @cached_property
    def _names(self) -> frozenset[str]:
        # A pattern without special characters means that name at any depth: no need for pathspec.
        return frozenset(p for p in self.patterns if not set(p) & set("*?[]!/\\# "))

    @cached_property
    def _spec(self) -> GitIgnoreSpec | None:
        rest = [p for p in self.patterns if p not in self._names]
        return gitignore_spec(rest) if rest else None

    def match(self, path: str, is_dir: bool) -> bool:
        """Whether the entry itself (not one of its parents) is excluded."""
        if os.path.basename(path) in self._names:
            return True
        if self._spec is None:
            return False
        relative = _relative(path, str(self.base))
        return relative is not None and self._spec.match_file(relative + "/" if is_dir else relative)


@dataclass(frozen=True)
class Discovery:
    """What the arguments stand for."""

    files: tuple[Found, ...]
    missing: tuple[str, ...]
    problems: tuple[FileProblem, ...]
    watched: tuple[str, ...] = ()
    """The folders and ignore files that were looked at, or for; whole paths."""


def discover(
    paths: Iterable[str | os.PathLike[str]],
    *,
    excludes: Callable[[Path], Excludes] | None = None,
    respect_gitignore: bool = True,
    stdin_filename: str | None = None,
) -> Discovery:
    """The Python files and notebooks under `paths`, each once, in a stable order.

    A file that is named is always taken, whatever its suffix and whatever ignores it, and a folder that is named is
    always entered. Below a folder only ``*.py`` and ``*.ipynb`` files count, excludes and .gitignore hold, and links to
    folders are not followed.
    """
    default = Excludes(Path.cwd())
    walker = _Walker(excludes or (lambda _directory: default), respect_gitignore)
    files: list[Found] = []
    missing: list[str] = []
    seen: set[str] = set()

    def take(name: str, path: str, identity: str) -> None:
        if identity not in seen:
            seen.add(identity)
            files.append(Found(name, Path(path), identity))

    for argument in paths:
        text = os.fspath(argument)
        if text == STDIN:
            identity = os.path.realpath(stdin_filename) if stdin_filename else STDIN
            if not {STDIN, identity} & seen:
                seen.update((STDIN, identity))
                files.append(Found(display_name(stdin_filename) if stdin_filename else "<stdin>", None))
        elif os.path.isdir(text):
            for found in walker.walk(text):
                take(*found)
        elif os.path.lexists(text):
            take(display_name(text), text, os.path.realpath(text))
        else:
            missing.append(text)
    return Discovery(
        tuple(files), tuple(missing), tuple(walker.problems), (*map(os.path.abspath, missing), *walker.watched)
    )


@dataclass(frozen=True)
class _Ignores:
    """One .gitignore and those above it. The deepest one that says anything about a path decides."""

    base: str
    spec: GitIgnoreSpec
    parent: _Ignores | None

    def ignored(self, path: str, is_dir: bool) -> bool:
        relative = _relative(path, self.base)
        if relative is not None:
            verdict = self.spec.check_file(relative + "/" if is_dir else relative).include
            if verdict is not None:
                return verdict
        return self.parent is not None and self.parent.ignored(path, is_dir)


class _Walker:
    def __init__(self, excludes: Callable[[Path], Excludes], respect_gitignore: bool) -> None:
        self.excludes = excludes
        self.respect_gitignore = respect_gitignore
        self.problems: list[FileProblem] = []
        self.watched: list[str] = []

    def walk(self, root: str) -> Iterator[tuple[str, str, str]]:
        """Name, path and real path of each file. Whole paths are put together, not looked up one by one."""
        absolute = os.path.abspath(root)
        above = self._ignores_above(absolute) if self.respect_gitignore else None
        shown = display_name(root)
        stack = [(root, absolute, "" if shown == "." else shown, os.path.realpath(root), above)]
        while stack:
            folder, absolute, name, real, ignores = stack.pop()
            self.watched.append(absolute)
            try:
                with os.scandir(folder) as listing:
                    entries = sorted(listing, key=attrgetter("name"))
            except OSError as error:
                reason = (error.strerror or type(error).__name__).lower()
                self.problems.append(FileProblem(name or ".", f"folder can't be read: {reason}"))
                continue
            if self.respect_gitignore and any(entry.name == ".gitignore" for entry in entries):
                ignores = self._read_ignores(absolute, os.path.join(absolute, ".gitignore"), ignores)
            excludes = self.excludes(Path(absolute))
            before = "" if not name else name if name.endswith("/") else f"{name}/"
            folders = []
            for entry in entries:
                is_dir = entry.is_dir(follow_symlinks=False)
                if not is_dir and not entry.name.endswith((".py", ".ipynb")):
                    continue
                place = os.path.join(absolute, entry.name)
                if excludes.match(place, is_dir) or (ignores is not None and ignores.ignored(place, is_dir)):
                    continue
                own = os.path.join(real, entry.name)
                if is_dir:
                    folders.append((entry.path, place, before + entry.name, own, ignores))
                elif not entry.is_symlink():
                    yield before + entry.name, entry.path, own
                elif not os.path.isdir(place):  # a link to a folder may be named x.py
                    yield before + entry.name, entry.path, os.path.realpath(own)
            stack.extend(reversed(folders))

    def _ignores_above(self, root: str) -> _Ignores | None:
        """The ignore files of the repository that `root` lies in, from its top down to the parent of `root`."""
        top = root
        while not os.path.exists(os.path.join(top, ".git")):
            self.watched.append(os.path.join(top, ".git"))
            parent = os.path.dirname(top)
            if parent == top:
                return None
            top = parent
        chain = self._read_ignores(top, os.path.join(top, ".git", "info", "exclude"), None)
        folder = top
        for part in (_relative(root, top) or "").split("/"):
            if not part:
                break
            chain = self._read_ignores(folder, os.path.join(folder, ".gitignore"), chain)
            folder = os.path.join(folder, part)
            if chain is not None and chain.ignored(folder, is_dir=True):
                return None  # naming an ignored folder asks for it; the rules above would hide all of it
        return chain

    def _read_ignores(self, base: str, file: str, parent: _Ignores | None) -> _Ignores | None:
        self.watched.append(file)
        try:
            with open(file, encoding="utf-8-sig", errors="surrogateescape") as stream:
                lines = [line.rstrip("\r\n") for line in stream]
        except OSError:
            return parent
        return _Ignores(base, gitignore_spec(lines), parent) if any(lines) else parent


def gitignore_spec(lines: Iterable[str]) -> GitIgnoreSpec:
    """Compile patterns; like git, a line that is no pattern is passed over, and so is one that takes too long."""
    from pathspec import GitIgnoreSpec

    lines = [line for line in lines if all(part.count("*") <= MAX_STARS for part in line.split("/"))]
    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError:
        good = []
        for line in lines:
            try:
                GitIgnoreSpec.from_lines([line])
            except ValueError:
                continue
            good.append(line)
        return GitIgnoreSpec.from_lines(good)


def _relative(path: str, base: str) -> str | None:
    """`path` below `base` with forward slashes, or None where it is not below."""
    prefix = base if base.endswith(os.sep) else base + os.sep
    return path[len(prefix) :].replace(os.sep, "/") if path.startswith(prefix) else None
