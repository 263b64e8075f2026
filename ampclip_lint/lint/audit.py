"""The audit: a run told by training loops, with the verdict on each. Knows no output format.

A verdict is about what was analysed: *right* means that nothing was found and that nothing stood in the way of finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum
from os import PathLike
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypeVar

from ampclip_lint.diagnostics import Confidence, Diagnostic, Severity, Span
from ampclip_lint.lint.config import Settings
from ampclip_lint.lint.rule import Rule
from ampclip_lint.lint.run import RunResult, lint_paths
from ampclip_lint.loops import Curve, Doubt, History, Loop
from ampclip_lint.records import dataclass
from ampclip_lint.syntax.source import FileProblem, SourceFile

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis, ProgramAnalysis

Place = tuple[str, int | None, int, int, int, int]
Spanned = TypeVar("Spanned")


class Verdict(str, Enum):
    """What the audit says of a loop, the worst first."""

    WRONG = "wrong"
    POSSIBLE = "possibly wrong"
    UNDECIDED = "not decided"
    SILENCED = "silenced"
    RIGHT = "right"


@dataclass(frozen=True)
class Finding:
    """A finding with the pictures that belong to it, where it is about units."""

    diagnostic: Diagnostic
    history: History | None = None
    curve: Curve | None = None


@dataclass(frozen=True)
class JudgedLoop:
    """A training loop with the findings in it, by their place in `Audit.findings`."""

    loop: Loop
    verdict: Verdict
    findings: tuple[int, ...] = ()
    silenced: int = 0
    """Faults that no finding speaks of: suppressed, or their rule is not selected."""


@dataclass(frozen=True)
class Audit:
    """All that a report on a repository needs."""

    result: RunResult
    loops: tuple[JudgedLoop, ...] = ()
    findings: tuple[Finding, ...] = ()
    unparsed: tuple[Doubt, ...] = ()
    """Files that are not Python, whether or not they mention a scaler."""
    paths: tuple[str, ...] = ()

    def count(self, verdict: Verdict) -> int:
        """How many loops got that verdict."""
        return sum(loop.verdict is verdict for loop in self.loops)

    @property
    def analysed(self) -> int:
        """How many of the files that were read matter."""
        return len(self.result.sources) - self.result.imported

    @property
    def definite(self) -> tuple[Finding, ...]:
        """The findings that a feasible path shows."""
        return tuple(f for f in self.findings if f.diagnostic.confidence is Confidence.DEFINITE)

    @property
    def possible(self) -> tuple[Finding, ...]:
        """The findings that rest on an assumption."""
        return tuple(f for f in self.findings if f.diagnostic.confidence is Confidence.POSSIBLE)

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """What could not be decided, in all loops and files."""
        found = dict.fromkeys((*(doubt for judged in self.loops for doubt in judged.loop.doubts), *self.unparsed))
        return tuple(sorted(found, key=lambda doubt: (doubt.span.filename, doubt.span.cell or 0, doubt.span.start)))


def folder_of(filename: str) -> str:
    """The folder of a file as reports name it."""
    return str(PurePosixPath(filename).parent)


def tally(names: Iterable[str]) -> list[tuple[str, int]]:
    """Each name with how often it comes, the most frequent first."""
    return sorted(Counter(names).items(), key=lambda item: (-item[1], item[0]))


def audit_paths(
    paths: Sequence[str | PathLike[str]],
    settings: Settings | None = None,
    *,
    rules: Mapping[str, Rule] | None = None,
    stdin: bytes | None = None,
) -> Audit:
    """
    Check files and folders as `lint_paths` does, and take stock of their training loops.

    Findings that rest on an assumption are there too, told apart by their confidence.
    """
    stock = _Stock()
    asked = replace(settings or Settings(), pedantic=True)
    result = lint_paths(paths, asked, rules=rules, stdin=stdin, observe=stock.take)
    result = replace(result, problems=(*result.problems, *stock.problems))
    return stock.audit(result, tuple(str(path) for path in paths))


@dataclass
class _Stock:
    """What is kept of the analyses of a run: a few facts, not the analyses."""

    loops: list[Loop] = field(default_factory=list)
    unparsed: list[Doubt] = field(default_factory=list)
    problems: list[FileProblem] = field(default_factory=list)
    pictures: dict[Span, tuple[bool, History | None, Curve | None]] = field(default_factory=dict)
    """By the span of the site: whether the path is certain, and what is drawn of it."""

    def take(self, program: ProgramAnalysis) -> None:
        for error in program.syntax_errors:
            self.unparsed.append(Doubt(error.span, f"not valid Python: {error.message}"))
        for function in program.functions:
            try:
                self._take(function)
            except Exception as error:
                # As a rule's crash: it costs what it is about and is told.
                reason = f"internal error in the audit of `{function.name}`: {type(error).__name__}: {error}"
                self.problems.append(FileProblem(function.span.filename, reason, internal=True))

    def _take(self, function: FunctionAnalysis) -> None:
        from ampclip_lint.amp.inventory import history_of, training_loop
        from ampclip_lint.amp.worked import curve

        loop = training_loop(function)
        if loop is not None:
            self.loops.append(loop)
        for site, mark, visit in function.found():
            certain = not visit.world.doubt
            known = self.pictures.get(site.span)
            if known is None or (certain and not known[0]):
                self.pictures[site.span] = (certain, history_of(function, mark, visit), curve(mark.kind))

    def audit(self, result: RunResult, paths: tuple[str, ...]) -> Audit:
        shown = _Shown(result)
        pictures = {shown.place(span): drawn for span, drawn in self.pictures.items()}
        findings = []
        for diagnostic in result.diagnostics:
            _, history, curve = pictures.get(_key(diagnostic.span), (True, None, None))
            findings.append(Finding(diagnostic, shown.history(history), curve))
        at: dict[Place, list[int]] = {}
        for number, finding in enumerate(findings):
            at.setdefault(_key(finding.diagnostic.span), []).append(number)
        loops = [_judged(shown.loop(loop), at, findings) for loop in self.loops]
        loops.sort(key=lambda judged: (judged.loop.span.filename, judged.loop.span.cell or 0, judged.loop.span.start))
        unparsed = tuple(replace(doubt, span=shown.span(doubt.span)) for doubt in self.unparsed)
        return Audit(result, tuple(loops), tuple(findings), unparsed, paths)


def _judged(loop: Loop, at: Mapping[Place, Sequence[int]], findings: Sequence[Finding]) -> JudgedLoop:
    numbers: dict[int, None] = {}
    silenced = 0
    for suspicion in loop.suspicions:
        here = at.get(_key(suspicion.span), ())
        numbers.update(dict.fromkeys(here))
        silenced += not here and not suspicion.remark
    serious = [
        finding.diagnostic.confidence
        for finding in map(findings.__getitem__, numbers)
        if finding.diagnostic.severity is not Severity.INFO
    ]
    if Confidence.DEFINITE in serious:
        verdict = Verdict.WRONG
    elif serious:
        verdict = Verdict.POSSIBLE
    elif loop.doubts:
        verdict = Verdict.UNDECIDED
    else:
        verdict = Verdict.SILENCED if silenced else Verdict.RIGHT
    return JudgedLoop(loop, verdict, tuple(sorted(numbers)), silenced)


def _key(span: Span) -> Place:
    """A place without the function: one call may be reached as a part of several."""
    return (span.filename, span.cell, span.start.row, span.start.column, span.end.row, span.end.column)


class _Shown:
    """Spans as users see them: in a notebook, rows of a cell."""

    def __init__(self, result: RunResult) -> None:
        self.result = result

    def span(self, span: Span) -> Span:
        source: SourceFile | None = self.result.source(span.filename)
        return source.shown(span) if source is not None else span

    def place(self, span: Span) -> Place:
        return _key(self.span(span))

    def history(self, history: History | None) -> History | None:
        return None if history is None else replace(history, moments=self._each(history.moments))

    def loop(self, loop: Loop) -> Loop:
        return replace(
            loop,
            span=self.span(loop.span),
            scalers=tuple(replace(s, made_at=tuple(map(self.span, s.made_at))) for s in loop.scalers),
            clips=self._each(loop.clips),
            calls=self._each(loop.calls),
            doubts=self._each(loop.doubts),
            suspicions=self._each(loop.suspicions),
        )

    def _each(self, items: tuple[Spanned, ...]) -> tuple[Spanned, ...]:
        return tuple(replace(item, span=self.span(item.span)) for item in items)  # type: ignore[type-var,attr-defined]
