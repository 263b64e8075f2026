"""How the cost of an analysis grows with the program: families of generated programs, each larger by factors of two.

    python benchmarks/growth.py                 measures, prints the table
    python benchmarks/growth.py --only flags    only the families with this in their name
    python benchmarks/growth.py --write         ... and stores it in benchmarks/growth.json, for docs/performance.md

A family is measured in this process, without a cache and without the search for fixes; what counts is the least of some
runs, in seconds of the processor. No test depends on it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import ProgramAnalysis

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / "benchmarks" / "growth.json"

#: A program: its files by name.
Program = Mapping[str, str]

HEAD = "import torch\nfrom torch.nn.utils import clip_grad_norm_\n"
#: One training step, in a function.
STEP = """\
    scaler.scale(loss_fn(model(batch))).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""
#: What makes the objects that a function works on.
MADE = """\
    model = torch.nn.Linear(10, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
"""


def indented(text: str) -> str:
    return "".join(f"    {line}" for line in text.splitlines(keepends=True))


def trainer(name: str = "train", body: str = STEP, made: str = MADE) -> str:
    """A function that trains, with so much in each round of its loop."""
    return (
        f"\n\ndef {name}(batches, loss_fn, args):\n{made}    for batch in batches:\n{indented(body)}    return args\n"
    )


def files(size: int) -> Program:
    return {f"train_{i}.py": HEAD + trainer() for i in range(size)}


def functions(size: int) -> Program:
    return {"train.py": HEAD + "".join(trainer(f"train_{i}") for i in range(size))}


def steps(size: int) -> Program:
    return {"train.py": HEAD + trainer(body=STEP * size)}


def branches(size: int) -> Program:
    """In every second branch a clip with its unscale is left out, in the others all of a step."""
    body = ""
    for i in range(0, size, 2):
        body += f"""\
    scaler.scale(loss_fn(model(batch))).backward()
    if args.clip_{i}:
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), args.max_norm)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    if args.extra_{i + 1}:
{indented(STEP)}"""
    return {"train.py": HEAD + trainer(body=body)}


#: How often each flag is come back to, in a function that tests it four times each time.
ROUNDS = 2


def flags(size: int) -> Program:
    """Flags that decide again and again whether gradients are scaled; the function comes back to all of them."""
    body = "".join(
        f"""\
    if args.amp_{i}:
        with torch.autocast("cuda"):
            loss = loss_fn(model(batch))
        scaler.scale(loss).backward()
    else:
        loss = loss_fn(model(batch))
        loss.backward()
    if args.amp_{i}:
        scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), args.max_norm)
    if args.amp_{i}:
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
    optimizer.zero_grad()
"""
        for i in range(size)
    )
    return {"train.py": HEAD + trainer(body=body * ROUNDS)}


def open_flags(size: int) -> Program:
    """Flags that stay open: under each a part of the model gets gradients, and behind all parts it is stepped."""
    parts = range(size)
    made = "".join(
        f"    model_{i} = torch.nn.Linear(10, 10)\n"
        f"    optimizer_{i} = torch.optim.SGD(model_{i}.parameters(), lr=0.1)\n"
        for i in parts
    )
    backward = "".join(
        f"    if args.use_{i}:\n        scaler.scale(loss_fn(model_{i}(batch))).backward()\n" for i in parts
    )
    step = "".join(
        f"    if args.use_{i}:\n        scaler.unscale_(optimizer_{i})\n"
        f"        clip_grad_norm_(model_{i}.parameters(), 1.0)\n        scaler.step(optimizer_{i})\n"
        for i in parts
    )
    cleared = "".join(f"    optimizer_{i}.zero_grad()\n" for i in parts)
    first, last = STEP.split("    scaler.update()\n")
    body = f"{first}{backward}{step}    scaler.update()\n{last}{cleared}"
    return {"train.py": HEAD + trainer(body=body, made=MADE + made)}


def callers(size: int) -> Program:
    """Functions that all call one helper, which steps for them."""
    helper = "\n\ndef apply(scaler, optimizer, model):\n" + "".join(STEP.splitlines(keepends=True)[1:])
    calls = "".join(
        trainer(f"train_{i}", STEP.splitlines(keepends=True)[0] + "    apply(scaler, optimizer, model)\n")
        for i in range(size)
    )
    return {"train.py": HEAD + helper + calls}


@dataclass(frozen=True)
class Point:
    """What a program of some size costs; `incomplete`: the analysis met a budget, and AMP003 says so."""

    size: int
    lines: int
    seconds: float
    worlds: int
    incomplete: bool


@dataclass(frozen=True)
class Family:
    """Programs of one kind, by size. `what` is what there are so many of."""

    name: str
    what: str
    points: tuple[Point, ...]

    @property
    def exponent(self) -> float | None:
        """The power of the size that the time grows with; None where a budget bounds it."""
        if any(point.incomplete for point in self.points):
            return None
        xs, ys = zip(*((math.log(point.size), math.log(point.seconds)) for point in self.points[-FITTED:]))
        middle, height = sum(xs) / len(xs), sum(ys) / len(ys)
        covariance = sum((x - middle) * (y - height) for x, y in zip(xs, ys))
        return float(covariance / sum((x - middle) ** 2 for x in xs))


@dataclass(frozen=True)
class Growth:
    """All that was measured, and on what."""

    machine: str
    families: tuple[Family, ...]


#: The exponent is that of so many of the largest sizes: in small programs other things cost more.
FITTED = 4
USUAL = (8, 16, 32, 64, 128, 256)
FAMILIES: dict[str, tuple[str, Callable[[int], Program], Sequence[int]]] = {
    "files": ("files with a training loop each", files, USUAL),
    "functions": ("functions with a training loop each, in one file", functions, USUAL),
    "steps": ("steps one behind the other, in one function", steps, USUAL),
    "branches": ("flags of their own, each with an optional clip or step", branches, (4, 8, 16, 32, 64, 128)),
    "flags": ("flags in one function, each tested six times", flags, (2, 4, 8, 15, 30, 60)),
    "callers": ("callers of one helper", callers, USUAL),
    "open-flags": ("flags in one function that all stay open", open_flags, (1, 2, 4, 8, 16, 32)),
}


def load(path: Path) -> Growth:
    data = json.loads(path.read_text(encoding="utf-8"))
    families = (Family(f["name"], f["what"], tuple(Point(**point) for point in f["points"])) for f in data["families"])
    return Growth(data["machine"], tuple(families))


def dump(growth: Growth) -> str:
    return json.dumps(asdict(growth), indent=1) + "\n"


def table(growth: Growth) -> Iterator[str]:
    """One row a family: the smallest and the largest of its programs."""
    yield "| there are … | how many | lines | processor time | worlds | exponent |"
    yield "| --- | --: | --: | --: | --: | --: |"
    for family in growth.families:
        first, last = family.points[0], family.points[-1]
        spans = (
            f"{first.size} to {last.size}",
            f"{first.lines:,} to {last.lines:,}",
            f"{seconds(first.seconds)} to {seconds(last.seconds)}",
            f"{first.worlds:,} to {last.worlds:,}",
        )
        at = next((point.size for point in family.points if point.incomplete), None)
        grows = f"AMP003 from {at} on" if family.exponent is None else f"{family.exponent:.2f}"
        yield f"| {family.what} | {' | '.join(spans)} | {grows} |"


def seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.0f} ms"


def measure(program: Program, size: int, runs: int) -> Point:
    """The least time of a run over a program, without the search for fixes."""
    sys.path[:0] = [place for place in (str(ROOT), str(ROOT / "rules")) if place not in sys.path]
    from ampclip_lint.lint.config import Selection, Settings
    from ampclip_lint.lint.registry import validate
    from ampclip_lint.lint.run import lint_paths
    from ampclip_rules import RULES

    settings = Settings(selection=Selection(extend_select=("AMP003",)), isolated=True)
    rules = validate(RULES)
    worlds = 0

    def count(analysis: ProgramAnalysis) -> None:
        nonlocal worlds
        found = (function.exploration for function in analysis.functions if function.exploration is not None)
        worlds = sum(exploration.worlds for exploration in found)

    taken = []
    with tempfile.TemporaryDirectory() as folder:
        for name, text in program.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        for _ in range(runs):
            start = time.process_time()
            result = lint_paths([folder], settings, rules=rules, jobs=1, observe=count)
            taken.append(time.process_time() - start)
    lines = sum(text.count("\n") for text in program.values())
    codes = {diagnostic.code for diagnostic in result.diagnostics}
    if codes - {"AMP003"}:
        raise SystemExit(f"a program that is right has findings: {sorted(codes)}")
    return Point(size, lines, round(min(taken), 4), worlds, "AMP003" in codes)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=3, help="how often each program is analysed (default: 3)")
    parser.add_argument("--only", help="only the families with this in their name")
    parser.add_argument("--write", action="store_true", help="store what was measured")
    options = parser.parse_args(given)
    measure(files(1), 1, 1)  # what is loaded once
    families = []
    for name, (what, made, sizes) in FAMILIES.items():
        if options.only is None or options.only in name:
            points = tuple(measure(made(size), size, options.runs) for size in sizes)
            families.append(Family(name, what, points))
            print(name, *(f"{point.size}: {seconds(point.seconds)}" for point in points), sep="  ", file=sys.stderr)
    machine = f"{os.cpu_count()} processors, {platform.system()}, Python {platform.python_version()}"
    growth = Growth(machine, tuple(families))
    print(*table(growth), sep="\n")
    if options.write:
        STORE.write_text(dump(growth), encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
