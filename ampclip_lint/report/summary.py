"""What a run tells about itself on standard error: problems, counts, statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ampclip_lint.diagnostics import Applicability
from ampclip_lint.lint.run import RunResult
from ampclip_lint.report.text import Line, clean, plain


def problems(result: RunResult) -> Iterator[Line]:
    """Each thing that could not be read or analysed, with the reason."""
    for path in result.missing:
        yield [("error", "error"), (f": {clean(path)}: no such file or directory", "")]
    for problem in result.problems:
        kind = "error" if problem.internal else "warning"
        yield [(kind, kind), (f": {clean(problem.filename)}: {clean(problem.reason)}", "")]


def statistics(result: RunResult) -> Iterator[Line]:
    """How often each rule was broken, the most frequent first."""
    names = {diagnostic.code: diagnostic.name for diagnostic in result.diagnostics}
    counts = Counter(diagnostic.code for diagnostic in result.diagnostics)
    width = len(str(max(counts.values(), default=0)))
    for code, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        yield plain(f"{count:>{width}}  {code}  {names[code]}")


def summary(result: RunResult, *, verbose: bool = False) -> Iterator[Line]:
    """The closing lines of a run."""
    where = f"{_count(result.files, 'file')} read, {len(result.sources) - result.imported} analysed"
    if result.imported:
        where += f" with {result.imported} that {'they import' if result.files > 1 else 'it imports'}"
    severities = Counter(diagnostic.severity.value for diagnostic in result.diagnostics)
    kinds = [_count(severities[kind], kind) for kind in ("error", "warning") if severities[kind]]
    if severities["info"]:
        kinds.append(f"{severities['info']} info")
    if not result.files:
        if not result.missing:
            yield [("warning", "warning"), (": no Python files found", "")]
    else:
        yield plain(f"Found {' and '.join(kinds)} ({where})." if kinds else f"No findings ({where}).")
    if result.incomplete:
        verb = "was" if result.incomplete == 1 else "were"
        yield plain(
            f"{_count(result.incomplete, 'function')} {verb} analysed incompletely; --extend-select AMP003 shows where."
        )
    if verbose:
        yield plain(f"{_count(result.suppressed, 'finding')} suppressed by comments.")
        for name in sorted(result.sources):
            yield plain(f"analysed {clean(name)}")


def fixes(result: RunResult, fixed: int | None, *, unsafe: bool) -> Iterator[Line]:
    """How many findings were fixed (None: nothing was to be), and how many of those that are left can be."""
    if fixed is not None:
        yield plain(f"{_count(fixed, 'finding')} fixed." if fixed else "Nothing fixed.")
    kinds = Counter(found.fix.applicability for found in result.diagnostics if found.fix is not None)
    safe, hidden = kinds[Applicability.SAFE], kinds[Applicability.UNSAFE]
    if unsafe:
        safe, hidden = safe + hidden, 0
    options = "--fix --unsafe-fixes" if unsafe else "--fix"
    if safe:
        more = f" ({hidden} more with --unsafe-fixes)" if hidden else ""
        yield plain(f"{safe} fixable with {options}{more}.")
    elif hidden:
        yield plain(f"{hidden} fixable with --fix --unsafe-fixes.")


def would_fix(number: int) -> Iterator[Line]:
    """The closing line of a run that shows what it would change."""
    yield plain(f"Would fix {_count(number, 'finding')}." if number else "Nothing to fix.")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
