"""Feeds the linter odd input by the hundred thousand, in a process whose time and memory are limited.

    python benchmarks/fuzz.py [--inputs 100000] [--seed 0] [--corpus DIR ...] [--findings DIR]

What must hold of every input: nothing is raised and no internal error reported, findings are sorted and lie inside
their file, every format renders and parses, the same input gives the same answer, and comments for the file silence
what they name. An input is made from the seed, its number and the samples. A crash, a hang or a lack of memory is a
finding: its input is written to the findings' folder, a few of each sort. Prints a table; exits with 1 where there is a
finding.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import multiprocessing
import os
import resource
import signal
import sys
import sysconfig
import tempfile
import time
import traceback
import xml.etree.ElementTree as ElementTree
from collections import Counter
from html.parser import HTMLParser
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "rules"), str(ROOT / "tests")]

from ampclip_lint import Selection, Settings, ToolError, lint_paths, lint_source  # noqa: E402
from ampclip_lint.lint import registry  # noqa: E402
from ampclip_lint.lint.run import RunResult  # noqa: E402
from ampclip_lint.report.formats import FORMATS, renderer  # noqa: E402
from odd_input import Odd, Pool, draw, pool  # noqa: E402

MEMORY = 4 << 30
SECONDS = 40
SAVED_OF_A_SORT = 3


class Hang(BaseException):
    """An input that takes too long; no handler of the linter may swallow it."""


class Broken(AssertionError):
    """Something that must hold does not."""


class _Page(HTMLParser):
    """Counts open elements: a page that is cut off, or that a text has broken out of, does not balance."""

    void = frozenset(("br", "hr", "input", "meta", "link", "circle", "line", "path", "rect", "polyline"))

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Pass over `<br/>` and its like."""

    def handle_endtag(self, tag: str) -> None:
        """Close the last one, which must be this."""
        if not self.open or self.open.pop() != tag:
            raise Broken(f"</{tag}> closes nothing")


def judge(odd: Odd, rng: Random, folder: Path) -> Counter[str]:
    """Hold the linter to what must be true of one input; what it made of it, for the table."""
    settings = Settings(
        selection=Selection(extend_select=("ALL",)), pedantic=rng.random() < 0.5, isolated=not odd.beside
    )
    (folder / odd.name).write_bytes(odd.data)
    for name, data in odd.beside.items():
        (folder / name).write_bytes(data)
    try:
        result = run(odd, settings)
        _plausible(result)
        if result.diagnostics or rng.random() < 0.2:
            _renders(result)
        if rng.random() < 0.1 and run(odd, settings).diagnostics != result.diagnostics:
            raise Broken("the same input has other findings the second time")
        if rng.random() < 0.1 and result.diagnostics and odd.name.endswith(".py") and not odd.beside:
            _silenced(odd, result)
        if rng.random() < 0.02:
            _page(odd, folder, settings)
    except ToolError:
        if not odd.beside:
            raise
        return Counter(refused=1)
    finally:
        for name in (odd.name, *odd.beside):
            (folder / name).unlink()
    return Counter(
        findings=bool(result.diagnostics),
        broken=any(found.code == "AMP001" for found in result.diagnostics),
        unread=bool(result.problems),
        analysed=bool(result.sources),
        incomplete=bool(result.incomplete),
    )


def run(odd: Odd, settings: Settings) -> RunResult:
    """The run over the file; an internal error is raised as what it is."""
    result = lint_paths([odd.name], settings)
    for problem in result.problems:
        if problem.internal:
            if not odd.beside:
                for source in result.sources.values():
                    lint_source(source.text, source.name, select=["ALL"])  # raises it, with its place
            raise Broken(problem.reason)
    return result


def _plausible(result: RunResult) -> None:
    keys = [found.sort_key for found in result.diagnostics]
    if keys != sorted(keys):
        raise Broken("findings are not sorted")
    for found in result.diagnostics:
        for span in (found.span, *(step.span for step in found.trace)):
            source = result.source(span.filename)
            if source is None:
                raise Broken(f"no file {span.filename}")
            lines = source.part(span.cell)
            start, end = span.start, span.end
            if not (1 <= start.row <= end.row <= max(len(lines), 1) and start.column >= 1 and start <= end):
                raise Broken(f"{found.code} lies outside its file: {span}")
            # Behind the last character is where a piece ends, and where Python tells of a line that goes on.
            if start.column > len(lines[start.row - 1]) + 2 or end.column > len(lines[end.row - 1]) + 2:
                raise Broken(f"{found.code} lies outside its line: {span}")


def _renders(result: RunResult) -> None:
    for name in FORMATS:
        text = "".join("".join(piece for piece, _ in line) + "\n" for line in renderer(name)(result))
        if name in ("json", "sarif", "gitlab"):
            json.loads(text)
        elif name == "jsonl":
            for line in text.splitlines():
                json.loads(line)
        elif name == "junit":
            ElementTree.fromstring(text.encode("utf-8", "backslashreplace"))
        elif any(char < " " and char not in "\n\t" for char in text):
            raise Broken(f"a control character reaches the {name} output")


def _silenced(odd: Odd, result: RunResult) -> None:
    source = result.sources.get(odd.name)
    if source is None or any(found.code == "AMP001" for found in result.diagnostics):
        return
    codes = sorted({found.code for found in result.diagnostics if not found.code.startswith("AMP9")})
    if not codes:
        return
    text = f"# ampclip: ignore-file[{', '.join(codes)}]\n{source.text}"
    left = {found.code for found in lint_source(text, odd.name, select=codes)} & set(codes)
    # The page of AMP901 says that it cannot be silenced by what it judges.
    if left:
        raise Broken(f"silenced for the file, and still reported: {sorted(left)}")


def _page(odd: Odd, folder: Path, settings: Settings) -> None:
    from ampclip_lint.lint.audit import audit_paths
    from ampclip_lint.report.audit_html import page
    from ampclip_lint.report.audit_text import render

    found = audit_paths([odd.name], settings)
    list(render(found, 100))
    reader = _Page()
    reader.feed(page(found).decode("utf-8"))
    if reader.open:
        raise Broken(f"the page leaves open: {reader.open}")


# --- the process that does it, and the one that watches


def work(connection: Connection, samples: Pool, seed: int, first: int, last: int) -> None:
    """Judge the inputs from `first` to `last`, saying before each which it is and behind it what came of it."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    if not registry.entry_points():
        registry.entry_points = lambda: [("builtin", "ampclip_rules:RULES")]  # type: ignore[assignment]

    def late(_number: int, _frame: FrameType | None) -> None:
        raise Hang(f"not done after {SECONDS} seconds")

    signal.signal(signal.SIGALRM, late)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        os.chdir(folder)
        for number in range(first, last):
            rng = Random(f"{seed}/{number}")
            odd = draw(samples, rng)
            connection.send(("begins", number, odd.kind))
            try:
                signal.alarm(SECONDS)
                try:
                    outcome = judge(odd, rng, Path(folder))
                finally:
                    signal.alarm(0)
                connection.send(("ends", number, outcome))
            except BaseException as error:
                told = traceback.format_exc()
                frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "ampclip" in frame.filename]
                place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
                sort = f"{type(error).__name__} {place} {str(error)[:80] if isinstance(error, Broken) else ''}".strip()
                connection.send(("fails", number, sort, told))
                if isinstance(error, (KeyboardInterrupt, SystemExit)):
                    return
    usage = resource.getrusage(resource.RUSAGE_SELF)
    connection.send(("done", usage.ru_maxrss))


def main() -> int:
    """Parse the arguments, watch the work, print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--corpus", type=Path, action="append", default=[], help="real code to mutate, too")
    parser.add_argument("--findings", type=Path, default=Path(tempfile.gettempdir()) / "fuzz-findings")
    options = parser.parse_args()
    samples = pool([ROOT / "fixtures"])
    for folder in (*options.corpus, Path(sysconfig.get_path("stdlib"))):
        more = pool([folder], 6_000)
        samples.scaling += more.scaling
        samples.other += more.other
    print(f"{len(samples.scaling)} samples that speak of scaling, {len(samples.other)} others", flush=True)
    kinds: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    sorts: Counter[str] = Counter()
    slowest: list[tuple[float, int, str]] = []
    memory = 0
    began, last = time.monotonic(), options.first + options.inputs
    number = options.first - 1

    def note(number: int, sort: str, told: str) -> None:
        sorts[sort] += 1
        if sorts[sort] > SAVED_OF_A_SORT:
            return
        odd = draw(samples, Random(f"{options.seed}/{number}"))
        place = options.findings / f"{options.seed}-{number}"
        place.mkdir(parents=True, exist_ok=True)
        for name, data in {odd.name: odd.data, **odd.beside, "told.txt": told.encode("utf-8", "replace")}.items():
            (place / name).write_bytes(data)
        print(f"input {number} ({odd.kind}): {sort}; see {place}", flush=True)

    while number + 1 < last:
        ours, theirs = multiprocessing.Pipe()
        # A fork shares the samples; memory that one piece of work leaves behind is gone with its process.
        stop = min(number + 1 + 20_000, last)
        worker = multiprocessing.get_context("fork").Process(
            target=work, args=(theirs, samples, options.seed, number + 1, stop)
        )
        worker.start()
        theirs.close()
        since = time.monotonic()
        while True:
            try:
                if not ours.poll(SECONDS + 20):
                    # In C code no alarm is heard.
                    worker.kill()
                    note(number, "Hang outside Python", "killed")
                    break
                message = ours.recv()
            except EOFError:
                worker.join()
                note(number, f"the process died: {worker.exitcode}", str(worker.exitcode))
                break
            if message[0] == "done":
                memory = max(memory, message[1])
                break
            if message[0] == "begins":
                number, since = message[1], time.monotonic()
                kinds[message[2]] += 1
                if sum(kinds.values()) % 1_000 == 0:
                    print(f"{sum(kinds.values())} inputs, {time.monotonic() - began:.0f} s", flush=True)
            elif message[0] == "ends":
                outcomes.update(message[2])
                slowest = sorted([(time.monotonic() - since, number, ""), *slowest], reverse=True)[:5]
            else:
                note(message[1], message[2], message[3])
        worker.join()
    print(f"{sum(kinds.values())} inputs in {time.monotonic() - began:.0f} s, at most {memory // 1024} MiB")
    for title, table in (("kinds", kinds), ("outcomes", outcomes), ("findings", sorts)):
        print(f"\n{title}:")
        for name, count in table.most_common():
            print(f"{count:>8}  {name}")
    print("\nslowest: " + ", ".join(f"{number} ({seconds:.1f} s)" for seconds, number, _ in slowest))
    return 1 if sorts else 0


if __name__ == "__main__":
    raise SystemExit(main())
