"""Styled lines for people, and how they reach a stream: plain, or coloured by rich. Knows no format."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
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

HANG = ("", "hang")
"""A piece that shows nothing: under it, the rest of a line goes on that is too long for the terminal."""

_NARROWEST = 20
"""Cells that the rest of a broken line must have; where the hang leaves fewer, it goes on further left."""
_TAB = 4
# Controls, formats (invisible, or they change the order of others), separators of lines, and what is no character.
_UNSHOWN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))

WIDEST = 160
"""Characters of one line that are shown, where nothing else bounds it."""


def plain(text: str) -> Line:
    """A line without style."""
    return [(text, "")]


def clean(text: str) -> str:
    """`text` with everything escaped that would act on a terminal instead of being shown. Tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _shown(char) else _escaped(char) for char in text)


def leading(name: str) -> str:
    """A file name at the beginning of a line; there, GitHub's runner would take ``::`` for a command."""
    return clean(f"./{name}" if name.startswith("::") else name)


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


def crop(text: str, begin: int, stop: int, width: int) -> tuple[str, int, int]:
    """As much of a shown `text` as `width` cells hold, with ``…`` for what is left out, and what of it is underlined.

    `begin` and `stop`, in cells, are the piece that is spoken of; its beginning is always there.
    """
    total = sum(map(_cells, text))
    if total <= width:
        return text, begin, stop
    first = 0 if begin < width * 2 // 3 else begin - width // 3
    shown, at = [], 0
    for char in text:
        if first + (first > 0) <= at and at + _cells(char) <= first + width - 1:
            shown.append(char)
        at += _cells(char)
    head, tail = "…" if first else "", "…" if first + width < total + 1 else ""
    return f"{head}{''.join(shown)}{tail}", begin - first, min(stop - first, width - 1)


def words(text: str, width: int) -> list[str]:
    """`text` in lines of at most `width` characters, broken at blanks where there are any."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] += f" {word}" if lines[-1] else word
    return lines


def folded(line: str, width: int, hang: int) -> list[str]:
    """A line in lines of at most `width` characters, the further ones `hang` to its right; words stay whole."""
    if len(line) <= width:
        return [line]
    from textwrap import wrap

    further = " " * (len(line) - len(line.lstrip()) + hang)
    return wrap(line, width, subsequent_indent=further, break_long_words=False, break_on_hyphens=False)


def reflowed(markdown: str, width: int) -> str:
    """Markdown with its paragraphs and list items in lines of at most `width` characters; code stays as it is."""
    whole = ("#", "```", "|", "    ")
    lines: list[str] = []
    code = False
    for line in markdown.split("\n"):
        code ^= line.startswith("```")
        begins = code or not line or line.startswith(("- ", *whole))
        if begins or not lines or not lines[-1] or lines[-1].startswith(whole):
            lines.append(line)
        else:
            lines[-1] += f" {line.strip()}"
    shown: list[str] = []
    for line in lines:
        code ^= line.startswith("```")
        shown += [line] if code or line.startswith(whole) else folded(line, width, 2 if line.startswith("- ") else 0)
    return "\n".join(shown)


def broken(line: Line, width: int) -> Iterator[Line]:
    """A line with a `HANG` as lines of at most `width` cells, broken at blanks behind it; any other line as it is."""
    if HANG not in line or sum(_cells(char) for text, _ in line for char in text) <= width:
        yield line
        return
    mark = line.index(HANG)
    hang = sum(_cells(char) for text, _ in line[:mark] for char in text)
    indent = max(min(hang, width - _NARROWEST), 0)
    current, used, fresh = line[:mark], hang, False
    for text, style in line[mark + 1 :]:
        # A unit is one word: `1 + S` stays together.
        for token in [text] if style == "unit" else re.findall(r" *[^ ]+| +", text):
            if used + sum(map(_cells, token)) > width and not fresh:
                yield current
                current, used, fresh = [(" " * indent, "")], indent, True
            word = token.lstrip(" ") if fresh else token
            if word and not fresh and current[-1][1] == style:
                current[-1] = (current[-1][0] + word, style)
            elif word:
                current.append((word, style))
            if word:
                used, fresh = used + sum(map(_cells, word)), False
    yield current


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


def counted(number: int, noun: str) -> str:
    """A number of things."""
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun if number == 1 else many}"


def shortened(text: str, widest: int = WIDEST) -> str:
    """A text of bounded length."""
    return text if len(text) <= widest else text[: widest - 1] + "…"
