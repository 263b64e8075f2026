"""Runs the linter over real projects and compares its verdicts with the stored ones of `corpus.json`.

    python benchmarks/corpus.py [--repositories DIR] [--only NAME] [--cache DIR] [--jobs N] [--write]

Without `--repositories`, the releases are downloaded at their pinned versions (the first time) and unpacked; nothing of
them is run. With it, a folder of DIR for each project is compared instead: `owner+name` for a repository at its commit,
`owner+name@commit` (nine digits) for a state before a fix. Exits with 1 where a verdict on the same code has changed,
and with 2 where a project could not be compared.

`corpus.json` holds what reading found: `mistakes`, `doubts` where reading does not decide, and `sound` code that the
linter took for a mistake. A verdict is judged by these lists. To judge an unread one, add its place to the list that it
belongs to, and run this with `--only NAME --write`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "rules")]

from ampclip_lint.lint.config import Settings  # noqa: E402
from ampclip_lint.lint.registry import validate  # noqa: E402
from ampclip_lint.lint.run import lint_paths  # noqa: E402
from ampclip_rules import RULES  # noqa: E402

CORPUS = ROOT / "benchmarks" / "corpus.json"
RELEASE, REPOSITORY, BEFORE_FIX = KINDS = ("release", "repository", "state before a fix")
RIGHT, WRONG, UNSURE, UNREAD = JUDGEMENTS = ("right", "wrong", "unsure", "unread")
#: A mistake is found if its rule speaks of it this many lines away at most: a call may be long.
TOLERANCE = 2
#: A verdict that vanished here and one that appeared as near as this are one that moved.
MOVE = 20
#: Wheels that exist for old interpreters only; they are read, not installed.
WHEELS = {"fairseq": ("--python-version", "3.8", "--platform", "manylinux_2_5_x86_64")}


@dataclass(frozen=True, order=True)
class Place:
    """What a verdict or a mistake is about: a line of a file of the project, and a rule."""

    file: str
    line: int
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.code}"


@dataclass(frozen=True)
class Known:
    """What reading says of a place; a verdict at one of `also` is about the same cause."""

    place: Place
    fact: str
    also: frozenset[Place] = frozenset()

    def near(self, place: Place) -> bool:
        """Whether a verdict there may be about this, as far as the place tells."""
        own = self.place
        return (place.file, place.code) == (own.file, own.code) and abs(place.line - own.line) <= TOLERANCE


@dataclass(frozen=True)
class Project:
    """A project at one version: what reading found in it, and what the linter says."""

    name: str
    kind: str
    version: str
    url: str
    files: int = 0
    read: tuple[str, ...] = ()
    mistakes: tuple[Known, ...] = ()
    doubts: tuple[Known, ...] = ()
    sound: tuple[Known, ...] = ()
    verdicts: tuple[Place, ...] = ()

    @property
    def folder(self) -> str:
        """What a folder with this project is called."""
        if self.kind == RELEASE:
            return f"{self.name}-{self.version}"
        return self.name.replace("/", "+") + (f"@{self.version[:9]}" if self.kind == BEFORE_FIX else "")

    def about(self, place: Place) -> list[Known]:
        """What is known of a verdict's place; where something stands on its very line, nothing but that."""
        entries = (*self.mistakes, *self.doubts, *self.sound)
        exact = [known for known in entries if place == known.place or place in known.also]
        return exact or [known for known in entries if known.near(place)]

    def found(self) -> set[Known]:
        """The mistakes that a verdict tells."""
        return {known for place in self.verdicts for known in self.about(place)} & set(self.mistakes)

    def judgement(self, place: Place) -> str:
        """What reading says of a verdict."""
        told = set(self.about(place))
        for word, entries in ((RIGHT, self.mistakes), (UNSURE, self.doubts), (WRONG, self.sound)):
            if told & set(entries):
                return word
        return UNREAD


# --- the file --------------------------------------------------------------------------------------------------------


def load(path: Path) -> list[Project]:
    """The projects of a file."""

    def place(entry: dict[str, Any]) -> Place:
        return Place(entry["file"], entry["line"], entry["code"])

    def known(entries: list[dict[str, Any]]) -> tuple[Known, ...]:
        return tuple(Known(place(e), e["fact"], frozenset(map(place, e.get("also", ())))) for e in entries)

    return [
        Project(
            name=entry["name"],
            kind=entry["kind"],
            version=entry["version"],
            url=entry["url"],
            files=entry["files"],
            read=tuple(entry["read"]),
            mistakes=known(entry["mistakes"]),
            doubts=known(entry["doubts"]),
            sound=known(entry["sound"]),
            # Their judgement stands there to be read; it follows from the lists.
            verdicts=tuple(map(place, entry["verdicts"])),
        )
        for entry in json.loads(path.read_text(encoding="utf-8"))["projects"]
    ]


def dump(projects: Iterable[Project]) -> str:
    """The text of a file with these projects: the same for the same facts."""

    def known(entries: Iterable[Known]) -> list[dict[str, Any]]:
        return [
            {**vars(entry.place), "fact": entry.fact}
            | ({"also": [vars(place) for place in sorted(entry.also)]} if entry.also else {})
            for entry in sorted(entries, key=lambda entry: entry.place)
        ]

    found = [
        {
            "name": project.name,
            "kind": project.kind,
            "version": project.version,
            "url": project.url,
            "files": project.files,
            "read": sorted(project.read),
            "mistakes": known(project.mistakes),
            "doubts": known(project.doubts),
            "sound": known(project.sound),
            "verdicts": [{**vars(place), "judgement": project.judgement(place)} for place in sorted(project.verdicts)],
        }
        for project in sorted(projects, key=lambda p: (KINDS.index(p.kind), p.name.lower(), p.version))
    ]
    return json.dumps({"projects": found}, indent=1, ensure_ascii=False) + "\n"


# --- the run ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What a run over a project gave, or why it gave nothing."""

    files: int = 0
    places: tuple[Place, ...] = ()
    problem: str | None = None
    seconds: float = 0.0


def run(root: Path) -> Outcome:
    """Lint the project in `root` as one program, under the default rules and no configuration of its own.

    Moves to that folder, so that its verdicts are named from there: made for a process that does nothing else.
    """
    begun = time.perf_counter()
    os.chdir(root)
    result = lint_paths(["."], Settings(isolated=True, respect_gitignore=False), rules=validate(RULES))
    failures = [f"{problem.filename}: {problem.reason}" for problem in result.problems if problem.internal]
    places = {Place(d.span.filename.replace(os.sep, "/"), d.span.start.row, d.code) for d in result.diagnostics}
    seconds = round(time.perf_counter() - begun, 1)
    return Outcome(result.files, tuple(sorted(places)), "; ".join(failures) or None, seconds)


def run_part(root: Path, project: Project) -> Outcome:
    """Lint the files that were read, alone: the rest of a state before a fix is not part of the program."""
    with tempfile.TemporaryDirectory() as temporary:
        for name in project.read:
            copy = Path(temporary, name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, copy)
        try:
            return run(Path(temporary))
        finally:
            os.chdir(root)


def _one(task: tuple[Path, Project]) -> tuple[Project, Outcome]:
    root, project = task
    try:
        return project, run_part(root, project) if project.kind == BEFORE_FIX else run(root)
    except Exception as error:
        return project, Outcome(problem=f"{type(error).__name__}: {error}")


def unpacked(project: Project, cache: Path) -> Path | str:
    """The folder with a release, downloaded where it is not there yet; or why there is none."""
    folder = cache / project.folder
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as temporary:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        # Nothing is installed, so what a release asks of its interpreter does not matter.
        command += ["--ignore-requires-python", *WHEELS.get(project.name, ()), "--dest", temporary]
        done = subprocess.run([*command, f"{project.name}=={project.version}"], capture_output=True, text=True)
        wheels = list(Path(temporary).glob("*.whl"))
        if done.returncode or len(wheels) != 1:
            return (done.stderr.strip().splitlines() or ["no wheel"])[-1]
        with zipfile.ZipFile(wheels[0]) as wheel:
            wheel.extractall(Path(temporary) / "content")
        # Renamed when it is complete, so that a run that was stopped leaves no half of a release behind.
        (Path(temporary) / "content").rename(folder)
    return folder


# --- the comparison --------------------------------------------------------------------------------------------------


def differences(stored: Iterable[Place], fresh: Iterable[Place]) -> list[tuple[str, Place, Place | None]]:
    """What changed: a word, the place, and for a move the place that it led to."""
    before, after = set(stored), set(fresh)
    gone: dict[tuple[str, str], list[Place]] = defaultdict(list)
    for place in sorted(before - after):
        gone[place.file, place.code].append(place)
    found: list[tuple[str, Place, Place | None]] = []
    for place in sorted(after - before):
        candidates = gone[place.file, place.code]
        nearest = min(candidates, key=lambda other: abs(other.line - place.line), default=None)
        if nearest is not None and abs(nearest.line - place.line) <= MOVE:
            candidates.remove(nearest)
            found.append(("moved", nearest, place))
        else:
            found.append(("new", place, None))
    found += [("vanished", place, None) for places in gone.values() for place in places]
    return sorted(found, key=lambda change: change[1])


def report(project: Project, outcome: Outcome) -> Iterator[str]:
    """The lines that tell how the verdicts on a project differ from the stored ones; none where they do not."""
    if outcome.files != project.files:
        yield f"  files     {outcome.files}, not {project.files}: other code?"
    for word, place, target in differences(project.verdicts, outcome.places):
        if target is None:
            yield f"  {word:10}{place} ({project.judgement(place)})"
        else:
            yield f"  {word:10}{place} to line {target.line} ({project.judgement(target)})"


# --- the command -----------------------------------------------------------------------------------------------------


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repositories", type=Path, metavar="DIR", help="compare the checkouts in DIR, not releases")
    parser.add_argument("--only", metavar="NAME", help="only the projects with this in their names")
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    parser.add_argument("--cache", type=Path, default=home / "ampclip-lint-corpus", metavar="DIR")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="store the verdicts of this run")
    return parser.parse_args(given)


def tasks(projects: Iterable[Project], options: argparse.Namespace) -> Iterator[tuple[Path | str, Project]]:
    """The projects that are asked for, each with its folder or the reason why it has none."""
    for project in projects:
        if options.only is not None and options.only.lower() not in project.name.lower():
            continue
        if options.repositories is None:
            if project.kind == RELEASE:
                yield unpacked(project, options.cache.resolve()), project
        elif project.kind != RELEASE:
            folder = options.repositories.resolve() / project.folder
            # Whoever has some of the checkouts compares these.
            if folder.is_dir():
                yield folder, project


def main(given: Sequence[str] | None = None) -> int:
    options = arguments(given)
    projects = load(CORPUS)
    changed = failed = False
    wanted = list(tasks(projects, options))
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        ready = [(folder, project) for folder, project in wanted if isinstance(folder, Path)]
        outcomes = [(project, Outcome(problem=folder)) for folder, project in wanted if isinstance(folder, str)]
        for project, outcome in chain(outcomes, pool.imap(_one, ready)):
            lines = [f"  not compared: {outcome.problem}"] if outcome.problem else list(report(project, outcome))
            failed |= outcome.problem is not None
            changed |= bool(lines)
            print(
                f"{project.folder}: {len(outcome.places)} verdicts, {outcome.seconds} s", *lines, sep="\n", flush=True
            )
            if outcome.problem is None:
                # Two states of one repository have the same name, so a project is found again by its folder.
                fresh = replace(project, files=outcome.files, verdicts=outcome.places)
                projects = [fresh if old.folder == project.folder else old for old in projects]
    if not wanted:
        print("there is no such project here", file=sys.stderr)
        return 2
    if options.write:
        CORPUS.write_text(dump(projects), encoding="utf-8", newline="\n")
    return 2 if failed else 1 if changed and not options.write else 0


if __name__ == "__main__":
    raise SystemExit(main())
