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
    from collections.abc import Callable, Iterator

    from click.shell_completion import CompletionItem

    from ampclip_lint.lint.cache import Cache
    from ampclip_lint.lint.config import Settings
    from ampclip_lint.lint.run import RunResult
    from ampclip_lint.report.text import Line
    from ampclip_lint.syntax.source import SourceFile

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
FORMATS = ("full", "concise", "json", "jsonl", "sarif", "github", "gitlab", "junit")
SETTINGS = frozenset(
    (
        "select", "extend_select", "ignore", "fail_on", "exclude", "extend_exclude", "baseline", "no_baseline",
        "config_file", "isolated",
    )
)  # fmt: skip
"""The options of `check` that lie over the configuration, or say which one counts."""
COLOR = click.option(
    "--color", type=click.Choice(("auto", "always", "never")), default="auto", help="When to colour the output."
)


#: What `audit` takes as `check` does.
_ALIKE = {"paths", "select", "extend_select", "ignore", "stdin_filename", "config_file", "isolated", "exclude"}
_ALIKE |= {"extend_exclude", "force_exclude", "no_respect_gitignore", "baseline", "no_baseline"}


def _words(_context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Every word of an option that may be repeated and takes several, separated by commas."""
    words = tuple(word.strip() for value in values for word in value.split(",") if word.strip())
    if values and not words:
        raise click.BadParameter("names nothing", param=parameter)
    return words


def _reports(_context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> list[tuple[str, Path]]:
    """Each ``FORMAT=FILE`` in two."""
    found = []
    for value in values:
        name, _, file = value.partition("=")
        if name not in FORMATS or not file:
            message = f"`{value}` is no FORMAT=FILE; formats are {', '.join(FORMATS)}"
            raise click.BadParameter(message, param=parameter)
        found.append((name, Path(file)))
    return found


def _report_words(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(f"{name}=") for name in FORMATS if name.startswith(incomplete)]


def _rule_words(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What a shell offers for a rule, or for the last one of several."""
    from click.shell_completion import CompletionItem

    from ampclip_lint.lint.registry import load_rules

    before, comma, word = incomplete.rpartition(",")
    return [
        CompletionItem(f"{before}{comma}{text}", help=rule.summary)
        for rule in load_rules().values()
        for text in (rule.code, rule.name)
        if text.casefold().startswith(word.casefold())
    ]


def _codes(name: str, text: str) -> Callable[[Any], Any]:
    """An option that names rules."""
    return click.option(name, multiple=True, callback=_words, shell_complete=_rule_words, metavar="CODES", help=text)


class _Program(click.Group):
    """The commands, ended by signals and by streams that are closed or full without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what ends it from outside becomes an exit code."""
        with _open_streams(), _terminated(), _seldom_swept():
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt:
                _give_up("interrupted", 130)
            except BrokenPipeError:
                raise  # click knows: whoever reads has seen enough
            except OSError as error:
                # Without a name it is a stream, or the working directory, which may have been deleted.
                name = error.filename or ("working directory" if isinstance(error, FileNotFoundError) else "output")
                reason = (error.strerror or str(error) or type(error).__name__).lower()
                _give_up(f"error: {name}: {reason}", 2)


@contextmanager
def _open_streams() -> Iterator[None]:
    """A standard stream that is closed, as `>&-` does, is None to Python: what would go there goes nowhere."""
    closed = [name for name in ("stdout", "stderr") if getattr(sys, name) is None]
    for name in closed:
        setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    try:
        yield
    finally:
        for name in closed:
            getattr(sys, name).close()
            setattr(sys, name, None)


@contextmanager
def _seldom_swept() -> Iterator[None]:
    """
    Syntax trees and states are kept or freed as they are; to look for cycles among them so often finds none, and to
    look through all of a large program takes seconds.
    """
    import gc

    usual = gc.get_threshold()
    gc.set_threshold(50_000, 40, 20)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


@contextmanager
def _terminated() -> Iterator[None]:
    """What `kill` sends ends the program as an exception does, so that no half-written file is left behind."""
    import signal
    import threading

    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _give_up(message: str, code: int) -> NoReturn:
    """End with a message, if anybody can be told; what is still in a buffer is lost, and not tried again."""
    from contextlib import suppress

    from ampclip_lint.report.text import clean

    with suppress(OSError):
        click.echo(clean(message), err=True)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            try:
                stream.flush()
            except OSError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)


def _stdin() -> bytes:
    if sys.stdin is None:
        _fail("-: standard input is closed")
    return sys.stdin.buffer.read()


@click.group(cls=_Program, context_settings=CONTEXT)
@click.version_option(__version__, prog_name="ampclip-lint", message="%(prog)s %(version)s")
def main() -> None:
    """Find gradient clipping, unscaling, stepping and updating in the wrong order around PyTorch's GradScaler.

    Exit codes: 0 nothing to report, 1 findings, 2 wrong usage.
    """


@main.command(short_help="Check files and folders as one program.")
@click.argument("paths", nargs=-1, type=click.Path())
@click.option("--output-format", type=click.Choice(FORMATS), default="full", show_default=True)
@click.option("--output-file", type=click.Path(dir_okay=False, path_type=Path), help="Write the findings there.")
@click.option(
    "--report",
    "reports",
    multiple=True,
    callback=_reports,
    shell_complete=_report_words,
    metavar="FORMAT=FILE",
    help="Write the findings there, too, in that format.",
)
@_codes("--select", "Codes, prefixes, names or ALL, instead of the defaults.")
@_codes("--extend-select", "Rules to add.")
@_codes("--ignore", "Rules to leave out.")
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
@click.option("--force-exclude", is_flag=True, help="Leave out what is excluded also where it is named itself.")
@click.option("--no-respect-gitignore", is_flag=True, help="Read what .gitignore ignores.")
@click.option(
    "--baseline", type=click.Path(dir_okay=False, path_type=Path), help="Accept the findings that this file holds."
)
@click.option(
    "--write-baseline",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Accept all present findings from now on: write them there.",
)
@click.option("--no-baseline", is_flag=True, help="Also show what the configured baseline accepts.")
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=0),
    default=0,
    help="Processes that read files (default 0: one a processor); if given, also those that analyse.",
)
@click.option("--no-cache", is_flag=True, help="Neither use nor write what earlier runs found.")
@click.option(
    "--cache-dir",
    type=click.Path(file_okay=False),
    envvar="AMPCLIP_LINT_CACHE_DIR",
    help="Keep results there (default: .ampclip_lint_cache at the top of the project).",
)
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
    reports: list[tuple[str, Path]],
    statistics: bool,
    show_files: bool,
    exit_zero: bool,
    quiet: bool,
    verbose: bool,
    color: str,
    write_baseline: Path | None,
    jobs: int,
    no_cache: bool,
    cache_dir: str | None,
    **options: Any,
) -> None:
    """Check files and folders ("." by default; "-" is standard input) as one program."""
    usual = output_format in ("full", "concise")
    usual = usual and not (output_file or reports or show_files or write_baseline or fix or diff)
    if usual and paths and not any(options.values()):
        from ampclip_lint.lint.quick import nothing_to_find
        from ampclip_lint.lint.result import RunResult

        files = nothing_to_find(paths)
        if files is not None:
            _write_remarks(RunResult(files=files), color, statistics=statistics, quiet=quiet, verbose=verbose)
            sys.exit(0)

    from functools import partial

    from ampclip_lint.lint.run import lint_paths
    from ampclip_lint.report.formats import WITH_FIXES

    with _tool_errors():
        settings = _settings(write_baseline=write_baseline, **options)
        targets = paths or (".",)
        if show_files:
            sys.exit(_show_files(targets, settings))
        stdin = _stdin() if "-" in targets else None
        # What is to be changed is read anew: a result that was kept can't be looked at with other texts.
        cache = None if no_cache or fix or diff else _cache(cache_dir)
        tells = not WITH_FIXES.isdisjoint((output_format, *(name for name, _ in reports)))
        finish = _offer(stdin) if tells and not (fix or diff) else None
        look = partial(lint_paths, targets, settings, jobs=jobs, cache=cache, finish=finish)
        with _progress(quiet=quiet) as progress:
            result = look(stdin=stdin, progress=progress)
        if diff:
            sys.exit(_show_diff(result, stdin, color, unsafe=unsafe_fixes, quiet=quiet))
        fixed = 0
        if fix:
            before = len(result.diagnostics)
            result, stdin = _fix(result, lambda data: look(stdin=data), stdin, unsafe_fixes)
            fixed = before - len(result.diagnostics)
            if tells:
                result = _offer(stdin)(result)
        if write_baseline is not None:
            result = _accept(result)
    # The fixed program has standard output for itself.
    stream = sys.stderr if fix and stdin is not None else sys.stdout
    _write_findings(result, output_format, output_file, color, stream)
    for name, path in reports:
        _write_report(result, name, path)
    _write_remarks(result, color, statistics=statistics, quiet=quiet, verbose=verbose)
    if not quiet:
        _write_fixes(result, color, fixed=fixed if fix else None, unsafe=unsafe_fixes)
    if result.missing or any(problem.internal for problem in result.problems):
        sys.exit(2)
    sys.exit(1 if result.failed and not exit_zero else 0)


def _cache(folder: str | None) -> Cache:
    from ampclip_lint.lint.cache import Cache, default_folder

    return Cache(folder or default_folder())


def _settings(
    *,
    select: tuple[str, ...],
    extend_select: tuple[str, ...],
    ignore: tuple[str, ...],
    exclude: tuple[str, ...],
    no_respect_gitignore: bool = False,
    write_baseline: Path | None = None,
    **rest: Any,
) -> Settings:
    from ampclip_lint.lint.config import Selection, Settings

    if rest["config_file"] is not None and rest["isolated"]:
        raise click.UsageError("--config and --isolated exclude each other")
    if sum((rest["baseline"] is not None, write_baseline is not None, rest["no_baseline"])) > 1:
        raise click.UsageError("--baseline, --write-baseline and --no-baseline exclude each other")
    if write_baseline is not None:
        rest |= {"baseline": write_baseline, "renew_baseline": True}
    return Settings(
        selection=Selection(select or None, extend_select, ignore),
        exclude=exclude or None,
        respect_gitignore=not no_respect_gitignore,
        **rest,
    )


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """What a run that lasts tells of itself, if a person is there to see it."""
    if quiet or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _text: None
        return
    from ampclip_lint.report.progress import Progress

    with Progress(sys.stderr) as progress:
        yield progress.show


def _accept(result: RunResult) -> RunResult:
    """Write the baseline that covers all findings; what is left of the result then."""
    from dataclasses import replace

    from ampclip_lint.lint import baseline

    (outcome,) = result.baselines
    baseline.write(outcome.path, outcome.renewed)
    return replace(result, diagnostics=(), failed=False, baselines=(replace(outcome, written=True),))


def _show_files(targets: Sequence[str], settings: Settings) -> int:
    from ampclip_lint.lint.config import Configs
    from ampclip_lint.lint.gather import find_files
    from ampclip_lint.lint.registry import load_rules
    from ampclip_lint.lint.run import RunResult
    from ampclip_lint.report.text import leading, plain, write_lines

    found = find_files(targets, Configs(settings, load_rules()))
    write_lines((plain(leading(file.name)) for file in found.files), sys.stdout, color=False)
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


def _offer(stdin: bytes | None) -> Callable[[RunResult], RunResult]:
    """What tells of each finding how it can be fixed."""

    def offer(result: RunResult) -> RunResult:
        from ampclip_lint.fix.apply import offered

        return offered(result, stdin)

    return offer


def _write_fixes(result: RunResult, color: str, *, fixed: int | None, unsafe: bool) -> None:
    from ampclip_lint.report import summary
    from ampclip_lint.report.text import write_lines

    write_lines(summary.fixes(result, fixed, unsafe=unsafe), sys.stderr, color=_colored(sys.stderr, color))


def _write_findings(
    result: RunResult, output_format: str, output_file: Path | None, color: str, stdout: TextIO
) -> None:
    from ampclip_lint.report.formats import HUMAN, renderer
    from ampclip_lint.report.text import write_lines

    if output_file is not None:
        _write_report(result, output_format, output_file)
        return
    colored = output_format in HUMAN and _colored(stdout, color)
    write_lines(renderer(output_format, _width(stdout))(result), stdout, color=colored)


def _write_report(result: RunResult, output_format: str, path: Path) -> None:
    import io

    from ampclip_lint.files import write_atomic
    from ampclip_lint.report.formats import renderer
    from ampclip_lint.report.text import write_lines

    text = io.StringIO()
    write_lines(renderer(output_format)(result), text, color=False)
    try:
        write_atomic(path, text.getvalue().encode("utf-8", "backslashreplace"))
    except OSError as error:
        _fail(f"{path}: can't be written: {(error.strerror or str(error)).lower()}")


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


@main.command(
    short_help="Show the settings for a file, and where each comes from.",
    params=[
        click.Argument(["path"], default=".", type=click.Path()),
        *(option for option in check.params if option.name in SETTINGS),
        click.Option(
            ["--schema"],
            type=click.Choice(("ampclip-lint.toml", "pyproject.toml")),
            help="Print the JSON schema of that file instead, for editors.",
        ),
    ],
)
def config(path: str, schema: str | None, **options: Any) -> None:
    """Show the settings for a file or folder, and where each comes from: file, command line or default."""
    from ampclip_lint.lint.config import Configs
    from ampclip_lint.lint.registry import load_rules
    from ampclip_lint.report import settings
    from ampclip_lint.report.text import write_lines

    with _tool_errors():
        rules = load_rules()
        if schema is not None:
            lines = list(settings.schema_lines(rules, pyproject=schema == "pyproject.toml"))
        elif not os.path.lexists(path):
            _fail(f"{path}: no such file or directory")
        else:
            lines = list(settings.settings_lines(Path(path), Configs(_settings(**options), rules), _width(sys.stdout)))
    write_lines(lines, sys.stdout, color=False)


@main.command(short_help="Show the documentation of a rule.")
@click.argument("code", shell_complete=_rule_words)
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
        from ampclip_lint.report.text import reflowed

        terminal = _width(sys.stdout)
        _print(text if terminal is None else reflowed(text, terminal))


@main.command()
@COLOR
def rules(color: str) -> None:
    """List the rules."""
    from ampclip_lint.lint.registry import load_rules
    from ampclip_lint.report.text import HANG, broken, write_lines

    with _tool_errors():
        known = list(load_rules().values())
    width = max(len(rule.name) for rule in known)
    lines: list[Line] = [
        [
            (rule.code, "code"),
            (f"  {rule.name:<{width}}  ", ""),
            (f"{rule.severity.value:<7}  ", rule.severity.value),
            HANG,
            (rule.summary, ""),
        ]
        for rule in known
    ]
    terminal = _width(sys.stdout)
    if terminal is not None:
        lines = [piece for line in lines for piece in broken(line, terminal)]
    write_lines(lines, sys.stdout, color=_colored(sys.stdout, color))


@main.command(short_help="Show the lines that touch gradients, with their units.")
@click.argument("target", metavar="FILE[::FUNC]", type=click.Path())
def trace(target: str) -> None:
    """Show the lines that touch gradients, with the unit of each optimizer's gradients after them."""
    from ampclip_lint.amp.explain import trace_text

    files, function, models = _target(target)
    width = _width(sys.stdout)
    _print(trace_text(files, function, models, width=width), width)


@main.command(short_help="Show the control-flow graph of a function, for bug reports.")
@click.argument("target", metavar="FILE::FUNC", type=click.Path())
@click.option("--dot", is_flag=True, help="In the language of Graphviz.")
def graph(target: str, dot: bool) -> None:
    """Show the control-flow graph of a function with the states in it, for bug reports."""
    from ampclip_lint.amp.explain import graph_text

    files, function, models = _target(target)
    if function is None:
        raise click.UsageError("graph needs a function: FILE::FUNC")
    _print(graph_text(files, function, models, dot=dot), None if dot else _width(sys.stdout))


@main.command(
    short_help="Take stock of training loops: right, wrong, not decided.",
    params=[parameter for parameter in check.params if parameter.name in _ALIKE],
)
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write the report as a page, too.")
@COLOR
def audit(paths: tuple[str, ...], html: Path | None, color: str, **options: Any) -> None:
    """Take stock of training loops: which are right, which are not, and what could not be decided.

    Exit codes: 2 wrong usage, a path that does not exist or a page that can't be written; else 0, whatever is found.
    """
    from shutil import get_terminal_size

    from ampclip_lint.lint.audit import audit_paths
    from ampclip_lint.report.audit_text import render
    from ampclip_lint.report.text import write_lines

    with _tool_errors():
        settings = _settings(fail_on=None, pedantic=True, **options)
        stdin = _stdin() if "-" in paths else None
        found = audit_paths(paths or (".",), settings, stdin=stdin)
    width = get_terminal_size().columns if sys.stdout.isatty() else 100
    write_lines(render(found, width), sys.stdout, color=_colored(sys.stdout, color))
    if html is not None:
        from ampclip_lint.files import write_atomic
        from ampclip_lint.report.audit_html import page

        try:
            write_atomic(html, page(found))
        except OSError as error:
            _fail(f"{html}: can't be written: {(error.strerror or str(error)).lower()}")
    if found.result.missing or any(problem.internal for problem in found.result.problems):
        sys.exit(2)


def _print(text: str, width: int | None = None) -> None:
    """Write a text; what is too long for a terminal of that width goes on below, further to the right."""
    from ampclip_lint.report.text import clean, folded, plain, write_lines

    lines = [clean(line) for line in text.rstrip("\n").split("\n")]
    if width is not None:
        lines = [piece for line in lines for piece in folded(line, width, 4)]
    write_lines(map(plain, lines), sys.stdout, color=False)


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


def _width(stream: TextIO) -> int | None:
    """The columns of a terminal; None where nobody is there to be spared long lines."""
    if not stream.isatty():
        return None
    from shutil import get_terminal_size

    return get_terminal_size().columns


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
