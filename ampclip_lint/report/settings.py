"""The effective settings for reading, and the JSON schema of the configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from ampclip_lint.lint.config import Configs, Effective
from ampclip_lint.lint.rule import Rule
from ampclip_lint.lint.schema import pyproject_schema, schema
from ampclip_lint.report.text import Line, clean, plain, words
from ampclip_lint.syntax.source import display_name

_WIDTH = 100
"""Characters of a line, on a terminal that has them."""
_ABSENT = {"select": "all rules but those of severity info", "baseline": "none"}


def settings_lines(path: Path, configs: Configs, terminal: int | None = None) -> Iterator[Line]:
    """Each key with its values and their origins, then the rules that are on; `terminal` is its width, if it is one."""
    width = _WIDTH if terminal is None else min(terminal, _WIDTH)
    config = configs.of_folder(Path(path).absolute()) if path.is_dir() else configs.of_file(path)
    codes = configs.selected(config) if path.is_dir() else configs.codes(path)
    yield plain(f"# {clean(display_name(path))}")
    for item in configs.effective(path):
        for assignment in _assignments(item, width):
            yield from map(plain, f"{assignment}  # {clean(item.origin)}".split("\n"))
    if not path.is_dir() and configs.is_excluded(path):
        yield plain("# excluded: only read where it is named")
    for index, line in enumerate(words(" ".join(sorted(codes)), width - len("# rules: "))):
        yield plain(f"# {'rules: ' if index == 0 else '       '}{line}")


def _assignments(item: Effective, width: int) -> Iterator[str]:
    """``key = value``, in TOML; a table has a line for each of its keys."""
    if item.value is None:
        yield f"{item.key} = ({_ABSENT[item.key]})"
    elif not isinstance(item.value, Mapping):
        yield _assignment(item.key, item.value, width)
    elif item.value:
        for name, value in item.value.items():
            shown = f"({value.count(chr(10)) or 1} lines of Python)" if item.key == "models" else _toml(value)
            yield f"{item.key}.{_toml(name)} = {shown}"
    else:
        yield f"{item.key} = {{}}"


def _assignment(key: str, value: object, width: int) -> str:
    text = f"{key} = {_toml(value)}"
    if len(text) <= width or not isinstance(value, (list, tuple)):
        return text
    lines = words(", ".join(map(_toml, value)), width - 4)
    return "\n".join([f"{key} = [", *(f"    {line}" for line in lines), "]"])


def _toml(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    return clean(json.dumps(value, ensure_ascii=False))


def schema_lines(rules: Mapping[str, Rule], *, pyproject: bool = False) -> Iterator[Line]:
    """The schema of our own file, or of pyproject.toml, as JSON."""
    made = pyproject_schema(rules) if pyproject else schema(rules)
    for line in json.dumps(made, indent=2).split("\n"):
        yield plain(line)
