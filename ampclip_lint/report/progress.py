"""What a run is at, on a terminal and only once it has lasted; nothing of it stays."""

from __future__ import annotations

from threading import Event, Lock, Timer
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

PATIENCE = 1.0
"""Seconds in which nobody asks what takes so long."""


class Progress:
    """A line with what the run is at and for how long it has run, while the context is entered."""

    def __init__(self, stream: TextIO, patience: float = PATIENCE) -> None:
        self._stream = stream
        self._timer = Timer(patience, self._begin)
        self._timer.daemon = True
        self._lock = Lock()
        self._text = "reading files"
        self._bar: Bar | None = None
        self._begun = monotonic()
        self._over = False
        self.shown = Event()
        """Whether it has come to that."""

    def __enter__(self) -> Progress:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._over = True
            if self._bar is not None:
                self._bar.stop()

    def show(self, text: str) -> None:
        """Tell what the run is at now."""
        with self._lock:
            self._text = text
            if self._bar is not None:
                self._bar.update(self._bar.task_ids[0], description=text)

    def _begin(self) -> None:
        from rich.console import Console
        from rich.progress import Progress as Bar
        from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

        with self._lock:
            if self._over:
                return
            columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
            self._bar = Bar(*columns, console=Console(file=self._stream), transient=True)
            self._bar.add_task(self._text, total=None)
            self._bar.tasks[0].start_time = self._begun
            self._bar.start()
            self.shown.set()
