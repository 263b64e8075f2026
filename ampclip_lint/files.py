"""Writing files so that nobody ever sees half of one. Knows nothing of what is written."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def write_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """
    Put `data` in the place of the file at `path`, all of it or, whatever happens meanwhile, nothing.

    A file that exists keeps its permissions, a link still leads to what it led to, and what is no regular file (a pipe,
    a terminal) is written to as it is.

    Raises:
        OSError: as of writing and renaming; then the file is as it was and nothing is left beside it.
    """
    from tempfile import mkstemp

    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        with open(target, "wb") as stream:
            stream.write(data)
        return
    handle, name = mkstemp(prefix=f".{target.name[:100]}.", suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, _mode(target))
        os.replace(name, target)
    except BaseException:  # an interrupt too
        with suppress(OSError):
            os.unlink(name)
        raise


def _mode(target: Path) -> int:
    """The permissions of the file, or those that a new one gets here."""
    try:
        return target.stat().st_mode & 0o7777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
