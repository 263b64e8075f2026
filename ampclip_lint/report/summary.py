"""What a run tells about itself on standard error: problems, counts, statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.report.text import Line, clean, counted, plain
from ampclip_lint.syntax.reading import display_name

if TYPE_CHECKING:
    from ampclip_lint.lint.baseline import Outcome
    from ampclip_lint.lint.result import RunResult


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
    where = f"{counted(result.files, 'file')} read, {len(result.sources) - result.imported} analysed"
    if result.imported:
        where += f" with {result.imported} that {'they import' if result.files > 1 else 'it imports'}"
    severities = Counter(diagnostic.severity.value for diagnostic in result.diagnostics)
    kinds = [counted(severities[kind], kind) for kind in ("error", "warning") if severities[kind]]
    if severities["info"]:
        kinds.append(f"{severities['info']} info")
    if not result.files:
        if not result.missing:
            yield [("warning", "warning"), (": no Python files found", "")]
    elif not any(outcome.written for outcome in result.baselines):
        found = " and ".join([", ".join(kinds[:-1]), kinds[-1]] if len(kinds) > 1 else kinds)
        yield plain(f"Found {found} ({where})." if kinds else f"No findings ({where}).")
    for outcome in result.baselines:
        yield from _baseline(outcome, verbose=verbose)
    if result.incomplete:
        verb = "was" if result.incomplete == 1 else "were"
        functions = counted(result.incomplete, "function")
        yield plain(f"{functions} {verb} analysed incompletely; --extend-select AMP003 shows where.")
    if verbose:
        yield plain(f"{counted(result.suppressed, 'finding')} suppressed by comments.")
        for name in sorted(result.sources):
            yield plain(f"analysed {clean(name)}")


def _baseline(outcome: Outcome, *, verbose: bool) -> Iterator[Line]:
    """What came of one baseline."""
    stale = sum(count for _, count in outcome.stale)
    if outcome.written:
        parts = [f"{outcome.fresh} new"] if outcome.accepted or outcome.kept or stale else []
        parts += [f"{stale} that no longer {'occurs' if stale == 1 else 'occur'} removed"] if stale else []
        parts += [f"{outcome.kept} that this run can't judge kept"] if outcome.kept else []
        held = counted(sum(count for _, count in outcome.renewed), "finding")
        changes = f" ({', '.join(parts)})" if parts else ""
        text = f"Wrote {held} to {clean(display_name(outcome.path))}{changes}."
    elif outcome.accepted or stale:
        text = f"{counted(outcome.accepted, 'finding')} accepted by the baseline"
        text += f", {counted(stale, 'entry')} no longer {'occurs' if stale == 1 else 'occur'}." if stale else "."
    else:
        return
    yield plain(text)
    if verbose:
        for entry, count in outcome.stale:
            where = f"{entry.path}: {entry.code}{f' in {entry.function}' if entry.function else ''}: {entry.line}"
            yield plain(f"no longer occurs: {clean(where)}{f' ({count} times)' if count > 1 else ''}")


def fixes(result: RunResult, fixed: int | None, *, unsafe: bool) -> Iterator[Line]:
    """How many findings were fixed (None: nothing was to be), and how many of those that are left can be."""
    from ampclip_lint.diagnostics import Applicability

    if fixed is not None:
        yield plain(f"{counted(fixed, 'finding')} fixed." if fixed else "Nothing fixed.")
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
    yield plain(f"Would fix {counted(number, 'finding')}." if number else "Nothing to fix.")
