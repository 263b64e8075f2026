"""Notebooks: the code cells of an ``.ipynb`` file as one Python program, line for line. Never looks at outputs."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ampclip_lint.syntax.source import Cell, FileProblem, SourceFile, decode

SUFFIX = ".ipynb"

#: Cell magics whose cell is Python that runs in the namespace of the notebook. Every other one has it to itself.
_TRANSPARENT = frozenset({"capture", "debug", "ipytest", "memit", "prun", "time", "timeit"})

_CELL_MAGIC = re.compile(r"%%(\w*)")
#: A line magic that runs the statement after it, options left out.
_STATEMENT = re.compile(
    r"(?P<magic>%(?:time|timeit|prun|memit)[ \t]+(?:-[a-zA-Z]\w*(?:[ \t]+\d+)?[ \t]+)*)(?P<statement>[^-].*)"
)
_ASSIGNMENT = re.compile(r"(?P<targets>[\w.,*\[\]'\"() \t]+?=)[ \t]*[%!]")
_HELP = re.compile(r"%{0,2}[\w.*\[\]'\"]+\?\??[ \t;]*$")
#: Magics that people write without their percent sign, where what follows is no operator.
_BARE = re.compile(
    r"(?:cat|cd|conda|cp|env|load_ext|ls|mamba|matplotlib|mkdir|mv|pip|pylab|reload_ext|rm|run|set_env)[ \t]+"
    r"[\w./~\"'-]"
)
_LEXEME = re.compile(
    r"""(?P<comment>\#.*)|(?P<triple>\"{3}|'{3})|"(?:\\.|[^"\\])*"?|'(?:\\.|[^'\\])*'?|(?P<open>[\[({])|(?P<close>[\])}])"""
)
_CLOSING = {quote: re.compile(rf"(?:\\.|[^\\])*?{quote}") for quote in ('"""', "'''")}


def is_notebook(name: str) -> bool:
    """Whether a file of that name holds cells and not lines."""
    return name.endswith(SUFFIX)


def read_source(name: str, path: Path | None, data: bytes) -> SourceFile | FileProblem:
    """The Python text of a file: what it is, or for a notebook what its code cells hold."""
    source = decode(name, path, data)
    return _from_json(source) if isinstance(source, SourceFile) and is_notebook(name) else source


def _from_json(file: SourceFile) -> SourceFile | FileProblem:
    notebook = _loaded(file.text)
    if isinstance(notebook, str):
        return FileProblem(file.name, notebook)
    cells: list[Cell] = []
    program: list[str] = []
    for number, cell in enumerate(notebook["cells"] if _is_python(notebook["metadata"]) else (), 1):
        kind, source = cell.get("cell_type"), cell.get("source")
        if not isinstance(kind, str) or not isinstance(source, str):
            missing = "cell_type" if not isinstance(kind, str) else "source"
            return FileProblem(file.name, f"not a valid notebook: cell {number} has no `{missing}`")
        if "\0" in source:
            return FileProblem(file.name, f"null byte in cell {number}: not Python source")
        if kind != "code" or not _is_python_cell(cell):
            continue
        # JSON can say half of a surrogate pair, which no encoding can; the replacement is as wide.
        lines = source.encode("utf-8", "replace").decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")
        python = _python(lines)
        if python is not None:
            cells.append(Cell(number, len(program) + 1, tuple(lines)))
            program += python
    return SourceFile(file.name, file.path, "\n".join([*program, ""]), cells=tuple(cells))


def _loaded(text: str) -> Any:
    """The notebook in the present format, whatever format it is in; or why there is none."""
    with warnings.catch_warnings():
        # nbformat warns of what writing the notebook back would change, and nobody will.
        warnings.simplefilter("ignore")
        import nbformat
        from nbformat.reader import NotJSONError, reads

        try:
            # Not validated: an output that is against the format must not hide the code.
            found = nbformat.convert(reads(text), 4)
        except NotJSONError as error:
            cause = error.__cause__
            place = f" (line {cause.lineno}: {cause.msg.lower()})" if hasattr(cause, "lineno") else ""
            return f"not a notebook: not JSON{place}"
        except RecursionError:
            return "not a notebook: nested too deeply"
        except Exception as error:  # a key that is missing, or a value of another type, is met with any of them
            found = f"not a valid notebook: {str(error).partition(chr(10))[0]}"
    # To nbformat, JSON that names no version is its first one.
    return found if '"nbformat"' in text else "not a notebook: no `nbformat` in it"


def _is_python(metadata: Mapping[str, Any]) -> bool:
    """Whether the kernel runs Python; a notebook that does not say so is taken to."""
    for table, key in (("language_info", "name"), ("kernelspec", "language")):
        value = metadata.get(table)
        language = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(language, str):
            return language.lower().rstrip("0123456789.") in ("python", "ipython")
    return True


def _is_python_cell(cell: Mapping[str, Any]) -> bool:
    """Editors keep the language of a single cell in its metadata."""
    metadata = cell.get("metadata")
    editor = metadata.get("vscode") if isinstance(metadata, Mapping) else None
    language = editor.get("languageId") if isinstance(editor, Mapping) else None
    return language in (None, "python")


def _python(lines: list[str]) -> list[str] | None:
    """The lines with everything replaced that only a notebook understands, or None if none of them is Python."""
    result: list[str] = []
    body = False
    at_start, skipped = True, False
    quote, depth = "", 0
    for line in lines:
        stripped = line.strip()
        magic = None if body else _CELL_MAGIC.match(stripped)
        body = body or not (magic or not stripped or stripped.startswith("#"))
        if magic is not None:
            if magic[1] not in _TRANSPARENT:
                return None
            result.append("pass")
        elif skipped:  # the command above goes on
            result.append("")
            skipped = line.endswith("\\")
        elif at_start and (python := _replacement(line)) is not None:
            result.append(python)
            skipped = line.endswith("\\")
        else:
            result.append(line)
            quote, depth, continued = _after(line, quote, depth)
            at_start = not (quote or depth or continued)
    return result


def _replacement(line: str) -> str | None:
    """Python for a line that begins a statement and is none; None if it is one already."""
    body = line.lstrip()
    indent = line[: len(line) - len(body)]
    if body.startswith("%"):
        timed = _STATEMENT.match(body)
        if timed is None or not _parses(f"0; {timed['statement']}"):
            return f"{indent}pass"
        # The statement stays where it stands, so that its columns are the user's.
        return f"{indent}{'0':<{len(timed['magic']) - 1}};{timed['statement']}"
    assigned = _ASSIGNMENT.match(body)
    if assigned is not None:
        return f"{indent}{assigned['targets']} get_ipython()"  # nobody knows what comes back
    if body.startswith(("!", "?")) or _HELP.match(body) or (_BARE.match(body) and not _parses(body)):
        return f"{indent}pass"
    return None


def _parses(text: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
    return True


def _after(line: str, quote: str, depth: int) -> tuple[str, int, bool]:
    """Behind a line: the string that is open, the number of open brackets, and whether a backslash joins the next."""
    position = 0
    while True:
        if quote:
            end = _CLOSING[quote].match(line, position)
            if end is None:
                return quote, depth, False
            quote, position = "", end.end()
        found = _LEXEME.search(line, position)
        if found is None:
            return "", depth, line.endswith("\\")
        if found["comment"]:
            return "", depth, False
        quote = found["triple"] or ""
        depth = max(depth + bool(found["open"]) - bool(found["close"]), 0)
        position = found.end()
