"""What a finding is when it is shown: spans, traces, severities, and the one sort order.

Knows nothing about gradients, syntax trees or output formats.
"""

from __future__ import annotations

from enum import Enum

from ampclip_lint.records import dataclass


class Severity(str, Enum):
    """How bad a finding is: ``error`` is wrong numbers or a certain exception."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Confidence(str, Enum):
    """``definite``: a feasible path inside the program shows the fault; else ``possible``."""

    DEFINITE = "definite"
    POSSIBLE = "possible"


@dataclass(frozen=True, order=True)
class Position:
    """A place in a text; rows and columns count from 1, columns in characters."""

    row: int
    column: int


@dataclass(frozen=True, order=True)
class Span:
    """A piece of one file, with the function that it stands in (``""`` at module level).

    In a notebook it has two forms: rows of the program that the cells make (`cell` is None), for the analysis; and rows
    of one cell, for users.
    """

    filename: str
    start: Position
    end: Position
    function: str = ""
    cell: int | None = None


@dataclass(frozen=True)
class TraceStep:
    """One step of the path that leads to a finding; `unit` is the gradient's unit after it."""

    span: Span
    message: str
    unit: str | None = None


class Applicability(str, Enum):
    """``safe``: the result is right and nothing else changes; ``unsafe``: it may not be what was meant."""

    SAFE = "safe"
    UNSAFE = "unsafe"


@dataclass(frozen=True)
class Edit:
    """One piece of text for another; an insertion where the span is empty."""

    span: Span
    """In the form that users see: rows of a file, or of a cell of a notebook."""
    content: str


@dataclass(frozen=True)
class Fix:
    """Edits that make a finding go away; they do not overlap, and are made together or not at all."""

    message: str
    edits: tuple[Edit, ...]
    applicability: Applicability


@dataclass(frozen=True)
class Diagnostic:
    """One finding as users see it."""

    code: str
    name: str
    severity: Severity
    confidence: Confidence
    message: str
    span: Span
    effect: str | None = None
    trace: tuple[TraceStep, ...] = ()
    url: str | None = None
    line_text: str = ""
    fix: Fix | None = None

    @property
    def sort_key(self) -> tuple[str, int, int, int, str, str]:
        """The order of every report: file, cell, row, column, code, message."""
        start = self.span.start
        return (self.span.filename, self.span.cell or 0, start.row, start.column, self.code, self.message)

    @property
    def fingerprint(self) -> str:
        """A name for the finding that survives moving the code: file, function, code and the line's text."""
        from hashlib import sha256

        text = "\0".join((self.span.filename, self.span.function, self.code, " ".join(self.line_text.split())))
        return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
