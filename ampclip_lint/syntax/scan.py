"""One look at every file of a run: what the prefilter wants to know of each, from as many processes as pay."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

from ampclip_lint.processes import Child, can_fork, processors
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
    if workers < 2 or not can_fork():
        return share(0, 1, keep=len(files) <= _FILES_A_PROCESS)
    children = [Child(partial(_told, partial(share, first, workers))) for first in range(1, workers)]
    result: list[Look | None] = [None] * len(files)
    result[0::workers] = share(0, workers)
    for first, child in enumerate(children, 1):
        answer = child.answer()
        result[first::workers] = share(first, workers) if answer is None else list(map(_heard, answer))
    return [one for one in result if one is not None]


def _told(work: Callable[[], list[Look]]) -> list[tuple[object, ...]]:
    """Looks as they go from one process to another."""
    return [(*tuple(one)[:4], None if one.problem is None else tuple(one.problem)) for one in work()]


def _heard(told: tuple[Any, ...]) -> Look:
    seed, hint, lines, data, problem = told
    return Look(seed, hint, lines, data, None if problem is None else FileProblem(*problem))


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
