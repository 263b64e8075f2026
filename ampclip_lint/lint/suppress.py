"""Comments that silence findings: `ampclip: ignore[...]`, `ampclip: ignore-file[...]` and `noqa: ...`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from functools import cached_property

from ampclip_lint.diagnostics import Diagnostic, Position, Span
from ampclip_lint.records import dataclass
from ampclip_lint.syntax.source import FileProblem, SourceFile

_HINT = re.compile(r"\b(?:ampclip|noqa)\s*:", re.IGNORECASE)
_OWN = re.compile(r"#\s*ampclip\s*:\s*(?P<kind>[a-z-]+)\s*(?:\[(?P<codes>[^\]#]*)\])?", re.IGNORECASE)
_NOQA = re.compile(r"#\s*noqa\s*:\s*(?P<codes>[a-z]+[0-9]+(?:[\s,]+[a-z]+[0-9]+)*)", re.IGNORECASE)
_CODES = re.compile(r"[A-Z]+[0-9]+")
_WORD = re.compile(r"[^\s,]+")
_LONGEST = 40
"""Characters of a word that is not understood in the message about it."""


@dataclass(frozen=True)
class Suppression:
    """One code in one comment."""

    code: str
    span: Span
    """The place of the code itself."""
    whole_file: bool
    shared: bool
    """A `noqa` speaks to other tools too: a code that we do not know is theirs."""


@dataclass(frozen=True)
class Suppressions:
    """What one file silences."""

    entries: tuple[Suppression, ...] = ()
    last_row: Mapping[int, int] = field(default_factory=dict)
    """Row to the last row of the logical line that it belongs to."""
    malformed: tuple[FileProblem, ...] = ()

    @cached_property
    def _by_code(self) -> dict[str, list[Suppression]]:
        found: dict[str, list[Suppression]] = defaultdict(list)
        for entry in self.entries:
            found[entry.code].append(entry)
        return dict(found)

    def of(self, code: str, span: Span) -> list[Suppression]:
        """A comment speaks of the findings on its own line, and at the end of a statement of all of the statement."""
        start, end = span.start.row, span.end.row
        last = self.last_row.get(start, start)
        return [
            entry
            for entry in self._by_code.get(code, ())
            if entry.whole_file or start <= entry.span.start.row <= end or entry.span.start.row == last
        ]

    def covers(self, diagnostic: Diagnostic) -> bool:
        """Whether the finding is silenced."""
        return bool(self.of(diagnostic.code, diagnostic.span))


NONE = Suppressions()


def hint(codes: Iterable[str]) -> Callable[[bytes], bool]:
    """A quick test on bytes: False only where no comment of ours, and no `noqa` with a code like these, can stand."""
    letters = "|".join(sorted({re.escape(code.rstrip("0123456789")) for code in codes}))
    begins = re.compile(rb"\b(?:(ampclip)|noqa)\s*:")
    counts = re.compile(rf"\bampclip\s*:|\b(?:{letters})[0-9]".encode(), re.IGNORECASE)

    def test(data: bytes) -> bool:
        lowered = data.lower()  # two searches for a fixed word are far quicker than one for a pattern
        if b"ampclip" not in lowered and b"noqa" not in lowered:
            return False
        found = begins.search(lowered)
        while found is not None:
            end = data.find(b"\n", found.end())
            end = len(data) if end < 0 else end
            if found[1] or counts.search(data, found.end(), end):
                return True
            # Only one look at the rest of a line, however many comments begin there.
            found = begins.search(lowered, end)
        return False

    return test


def suppressions(source: SourceFile) -> Suppressions:
    """The suppression comments of a file. Comments only: the same words in a string mean nothing."""
    if not _HINT.search(source.text):
        return NONE
    entries: list[Suppression] = []
    last_row: dict[int, int] = {}
    malformed: list[FileProblem] = []
    for start, text in _comments(source.text, last_row):
        for match in _NOQA.finditer(text):
            for code, span in _codes(source.name, start, match):
                entries.append(Suppression(code, span, whole_file=False, shared=True))
        for match in _OWN.finditer(text):
            kind = match["kind"].lower()
            shown = kind if len(kind) <= _LONGEST else f"{kind[:_LONGEST]}…"
            codes = list(_codes(source.name, start, match))
            if kind not in ("ignore", "ignore-file"):
                reason = f"`ampclip: {shown}` is no suppression comment (ignore[CODE] or ignore-file[CODE])"
            elif not codes or not all(_CODES.fullmatch(code) for code, _ in codes):
                reason = f"`ampclip: {kind}` needs a code, as in `ampclip: {kind}[AMP101]`; it silences nothing"
            else:
                entries += [Suppression(code, span, kind == "ignore-file", shared=False) for code, span in codes]
                continue
            malformed.append(FileProblem(f"{source.name}:{source.where(start.row)}", reason))
    return Suppressions(tuple(entries), last_row, tuple(dict.fromkeys(malformed)))  # once a line is enough


def _codes(filename: str, comment: Position, match: re.Match[str]) -> Iterator[tuple[str, Span]]:
    """Each word of the list of codes, with its place in the file."""
    for word in _WORD.finditer(match["codes"] or ""):
        column = comment.column + match.start("codes") + word.start()
        end = Position(comment.row, column + len(word[0]))
        yield word[0].upper(), Span(filename, Position(comment.row, column), end)


def _comments(text: str, last_row: dict[int, int]) -> Iterator[tuple[Position, str]]:
    import io
    import tokenize

    first = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield Position(token.start[0], token.start[1] + 1), token.string
            elif token.type == tokenize.NEWLINE:
                for row in range(first or token.start[0], token.start[0] + 1):
                    last_row[row] = token.start[0]
                first = 0
            elif not first and token.type not in (tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
                first = token.start[0]
    except (tokenize.TokenError, SyntaxError):
        return  # a broken file: what stands before the break still counts
