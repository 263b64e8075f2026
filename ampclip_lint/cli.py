"""The command line. Knows options and exit codes; everything it calls is imported when it is needed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import click

from ampclip_lint import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampclip_lint.lint.config import Settings
    from ampclip_lint.lint.run import RunResult
    from ampclip_lint.report.text import Line
    from ampclip_lint.syntax.source import SourceFile

CONTEXT = {"help_option_names": ["-h", "--help"]}
FORMATS = ("full", "concise", "json", "jsonl")
COLOR = click.option(
    "--color", type=click.Choice(("auto", "always", "never")), default="auto", help="When to colour the output."
)


def _words(_context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Every word of an option that may be repeated and takes several, separated by commas."""
    words = tuple(word.strip() for value in values for word in value.split(",") if word.strip())
    if values and not words:
        raise click.BadParameter("names nothing", param=parameter)
    return words


@click.group(context_settings=CONTEXT)
@click.version_option(__version__, prog_name="ampclip-lint", message="%(prog)s %(version)s")
def main() -> None:
    """Find gradient clipping, unscaling, stepping and updating in the wrong order around PyTorch's GradScaler.

    Exit codes: 0 nothing to report, 1 findings, 2 wrong usage.
    """


@main.command()
@click.argument("paths", nargs=-1)
@click.option("--output-format", type=click.Choice(FORMATS), default="full", show_default=True)
@click.option("--output-file", type=click.Path(dir_okay=False, path_type=Path), help="Write the findings there.")
@click.option(
    "--select",
    multiple=True,
    callback=_words,
    metavar="CODES",
    help="Codes, prefixes, names or ALL, instead of the defaults.",
)
@click.option("--extend-select", multiple=True, callback=_words, metavar="CODES", help="Rules to add.")
@click.option("--ignore", multiple=True, callback=_words, metavar="CODES", help="Rules to leave out.")
@click.option(
    "--fail-on",
    type=click.Choice(("error", "warning", "info", "never")),
    help="The least severity that makes the exit code 1 (default: warning).",
)
@click.option("--exit-zero", is_flag=True, help="Exit with 0 also when there are findings.")
@click.option("--pedantic", is_flag=True, help="Also show findings that rest on an assumption.")
@click.option("--fix", is_flag=True, help="Make the safe fixes, and report what is left.")
@click.option("--unsafe-fixes", is_flag=True, help="Also those that may not be what was meant.")
@click.option("--diff", is_flag=True, help="Show what --fix would change, and write nothing.")
@click.option("--statistics", is_flag=True, help="Count the findings by rule (on standard error).")
@click.option("--show-files", is_flag=True, help="List the files that would be checked.")
@click.option("--stdin-filename", help="The name of what is read for the path `-`.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="Use this configuration file only.")
@click.option("--isolated", is_flag=True, help="Use no configuration file.")
@click.option(
    "--exclude",
    multiple=True,
    callback=_words,
    metavar="PATTERNS",
    help="What not to read, in gitignore syntax, instead of the defaults.",
)
@click.option("--extend-exclude", multiple=True, callback=_words, metavar="PATTERNS", help="What else not to read.")
@click.option("--no-respect-gitignore", is_flag=True, help="Read what .gitignore ignores.")
@click.option("-q", "--quiet", is_flag=True, help="No summary.")
@click.option("-v", "--verbose", is_flag=True, help="Say more in the summary.")
@COLOR
def check(
    paths: tuple[str, ...],
    output_format: str,
    output_file: Path | None,
    fix: bool,
    unsafe_fixes: bool,
    diff: bool,
    statistics: bool,
    show_files: bool,
    exit_zero: bool,
    quiet: bool,
    verbose: bool,
    color: str,
    **options: Any,
) -> None:
    """Check files and folders ("." by default; "-" is standard input) as one program."""
    from ampclip_lint.lint.run import lint_paths

    with _tool_errors():
        settings = _settings(**options)
        targets = paths or (".",)
        if show_files:
            sys.exit(_show_files(targets, settings))
        stdin = sys.stdin.buffer.read() if "-" in targets else None
        result = lint_paths(targets, settings, stdin=stdin)
        if diff:
            sys.exit(_show_diff(result, stdin, color, unsafe=unsafe_fixes, quiet=quiet))
        fixed = 0
        if fix:
            before = len(result.diagnostics)
            result, stdin = _fix(result, lambda data: lint_paths(targets, settings, stdin=data), stdin, unsafe_fixes)
            fixed = before - len(result.diagnostics)
    result = _with_fixes(result, output_format, stdin)
    # The fixed program has standard output for itself.
    stream = sys.stderr if fix and stdin is not None else sys.stdout
    _write_findings(result, output_format, output_file, color, stream)
    _write_remarks(result, color, statistics=statistics, quiet=quiet, verbose=verbose)
    if not quiet:
        _write_fixes(result, color, fixed=fixed if fix else None, unsafe=unsafe_fixes)
    if result.missing or any(problem.internal for problem in result.problems):
        sys.exit(2)
    sys.exit(1 if result.failed and not exit_zero else 0)


def _settings(
    *,
    select: tuple[str, ...],
    extend_select: tuple[str, ...],
    ignore: tuple[str, ...],
    exclude: tuple[str, ...],
    no_respect_gitignore: bool,
    **rest: Any,
) -> Settings:
    from ampclip_lint.lint.config import Selection, Settings

    if rest["config_file"] is not None and rest["isolated"]:
        raise click.UsageError("--config and --isolated exclude each other")
    return Settings(
        selection=Selection(select or None, extend_select, ignore),
        exclude=exclude or None,
        respect_gitignore=not no_respect_gitignore,
        **rest,
    )


def _show_files(targets: Sequence[str], settings: Settings) -> int:
    from ampclip_lint.lint.config import Configs
    from ampclip_lint.lint.gather import find_files
    from ampclip_lint.lint.registry import load_rules
    from ampclip_lint.lint.run import RunResult
    from ampclip_lint.report.text import clean, plain, write_lines

    found = find_files(targets, Configs(settings, load_rules()))
    write_lines((plain(clean(file.name)) for file in found.files), sys.stdout, color=False)
    _write_remarks(RunResult(problems=found.problems, missing=found.missing), "never", quiet=True)
    return 2 if found.missing else 0


def _fix(
    result: RunResult, again: Callable[[bytes | None], RunResult], stdin: bytes | None, unsafe: bool
) -> tuple[RunResult, bytes | None]:
    """Write the files with their fixes, and what is found after that; standard input goes to standard output."""
    from ampclip_lint.fix.apply import fix_all, write

    fixed = fix_all(result, unsafe=unsafe, stdin=stdin)
    problems = write(fixed, result.sources_of_all)
    if stdin is not None:
        read = [name for name, source in result.sources_of_all.items() if source.path is None]
        stdin = next((fixed.after[name] for name in read if name in fixed.after), stdin)
        sys.stdout.buffer.write(stdin)
        sys.stdout.buffer.flush()
    if fixed.after:
        result = again(stdin)
    return replace(result, problems=(*result.problems, *problems)), stdin


def _show_diff(result: RunResult, stdin: bytes | None, color: str, *, unsafe: bool, quiet: bool) -> int:
    from ampclip_lint.fix.apply import diff, fix_all
    from ampclip_lint.report import summary
    from ampclip_lint.report.text import clean, plain, write_lines

    fixed = fix_all(result, unsafe=unsafe, stdin=stdin)
    lines = diff(fixed, result.sources_of_all)
    shown = map(clean, lines) if sys.stdout.isatty() else lines  # a patch is the bytes of the file
    write_lines(map(plain, shown), sys.stdout, color=False)
    _write_remarks(result, color, quiet=True)
    if not quiet:
        write_lines(summary.would_fix(fixed.count), sys.stderr, color=False)
    if result.missing or any(problem.internal for problem in result.problems):
        return 2
    return 1 if fixed.after else 0


def _with_fixes(result: RunResult, output_format: str, stdin: bytes | None) -> RunResult:
    from ampclip_lint.fix.apply import WITH_FIXES, offered

    return offered(result, stdin) if output_format in WITH_FIXES else result


def _write_fixes(result: RunResult, color: str, *, fixed: int | None, unsafe: bool) -> None:
    from ampclip_lint.report import summary
    from ampclip_lint.report.text import write_lines

    write_lines(summary.fixes(result, fixed, unsafe=unsafe), sys.stderr, color=_colored(sys.stderr, color))


def _write_findings(
    result: RunResult, output_format: str, output_file: Path | None, color: str, stdout: TextIO
) -> None:
    from ampclip_lint.report.formats import renderer
    from ampclip_lint.report.text import write_lines

    lines = renderer(output_format)(result)
    if output_file is None:
        write_lines(lines, stdout, color=output_format in ("full", "concise") and _colored(stdout, color))
        return
    try:
        with open(output_file, "w", encoding="utf-8", newline="\n") as stream:
            write_lines(lines, stream, color=False)
    except OSError as error:
        _fail(f"{output_file}: can't be written: {(error.strerror or str(error)).lower()}")


def _write_remarks(
    result: RunResult, color: str, *, statistics: bool = False, quiet: bool = False, verbose: bool = False
) -> None:
    from ampclip_lint.report import summary
    from ampclip_lint.report.text import write_lines

    lines: list[Line] = list(summary.problems(result))
    if statistics:
        lines += summary.statistics(result)
    if not quiet:
        lines += summary.summary(result, verbose=verbose)
    write_lines(lines, sys.stderr, color=_colored(sys.stderr, color))


@main.command()
@click.argument("code")
@COLOR
def explain(code: str, color: str) -> None:
    """Show the documentation of a rule, by code or name."""
    from ampclip_lint.lint.registry import find_rule, load_rules

    with _tool_errors():
        rule = find_rule(code, load_rules())
    title = f"# {rule.name} ({rule.code})"
    facts = f"Severity: {rule.severity.value}. Since {rule.since}. Page: {rule.url}"
    text = f"{title}\n\n{facts}\n\n{rule.page()}\n"
    if _colored(sys.stdout, color):
        from rich.console import Console
        from rich.markdown import Markdown

        Console(file=sys.stdout, force_terminal=True).print(Markdown(text))
    else:
        _print(text)


@main.command()
@COLOR
def rules(color: str) -> None:
    """List the rules."""
    from ampclip_lint.lint.registry import load_rules
    from ampclip_lint.report.text import write_lines

    with _tool_errors():
        known = list(load_rules().values())
    width = max(len(rule.name) for rule in known)
    write_lines(
        (
            [
                (rule.code, "code"),
                (f"  {rule.name:<{width}}  ", ""),
                (f"{rule.severity.value:<7}", rule.severity.value),
                (f"  {rule.summary}", ""),
            ]
            for rule in known
        ),
        sys.stdout,
        color=_colored(sys.stdout, color),
    )


@main.command()
@click.argument("target", metavar="FILE[::FUNC]")
def trace(target: str) -> None:
    """Show the lines that touch gradients, with the unit of each optimizer's gradients after them."""
    from ampclip_lint.amp.explain import trace_text

    files, function, models = _target(target)
    _print(trace_text(files, function, models))


@main.command()
@click.argument("target", metavar="FILE::FUNC")
@click.option("--dot", is_flag=True, help="In the language of Graphviz.")
def graph(target: str, dot: bool) -> None:
    """Show the control-flow graph of a function with the states in it, for bug reports."""
    from ampclip_lint.amp.explain import graph_text

    files, function, models = _target(target)
    if function is None:
        raise click.UsageError("graph needs a function: FILE::FUNC")
    _print(graph_text(files, function, models, dot=dot))


def _print(text: str) -> None:
    from ampclip_lint.report.text import clean, plain, write_lines

    write_lines((plain(clean(line)) for line in text.rstrip("\n").split("\n")), sys.stdout, color=False)


def _target(target: str) -> tuple[list[SourceFile], str | None, dict[str, str]]:
    """The file with what it imports behind it, the qualified name that ``FILE[::FUNC]`` means, and models."""
    from ampclip_lint.lint.config import Configs, Settings
    from ampclip_lint.lint.errors import nearest
    from ampclip_lint.lint.gather import gather
    from ampclip_lint.lint.registry import load_rules
    from ampclip_lint.syntax.functions import NotPython, function_names, matching
    from ampclip_lint.syntax.notebook import read_source
    from ampclip_lint.syntax.source import FileProblem, display_name, read_bytes

    file, separator, function = target.rpartition("::")
    if not separator:
        file, function = target, ""
    name, path = display_name(file), Path(file)
    data = read_bytes(name, path)
    source = data if isinstance(data, FileProblem) else read_source(name, path, data)
    if isinstance(source, FileProblem):
        _fail(f"{name}: {source.reason}")
    try:
        known = function_names(source)
    except NotPython as error:
        _fail(f"{name}: {error}")
    with _tool_errors():
        gathered = gather([path], Configs(Settings(), load_rules()))
    files = [source, *(other for other in gathered.sources.values() if other.name != name)]
    if not separator:
        return files, None, gathered.models
    fitting = matching(function, known)
    if len(fitting) == 1:
        return files, fitting[0], gathered.models
    if fitting:
        _fail(f"{name}: `{function}` may be {' or '.join(f'`{item}`' for item in fitting)}")
    _fail(f"{name}: no function `{function}`{nearest(function, known) or _some_of(known)}")


def _some_of(known: Sequence[str]) -> str:
    if not known:
        return "; there are no functions in it"
    return f"; there are {', '.join(f'`{item}`' for item in known[:8])}{' and others' if len(known) > 8 else ''}"


def _colored(stream: TextIO, color: str) -> bool:
    if color != "auto":
        return color == "always"
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


@contextmanager
def _tool_errors() -> Iterator[None]:
    from ampclip_lint.lint.errors import ToolError

    try:
        yield
    except ToolError as error:
        _fail(str(error))


def _fail(message: str) -> NoReturn:
    from ampclip_lint.report.text import clean

    click.echo(f"error: {clean(message)}", err=True)
    sys.exit(2)
