"""What ends a run before it begins: wrong configuration, unknown codes, no rules. The command exits with 2."""

from __future__ import annotations

from collections.abc import Iterable


class ToolError(Exception):
    """The message is complete and meant for users."""


def nearest(word: str, known: Iterable[str]) -> str:
    """``; did you mean `x`?`` for the known word nearest to `word` (or to the end of a dotted one), else nothing."""
    from difflib import get_close_matches

    known = list(known)
    meant = {item.rpartition(".")[2].casefold(): item for item in known} | {item.casefold(): item for item in known}
    close = get_close_matches(word.casefold(), meant, n=1, cutoff=0.65)
    return f"; did you mean `{meant[close[0]]}`?" if close else ""
