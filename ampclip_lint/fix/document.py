"""The bytes of a file, edited in a few places: everything else stays as it is, to the byte.

Knows encodings, line ends and the JSON of notebooks, and nothing of Python.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from ampclip_lint.diagnostics import Edit, Position
from ampclip_lint.syntax.source import SourceFile

_BOM = b"\xef\xbb\xbf"
_END = re.compile(r"\r\n|\r|\n")
_BLANK = re.compile(r"[ \t\r\n]*")


class NotEditable(Exception):
    """Why the edits can't be made in this file."""


def edited(source: SourceFile, data: bytes, edits: Sequence[Edit]) -> bytes:
    """
    The bytes `data` of the file `source` with the edits made in them.

    Raises:
        NotEditable: if that would change anything else.
    """
    bom = _BOM if source.bom else b""
    body = data[len(bom) :]
    try:
        text = body.decode(source.encoding)
        if text.encode(source.encoding) != body:
            raise NotEditable(f"its bytes are not the only ones for its text in {source.encoding}")
        changed = _with_cells(source, text, edits) if source.cells else with_edits(text, edits)
        return bom + changed.encode(source.encoding)
    except UnicodeError as error:
        raise NotEditable(f"can't be written as {source.encoding}") from error


def with_edits(text: str, edits: Sequence[Edit]) -> str:
    """A text with edits in it; what is inserted gets the line ends of the lines around it."""
    starts, ends = [0], []
    for found in _END.finditer(text):
        starts.append(found.end())
        ends.append(found[0])

    def offset(position: Position) -> int:
        return starts[position.row - 1] + position.column - 1

    places = [(offset(edit.span.start), offset(edit.span.end), edit) for edit in edits]
    places.sort(key=lambda place: place[:2])
    if any(before[1] > after[0] for before, after in pairwise(places)):
        raise NotEditable("the edits overlap")
    for start, end, edit in reversed(places):
        row = edit.span.start.row - 1
        newline = ends[min(row, len(ends) - 1)] if ends else "\n"
        text = text[:start] + edit.content.replace("\n", newline) + text[end:]
    return text


# --- notebooks


def _with_cells(source: SourceFile, text: str, edits: Sequence[Edit]) -> str:
    places = list(_sources(text))
    replacements = []
    for number in sorted({edit.span.cell or 0 for edit in edits}):
        place = places[number - 1] if 0 < number <= len(places) else None
        if place is None:
            raise NotEditable("the notebook is in an old format")
        start, end = place
        own = [edit for edit in edits if edit.span.cell == number]
        replacements.append((start, end, _value(text, start, end, own)))
    for start, end, value in reversed(replacements):
        text = text[:start] + value + text[end:]
    return text


def _value(text: str, start: int, end: int, edits: Sequence[Edit]) -> str:
    """The JSON of a cell's source with edits in it, written as it was: a string or a list of lines, indented or not."""
    raw = text[start:end]
    old = json.loads(raw)
    # Whether what is not ASCII stands for itself is the habit of whoever wrote the file.
    ascii_only = text.isascii()
    if isinstance(old, str):
        if json.dumps(old, ensure_ascii=ascii_only) != raw:
            raise NotEditable("the source of the cell is written in an unusual way")
        return json.dumps(with_edits(old, edits), ensure_ascii=ascii_only)
    items = list(_items(text, start))
    if not items:
        raise NotEditable("the cell is empty")
    written = {old[index]: text[first:last] for index, (first, last) in enumerate(items)}
    opening, closing = text[start : items[0][0]], text[items[-1][1] : end]
    blank = opening[1:]
    between = text[items[0][1] : items[1][0]] if len(items) > 1 else f",{blank or ' '}"
    lines = [line for line in re.split(r"(?<=\n)", with_edits("".join(old), edits)) if line]
    new = [written.get(line) or json.dumps(line, ensure_ascii=ascii_only) for line in lines]
    return opening + between.join(new) + closing


def _sources(text: str) -> Iterator[tuple[int, int] | None]:
    """Where the source of each cell stands in the JSON of a notebook."""
    for key, start, _ in _members(text, _skip(text, 0)):
        if key == "cells":
            for cell, _ in _items(text, start):
                yield next(((first, last) for name, first, last in _members(text, cell) if name == "source"), None)


def _members(text: str, start: int) -> Iterator[tuple[str, int, int]]:
    """The keys of the object that begins at `start`, with where their values stand."""
    position = _skip(text, start + 1)
    while text[position] != "}":
        key, position = json.JSONDecoder().raw_decode(text, position)
        position = _skip(text, _skip(text, position) + 1)  # the colon
        end = _after(text, position)
        yield key, position, end
        position = _skip(text, end)
        if text[position] == ",":
            position = _skip(text, position + 1)


def _items(text: str, start: int) -> Iterator[tuple[int, int]]:
    """Where the items of the array that begins at `start` stand."""
    position = _skip(text, start + 1)
    while text[position] != "]":
        end = _after(text, position)
        yield position, end
        position = _skip(text, end)
        if text[position] == ",":
            position = _skip(text, position + 1)


def _after(text: str, start: int) -> int:
    return json.JSONDecoder().raw_decode(text, start)[1]


def _skip(text: str, position: int) -> int:
    match = _BLANK.match(text, position)
    assert match is not None
    return match.end()
