"""Which candidates are fixes: those after which the analysis has lost the finding and gained none."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import libcst as cst

from ampclip_lint.diagnostics import Applicability, Diagnostic, Edit, Fix, Position, Span
from ampclip_lint.fix.document import NotEditable, edited
from ampclip_lint.fix.propose import Candidate, candidates
from ampclip_lint.fix.scene import Scene
from ampclip_lint.fix.tree import Tree
from ampclip_lint.lint.run import Program
from ampclip_lint.syntax.notebook import read_source
from ampclip_lint.syntax.source import SourceFile

#: So many candidates are tried for one finding.
MOST_CANDIDATES = 60


@dataclass(frozen=True)
class Accepted:
    """A fix, the bytes of the files with it, and how many findings it removes."""

    fix: Fix
    files: Mapping[str, bytes]


@dataclass
class Workspace:
    """A program whose files can be changed, in memory; `data` has the bytes that its sources were read from."""

    program: Program
    data: dict[str, bytes]
    _trees: dict[str, Tree | None] = field(default_factory=dict)
    _known: dict[tuple[frozenset[str], frozenset[str]], list[Diagnostic] | None] = field(default_factory=dict)

    def fix(self, diagnostic: Diagnostic, wanted: Sequence[Applicability] = tuple(Applicability)) -> Accepted | None:
        """The first candidate for a finding that proves right, of those kinds."""
        found = candidates_for(diagnostic, self.tree)
        eligible = (candidate for candidate in found if candidate.applicability in wanted)
        for candidate in islice(eligible, MOST_CANDIDATES):
            accepted = self._tried(candidate, diagnostic)
            if accepted is not None:
                return accepted
        return None

    def put(self, files: Mapping[str, bytes]) -> None:
        """From here on the program has these bytes in its files."""
        sources = dict(self.program.sources)
        for name, data in files.items():
            old = sources[name]
            source = read_source(name, old.path, data)
            assert isinstance(source, SourceFile)
            sources[name] = source
            self.data[name] = data
            self._trees.pop(name, None)
        self.program = replace(self.program, sources=sources)
        self._known.clear()

    def tree(self, name: str) -> Tree | None:
        """The statements of a file that fixes may change; None of others."""
        if name not in self._trees:
            source = self.program.sources.get(name)
            usable = source is not None and name in self.data and name in self.program.given
            try:
                self._trees[name] = Tree(source) if usable and source is not None else None
            except (cst.ParserSyntaxError, RecursionError):
                self._trees[name] = None
        return self._trees[name]

    def _tried(self, candidate: Candidate, target: Diagnostic) -> Accepted | None:
        edits: dict[str, list[Edit]] = {}
        for edit in candidate.edits:
            shown = self._shown(edit)
            if shown is None:
                return None
            edits.setdefault(shown.span.filename, []).append(shown)
        try:
            files = {name: edited(self.program.sources[name], self.data[name], own) for name, own in edits.items()}
        except NotEditable:
            return None
        changed: dict[str, SourceFile] = {}
        for name, data in files.items():
            source = read_source(name, self.program.sources[name].path, data)
            if not isinstance(source, SourceFile) or not _is_python(source):
                return None
            changed[name] = source
        if not self._is_better(changed, target):
            return None
        shown_edits = tuple(edit for own in edits.values() for edit in own)
        return Accepted(Fix(candidate.message, shown_edits, candidate.applicability), files)

    def _shown(self, edit: Edit) -> Edit | None:
        """The edit in rows as users see them; None where the text of a notebook is not what its cells hold."""
        source = self.program.sources[edit.span.filename]
        if not source.cells:
            return edit
        text = source.text.split("\n")
        for row in range(edit.span.start.row, edit.span.end.row + 1):
            at_margin = edit.span.start.column == edit.span.end.column == 1
            if not at_margin and text[row - 1] != source.line(row):
                return None  # the line of a magic
        span = source.shown(edit.span)
        if source.shown(Span(span.filename, edit.span.end, edit.span.end)).cell != span.cell:
            return None
        return replace(edit, span=span)

    def _is_better(self, changed: Mapping[str, SourceFile], target: Diagnostic) -> bool:
        for files, entries in self._parts(changed):
            key = (files, entries)
            if key not in self._known:
                self._known[key] = self.program.findings({}, files, entries)
            known = self._known[key]
            if known is None or not _count(known)[_key(target)]:
                continue  # A part too small to show the finding.
            found = self.program.findings(changed, files, entries)
            if found is None:
                return False
            before, after = _count(known), _count(found)
            return after[_key(target)] < before[_key(target)] and not _hard(after - before)
        return False

    def _parts(self, changed: Iterable[str]) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
        """The files to analyse again and those of them that are read for their own sake: first only those whose
        functions come past a changed file, then all.
        """
        program = self.program
        changed = frozenset(changed)
        entries = {name for name, reached in program.reach.items() if reached & changed} | changed
        files = frozenset(changed).union(*(program.reach.get(name, frozenset((name,))) for name in entries))
        if len(files) < len(program.sources):
            yield files, frozenset(entries) & program.given
        yield frozenset(program.sources), program.given


def candidates_for(diagnostic: Diagnostic, tree_of: object) -> Iterator[Candidate]:
    """The candidates for a finding; none where its file can't be changed."""
    if tree_of(diagnostic.span.filename) is None:  # type: ignore[operator]
        return iter(())
    return candidates(Scene(diagnostic, tree_of))  # type: ignore[arg-type]


def _is_python(source: SourceFile) -> bool:
    try:
        ast.parse(source.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _key(diagnostic: Diagnostic) -> tuple[str, str, str, str]:
    """What a finding is wherever it stands: a fix may move or rewrite its line."""
    return (diagnostic.code, diagnostic.span.filename, diagnostic.span.function, diagnostic.message)


def _count(diagnostics: Iterable[Diagnostic]) -> Counter[tuple[str, str, str, str]]:
    return Counter(map(_key, diagnostics))


def _hard(gained: Counter[tuple[str, str, str, str]]) -> bool:
    """Whether a finding was gained. That a comment is not needed any more is one that comes with being right."""
    return any(key[0] != "AMP002" for key in gained)


__all__ = ["Accepted", "Position", "Workspace"]
