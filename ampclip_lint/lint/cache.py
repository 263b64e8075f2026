"""What earlier runs found, kept on disk. Knows which inputs a run had, and nothing of what was done with them.

There are two questions. *Is everything as it was?* is answered by asking the file system about each file and folder
that the run looked at; nothing is read then, not even a rule. *Is all that is analysed as it was?* is answered by
contents, after reading: that is so in a fresh checkout, or when only files changed that do not matter. An entry is JSON
under a checksum: what is damaged is no entry, and reading one executes nothing.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any

from ampclip_lint import __version__

FOLDER = ".ampclip_lint_cache"
#: Entries of either kind that are kept; the oldest go first. No entry is longer than this.
MAX_ENTRIES = 32
MAX_BYTES = 16_000_000
#: What changed less than so many seconds before a run may change again without getting another time: where times are
#: kept to the tick of a clock, and where they are kept to the second or two.
SETTLED, SETTLED_COARSE = 0.05, 2.0
#: A file that is still being written after so many seconds was left by a run that was killed.
ABANDONED = 60.0
_MARKERS = ("ampclip-lint.toml", "pyproject.toml", ".git")
_TAG = b"Signature: 8a477f597d28d172789f06886806bc55\n# This folder is a cache of ampclip-lint and may be deleted.\n"


def default_folder() -> str:
    """Where the cache lies if nobody says: at the top of the project around the working directory."""
    here = os.getcwd()
    top = here
    while not any(os.path.exists(os.path.join(top, marker)) for marker in _MARKERS):
        parent = os.path.dirname(top)
        if parent == top:
            return os.path.join(here, FOLDER)
        top = parent
    return os.path.join(top, FOLDER)


class Cache:
    """A folder of entries. Whatever goes wrong with it, a run only has more to do."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.path.abspath(folder)

    def unchanged(self, asked: object) -> dict[str, Any] | None:
        """The result of the same question, if every file and folder that decided it is as it was."""
        self._sweep()
        entry = self._load("runs", _key(asked))
        if entry is None:
            return None
        try:
            if _stamps(entry["watched"])[0] != entry["stamps"]:
                return None
            result: dict[str, Any] = entry["result"]
        except (KeyError, TypeError, ValueError):
            return None
        return result

    def remember(self, asked: object, watched: Iterable[str], result: Mapping[str, Any], began: float) -> None:
        """Keep a result for as long as the files and folders that decided it stay as they are."""
        if not self._prepare():
            return  # ... which must come first: it changes the folder around it
        by_folder: dict[str, list[str]] = {}
        for path in dict.fromkeys(watched):
            folder, name = os.path.split(path)
            by_folder.setdefault(folder, []).append(name)
        stamps, settled = _stamps(by_folder)
        if settled < began:
            self._save("runs", _key(asked), {"watched": by_folder, "stamps": stamps, "result": result})

    def known(self, contents: str) -> dict[str, Any] | None:
        """What was found in files with this digest of everything that decides it."""
        return self._load("results", contents)

    def learn(self, contents: str, result: Mapping[str, Any]) -> None:
        """Keep what was found."""
        if self._prepare():
            self._save("results", contents, result)

    def _load(self, kind: str, key: str) -> dict[str, Any] | None:
        try:
            with open(os.path.join(self.folder, kind, f"{key}.json"), "rb") as stream:
                data = stream.read(MAX_BYTES + 1)
            checksum, _, text = data.partition(b"\n")
            if checksum.decode() != _digest(text):
                return None
            entry = json.loads(text)
        except (OSError, ValueError, RecursionError):
            return None
        return entry if isinstance(entry, dict) else None

    def _save(self, kind: str, key: str, entry: Mapping[str, Any]) -> None:
        from ampclip_lint.files import write_atomic

        text = json.dumps(entry, separators=(",", ":")).encode()
        if len(text) >= MAX_BYTES:
            return
        folder = os.path.join(self.folder, kind)
        with suppress(OSError):
            os.makedirs(folder, exist_ok=True)
            write_atomic(os.path.join(folder, f"{key}.json"), _digest(text).encode() + b"\n" + text)
            self._prune(folder)

    def _sweep(self) -> None:
        """Remove what runs that were killed have left. One that only was slow loses the entry that it writes."""
        for folder in (self.folder, *(os.path.join(self.folder, kind) for kind in ("runs", "results"))):
            with suppress(OSError), os.scandir(folder) as listing:
                for entry in listing:
                    if entry.name.endswith(".tmp") and entry.stat().st_mtime < time.time() - ABANDONED:
                        with suppress(OSError):
                            os.unlink(entry.path)

    def _prune(self, folder: str) -> None:
        with os.scandir(folder) as listing:
            ages = sorted(((entry.stat().st_mtime_ns, entry.path) for entry in listing), reverse=True)
        for _, path in ages[MAX_ENTRIES:]:
            with suppress(OSError):  # another run was quicker
                os.unlink(path)

    def _prepare(self) -> bool:
        """Make the folder, and mark it as one that nobody wants in a commit or a backup."""
        try:
            os.makedirs(self.folder, exist_ok=True)
            for name, text in ((".gitignore", b"*\n"), ("CACHEDIR.TAG", _TAG)):
                path = os.path.join(self.folder, name)
                if not os.path.exists(path):
                    from ampclip_lint.files import write_atomic

                    write_atomic(path, text)
        except OSError:
            return False
        return True


def own_files(packs: Iterable[str] = (), *, elsewhere: bool = True) -> list[str]:
    """
    The sources of the linter and of the rule packs in these folders; with what is `elsewhere`, the places where
    installing other packs or libraries shows.
    """
    found = [place for place in sys.path if place] if elsewhere else []
    for top in (os.path.dirname(os.path.dirname(os.path.abspath(__file__))), *packs):
        for folder, inner, names in os.walk(top):
            inner[:] = sorted(name for name in inner if name != "__pycache__")
            found += [os.path.join(folder, name) for name in sorted(names) if name.endswith(".py")]
    return found


def digest_of_contents(paths: Iterable[str]) -> str:
    """A digest of the contents of files; of one that can't be read, of that."""
    whole = blake2b(digest_size=20)
    for path in paths:
        try:
            with open(path, "rb") as stream:
                whole.update(blake2b(stream.read(), digest_size=20).digest())
        except OSError:
            whole.update(b"-" * 20)
    return whole.hexdigest()


def digest(parts: Iterable[object]) -> str:
    """A digest of anything that JSON can say."""
    return _digest(json.dumps([__version__, sys.version, list(parts)]).encode())


def _key(asked: object) -> str:
    return digest([os.getcwd(), asked])


def _digest(text: bytes) -> str:
    return blake2b(text, digest_size=20).hexdigest()


def _stamps(watched: Mapping[str, Sequence[str]]) -> tuple[str, float]:
    """A digest of size, times and number of every path, and since when no change can have gone unseen."""
    stamps: list[object] = []
    settled = 0.0
    for folder, names in watched.items():
        for name in names:
            try:
                status = os.stat(os.path.join(folder, name))
            except OSError:
                stamps.append(None)
                continue
            changed, edited = status.st_ctime_ns, status.st_mtime_ns
            stamps.append((status.st_mode, status.st_size, edited, changed, status.st_ino))
            newest = max(changed, edited)
            coarse = edited % 1_000_000_000 == 0
            settled = max(settled, newest / 1e9 + (SETTLED_COARSE if coarse else SETTLED))
    return _digest(repr(stamps).encode()), settled
