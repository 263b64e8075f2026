"""Styled lines for people, and how they reach a stream: plain, or coloured by rich. Knows no format."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import TextIO

Line = list[tuple[str, str]]
"""Pieces of one line with their style: ``""``, a word of `STYLES`, or a severity."""

STYLES = {
    "error": "bold red",
    "warning": "bold yellow",
    "info": "bold blue",
    "path": "bold",
    "code": "bold",
    "gutter": "blue",
    "dim": "dim",
    "note": "bold cyan",
    "unit": "magenta",
}

_TAB = 4
# Controls, formats (invisible, or they change the order of others), separators of lines, and what is no character.
_UNSHOWN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


def plain(text: str) -> Line:
    """A line without style."""
    return [(text, "")]


def clean(text: str) -> str:
    """`text` with everything escaped that would act on a terminal instead of being shown. Tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _shown(char) else _escaped(char) for char in text)


def _shown(char: str) -> bool:
    return char == "\t" or unicodedata.category(char) not in _UNSHOWN


def _escaped(char: str) -> str:
    point = ord(char)
    return f"\\x{point:02x}" if point < 0x100 else f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def expand(text: str, column: int) -> tuple[str, int]:
    """`text` as it is shown (escapes, tabs as blanks) and the width in cells of what stands before `column`."""
    shown: list[str] = []
    width = 0
    before: int | None = None
    for index, char in enumerate(text):
        if index + 1 == column:
            before = width
        piece = " " * (_TAB - width % _TAB) if char == "\t" else char if _shown(char) else _escaped(char)
        shown.append(piece)
        width += sum(_cells(part) for part in piece)
    return "".join(shown), width if before is None else before


def _cells(char: str) -> int:
    if char.isascii():
        return 1
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def write_lines(lines: Iterable[Line], stream: TextIO, *, color: bool) -> None:
    """Write the lines. Only colour needs rich."""
    # What the stream's encoding can't say is escaped: a report must not die of a file name.
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
    if not color:
        stream.writelines("".join(text for text, _ in line) + "\n" for line in lines)
        stream.flush()
        return

    from rich.console import Console
    from rich.text import Text
    from rich.theme import Theme

    console = Console(file=stream, force_terminal=True, theme=Theme(STYLES), highlight=False)
    for line in lines:
        console.print(Text.assemble(*line), soft_wrap=True)
