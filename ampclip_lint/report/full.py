"""Findings for reading: the source frame, the path that leads there with its units, the effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ampclip_lint.diagnostics import Applicability, Diagnostic, TraceStep
from ampclip_lint.lint.run import RunResult
from ampclip_lint.report.concise import headline
from ampclip_lint.report.place import unit_text
from ampclip_lint.report.text import HANG, Line, broken, clean, crop, expand, shortened

_BEFORE = 2
_AFTER = 1
_LONGEST = 8
"""Lines of a span that are shown; of a longer one, the middle is left out."""
_WIDEST = 64
"""Characters of a source line in the path."""
_NARROWEST = 8
"""Of these and of the frame, however narrow the terminal is."""


def render(result: RunResult, *, width: int | None = None) -> Iterator[Line]:
    """All findings, with an empty line between them; `width` is that of the terminal, if it is one."""
    for index, diagnostic in enumerate(result.diagnostics):
        if index:
            yield []
        for line in _finding(diagnostic, result, width):
            yield from [line] if width is None else broken(line, width)


def _finding(diagnostic: Diagnostic, result: RunResult, width: int | None) -> Iterator[Line]:
    source = result.source(diagnostic.span.filename)
    lines = source.part(diagnostic.span.cell) if source else ()
    last = min(diagnostic.span.end.row + _AFTER, len(lines))
    while last > diagnostic.span.end.row and not _line(lines, last).strip():
        last -= 1
    margin = " " * len(str(last or 1))
    (path, style), *rest = headline(diagnostic)
    yield [(path[:4], style), HANG, (path[4:], style), *rest]
    if source is not None:
        yield [(f"{margin} |", "gutter")]
        yield from _frame(diagnostic, lines, last, len(margin), width)
        yield [(f"{margin} |", "gutter")]
    room = None if width is None else width - len(margin) - len(" = path: ")
    for index, step in enumerate(_steps(diagnostic, result, room)):
        label = [(f"{margin} = ", "gutter"), ("path: ", "note")] if index == 0 else [(f"{margin}         ", "")]
        yield label + step
    if diagnostic.effect is not None:
        yield [(f"{margin} = ", "gutter"), ("effect: ", "note"), HANG, (clean(diagnostic.effect), "")]
    if diagnostic.fix is not None:
        option = "--fix" if diagnostic.fix.applicability is Applicability.SAFE else "--fix --unsafe-fixes"
        yield [(f"{margin} = ", "gutter"), ("fix: ", "note"), HANG, (f"{clean(diagnostic.fix.message)} ({option})", "")]
    yield [(f"{margin} = ", "gutter"), ("help: ", "note"), HANG, (f"ampclip-lint explain {diagnostic.code}", "")]


def _frame(diagnostic: Diagnostic, lines: Sequence[str], last: int, margin: int, width: int | None) -> Iterator[Line]:
    start, end = diagnostic.span.start, diagnostic.span.end
    style = diagnostic.severity.value
    first = max(start.row - _BEFORE, 1)
    while first < start.row and not _line(lines, first).strip():
        first += 1
    for row in range(first, last + 1):
        if start.row + _LONGEST // 2 <= row <= end.row - _LONGEST // 2:
            if row == start.row + _LONGEST // 2:
                yield [(f"{'.' * min(3, margin):>{margin}} |", "gutter")]
            continue
        text = _line(lines, row)
        marked = start.row <= row <= end.row and bool(text.strip())
        left = start.column if row == start.row else len(text) - len(text.lstrip()) + 1
        right = end.column if row == end.row else len(text.rstrip()) + 1
        shown, begin = expand(text, left if marked else 1)
        _, stop = expand(text, right if marked else 1)
        shown = shown.rstrip()
        if width is not None:
            shown, begin, stop = crop(shown, begin, stop, max(width - margin - 3, _NARROWEST))
        yield [(f"{row:>{margin}} | ", "gutter"), (shown, "")] if shown else [(f"{row:>{margin}} |", "gutter")]
        if marked:
            yield [(f"{' ' * margin} | ", "gutter"), (" " * begin, ""), ("^" * max(stop - begin, 1), style)]


def _steps(diagnostic: Diagnostic, result: RunResult, room: int | None) -> list[Line]:
    """The steps of the path in columns: place, source text, what happens there, the unit after it."""
    rows = []
    for step in diagnostic.trace:
        place = str(step.span.start.row)
        elsewhere = step.span.filename != diagnostic.span.filename
        if step.span.cell is not None and (elsewhere or step.span.cell != diagnostic.span.cell):
            place = f"cell {step.span.cell}:{place}"
        if elsewhere:
            place = f"{clean(step.span.filename)}:{place}"
        rows.append((place, _excerpt(step, result), clean(step.message), step.unit))
    if not rows:
        return []
    if room is not None:  # of a long path the end says more than the beginning
        rows = [(shortened(row[0][::-1], max(room // 3, 20))[::-1], *row[1:]) for row in rows]
    place_width = max(len(row[0]) for row in rows)
    widest = _WIDEST if room is None else min(_WIDEST, max((room - place_width - 5) // 2, _NARROWEST))
    rows = [(place, shortened(text, widest), message, unit) for place, text, message, unit in rows]
    text_width = max(len(row[1]) for row in rows)
    lines: list[Line] = []
    for place, text, message, unit in rows:
        line: Line = [(f"{place:>{place_width}} | ", "gutter"), (f"{text:<{text_width}}  ", ""), HANG]
        line.append((message if unit is None else f"{message},", "dim"))
        if unit is not None:
            line.append((f" {clean(unit_text(unit))}", "unit"))
        lines.append(line)
    return lines


def _excerpt(step: TraceStep, result: RunResult) -> str:
    """The source of the step: its span, or the rest of the line where that is empty or goes on below."""
    source = result.sources.get(step.span.filename)
    start, end = step.span.start, step.span.end
    lines = source.part(step.span.cell) if source else ()
    line = _line(lines, start.row)
    stop = end.column - 1 if end.row == start.row and end.column > start.column else len(line)
    return clean(line[start.column - 1 : stop].strip().replace("\t", " "))


def _line(lines: Sequence[str], row: int) -> str:
    """The line at `row`; a place may lie behind the last one."""
    return lines[row - 1] if 1 <= row <= len(lines) else ""
