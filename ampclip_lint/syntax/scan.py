"""One look at every file of a run: what the prefilter wants to know of each, from as many processes as pay."""

from __future__ import annotations

import marshal
import os
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple

from ampclip_lint.syntax import prefilter
from ampclip_lint.syntax.reading import FileProblem, Found, read_bytes

#: So many files are read before another process would have started.
_FILES_A_PROCESS = 400
_NOTEBOOK = ".ipynb"


class Look(NamedTuple):
    """What one file told."""

    is_seed: bool
    may_suppress: bool
    lines: bytes
    """Its import lines; of a notebook some lines more."""
    data: bytes | None
    """Its content, where it was read in this process and there is no danger of too much."""
    problem: FileProblem | None = None
    """Why it can't be read."""


def scan(
    files: Sequence[Found],
    *,
    stdin: bytes = b"",
    wrappers: Collection[bytes] = (),
    may_suppress: Callable[[bytes], bool] = lambda _data: False,
    jobs: int = 0,
) -> list[Look]:
    """
    Look at all files, in order. `jobs`: how many processes may do it, 0 for one on each processor; the answer does not
    depend on it.
    """

    def share(first: int, step: int, keep: bool = False) -> list[Look]:
        return [look(file, stdin, wrappers, may_suppress, keep=keep) for file in files[first::step]]

    workers = min(jobs or processors(), 1 + len(files) // _FILES_A_PROCESS)
    if workers < 2 or not hasattr(os, "fork"):
        return share(0, 1, keep=len(files) <= _FILES_A_PROCESS)
    children = [_Child(partial(share, first, workers)) for first in range(1, workers)]
    result: list[Look | None] = [None] * len(files)
    result[0::workers] = share(0, workers)
    for first, child in enumerate(children, 1):
        answer = child.answer()
        result[first::workers] = share(first, workers) if answer is None else answer
    return [one for one in result if one is not None]


def look(
    file: Found,
    stdin: bytes = b"",
    wrappers: Collection[bytes] = (),
    may_suppress: Callable[[bytes], bool] = lambda _data: False,
    *,
    keep: bool = True,
) -> Look:
    """Look at one file; `keep` its content."""
    data = stdin if file.path is None else read_bytes(file.name, file.path)
    problem = data if isinstance(data, FileProblem) else unreadable(file.name, data)
    if problem is not None or isinstance(data, FileProblem):
        return Look(False, False, b"", None, problem)
    code = data
    if file.name.endswith(_NOTEBOOK):
        code = data.replace(b'"', b"\n").replace(b"\\n", b"\n")  # where a line begins in the JSON of a cell
    lines = prefilter.import_lines(code)
    seed = prefilter.is_seed(data, wrappers)
    return Look(seed, may_suppress(data), lines, data if keep or file.path is None else None)


def unreadable(name: str, data: bytes) -> FileProblem | None:
    """Why the bytes of a file are no text."""
    if data.isascii() and b"\0" not in data:
        return None
    if b"\0" not in data and b"coding" not in data[:400]:
        try:
            data.decode("utf-8")
        except UnicodeDecodeError:
            pass  # the whole truth takes longer
        else:
            return None
    from ampclip_lint.syntax.source import decode

    decoded = decode(name, None, data)
    return decoded if isinstance(decoded, FileProblem) else None


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Child:
    """A copy of this process that does a share of the work. Where it dies, there is no answer."""

    def __init__(self, work: Callable[[], list[Look]]) -> None:
        self._end, end = os.pipe()
        try:
            self._pid = os.fork()
        except OSError:  # too many processes, or too little memory
            self._pid = 0
            os.close(end)
            return
        if self._pid:
            os.close(end)
            return
        status = 1
        try:
            os.close(self._end)
            with os.fdopen(end, "wb") as stream:
                # marshal knows plain tuples only.
                plain = [(*tuple(one)[:4], None if one.problem is None else tuple(one.problem)) for one in work()]
                stream.write(marshal.dumps(plain))
            status = 0
        finally:
            os._exit(status)  # nothing of the parent's may run twice: no handlers, no buffers

    def answer(self) -> list[Look] | None:
        with os.fdopen(self._end, "rb") as stream:
            data = stream.read()
        if not self._pid or os.waitpid(self._pid, 0)[1]:
            return None
        # From a child of our own, through a pipe that nobody else knows.
        return [
            Look(seed, hint, lines, content, None if problem is None else FileProblem(*problem))
            for seed, hint, lines, content, problem in marshal.loads(data)
        ]
