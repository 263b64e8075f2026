"""Pictures as SVG: the unit of gradients along a path, and worked numbers over S. Knows no page and no analysis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import PurePosixPath

from ampclip_lint.loops import Age, Curve, Held, History, Level, Moment
from ampclip_lint.report.markup import Markup, element, joined, raw
from ampclip_lint.report.text import shortened

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

# The rows of a timeline beside those of the powers of S.
_UNKNOWN, _EMPTY, _MIXED = "unknown", "no gradients", "mixed"

_LEFT, _COLUMN, _TOP, _ROW, _FOOT = 104, 88, 40, 36, 46
_SPREAD = 5
"""Pixels between the lines of two optimizers in one row."""
_NAME = 40
"""Characters of an optimizer's name."""


def unit_text(text: str) -> str:
    """A unit for people: ``1/S`` for ``S^-1``, ``S′`` for ``S_old``."""
    text = text.replace("_old", "′").replace("S^-1", "1/S")
    head, caret, power = text.partition("^")
    return head + power.translate(_SUPERSCRIPTS) if caret and " " not in text else text


def power_text(power: int) -> str:
    """A power of S."""
    return {-1: "1/S", 0: "1", 1: "S"}.get(power) or "S" + str(power).translate(_SUPERSCRIPTS)


def number_text(value: float) -> str:
    """A number in three digits: ``0.125``, ``1.53·10⁻⁵``."""
    mantissa, e, exponent = f"{value:.3g}".partition("e")
    return f"{mantissa}·10{str(int(exponent)).translate(_SUPERSCRIPTS)}" if e else mantissa


# -- the timeline -----------------------------------------------------------------------------------------------------


def timeline(history: History, name: str) -> Markup:
    """The units of the gradients behind each event of a path, one line for each optimizer; `name` makes ids unique."""
    rows = _rows(history)
    width = _LEFT + _COLUMN * len(history.moments) + 12
    bottom = _TOP + _ROW * len(rows)
    legend = len(history.optimizers) > 1
    several = len({moment.span.filename for moment in history.moments}) > 1
    height = bottom + _FOOT + (18 if legend else 0)
    names = [shortened(optimizer, _NAME) for optimizer in history.optimizers]
    if legend:
        width = max(width, _LEFT + sum(map(_wide, names)))
    parts: list[Markup] = [
        element("title", "The unit of the gradients along the path", id=f"{name}-title"),
        element("desc", spoken(history), id=f"{name}-desc"),
    ]
    for index, row in enumerate(rows):
        y = _TOP + _ROW * index + _ROW // 2
        right = power_text(0) == row
        parts.append(element("line", x1=_LEFT - 8, y1=y, x2=width - 6, y2=y, class_="rule true" if right else "rule"))
        parts.append(element("text", row, x=_LEFT - 16, y=y + 4, class_="level"))
    for index, moment in enumerate(history.moments):
        x = _x(index)
        if moment.marked:
            parts.append(
                element(
                    "rect",
                    x=x - _COLUMN // 2 + 3,
                    y=_TOP - 8,
                    width=_COLUMN - 6,
                    height=bottom - _TOP + 44,
                    rx=6,
                    class_="fault",
                )
            )
            parts.append(element("text", "▼ here", x=x, y=_TOP - 14, class_="here"))
        parts.append(element("text", moment.event, x=x, y=bottom + 16, class_="event"))
        parts.append(element("text", _where(moment, several), x=x, y=bottom + 32, class_="where"))
    for number in range(len(history.optimizers)):
        parts.append(_track(history, number, rows))
    if legend:
        parts += _legend(names, bottom + _FOOT + 8)
    return _svg(parts, width, height, f"{name}-title {name}-desc", "timeline")


def spoken(history: History) -> str:
    """A timeline in words."""
    told = []
    for moment in history.moments:
        held = [
            f"{held_text(held)}" if len(history.optimizers) == 1 else f"{optimizer}: {held_text(held)}"
            for optimizer, held in zip(history.optimizers, moment.held)
        ]
        here = " (the finding)" if moment.marked else ""
        told.append(f"{moment.event} in line {moment.span.start.row}{here}: {', '.join(held)}")
    return "; ".join(told)


def held_text(held: Held) -> str:
    """What gradients are: ``S``, ``1 + S``, ``no gradients``."""
    if not held.levels:
        return _UNKNOWN if held.unknown else _EMPTY
    return " + ".join(unit_text(level.text) for level in held.levels)


def _rows(history: History) -> list[str]:
    """The rows that the picture needs, from the top."""
    every = [held for moment in history.moments for held in moment.held]
    levels = {level for held in every for level in held.levels}
    powers = {0, 1} | {level.power for level in levels if level.age is not Age.MIXED}
    rows = [power_text(power) for power in sorted(powers, reverse=True)]
    if any(level.age is Age.MIXED for level in levels):
        rows.insert(0, _MIXED)
    if any(not held.levels and not held.unknown for held in every):
        rows.append(_EMPTY)
    if any(not held.levels and held.unknown for held in every):
        rows.append(_UNKNOWN)
    return rows


def _row_of(level: Level) -> str:
    return _MIXED if level.age is Age.MIXED else power_text(level.power)


def _where(moment: Moment, several: bool) -> str:
    """The line of a moment, with what fits of the file's name where there are `several`."""
    row = moment.span.start.row
    if not several:
        return f"line {row}"
    stem = PurePosixPath(moment.span.filename).stem
    return f"{stem if len(stem) <= 9 else stem[:8] + '…'}:{row}"


def _x(index: int) -> int:
    return _LEFT + _COLUMN * index + _COLUMN // 2


def _track(history: History, number: int, rows: Sequence[str]) -> Markup:
    """The line of one optimizer: a dot for each unit in the sum, a bar through the dots of one sum."""
    shift = round((number - (len(history.optimizers) - 1) / 2) * _SPREAD)
    lines: list[Markup] = []
    dots: list[Markup] = []
    before: list[int] = []
    for index, moment in enumerate(history.moments):
        held, x = moment.held[number], _x(index) + shift
        marks = {_row_of(level): level for level in held.levels}
        if not marks:
            marks = {_UNKNOWN if held.unknown else _EMPTY: Level(0, "")}
        ys = [_TOP + _ROW * rows.index(row) + _ROW // 2 + shift for row in marks]
        for y in ys:
            start = min(before, key=lambda other: abs(other - y), default=None)
            if start is not None:
                lines.append(element("line", x1=x - _COLUMN, y1=start, x2=x, y2=y))
        if len(ys) > 1:
            lines.append(element("line", x1=x, y1=min(ys), x2=x, y2=max(ys), class_="sum"))
        for (row, level), y in zip(marks.items(), ys):
            kind = "empty" if row in (_EMPTY, _UNKNOWN) else "stale" if level.age is Age.STALE else None
            dots.append(element("circle", cx=x, cy=y, r=5, class_=kind))
            text = unit_text(level.text)
            if text and text != row:
                dots.append(element("text", text, x=x + 9, y=y - 7, class_="note"))
        before = ys
    return element("g", lines, dots, class_=f"track t{number % 4}")


def _legend(optimizers: Sequence[str], y: int) -> Iterator[Markup]:
    x = _LEFT
    for number, optimizer in enumerate(optimizers):
        yield element(
            "g",
            element("line", x1=x, y1=y - 4, x2=x + 22, y2=y - 4),
            element("circle", cx=x + 11, cy=y - 4, r=4),
            class_=f"track t{number % 4}",
        )
        yield element("text", optimizer, x=x + 28, y=y, class_="name")
        x += _wide(optimizer)


def _wide(name: str) -> int:
    return 44 + 8 * len(name)


# -- the plot ---------------------------------------------------------------------------------------------------------

_WIDTH, _HEIGHT = 400, 232
_PLOT = (64, 8, 376, 186)
"""Left, top, right and bottom of the axes."""
_TICKS = (1.0, 8.0, 64.0, 1024.0, 65536.0)


def plot(curve: Curve, name: str) -> Markup:
    """Intended and applied numbers over S, both axes logarithmic."""
    left, top, right, bottom = _PLOT
    largest = max(scale for scale, _ in curve.applied)
    values = [curve.intended, *(value for _, value in curve.applied)]
    # Room for the words that stand beside the ends of the lines.
    low, high = math.floor(math.log10(min(values)) - 0.3), math.ceil(math.log10(max(values)) + 0.3)

    def x(scale: float) -> float:
        return round(left + (right - left) * math.log(scale, largest), 1)

    def y(value: float) -> float:
        return round(bottom - (bottom - top) * (math.log10(value) - low) / (high - low), 1)

    parts = [
        element("title", f"The {curve.quantity} over the loss scale S", id=f"{name}-title"),
        element("desc", spoken_curve(curve), id=f"{name}-desc"),
        element("rect", x=left, y=top, width=right - left, height=bottom - top, class_="frame"),
    ]
    for scale in _TICKS:
        parts.append(element("line", x1=x(scale), y1=bottom, x2=x(scale), y2=bottom + 4, class_="tick"))
        parts.append(element("text", f"{scale:.0f}", x=x(scale), y=bottom + 17, class_="along"))
    for exponent in _decades(low, high):
        at = y(10.0**exponent)
        parts.append(element("line", x1=left, y1=at, x2=right, y2=at, class_="rule"))
        parts.append(element("text", _decade(exponent), x=left - 6, y=at + 4, class_="level"))
    parts.append(element("text", "loss scale S", x=(left + right) // 2, y=bottom + 34, class_="along"))
    meant = y(curve.intended)
    parts.append(element("line", x1=left, y1=meant, x2=right, y2=meant, class_="intended"))
    points = [(x(scale), y(value)) for scale, value in curve.applied]
    parts.append(element("polyline", points=" ".join(f"{px:g},{py:g}" for px, py in points), class_="applied"))
    parts += [
        element("circle", cx=x(scale), cy=y(value), r=3.5, class_="applied")
        for scale, value in curve.applied
        if scale in _TICKS
    ]
    first, last = y(curve.applied[0][1]), y(curve.applied[-1][1])
    # Words stand where no line goes: those of the end on the outer side of the slope, the others beyond both lines.
    parts.append(
        element("text", f"intended: {number_text(curve.intended)}", x=left + 8, y=meant + (-6 if last >= meant else 15))
    )
    end = number_text(curve.applied[-1][1])
    parts.append(element("text", end, x=right - 6, y=last + (15 if last > first else -8), class_="end"))
    return _svg(parts, _WIDTH, _HEIGHT, f"{name}-title {name}-desc", "plot")


def spoken_curve(curve: Curve) -> str:
    """A plot in words."""
    told = ", ".join(f"{number_text(value)} at S = {scale:.0f}" for scale, value in curve.applied if scale in _TICKS)
    return f"Intended: {number_text(curve.intended)}. With {curve.formula}: {told}."


def _decades(low: int, high: int) -> range:
    return range(low, high + 1, max(1, math.ceil((high - low) / 6)))


def _decade(exponent: int) -> str:
    if -2 <= exponent <= 3:
        return f"{10.0**exponent:g}"
    return "10" + str(exponent).translate(_SUPERSCRIPTS)


# -- both -------------------------------------------------------------------------------------------------------------


def _svg(parts: Sequence[Markup], width: int, height: int, labelled: str, kind: str) -> Markup:
    return element(
        "svg",
        parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        role="img",
        aria_labelledby=labelled,
        class_=kind,
    )


def style() -> Markup:
    """How pictures look, by the colours that surround them."""
    return asset("picture.css")


def asset(name: str) -> Markup:
    """A file that belongs to the reports."""
    return raw((files("ampclip_lint.report") / "audit_assets" / name).read_text(encoding="utf-8"))


def standalone(picture: Markup) -> str:
    """A picture as a file of its own, with its colours."""
    opening, bracket, rest = picture.partition(">")
    return joined(raw(opening + bracket), "\n", element("style", asset("colours.css"), style()), raw(rest), "\n")
