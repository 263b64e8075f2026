"""Fixes offered with findings, made in the texts of a program one after the other, shown as diffs, written to files."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ampclip_lint.diagnostics import Applicability, Confidence, Diagnostic, Edit, Position, Span
from ampclip_lint.files import write_atomic
from ampclip_lint.fix.check import Accepted, Key, Workspace, key_of
from ampclip_lint.lint.run import RunResult
from ampclip_lint.records import dataclass
from ampclip_lint.syntax.source import FileProblem, SourceFile

#: A finding that can't be fixed now may be once others are; more rounds than this were never needed.
MOST_ROUNDS = 10

#: Reports that tell of fixes look for them until so many functions were analysed again: nobody asked to wait for them.
MOST_ANALYSES = 500


@dataclass(frozen=True)
class Fixed:
    """What all fixes together do to the files."""

    before: Mapping[str, bytes]
    after: Mapping[str, bytes]
    """By name; only those that change."""
    count: int
    """How many findings are gone."""


def kinds(*, unsafe: bool) -> frozenset[Applicability]:
    """The fixes that may be made."""
    return frozenset(Applicability) if unsafe else frozenset({Applicability.SAFE})


def offered(result: RunResult, stdin: bytes | None = None) -> RunResult:
    """The result with the fix of each finding that has one, each for itself, as far as the budget goes."""
    if result.program is None or not result.diagnostics:
        return result
    work = Workspace(result.program, stdin, budget=MOST_ANALYSES)
    found = []
    problems = list(result.problems)
    for diagnostic in result.diagnostics:
        try:
            accepted = work.fix(diagnostic, frozenset(Applicability))
        except Exception as error:  # costs the fix, not the finding
            accepted = None
            reason = f"internal error in the fix of {diagnostic.code}: {type(error).__name__}: {error}"
            problems.append(FileProblem(diagnostic.span.filename, reason, internal=True))
        found.append(diagnostic if accepted is None else replace(diagnostic, fix=accepted.fix))
    return replace(result, diagnostics=tuple(found), problems=tuple(problems))


def fix_all(result: RunResult, *, unsafe: bool, stdin: bytes | None = None) -> Fixed:
    """Make every fix of these kinds, one after the other, until none is left; nothing is written."""
    if result.program is None or not result.diagnostics:
        return Fixed({}, {}, 0)
    fixing = _Fixing(Workspace(result.program, stdin), list(result.diagnostics), unsafe)
    fixing.run()
    return fixing.result(len(result.diagnostics))


class _Fixing:
    def __init__(self, work: Workspace, findings: list[Diagnostic], unsafe: bool) -> None:
        self.work = work
        self.findings = findings
        self.wanted = kinds(unsafe=unsafe)
        #: Nothing else is touched: what a baseline or the settings leave out is nobody's wish.
        self.keys = set(map(key_of, findings))
        self.before: dict[str, bytes] = {}
        #: How often each file has changed, and how often it had when its findings of a kind were last given up.
        self.changes: Counter[str] = Counter()
        self.given_up: dict[Key, int] = {}

    def run(self) -> None:
        for _ in range(MOST_ROUNDS):
            progress = False
            for key in dict.fromkeys(map(key_of, self.findings)):
                progress |= self._fix(key)
            if not progress:
                return

    def _fix(self, key: Key) -> bool:
        """Fix the findings of one kind, those again that stand where something has moved; whether that was any."""
        index, progress = 0, False
        _, filename, _, _ = key
        if self.given_up.get(key) == self.changes[filename]:
            return False
        while True:
            same = [diagnostic for diagnostic in self.findings if key_of(diagnostic) == key]
            if index >= len(same):
                self.given_up[key] = self.changes[filename]
                return progress
            accepted = self.work.fix(same[index], self.wanted)
            if accepted is None:
                index += 1
            else:
                progress = True
                self._take(accepted)

    def _take(self, accepted: Accepted) -> None:
        for name in accepted.files:
            self.changes[name] += 1
            data = self.work.bytes_of(name)
            assert data is not None
            self.before.setdefault(name, data)
        self.work.put(accepted.files)
        anew = {(key_of(diagnostic), diagnostic.span) for diagnostic in accepted.known}
        others = [found for found in self.findings if (key_of(found), found.span) not in anew]
        shown = [found for found in accepted.found if self._is_shown(found)]
        self.findings = [*shown, *(_shifted(diagnostic, accepted.fix.edits) for diagnostic in others)]
        self.findings.sort(key=lambda diagnostic: diagnostic.sort_key)

    def _is_shown(self, diagnostic: Diagnostic) -> bool:
        if diagnostic.confidence is Confidence.POSSIBLE and not self.work.program.pedantic:
            return False
        unneeded = diagnostic.code == "AMP002"
        if unneeded and diagnostic.code in self.work.program.codes.get(diagnostic.span.filename, ()):
            return True
        return key_of(diagnostic) in self.keys

    def result(self, findings: int) -> Fixed:
        after = {name: self.work.bytes_of(name) for name in self.before}
        changed = {name: data for name, data in after.items() if data is not None and data != self.before[name]}
        return Fixed({name: self.before[name] for name in changed}, changed, findings - len(self.findings))


def _shifted(diagnostic: Diagnostic, edits: Sequence[Edit]) -> Diagnostic:
    """A finding that the edits do not touch, in the rows that it has behind them."""

    def moved(span: Span) -> Span:
        return replace(span, start=_place(span, span.start, edits), end=_place(span, span.end, edits))

    trace = tuple(replace(step, span=moved(step.span)) for step in diagnostic.trace)
    return replace(diagnostic, span=moved(diagnostic.span), trace=trace)


def _place(span: Span, position: Position, edits: Sequence[Edit]) -> Position:
    rows = sum(
        edit.content.count("\n") - (edit.span.end.row - edit.span.start.row)
        for edit in edits
        if (edit.span.filename, edit.span.cell) == (span.filename, span.cell) and edit.span.end <= position
    )
    columns = sum(
        len(edit.content) - (edit.span.end.column - edit.span.start.column)
        for edit in edits
        if (edit.span.filename, edit.span.cell) == (span.filename, span.cell)
        and edit.span.start.row == edit.span.end.row == position.row
        and edit.span.end <= position
        and "\n" not in edit.content
    )
    return Position(position.row + rows, position.column + columns)


def diff(fixed: Fixed, sources: Mapping[str, SourceFile]) -> Iterator[str]:
    """What changes, as a unified diff: lines without their line feed; a carriage return belongs to them."""
    from difflib import unified_diff

    for name in sorted(fixed.after):
        encoding = sources[name].encoding
        old, new = (_lines(data.decode(encoding)) for data in (fixed.before[name], fixed.after[name]))
        for line in unified_diff(old, new, name, name):
            yield line.rstrip("\n")
            if not line.endswith("\n"):
                yield "\\ No newline at end of file"


def _lines(text: str) -> list[str]:
    # As Python and patch count; `str.splitlines` would also split at form feeds.
    return [line for line in re.split(r"(?<=\n)", text) if line]


def write(fixed: Fixed, sources: Mapping[str, SourceFile]) -> list[FileProblem]:
    """Write the files; what can't be written stays as it is, and is named."""
    problems = []
    for name, data in fixed.after.items():
        path = sources[name].path
        if path is None:
            continue  # standard input
        try:
            if path.read_bytes() != fixed.before[name]:
                problems.append(FileProblem(name, "not fixed: it has changed while it was checked"))
            elif not path.stat().st_mode & 0o222 or not os.access(path, os.W_OK):
                # A file can be replaced in a folder that can be written; that is not what read-only means.
                problems.append(FileProblem(name, "not fixed: it is read-only"))
            else:
                write_atomic(path, data)
        except OSError as error:
            problems.append(FileProblem(name, f"not fixed: {(error.strerror or str(error)).lower()}"))
    return problems
