"""The functions of a file by qualified name, for commands that are asked for one."""

from __future__ import annotations

from ampclip_lint.syntax.index import ModuleIndex, parse
from ampclip_lint.syntax.source import SourceFile

#: The name of a module's body, beside those of its functions.
MODULE = "<module>"


class NotPython(Exception):
    """The text does not parse; the message says where."""


def function_names(source: SourceFile) -> list[str]:
    """``f``, ``Class.method``, ``outer.inner``, in the order of the text."""
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        row = getattr(error, "lineno", None)
        where = f" ({'' if source.cells else 'line '}{source.where(row)})" if row else ""
        raise NotPython(f"not valid Python: {getattr(error, 'msg', None) or error}{where}") from error
    return [_short(info.qualname) for info in ModuleIndex(source, tree).everything]


def matching(wanted: str, known: list[str]) -> list[str]:
    """The known names that `wanted` may mean: itself, or those that end in it; every file has a body."""
    wanted = _short(wanted)
    if wanted == MODULE:
        return [MODULE]
    return [wanted] if wanted in known else [name for name in known if name.endswith("." + wanted)]


def _short(qualname: str) -> str:
    return qualname.replace("<locals>.", "")
