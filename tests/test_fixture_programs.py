"""
Both judges over the programs of several files in fixtures/programs/.

Each folder there is one program: `train.py` beside the modules that it imports, with a function `program` whose
arguments are filled as those of the other fixtures. A folder with an `__init__.py` is a package, another one is a place
on the path. Its name is its verdict, and a comment `# known: …` says why an `fp_ok_…` or `fn_bad_…` is judged wrongly.
"""

from __future__ import annotations

import functools
import importlib
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from ampclip_lint.lint.run import RunResult, lint_paths
from ampclip_lint.testing import ProgramError, judge, judge_overflow, parse_expectations

FOLDERS = sorted(path.parent for path in (Path(__file__).parent.parent / "fixtures" / "programs").glob("*/train.py"))
WRONG = ("bad_", "fn_bad_")
FLAGGED = ("bad_", "fp_ok_")

# As in tests/test_fixtures_torch.py: what shows in the applied gradients, and what shows once a gradient overflows.
UNIT_RULES = frozenset(f"AMP{number}" for number in (101, 102, 104, 105, 201, 202, 301, 303, 304, 308, 401, 402))
OVERFLOW_RULES = frozenset({"AMP106", "AMP302", "AMP305", "AMP307", "AMP503"})
MEASURING_RULES = frozenset({"AMP501", "AMP502"})

KNOWN = re.compile(r"# known: (\S.*)")
RAISES = re.compile(r"# raises: (\w+)(?:: (\S.*))?$", re.MULTILINE)

Found = set[tuple[str, int, str]]


def named(folder: Path) -> object:
    return pytest.param(folder, id=folder.name)


NAMED = [named(folder) for folder in FOLDERS]


def modules(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def expected(folder: Path) -> Found:
    return {
        (path.relative_to(folder).as_posix(), expectation.row, expectation.code)
        for path in modules(folder)
        for expectation in parse_expectations(text(path), str(path))
    }


@functools.cache
def lint(folder: Path, *, only_train: bool) -> RunResult:
    return lint_paths([folder / "train.py" if only_train else folder])


def findings(result: RunResult, folder: Path) -> Found:
    return {
        (Path(found.span.filename).resolve().relative_to(folder.resolve()).as_posix(), found.span.start.row, found.code)
        for found in result.diagnostics
    }


def as_expected(folder: Path, *, only_train: bool) -> None:
    result = lint(folder, only_train=only_train)
    reported, wanted = findings(result, folder), expected(folder)
    assert not result.problems
    assert not result.incomplete
    assert {"missing": wanted - reported, "unexpected": reported - wanted} == {"missing": set(), "unexpected": set()}


@pytest.mark.parametrize("folder", NAMED)
def test_reported_is_expected(folder: Path) -> None:
    as_expected(folder, only_train=False)
    as_expected(folder, only_train=True)


@pytest.mark.parametrize("folder", NAMED)
def test_the_name_agrees_with_the_expectations(folder: Path) -> None:
    assert folder.name.startswith(("bad_", "ok_", "fp_ok_", "fn_bad_"))
    assert bool(expected(folder)) == folder.name.startswith(FLAGGED)
    assert len(modules(folder)) > 1
    if folder.name.startswith(("fp_ok_", "fn_bad_")):
        assert any(KNOWN.search(text(path)) for path in modules(folder)), (
            "say in a comment `# known: …` why it is judged wrongly"
        )


def test_there_are_folders() -> None:
    assert FOLDERS


# --- the dynamic judge -----------------------------------------------------------------------------------------------


@contextmanager
def importable(folder: Path) -> Iterator[str]:
    """The name under which `train.py` can be imported here; afterwards nothing of it is left."""
    package = (folder / "__init__.py").is_file()
    before = dict(sys.modules)
    with mock.patch.object(sys, "path", [str(folder.parent if package else folder), *sys.path]):
        tops = {folder.name} if package else {path.stem if path.is_file() else path.name for path in folder.iterdir()}
        for name in list(sys.modules):
            if name.partition(".")[0] in tops:
                del sys.modules[name]  # a module of ours may be called like one that is loaded
        importlib.invalidate_caches()
        try:
            yield f"{folder.name}.train" if package else "train"
        finally:
            for name in list(sys.modules):
                if name.partition(".")[0] in tops:
                    del sys.modules[name]
            sys.modules.update({name: module for name, module in before.items() if name.partition(".")[0] in tops})


def program(folder: Path) -> Callable[..., object]:
    """The program, imported anew in each run: what its modules build when they are imported belongs to the run too."""
    with importable(folder) as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a scaler that finds no CUDA says so
        first = importlib.import_module(name).program

    @functools.wraps(first)
    def run(*args: object, **kwargs: object) -> object:
        with importable(folder) as name:
            return importlib.import_module(name).program(*args, **kwargs)

    run.__name__ = folder.name
    return run


def raises(folder: Path) -> tuple[str, str] | None:
    documented = [(kind, message) for path in modules(folder) for kind, message in RAISES.findall(text(path))]
    assert len(documented) < 2
    return documented[0] if documented else None


def measures_the_scale(run: Callable[..., object], device: str) -> bool:
    """What is appended to `writer` depends on S: the first log is that of the disabled scaler, the second of S = 1."""
    kept: list[list[float]] = []

    def writer(kit: object) -> list[float]:
        kept.append([])
        return kept[-1]

    invariant = judge(run, device=device, fill={"writer": writer}).invariant
    logs = [[float(number) for number in log] for log in kept]
    same = [
        len(log) == len(logs[1]) and all(math.isclose(a, b, rel_tol=1e-4) for a, b in zip(log, logs[1])) for log in logs
    ]
    return not invariant or not all(same[1:])


def torch_agrees(folder: Path, device: str) -> None:
    run = program(folder)
    verdict = judge(run, device=device)
    wrong, documented = folder.name.startswith(WRONG), raises(folder)
    codes = {code for _, _, code in expected(folder)}
    if documented is not None:
        assert wrong
        assert verdict.error is not None, f"{documented[0]} is documented, and nothing was raised"
        assert verdict.error.type == documented[0]
        assert documented[1] in verdict.error.text
        return
    assert verdict.error is None, f"write '# raises: {verdict.error}' if that is what the program shows"
    assert verdict.steps, "no step was applied"
    if not wrong:
        assert verdict.invariant, verdict.rows
        assert verdict.clip_active, "no gradient was clipped, so invariance proves nothing"
    elif codes & UNIT_RULES or not codes:
        assert not verdict.invariant, verdict.rows
    elif codes & OVERFLOW_RULES:
        overflow = judge_overflow(run, device=device)
        assert overflow.applied or overflow.hidden or overflow.error is not None
    elif codes & MEASURING_RULES:
        assert measures_the_scale(run, device)
    else:
        raise ProgramError(f"nothing shows what {', '.join(sorted(codes))} means; choose another mistake")


@pytest.mark.parametrize("folder", NAMED)
def test_torch_agrees_with_the_name(folder: Path) -> None:
    pytest.importorskip("torch")
    torch_agrees(folder, "cpu")


@pytest.mark.parametrize("folder", NAMED)
def test_torch_agrees_with_the_name_on_cuda(folder: Path) -> None:
    if not pytest.importorskip("torch").cuda.is_available():
        pytest.skip("torch sees no CUDA device")
    torch_agrees(folder, "cuda")


@pytest.mark.parametrize("device", ["cpu"])
@pytest.mark.parametrize("folder", [named(folder) for folder in FOLDERS if folder.name.startswith("ok_")])
def test_right_programs_measure_the_same_at_every_scale(folder: Path, device: str) -> None:
    pytest.importorskip("torch")
    assert not measures_the_scale(program(folder), device)


def test_nothing_of_a_program_stays_behind() -> None:
    before, path = dict(sys.modules), list(sys.path)
    for folder in FOLDERS[:3]:
        with importable(folder) as name:
            assert name in {importlib.import_module(name).__name__}
    assert sys.path == path
    assert {name for name in sys.modules if name.partition(".")[0] in ("train", "utils", "callbacks")} <= set(before)
