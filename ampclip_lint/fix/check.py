"""Which candidates are fixes: those after which the analysis has lost the finding and gained none."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field, replace
from itertools import islice
from typing import TYPE_CHECKING

from ampclip_lint.diagnostics import Applicability, Confidence, Diagnostic, Edit, Fix, Span
from ampclip_lint.fix.candidate import Candidate, without_suppression
from ampclip_lint.fix.document import NotEditable, edited
from ampclip_lint.lint.run import Function, Program
from ampclip_lint.records import dataclass
from ampclip_lint.syntax.functions import MODULE
from ampclip_lint.syntax.notebook import read_source
from ampclip_lint.syntax.source import FileProblem, SourceFile, read_bytes

if TYPE_CHECKING:
    from ampclip_lint.fix.tree import Tree

#: So many candidates are tried for one finding, until so many functions were analysed again: one that shows only in all
#: of a large program has few.
MOST_CANDIDATES = 60
MOST_FUNCTIONS = 1_000

#: What a finding is wherever it stands: a fix may move or rewrite its line.
Key = tuple[str, str, str, str]


def key_of(diagnostic: Diagnostic) -> Key:
    """Code, file, function and message of a finding."""
    return (diagnostic.code, diagnostic.span.filename, diagnostic.span.function, diagnostic.message)


@dataclass(frozen=True)
class Accepted:
    """A fix, the bytes of the files with it, and what was and is found in the part of the program that it changes."""

    fix: Fix
    files: Mapping[str, bytes]
    known: tuple[Diagnostic, ...]
    found: tuple[Diagnostic, ...]


#: So many characters of the files that are analysed weigh as much as one function.
_TEXT_OF_ONE = 5_000
#: ... as do so many worlds that are told apart.
_WORLDS_OF_ONE = 300


@dataclass
class Workspace:
    """A program whose files can be changed, in memory."""

    program: Program
    stdin: bytes | None = None
    budget: int | None = None
    """So many functions may be analysed again; None for any number."""
    data: dict[str, bytes | None] = field(default_factory=dict)
    """What stands in the files, with the fixes so far; None where that is not what was analysed."""
    _spent: int = 0
    _trees: dict[str, Tree | None] = field(default_factory=dict)
    _known: dict[frozenset[Function] | None, list[Diagnostic] | None] = field(default_factory=dict)

    def fix(self, diagnostic: Diagnostic, wanted: Collection[Applicability]) -> Accepted | None:
        """The first candidate of these kinds for a finding that proves right."""
        try:
            return self._first(diagnostic, wanted)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None  # what is too large to be read with all its layout is not changed

    def _first(self, diagnostic: Diagnostic, wanted: Collection[Applicability]) -> Accepted | None:
        eligible = (candidate for candidate in self._candidates(diagnostic) if candidate.applicability in wanted)
        self._spent = 0
        for candidate in islice(eligible, MOST_CANDIDATES):
            if self._spent > MOST_FUNCTIONS or (self.budget is not None and self.budget <= 0):
                return None
            accepted = self._tried(candidate, diagnostic)
            if accepted is not None:
                return accepted
        return None

    def _candidates(self, diagnostic: Diagnostic) -> Iterator[Candidate]:
        name = diagnostic.span.filename
        if diagnostic.code == "AMP002":
            if name in self.program.given and self.bytes_of(name) is not None:
                yield without_suppression(self.program.sources[name], diagnostic)
        elif self.tree(name) is not None:
            from ampclip_lint.fix.propose import candidates
            from ampclip_lint.fix.scene import Scene

            yield from candidates(Scene(diagnostic, self.tree))

    def put(self, files: Mapping[str, bytes]) -> None:
        """From here on the program has these bytes in its files."""
        sources = dict(self.program.sources)
        for name, data in files.items():
            source = read_source(name, sources[name].path, data)
            assert isinstance(source, SourceFile)
            sources[name] = source
            self.data[name] = data
            self._trees.pop(name, None)
        self.program = replace(self.program, sources=sources, analysis=None)
        self._known.clear()

    def bytes_of(self, name: str) -> bytes | None:
        """What stands in a file; None if that has changed since it was analysed."""
        if name not in self.data:
            source = self.program.sources[name]
            data = self.stdin if source.path is None else read_bytes(name, source.path)
            same = isinstance(data, bytes) and read_source(name, source.path, data) == source
            self.data[name] = data if same and not isinstance(data, FileProblem) else None
        return self.data[name]

    def tree(self, name: str) -> Tree | None:
        """The statements of a file that fixes may change: it was given, and is what was analysed."""
        if name not in self._trees:
            source = self.program.sources.get(name)
            self._trees[name] = None
            if source is not None and name in self.program.given and self.bytes_of(name) is not None:
                from ampclip_lint.fix.tree import Tree

                with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
                    self._trees[name] = Tree(source)
        return self._trees[name]

    def _tried(self, candidate: Candidate, target: Diagnostic) -> Accepted | None:
        edits: dict[str, list[Edit]] = {}
        for edit in candidate.edits:
            shown = self._shown(edit)
            if shown is None:
                return None
            edits.setdefault(shown.span.filename, []).append(shown)
        files: dict[str, bytes] = {}
        changed: dict[str, SourceFile] = {}
        for name, own in edits.items():
            data = self.bytes_of(name)
            assert data is not None
            try:
                files[name] = edited(self.program.sources[name], data, own)
            except NotEditable:
                return None
            source = read_source(name, self.program.sources[name].path, files[name])
            if not isinstance(source, SourceFile) or _tree(source) is None:
                return None
            changed[name] = source
        fix = Fix(candidate.message, tuple(edit for own in edits.values() for edit in own), candidate.applicability)
        if target.code == "AMP002":
            # A comment that silences nothing: without it the program is the same, and so is what is found in it.
            same = all(_is_same(self.program.sources[name], source) for name, source in changed.items())
            return Accepted(fix, files, (target,), ()) if same else None
        touched = frozenset(function for edit in candidate.edits for function in self._functions_of(edit))
        found = self._better(changed, touched, target)
        return None if found is None else Accepted(fix, files, *found)

    def _functions_of(self, edit: Edit) -> Iterator[Function]:
        """The functions whose rows an edit changes."""
        tree = self.tree(edit.span.filename)
        assert tree is not None
        start, end = edit.span.start, edit.span.end
        last = end.row - 1 if end.column == 1 and end.row > start.row else end.row
        yield from ((edit.span.filename, tree.function_at(row)) for row in {start.row, last})

    def _shown(self, edit: Edit) -> Edit | None:
        """The edit in rows as users see them; None where the text of a notebook is not what its cells hold."""
        source = self.program.sources[edit.span.filename]
        if not source.cells:
            return edit
        text = source.text.split("\n")
        for row in range(edit.span.start.row, edit.span.end.row + 1):
            whole_rows = edit.span.start.column == edit.span.end.column == 1
            if not whole_rows and text[row - 1] != source.line(row):
                return None  # the line of a magic
        span = source.shown(edit.span)
        if source.shown(Span(span.filename, edit.span.end, edit.span.end)).cell != span.cell:
            return None
        return replace(edit, span=span)

    def _better(
        self, changed: Mapping[str, SourceFile], touched: frozenset[Function], target: Diagnostic
    ) -> tuple[tuple[Diagnostic, ...], tuple[Diagnostic, ...]] | None:
        """What was and is found in the part that changes, if the target is gone from it and nothing is new."""
        for roots in self._parts(touched):
            if roots not in self._known:
                self._known[roots] = self._findings({}, roots)
            known = self._known[roots]
            if known is None or key_of(target) not in map(key_of, known):
                continue  # A part too small to show the finding.
            found = self._findings(changed, roots)
            if found is None:
                return None
            if _number(found, target) >= _number(known, target):
                return None
            gained = Counter(map(_shade, found)) - Counter(map(_shade, known))
            if any(self._counts(diagnostic, target) for diagnostic in found if gained[_shade(diagnostic)]):
                return None
            return tuple(known), tuple(found)
        return None

    def _findings(
        self, changed: Mapping[str, SourceFile], roots: frozenset[Function] | None
    ) -> list[Diagnostic] | None:
        number = len(self.program.reach if roots is None else roots)
        # The text is looked through again, however few of its functions are: a generated one costs what it weighs.
        self._spent += number
        if self.budget is not None:
            files = self.program.sources.keys() if roots is None else self._files(roots) | changed.keys()
            texts = [source.text for name, source in self.program.sources.items() if name in files]
            self.budget -= number + sum(map(len, texts)) // _TEXT_OF_ONE
        # Where fixes are only offered, nobody goes on from what is found with them.
        found, worlds = self.program.findings(changed, roots, told=self.budget is None)
        if self.budget is not None:
            self.budget -= worlds // _WORLDS_OF_ONE
        return found

    def _files(self, roots: Collection[Function]) -> set[str]:
        return {name for root in roots for name, _ in self.program.reach.get(root, (root,))}

    def _counts(self, gained: Diagnostic, target: Diagnostic) -> bool:
        """Whether a finding that a candidate brings speaks against it."""
        if gained.code == "AMP002":
            return False  # A comment that is not needed any more comes with being right.
        # What is only possible may have been hidden by the finding that was certain at the same call.
        hidden = gained.confidence is Confidence.POSSIBLE and not self.program.pedantic
        return not hidden or gained.code == target.code

    def _parts(self, touched: frozenset[Function]) -> Iterator[frozenset[Function] | None]:
        """What to analyse again: first only the functions that come past a touched one, then all."""
        # What a module does outside of functions may concern all that are in it.
        whole = {file for file, name in touched if name == MODULE}
        yield frozenset(
            root
            for root, reached in self.program.reach.items()
            if reached & touched or any(file in whole for file, _ in reached)
        )
        yield None


def _number(found: Iterable[Diagnostic], target: Diagnostic) -> int:
    return sum(key_of(diagnostic) == key_of(target) for diagnostic in found)


def _shade(diagnostic: Diagnostic) -> tuple[Key, Confidence]:
    # What was only possible and is certain now is new.
    return key_of(diagnostic), diagnostic.confidence


def _tree(source: SourceFile) -> ast.Module | None:
    """A text as Python; None where it is none."""
    try:
        return ast.parse(source.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _is_same(left: SourceFile, right: SourceFile) -> bool:
    """Whether two texts are the same program."""
    trees = _tree(left), _tree(right)
    return None not in trees and ast.dump(trees[0]) == ast.dump(trees[1])  # type: ignore[arg-type]
