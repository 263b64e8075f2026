"""Baselines: findings that are accepted for now, matched by what stands in the code and never by line numbers.

An entry is a finding's file, code, function and the text of its line. Equal ones are counted: one more than accepted is
a finding. The code may move: inside its file into another function, and with its file to another place.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ampclip_lint.diagnostics import Confidence, Diagnostic
from ampclip_lint.lint.errors import ToolError
from ampclip_lint.records import dataclass
from ampclip_lint.syntax.source import display_name

VERSION = 1


class BaselineError(ToolError):
    """A baseline that can't be used or written, with its file."""


class Entry(NamedTuple):
    """What is accepted of a finding."""

    path: str
    """Of the file, relative to the folder of the baseline, with forward slashes."""
    function: str
    code: str
    line: str
    """The text of the line that it begins on, with single blanks."""
    confidence: str = Confidence.DEFINITE.value
    """Who accepts that something may be wrong does not accept that it surely is."""


@dataclass(frozen=True)
class Outcome:
    """What a run has to do with one baseline."""

    path: Path
    accepted: int = 0
    """The findings that it covers."""
    stale: tuple[tuple[Entry, int], ...] = ()
    """The entries that this run would have met and did not, and how many of each."""
    kept: int = 0
    """The entries that this run can't judge."""
    fresh: int = 0
    """The findings that it does not cover."""
    renewed: tuple[tuple[Entry, int], ...] = ()
    """What it would hold if it were written now: every finding of the run, and what the run can't judge."""
    written: bool = False
    """Whether that has been done."""


def entry_of(diagnostic: Diagnostic, place: Path, baseline: Path) -> Entry:
    """The entry that accepts a finding in the file at `place`."""
    return Entry(
        relative(place, baseline),
        diagnostic.span.function,
        diagnostic.code,
        " ".join(diagnostic.line_text.split()),
        diagnostic.confidence.value,
    )


def relative(place: Path, baseline: Path) -> str:
    """The path of a file as the entries of a baseline have it."""
    whole = os.path.abspath(place)
    try:
        return os.path.relpath(whole, os.path.abspath(baseline.parent)).replace(os.sep, "/")
    except ValueError:  # another drive
        return whole.replace(os.sep, "/")


def hold(
    path: Path,
    entries: Mapping[Entry, int],
    found: Sequence[tuple[Entry, Diagnostic]],
    judges: Callable[[Entry], bool],
) -> tuple[Outcome, list[Diagnostic]]:
    """
    Hold the findings of a run against a baseline; what it does not cover is returned, in order.

    `judges` tells whether the run would have met what an entry stands for, if it still were there.
    """
    unused = Counter(entries)
    gone = {name for name in {entry.path for entry in entries} if not (path.parent / name).exists()}
    left = list(found)
    # First what has not moved, then what stands in another function, then what came from a file that is gone.
    left = _uncovered(left, unused, entries, lambda entry: entry)
    left = _uncovered(left, unused, entries, lambda entry: entry._replace(function=""))
    moved = [entry for entry in entries if entry.path in gone]
    left = _uncovered(left, unused, moved, lambda entry: entry._replace(path=""))
    stale = {entry: count for entry, count in unused.items() if count and judges(entry)}
    kept = {entry: count for entry, count in unused.items() if count and not judges(entry)}
    outcome = Outcome(
        path,
        accepted=len(found) - len(left),
        stale=tuple(sorted(stale.items())),
        kept=sum(kept.values()),
        fresh=len(left),
        renewed=tuple(sorted((Counter(entry for entry, _ in found) + Counter(kept)).items())),
    )
    return outcome, [diagnostic for _, diagnostic in left]


def _uncovered(
    found: Iterable[tuple[Entry, Diagnostic]],
    unused: Counter[Entry],
    entries: Iterable[Entry],
    same: Callable[[Entry], Entry],
) -> list[tuple[Entry, Diagnostic]]:
    """The findings for which no entry is left that is the `same`; the others use up theirs."""
    candidates: dict[Entry, list[Entry]] = defaultdict(list)
    for entry in sorted(entries):
        candidates[same(entry)].append(entry)
    left = []
    for item in found:
        match = next((entry for entry in candidates[same(item[0])] if unused[entry]), None)
        if match is None:
            left.append(item)
        else:
            unused[match] -= 1
    return left


def read(path: Path) -> dict[Entry, int]:
    """
    The entries of the baseline at `path`, and how many findings each accepts.

    Raises:
        BaselineError: where there is none, or none that this version can read.
    """
    import json

    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise BaselineError(f"{display_name(path)}: no such baseline; `--write-baseline` writes one") from error
    except OSError as error:
        raise BaselineError(f"{display_name(path)}: can't be read: {(error.strerror or str(error)).lower()}") from error
    except (ValueError, RecursionError) as error:
        raise BaselineError(f"{display_name(path)}: not a baseline: not JSON: {error}") from error
    if not isinstance(data, dict) or "version" not in data:
        raise BaselineError(f"{display_name(path)}: not a baseline: it has no `version`")
    if data["version"] != VERSION:
        raise BaselineError(
            f"{display_name(path)}: a baseline of version {data['version']!r}; this ampclip-lint reads {VERSION}"
        )
    if not isinstance(data.get("findings"), list):
        raise BaselineError(f"{display_name(path)}: not a baseline: `findings` is not a list")
    entries: Counter[Entry] = Counter()
    for number, item in enumerate(data["findings"], 1):
        known = _entry(item)
        if known is None:
            raise BaselineError(f"{display_name(path)}: not a baseline: entry {number} of `findings` can't be read")
        entry, count = known
        entries[entry] += count
    return dict(entries)


def _entry(item: Any) -> tuple[Entry, int] | None:
    """What one element of the list says; None where that is no entry."""
    if not isinstance(item, dict):
        return None
    values = [item.get(key) for key in ("path", "function", "code", "line")]
    entry = Entry._make([*values, item.get("confidence", Confidence.DEFINITE.value)])
    count = item.get("count", 1)
    good = all(isinstance(value, str) for value in entry) and type(count) is int and count > 0
    return (entry, count) if good else None


def text_of(entries: Iterable[tuple[Entry, int]]) -> str:
    """The file that holds these entries: sorted, one value a line, so that a change of it reads well."""
    import json

    findings = []
    for entry, count in sorted(entries):
        item: dict[str, Any] = {
            "path": entry.path,
            "function": entry.function,
            "code": entry.code,
            "line": entry.line,
        }
        if entry.confidence != Confidence.DEFINITE.value:
            item["confidence"] = entry.confidence
        if count > 1:
            item["count"] = count
        findings.append(item)
    return json.dumps({"version": VERSION, "findings": findings}, indent=2) + "\n"


def write(path: Path, entries: Iterable[tuple[Entry, int]]) -> None:
    """
    Put a baseline with these entries at `path`, in the place of what stood there.

    Raises:
        BaselineError: where that can't be done; then nothing has changed.
    """
    from ampclip_lint.files import write_atomic

    try:
        write_atomic(path, text_of(entries).encode())
    except OSError as error:
        raise BaselineError(
            f"{display_name(path)}: can't be written: {(error.strerror or str(error)).lower()}"
        ) from error
