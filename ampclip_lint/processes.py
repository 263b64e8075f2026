"""Work in copies of this process. Knows nothing of what the work is."""

from __future__ import annotations

import marshal
import os
from collections.abc import Callable
from typing import Any


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def can_fork() -> bool:
    """Whether a process can be copied here."""
    return hasattr(os, "fork")


class Child:
    """A copy of this process that does a share of the work, whose answer is plain: numbers, texts, bytes, tuples and
    lists of them. Where it dies, there is no answer.
    """

    def __init__(self, work: Callable[[], Any]) -> None:
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
                stream.write(marshal.dumps(work()))
            status = 0
        finally:
            os._exit(status)  # nothing of the parent's may run twice: no handlers, no buffers

    def answer(self) -> Any:
        """What came of the work, once it is done; ``None`` where nothing did."""
        with os.fdopen(self._end, "rb") as stream:
            data = stream.read()
        if not self._pid or os.waitpid(self._pid, 0)[1]:
            return None
        return marshal.loads(data)  # from a child of our own, through a pipe that nobody else knows
