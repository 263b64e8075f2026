"""Compares the machine with torch on all words of operations up to a length, and prints what came out as a table.

    python benchmarks/enumerate_words.py [--longer N]

Takes about two minutes; each letter more takes ten times as long. Exits with 1 where torch and the machine disagree.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import torch  # noqa: E402

from words import ALPHABETS, Outcome, disagreement, too_loose_beside_a_right_one, walk  # noqa: E402

LENGTHS = {"1 optimizer": 5, "2 optimizers": 4, "2 scalers": 5, "remembered S": 5}
COLUMNS = ("nodes", "raises", "right", "wrong", "too loose", "disagree")


def column(outcome: Outcome) -> str | None:
    """The column that counts an outcome beside `nodes`; steps only, and errors."""
    if disagreement(outcome):
        flagged = outcome.right is not None and all(outcome.right)
        return "too loose" if flagged and too_loose_beside_a_right_one(outcome) else "disagree"
    if outcome.raises:
        return "raises"
    if outcome.right is None:
        return None
    return "right" if outcome.machine_right else "wrong"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--longer", type=int, default=0, metavar="N", help="add N letters to every length")
    longer = parser.parse_args().longer
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}")
    print(f"{'alphabet':14}{'letters':>8}{'length':>7}" + "".join(f"{name:>10}" for name in COLUMNS) + f"{'s':>7}")
    disagreeing: list[Outcome] = []
    for name, length in LENGTHS.items():
        begun = time.perf_counter()
        counts: Counter[str] = Counter()
        for outcome in walk(ALPHABETS[name], length + longer):
            counts["nodes"] += 1
            kind = column(outcome)
            if kind is not None:
                counts[kind] += 1
            if kind == "disagree":
                disagreeing.append(outcome)
        figures = "".join(f"{counts[key]:10,}" for key in COLUMNS)
        seconds = time.perf_counter() - begun
        print(f"{name:14}{len(ALPHABETS[name]):8}{length + longer:7}{figures}{seconds:7.0f}", flush=True)
    for outcome in disagreeing[:20]:
        print(f"{outcome}: {disagreement(outcome)}")
    return 1 if disagreeing else 0


if __name__ == "__main__":
    raise SystemExit(main())
