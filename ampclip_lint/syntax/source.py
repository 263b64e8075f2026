"""Reading Python source: bytes to text by PEP 263, or the reason why not. Knows nothing about syntax trees."""

from __future__ import annotations

from bisect import bisect
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from ampclip_lint.diagnostics import Position, Span
from ampclip_lint.records import dataclass
from ampclip_lint.syntax.reading import FileProblem as FileProblem
from ampclip_lint.syntax.reading import display_name as display_name
from ampclip_lint.syntax.reading import read_bytes as read_bytes

_UTF8_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class Cell:
    """A code cell of a notebook."""

    number: int
    """Counts all cells from 1, those of text too."""
    first: int
    """The row of its first line in the text of the file."""
    lines: tuple[str, ...]
    """As the user wrote them, without their ends."""


@dataclass(frozen=True)
class SourceFile:
    """The text of one file. Lines end in ``\\n``, whatever they end in on disk; `newline` remembers that.

    The text of a notebook is the Python of its code cells. Rows are rows of the text, until `shown` turns them into
    rows of a cell.
    """

    name: str
    """As shown to users: relative to the working directory where it can be, with forward slashes."""
    path: Path | None
    """None for standard input and for text that was never a file."""
    text: str
    newline: str = "\n"
    encoding: str = "utf-8"
    bom: bool = False
    cells: tuple[Cell, ...] = ()
    """The code cells of a notebook, in order; every row of the text belongs to one."""

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The lines as the user wrote them, without their ends."""
        if self.cells:
            return tuple(line for cell in self.cells for line in cell.lines)
        # As Python splits them; `str.splitlines` would also split at form feeds.
        return tuple(self.text.split("\n"))

    def line(self, row: int) -> str:
        """The line at `row`, which counts from 1; empty outside the text."""
        return self.lines[row - 1] if 1 <= row <= len(self.lines) else ""

    def part(self, number: int | None) -> tuple[str, ...]:
        """The lines that the rows of a span as it is shown count: those of that cell, or of the file."""
        return next((cell.lines for cell in self.cells if cell.number == number), self.lines)

    def shown(self, span: Span) -> Span:
        """The span as users see it: in a notebook with the cell, and rows in the cell."""
        cell = self._cell(span.start.row)
        if cell is None:
            return span
        start, end = (Position(at.row - cell.first + 1, at.column) for at in (span.start, span.end))
        if end.row > len(cell.lines):  # what one cell begins and another ends
            end = max(start, Position(len(cell.lines), len(cell.lines[-1]) + 1))
        return replace(span, start=start, end=end, cell=cell.number)

    def where(self, row: int) -> str:
        """A row as users see it: ``12``, or ``cell 3:12`` in a notebook."""
        cell = self._cell(row)
        return str(row) if cell is None else f"cell {cell.number}:{row - cell.first + 1}"

    def _cell(self, row: int) -> Cell | None:
        index = bisect(self.cells, row, key=lambda cell: cell.first)
        return self.cells[max(index - 1, 0)] if self.cells else None


def decode(name: str, path: Path | None, data: bytes) -> SourceFile | FileProblem:
    """The text of `data` as Python would read it: byte order mark, coding comment, else utf-8."""
    if data.startswith(_UTF16_BOMS):
        return FileProblem(name, "not valid utf-8 at byte 0 (it looks like utf-16)")
    null = data.find(b"\0")
    if null >= 0:
        return FileProblem(name, f"null byte at byte {null}: not a Python source file")
    bom = data.startswith(_UTF8_BOM)
    body = data[len(_UTF8_BOM) :] if bom else data
    declared = _declared_encoding(name, data)
    if isinstance(declared, FileProblem):
        return declared
    try:
        text = body.decode(declared)
    except UnicodeDecodeError as error:
        return FileProblem(name, f"not valid {declared} at byte {error.start + (len(data) - len(body))}")
    except (LookupError, ValueError) as error:
        return FileProblem(name, f"can't be decoded as {declared}: {error}")
    newline = "\r\n" if "\r\n" in text else "\r" if "\r" in text and "\n" not in text else "\n"
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return SourceFile(name, path, text, newline, declared, bom)


def _declared_encoding(name: str, data: bytes) -> str | FileProblem:
    end = -1
    for _ in range(2):  # PEP 263: the first two lines
        end = data.find(b"\n", end + 1)
        if end < 0:
            end = len(data)
            break
    if b"coding" not in data[:end]:
        return "utf-8"

    import io
    import tokenize

    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError as error:
        # detect_encoding also fails when the first lines are not utf-8 although they declare nothing else.
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as undecodable:
            if "invalid or missing" in str(error.msg):
                return FileProblem(name, f"not valid utf-8 at byte {undecodable.start}")
        return FileProblem(name, str(error.msg))
    return "utf-8" if encoding == "utf-8-sig" else encoding
