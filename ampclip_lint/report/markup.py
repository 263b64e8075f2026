"""Building HTML and SVG so that no text can become markup: what is not made here is escaped. Knows no page."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Union

from ampclip_lint.report.text import clean

Content = Union[str, None, Iterable["Content"]]

_VOID = frozenset({"br", "hr", "input", "meta", "link", "circle", "line", "path", "rect", "polyline"})


class Markup(str):
    """Text that is markup already; only the functions of this module make it."""

    __slots__ = ()


def escaped(text: str) -> Markup:
    """Text as itself: what would act on a browser or a terminal, or be invisible there, is shown by its number."""
    return Markup(html.escape("\n".join(map(clean, text.split("\n"))), quote=True))


def joined(*content: Content) -> Markup:
    """Pieces one after the other."""
    parts: list[str] = []
    for item in content:
        if item is None:
            continue
        if isinstance(item, Markup):
            parts.append(item)
        elif isinstance(item, str):
            parts.append(escaped(item))
        else:
            parts.extend(joined(piece) for piece in item)
    return Markup("".join(parts))


def element(tag: str, *content: Content, **attributes: str | int | float | bool | None) -> Markup:
    """
    An element.

    An attribute that is None or False is left out, and one that is True has no value; ``_`` at the end of a name keeps
    it from being a keyword of Python, any other is a ``-``.
    """
    parts = [tag]
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        key = name.rstrip("_").replace("_", "-")
        parts.append(key if value is True else f'{key}="{escaped(_text(value))}"')
    opening = f"<{' '.join(parts)}>"
    if tag in _VOID:
        return Markup(f"{opening[:-1]}/>")
    return Markup(f"{opening}{joined(*content)}</{tag}>")


def code(text: str) -> Markup:
    """A piece of source, a name, a place."""
    return element("code", text)


def items(content: Iterable[Content]) -> Markup:
    """A list of equal things, without order."""
    return element("ul", [element("li", item) for item in content], class_="plain")


def scroller(label: str, content: Content, class_: str = "scroll") -> Markup:
    """What may be wider than the page, and scrolls by itself, with the keyboard too."""
    return element("div", content, class_=class_, tabindex="0", role="region", aria_label=label)


def prose(text: str) -> Markup:
    """A sentence of the linter: what stands between backticks is code."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        return escaped(text)
    return joined(*(code(piece) if index % 2 else piece for index, piece in enumerate(pieces)))


def raw(text: str) -> Markup:
    """Markup from a file of the package, never from what is reported on."""
    return Markup(text)


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)
