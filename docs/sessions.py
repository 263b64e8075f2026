"""Runs the commands in a page, and puts what they answer under them.

A fenced block behind the comment `<!-- file: NAME -->` is a file, in a folder that the page has to itself. One behind
`<!-- edit: NAME -->` changes it: the lines with `-` give way to those with `+`. A block of `text` whose first line
begins with `$ ` is a session: each such line is a command, run in that folder in its turn. Of a shell it has `cat`,
`mv`, `echo $?` and `<`; `python` runs a file of the page, or a module.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from click.testing import CliRunner

from ampclip_lint.cli import main
from ampclip_lint.lint import registry

BLOCK = re.compile(
    r"(?:^<!-- (?:file: (?P<file>\S+)|edit: (?P<edited>\S+)) -->\n\n?)?^(?P<fence>`{3,})"
    r"(?P<language>\w*)\n(?P<body>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)

UNRUN: Mapping[str, str] = {
    "pip install --quiet .": "downloads; it says nothing, and what it installs is what the other commands run",
}
"""Commands that are shown and not run, with the reason."""


def answered(text: str) -> str:
    """The page with the true answer under each of its commands."""
    if "<!-- file: " not in text:
        return text  # its sessions have generators of their own
    last = 0

    def block(match: re.Match[str]) -> str:
        nonlocal last
        if match["file"]:
            path = Path(match["file"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(match["body"], encoding="utf-8", newline="\n")
        if match["edited"]:
            _edit(Path(match["edited"]), match["body"])
        if match["file"] or match["edited"] or not match["body"].startswith("$ "):
            return match[0]
        lines = []
        for line in match["body"].splitlines():
            if line.startswith("$ "):
                output, last = _run(line[2:], last)
                lines += [line, *output.splitlines()]
        start, end = match.start("body") - match.start(), match.end("body") - match.start()
        return f"{match[0][:start]}{chr(10).join(lines)}\n{match[0][end:]}"

    with _elsewhere():
        return BLOCK.sub(block, text)


def _edit(path: Path, diff: str) -> None:
    old, new = ("".join(f"{line[1:]}\n" for line in diff.splitlines() if line[:1] == sign) for sign in "-+")
    text = path.read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise SystemExit(f"an edit of {path} does not fit in one place")
    path.write_text(text.replace(old, new), encoding="utf-8", newline="\n")


def _run(command: str, last: int) -> tuple[str, int]:
    """The output of a command, both streams as they come, and its exit code; `last` is that of the one before."""
    program, *arguments = shlex.split(command)
    if command in UNRUN:
        return "", 0
    if command == "echo $?":
        return f"{last}\n", 0
    if program == "cat":
        return "".join(Path(name).read_text(encoding="utf-8") for name in arguments), 0
    if program == "mv":
        os.replace(*arguments)
        return "", 0
    if program == "python":
        paths = os.pathsep.join(path for path in sys.path if path)
        done = subprocess.run(
            [sys.executable, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
        )
        return done.stdout, done.returncode
    if program != "ampclip-lint":
        raise SystemExit(f"a page uses a command that docs/sessions.py does not know: {command}")
    given = None
    if "<" in arguments:
        at = arguments.index("<")
        given = Path(arguments[at + 1]).read_bytes()
        del arguments[at : at + 2]
    result = CliRunner().invoke(main, arguments, input=given, prog_name="ampclip-lint")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output, result.exit_code


@contextmanager
def _elsewhere() -> Iterator[None]:
    """An empty folder; the rules of the checkout, where the package is not installed; and no terminal."""
    here = os.getcwd()
    found = registry.entry_points() or [("builtin", "ampclip_rules:RULES")]
    quiet = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "COLUMNS")}
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, quiet, clear=True),
        mock.patch.object(registry, "entry_points", return_value=found),
    ):
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(here)
