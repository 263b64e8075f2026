"""Files as bytes, under the names that users see. Knows nothing of what is in them, and loads quickly."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

# Without waiting for the other end of a pipe, which nobody may ever open.
_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


class FileProblem(NamedTuple):
    """Why a file, or a part of the work on it, had to be left out. The run goes on."""

    filename: str
    reason: str
    internal: bool = False
    """True where the fault is ours (a crash), so that the run must not end as if it were clean."""


class Found(NamedTuple):
    """One file of the run; `path` is None for standard input."""

    name: str
    path: Path | None
    identity: str = ""
    """Where it really is, links followed."""


def read_bytes(name: str, path: str | os.PathLike[str]) -> bytes | FileProblem:
    """The bytes of a file, or why they can't be had. What is no regular file (a pipe, a device) is not read."""
    try:
        handle = os.open(path, _FLAGS)
        try:
            status = os.fstat(handle)
            if stat.S_ISDIR(status.st_mode):
                return FileProblem(name, "is a directory")
            if not stat.S_ISREG(status.st_mode):
                return FileProblem(name, "not a regular file")
            data = os.read(handle, status.st_size + 1)
            while more := os.read(handle, 1 << 20) if len(data) != status.st_size else b"":
                data += more  # it has grown, or is too long for one call
            return data
        finally:
            os.close(handle)
    except FileNotFoundError:
        return FileProblem(name, "no such file (a broken link?)" if os.path.islink(path) else "no such file")
    except PermissionError:
        return FileProblem(name, "is a directory" if os.path.isdir(path) else "permission denied")  # as Windows has it
    except OSError as error:
        if error.errno == errno.ENXIO:
            return FileProblem(name, "not a regular file")  # a socket can't even be opened
        return FileProblem(name, (error.strerror or str(error) or type(error).__name__).lower())


def display_name(path: str | os.PathLike[str]) -> str:
    """A path as users see it: normalised, relative where it lies under the working directory, forward slashes."""
    text = os.path.normpath(os.fspath(path))
    if os.path.isabs(text):
        here = os.getcwd()
        try:
            if os.path.commonpath((here, text)) == here:
                text = os.path.relpath(text, here)
        except ValueError:  # another drive
            pass
    return text.replace(os.sep, "/")
