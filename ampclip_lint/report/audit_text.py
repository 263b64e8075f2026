"""The audit as text: counts, every loop with its verdict, what was not read. The same with and without colour."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator

from ampclip_lint.diagnostics import Confidence, Severity
from ampclip_lint.lint.audit import Audit, JudgedLoop, Verdict, folder_of, tally
from ampclip_lint.report.audit_loops import clip_text, scaler_text
from ampclip_lint.report.excerpts import near, place
from ampclip_lint.report.text import Line, clean, counted, plain

NARROWEST, WIDEST = 60, 140

_STYLES = {
    Verdict.WRONG: "error",
    Verdict.POSSIBLE: "warning",
    Verdict.UNDECIDED: "note",
    Verdict.SILENCED: "note",
    Verdict.RIGHT: "",
}
_MOST = 12
"""Lines of one kind that a single loop may have, and files that could not be read."""


def render(audit: Audit, width: int) -> Iterator[Line]:
    """The report, in lines of at most `width` cells where words allow it."""
    width = min(max(width, NARROWEST), WIDEST)
    yield from _summary(audit)
    yield from _tables(audit)
    yield from _loops(audit, width)
    yield from _undecided(audit, width)


def _summary(audit: Audit) -> Iterator[Line]:
    verdicts = [f"{audit.count(verdict)} {verdict.value}" for verdict in Verdict if audit.count(verdict)]
    yield plain(f"{counted(audit.result.files, 'file')} read, {audit.analysed} analysed")
    loops = counted(len(audit.loops), "training loop")
    yield plain(f"{loops}: {', '.join(verdicts)}" if verdicts else loops)
    severities = Counter(finding.diagnostic.severity for finding in audit.definite)
    found = [
        counted(severities[kind], kind.value) for kind in Severity if severities[kind] and kind is not Severity.INFO
    ]
    if severities[Severity.INFO]:
        found.append(f"{severities[Severity.INFO]} info")
    if audit.possible:
        found.append(f"{len(audit.possible)} possible")
    if audit.result.suppressed:
        found.append(f"{audit.result.suppressed} suppressed")
    yield plain(f"findings: {', '.join(found) or 'none'}")


def _tables(audit: Audit) -> Iterator[Line]:
    """How often by rule and by folder."""
    if not audit.findings:
        return
    diagnostics = [finding.diagnostic for finding in audit.findings]
    names = {diagnostic.code: f"{diagnostic.code} {diagnostic.name}" for diagnostic in diagnostics}
    for title, rows in (
        ("By rule", [(names[code], count) for code, count in tally(d.code for d in diagnostics)]),
        ("By folder", tally(folder_of(d.span.filename) for d in diagnostics)),
    ):
        yield []
        yield [(title, "note")]
        column = max(len(str(count)) for _, count in rows)
        for name, count in rows:
            yield plain(f"  {count:>{column}}  {clean(name)}")


# -- loops ------------------------------------------------------------------------------------------------------------


def _loops(audit: Audit, width: int) -> Iterator[Line]:
    """All loops, the worst first; of those that are right, only where they are."""
    for verdict in Verdict:
        group = [judged for judged in audit.loops if judged.verdict is verdict]
        if not group:
            continue
        yield []
        yield [(f"{verdict.value.capitalize()} ({len(group)})", "note")]
        for judged in group:
            loop = judged.loop
            yield [("  ", ""), (clean(place(loop.span)), "path"), (f"  {clean(loop.name)}", _STYLES[verdict])]
            yield from _about(judged, audit, width)


def _about(judged: JudgedLoop, audit: Audit, width: int) -> Iterator[Line]:
    loop = judged.loop
    for number in judged.findings[:_MOST]:
        found = audit.findings[number].diagnostic
        possible = " (possible)" if found.confidence is Confidence.POSSIBLE else ""
        text = f"{near(found.span, loop.span)}: {found.code} {found.name}{possible}: {found.message}"
        yield from _wrapped("", text, width, found.severity.value)
    if len(judged.findings) > _MOST:
        yield from _wrapped("", f"and {counted(len(judged.findings) - _MOST, 'more finding')}", width)
    if judged.silenced:
        yield from _wrapped(
            "", f"{counted(judged.silenced, 'fault')} suppressed, or of rules that are not selected", width
        )
    for scaler in loop.scalers:
        yield from _wrapped("scaler", ", ".join((f"`{scaler.name}`", *scaler_text(scaler, loop.span))), width)
    yield from _wrapped("optimizers", ", ".join(f"`{name}`" for name in loop.optimizers), width)
    for window in loop.windows:
        yield from _wrapped("steps where", f"`{window}`", width)
    for clip in loop.clips[:_MOST]:
        yield from _wrapped("clip", f"{near(clip.span, loop.span)} {clip_text(clip)}", width)
    for doubt in loop.doubts[:_MOST]:
        yield from _wrapped("not decided", f"{near(doubt.span, loop.span)} {doubt.reason}", width)


def _wrapped(title: str, text: str, width: int, style: str = "dim") -> Iterator[Line]:
    """A text under a loop, with hanging lines; nothing where there is none."""
    if not text:
        return
    head = f"{title}: " if title else ""
    lines = textwrap.wrap(
        head + clean(text), width - 8, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    for line in lines:
        yield [("      ", ""), (line, style)]


# -- what could not be decided ----------------------------------------------------------------------------------------


def _undecided(audit: Audit, width: int) -> Iterator[Line]:
    """What no loop tells: files that were not read, and why."""
    texts = [
        *(f"{name}: no such file or directory" for name in audit.result.missing),
        *(f"{problem.filename}: {problem.reason}" for problem in audit.result.problems),
        *(f"{place(doubt.span)}: {doubt.reason}" for doubt in audit.unparsed),
    ]
    yield from _listed("Left out", texts, width)


def _listed(title: str, texts: Iterable[str], width: int) -> Iterator[Line]:
    lines = [list(_wrapped("", text, width, "")) for text in texts]
    if lines:
        yield []
        yield [(f"{title} ({len(lines)})", "note")]
        for wrapped in lines:
            yield from wrapped
