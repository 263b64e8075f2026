"""What a run tells about itself on standard error: problems, counts, statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.report.text import Line, clean, plain
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
    elif not any(outcome.written for outcome in result.baselines):
        found = " and ".join([", ".join(kinds[:-1]), kinds[-1]] if len(kinds) > 1 else kinds)
        yield plain(f"Found {found} ({where})." if kinds else f"No findings ({where}).")
    for outcome in result.baselines:
        yield from _baseline(outcome, verbose=verbose)
    if result.incomplete:
        verb = "was" if result.incomplete == 1 else "were"
        yield plain(
            f"{_count(result.incomplete, 'function')} {verb} analysed incompletely; --extend-select AMP003 shows where."
        )
    if verbose:
        yield plain(f"{_count(result.suppressed, 'finding')} suppressed by comments.")
        for name in sorted(result.sources):
            yield plain(f"analysed {clean(name)}")


def _baseline(outcome: Outcome, *, verbose: bool) -> Iterator[Line]:
    """What came of one baseline."""
    stale = sum(count for _, count in outcome.stale)
    if outcome.written:
        parts = [f"{outcome.fresh} new"] if outcome.accepted or outcome.kept or stale else []
        parts += [f"{stale} that no longer {'occurs' if stale == 1 else 'occur'} removed"] if stale else []
        parts += [f"{outcome.kept} that this run can't judge kept"] if outcome.kept else []
        held = _count(sum(count for _, count in outcome.renewed), "finding")
        changes = f" ({', '.join(parts)})" if parts else ""
        text = f"Wrote {held} to {clean(display_name(outcome.path))}{changes}."
    elif outcome.accepted or stale:
        text = f"{_count(outcome.accepted, 'finding')} accepted by the baseline"
        text += f", {_count(stale, 'entry')} no longer {'occurs' if stale == 1 else 'occur'}." if stale else "."
    else:
        return
    yield plain(text)
    if verbose:
        for entry, count in outcome.stale:
            where = f"{entry.path}: {entry.code}{f' in {entry.function}' if entry.function else ''}: {entry.line}"
            yield plain(f"no longer occurs: {clean(where)}{f' ({count} times)' if count > 1 else ''}")


def _count(number: int, noun: str) -> str:
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun if number == 1 else many}"
