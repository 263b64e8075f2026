"""Comments that silence findings: `ampclip: ignore[...]`, `ampclip: ignore-file[...]` and `noqa: ...`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ampclip_lint.diagnostics import Diagnostic
from ampclip_lint.syntax.source import FileProblem, SourceFile

_HINT = re.compile(r"#.*?\b(?:ampclip|noqa)\s*:", re.IGNORECASE)
_OWN = re.compile(r"#\s*ampclip\s*:\s*(?P<kind>[a-z-]+)\s*(?:\[(?P<codes>[^\]]*)\])?", re.IGNORECASE)
_NOQA = re.compile(r"#\s*noqa\s*:\s*(?P<codes>[a-z]+[0-9]+(?:[\s,]+[a-z]+[0-9]+)*)", re.IGNORECASE)
_CODES = re.compile(r"[A-Z]+[0-9]+")
_SPLIT = re.compile(r"[\s,]+")


@dataclass(frozen=True)
class Suppressions:
    """What one file silences."""

    whole_file: frozenset[str]
    by_row: dict[int, frozenset[str]]
    last_row: dict[int, int]
    """Row to the last row of the logical line that it belongs to."""
    malformed: tuple[FileProblem, ...] = ()

    def covers(self, diagnostic: Diagnostic) -> bool:
        """A comment speaks of the findings on its own line, and at the end of a statement of all of the statement."""
        if diagnostic.code in self.whole_file:
            return True
        start, end = diagnostic.span.start.row, diagnostic.span.end.row
        rows = {*range(start, end + 1), self.last_row.get(start, start)}
        return any(diagnostic.code in self.by_row.get(row, ()) for row in rows)


NONE = Suppressions(frozenset(), {}, {})


def suppressions(source: SourceFile) -> Suppressions:
    """The suppression comments of a file. Comments only: the same words in a string mean nothing."""
    if not _HINT.search(source.text):
        return NONE
    whole: set[str] = set()
    by_row: dict[int, set[str]] = {}
    last_row: dict[int, int] = {}
    malformed: list[FileProblem] = []
    for row, text in _comments(source.text, last_row):
        for match in _NOQA.finditer(text):
            by_row.setdefault(row, set()).update(_split(match["codes"]))
        for match in _OWN.finditer(text):
            kind = match["kind"].lower()
            codes = _split(match["codes"] or "")
            if kind not in ("ignore", "ignore-file"):
                reason = f"`ampclip: {match['kind']}` is no suppression comment (ignore[CODE] or ignore-file[CODE])"
            elif not codes or not all(_CODES.fullmatch(code) for code in codes):
                reason = f"`ampclip: {kind}` needs a code, as in `ampclip: {kind}[AMP101]`; it silences nothing"
            else:
                (whole if kind == "ignore-file" else by_row.setdefault(row, set())).update(codes)
                continue
            malformed.append(FileProblem(f"{source.name}:{row}", reason))
    return Suppressions(
        frozenset(whole), {row: frozenset(codes) for row, codes in by_row.items()}, last_row, tuple(malformed)
    )


def _split(codes: str) -> set[str]:
    return {code.upper() for code in _SPLIT.split(codes.strip()) if code}


def _comments(text: str, last_row: dict[int, int]) -> Iterator[tuple[int, str]]:
    import io
    import tokenize

    first = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
            elif token.type == tokenize.NEWLINE:
                for row in range(first or token.start[0], token.start[0] + 1):
                    last_row[row] = token.start[0]
                first = 0
            elif not first and token.type not in (tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
                first = token.start[0]
    except (tokenize.TokenError, SyntaxError):
        return  # a broken file: what stands before the break still counts
