"""The command line as tests of several files call it: with the real engine, in the working directory."""

from __future__ import annotations

import json

from click.testing import CliRunner, Result

from ampclip_lint.cli import main


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, list(arguments), input=stdin)


def found(*arguments: str, stdin: str | None = None) -> list[tuple[str, int, str]]:
    """(file, row, code) of every finding."""
    result = run("check", "--output-format", "json", *arguments, stdin=stdin)
    assert result.exit_code in (0, 1), result.output
    return [(f["filename"], f["location"]["row"], f["code"]) for f in json.loads(result.stdout)]
