"""Draws training programs by chance and compares what torch shows of them with what the engine finds.

    python benchmarks/random_programs.py [--programs 2000] [--seed 0] [--jobs 2] [--write DIR]

A job takes about a second for three programs. Prints a table, then each disagreement that is no documented limit,
shrunk; exits with 1 where there is one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "rules"), str(ROOT / "tests")]

import torch  # noqa: E402

from program_verdicts import Comparison, Unjudged, compare, shrink  # noqa: E402
from programs import generate  # noqa: E402


def one(seed: int) -> tuple[int, Comparison | str | None]:
    """Compare one program: the comparison, None if the program says nothing, or how the engine failed."""
    torch.set_num_threads(1)
    program = generate(Random(seed))
    try:
        return seed, compare(program)
    except Unjudged:
        return seed, None
    except Exception:
        return seed, f"{program.source}\n{traceback.format_exc(limit=-3)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=2000, help="how many programs that can be judged")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", type=Path, metavar="DIR", help="write each disagreement there")
    parser.add_argument("--no-shrink", action="store_true")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    limits: Counter[str] = Counter()
    found: list[tuple[int, Comparison]] = []
    crashes: list[tuple[int, str]] = []
    begun = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for seed, outcome in pool.imap_unordered(one, range(options.seed, options.seed + 4 * options.programs), 4):
            if outcome is None:
                counts["not judged"] += 1
            elif isinstance(outcome, str):
                crashes.append((seed, outcome))
            else:
                counts["programs"] += 1
                counts[outcome.torch.word] += 1
                counts["analysed incompletely"] += bool(outcome.engine.gaps)
                if outcome.limit:
                    limits[outcome.limit] += 1
                elif outcome.problem:
                    counts[outcome.problem] += 1
                    found.append((seed, outcome))
            if counts["programs"] >= options.programs:
                break
    print(f"torch {torch.__version__}, {time.perf_counter() - begun:.0f} s")
    for name in (
        "programs",
        "right",
        "wrong",
        "raises",
        "not judged",
        "analysed incompletely",
        "missed",
        "false alarm",
    ):
        print(f"{name:24}{counts[name]:6}")
    print(f"{'crashes':24}{len(crashes):6}")
    for limit, count in limits.most_common():
        print(f"limit: {limit:60}{count:6}")
    for seed, crash in sorted(crashes):
        print(f"\n# --- seed {seed}: the engine failed\n{crash}")
    for seed, outcome in sorted(found, key=lambda pair: pair[0]):
        told = tell(seed, outcome if options.no_shrink else shrink(outcome))
        print("\n" + told)
        if options.write is not None:
            options.write.mkdir(parents=True, exist_ok=True)
            (options.write / f"{seed}.py").write_text(told)
    return 1 if found or crashes else 0


def tell(seed: int, outcome: Comparison) -> str:
    """A disagreement, as a file."""
    kinds = ", ".join(f"{kind.name} in line {row}" for row, kind in sorted(outcome.engine.faults, key=str)) or "nothing"
    weak = ", ".join(f"{kind.name} in line {row}" for row, kind in sorted(outcome.engine.others, key=str)) or "nothing"
    return (
        f"# seed {seed}, mistakes {', '.join(outcome.program.mistakes) or 'none'}: {outcome.problem}\n"
        f"# torch: {outcome.torch.word} {outcome.torch.choice or ''} {outcome.torch.detail}\n"
        f"# engine: {kinds}; not counted: {weak}; gaps: {', '.join(outcome.engine.gaps) or 'none'}\n"
        f"{outcome.program.source}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
