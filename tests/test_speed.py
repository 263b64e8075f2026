"""Shortcuts lose nothing: prefilter, processes, cache and the quick look say what a run without them says."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ampclip_lint.amp.callgraph import every_function, speaks_of_scaling
from ampclip_lint.lint import cache as cache_module
from ampclip_lint.lint.cache import Cache
from ampclip_lint.lint.config import Settings
from ampclip_lint.lint.quick import nothing_to_find
from ampclip_lint.lint.result import RunResult
from ampclip_lint.lint.run import lint_paths
from ampclip_lint.syntax import scan as scan_module
from ampclip_lint.syntax.index import ModuleIndex, ProgramIndex, parse
from ampclip_lint.syntax.prefilter import Text, import_lines, imports_of, is_seed
from ampclip_lint.syntax.reading import FileProblem, Found, read_bytes
from ampclip_lint.syntax.scan import scan
from ampclip_lint.syntax.source import SourceFile
from console import run

ROOT = Path(__file__).resolve().parent.parent
BAD = """\
def fit(model, loader, optimizer, scaler, criterion):
    for inputs, targets in loader:
        optimizer.zero_grad()
        scaler.scale(criterion(model(inputs), targets)).backward()
        {clip}(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""
CLIP = "import torch\n\n\ndef shorten(p, bound):\n    torch.nn.utils.clip_grad_norm_(p, bound)\n"
HAS_FORK = hasattr(os, "fork")


def said(result: RunResult) -> tuple[Any, ...]:
    """All that a report shows."""
    return (
        result.diagnostics,
        result.problems,
        result.missing,
        result.suppressed,
        result.incomplete,
        result.failed,
        result.files,
    )


def tree(folder: Path, seed: int, files: int = 40) -> None:
    """A package of modules that import each other at random; some scale, some clip, most do neither."""
    chance = random.Random(seed)
    for index in range(files):
        others = chance.sample(range(index), min(index, 3))
        text = "".join(f"from pkg.m{other} import shorten_{other}\n" for other in others)
        called = f"shorten_{others[0]}" if others else "torch.nn.utils.clip_grad_norm_"
        own = f"\n\ndef shorten_{index}(p, bound):\n"
        kind = chance.random()
        if kind < 0.2:
            fit = BAD.replace("fit", f"fit_{index}").format(clip=called)
            text += f"import torch\n\n\n{fit}{own}    return bound\n"
        elif kind < 0.5:
            text += f"import torch\n{own}    torch.nn.utils.clip_grad_norm_(p, bound)\n"
        else:
            text += f"{own}    {called if others else 'print'}(p, bound)\n"
        write(str(folder / "pkg" / f"m{index}.py"), text)
    write(str(folder / "pkg" / "__init__.py"), "")


def write(name: str, text: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as settled at once: no test waits for a clock."""
    monkeypatch.setattr(cache_module, "SETTLED", -1000.0)
    monkeypatch.setattr(cache_module, "SETTLED_COARSE", -1000.0)


# --- the prefilter ---------------------------------------------------------------------------------------------------


def programs() -> Iterator[list[Path]]:
    yield sorted((ROOT / "tests" / "cases").glob("*.py"))
    for folder in sorted((ROOT / "fixtures" / "programs").iterdir()):
        if folder.is_dir():
            yield sorted(folder.rglob("*.py"))


@pytest.mark.parametrize("place", ["tests/cases", "fixtures/programs"])
def test_the_prefilter_changes_no_finding(place: str) -> None:
    folders = [ROOT / place] if place == "tests/cases" else sorted(p for p in (ROOT / place).iterdir() if p.is_dir())
    for folder in folders:
        whole = lint_paths([folder], Settings(isolated=True), prefiltered=False)
        assert said(lint_paths([folder], Settings(isolated=True))) == said(whole), folder


@pytest.mark.parametrize("seed", range(4))
def test_the_prefilter_changes_no_finding_in_random_packages(seed: int, here: Path) -> None:
    tree(here, seed)
    whole = lint_paths(["."], Settings(), prefiltered=False)
    assert any(found.code == "AMP101" for found in whole.diagnostics)
    part = lint_paths(["."], Settings())
    assert said(part) == said(whole)
    assert len(part.sources) < len(whole.sources)


def test_every_function_that_the_analysis_starts_from_makes_its_file_a_seed() -> None:
    for path in [*(ROOT / "fixtures").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]:
        data = path.read_bytes()
        source = SourceFile(path.name, path, data.decode())
        program = ProgramIndex([ModuleIndex(source, parse(source))])
        starts = [info for info in every_function(program) if speaks_of_scaling(info)]
        if starts:
            assert is_seed(data), path
            speaking = Text(path.name, True, None, lambda data=data: data).speaking(())
            for info in starts:
                top = info.qualname.partition(".")[0]
                assert (top if top != "<module>" else "") in speaking, (path, info)


@pytest.mark.parametrize(
    "text",
    [
        "import a\nfrom b import c\n",
        "from a import (\n    b,  # import c\n    d as e,\n)\nimport f\n",
        "if x:\n    import a.b as c\n\timport d",
        "'''\nimport in prose\n'''\nx = 'import'; important = 1\nfrom .. import *\n",
        "from a import (b\n",
    ],
)
def test_the_lines_of_imports_hold_all_of_them(text: str) -> None:
    assert imports_of(import_lines(text.encode())) == imports_of(text.encode())


def test_prose_makes_no_seed() -> None:
    assert not is_seed(b"# kept for backward compatibility\nscale = 2\n")
    assert not is_seed(b"class C:\n    unscale_lora = 1\n    my_get_scaler = 2\n")
    assert is_seed(b"backward(s.scale (x))\n")


# --- processes -------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not HAS_FORK, reason="no processes are forked here")
@pytest.mark.parametrize("jobs", [1, 2, 4])
def test_the_number_of_processes_changes_nothing(jobs: int, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "_FILES_A_PROCESS", 5)
    tree(here, 7)
    Path("pkg/broken.py").write_bytes(b"x = '\xff'\n")
    one = run("check", ".", "--no-cache", "--jobs", "1")
    other = run("check", ".", "--no-cache", "--jobs", str(jobs))
    assert (other.stdout, other.stderr, other.exit_code) == (one.stdout, one.stderr, one.exit_code)
    assert "broken.py: not valid utf-8 at byte 5" in other.stderr


@pytest.mark.skipif(not HAS_FORK, reason="no processes are forked here")
def test_what_a_process_that_dies_should_have_done_is_done(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "_FILES_A_PROCESS", 5)
    tree(here, 3)
    files = [Found(path.as_posix(), path) for path in sorted(Path("pkg").glob("*.py"))]
    parent = os.getpid()

    def die(_data: bytes) -> bool:
        if os.getpid() != parent:
            os._exit(9)
        return False

    told = scan(files, jobs=3, may_suppress=die)
    assert [one.lines for one in told] == [one.lines for one in scan(files, jobs=1)]


# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_pipes_are_not_opened(here: Path) -> None:
    os.mkfifo("pipe.py")
    write("train.py", "x = 1\n")
    assert read_bytes("pipe.py", "pipe.py") == FileProblem("pipe.py", "not a regular file")
    assert "warning: pipe.py: not a regular file" in run("check", ".").stderr


def test_a_file_that_vanishes_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("train.py", BAD.format(clip="torch.nn.utils.clip_grad_norm_"))
    write("gone.py", BAD.format(clip="clip"))
    looked = scan_module.look

    def look(file: Found, *rest: Any, **options: Any) -> scan_module.Look:
        told = looked(file, *rest, **{**options, "keep": False})
        if file.name == "gone.py":
            os.unlink("gone.py")
        return told

    monkeypatch.setattr(scan_module, "look", look)
    result = lint_paths(["."], Settings())
    assert {found.span.filename for found in result.diagnostics} == {"train.py"}
    assert FileProblem("gone.py", "no such file") in result.problems


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="names are text there")
def test_names_that_are_no_utf8(here: Path) -> None:
    name = os.fsdecode(b"tr\xe4in.py")
    write(name, BAD.format(clip="torch.nn.utils.clip_grad_norm_"))
    first = run("check", ".", "--output-format", "json")
    assert json.loads(first.stdout)[0]["code"] == "AMP101"
    assert run("check", ".", "--output-format", "json").stdout == first.stdout


def test_links_that_go_round_in_circles(here: Path) -> None:
    write("pkg/train.py", BAD.format(clip="torch.nn.utils.clip_grad_norm_"))
    try:
        os.symlink("..", "pkg/again")
        os.symlink("loop.py", "pkg/loop.py")
    except OSError:
        pytest.skip("no symbolic links here")
    result = run("check", ".")
    assert "Found 1 error" in result.stderr
    assert "loop.py" in result.stderr


# --- the cache -------------------------------------------------------------------------------------------------------


def lint(cache: Cache | None) -> RunResult:
    return lint_paths(["."], Settings(), cache=cache)


def entries(cache: Cache, kind: str) -> list[Path]:
    return sorted((Path(cache.folder) / kind).glob("*.json"))


@pytest.fixture
def project(here: Path) -> Path:
    write("pyproject.toml", "")
    write("train.py", "from clipping import shorten\n\n\n" + BAD.format(clip="shorten"))
    write("clipping.py", CLIP)
    write("plain.py", "x = 1\n")
    return here


@pytest.mark.usefixtures("settled")
def test_the_cache_changes_no_result(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    cache = Cache(tmp_path_factory.mktemp("c"))
    fresh = lint(None)
    assert fresh.failed
    for _ in range(3):
        again = lint(cache)
        assert said(again) == said(fresh)
        assert {name: again.sources[name].text for name in again.sources} == {
            name: source.text for name, source in fresh.sources.items()
        }


@pytest.mark.usefixtures("settled")
def test_nothing_is_analysed_or_read_where_nothing_changed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(project / "c")
    lint(cache)
    fresh = lint(cache)  # the first run made the folder of the cache, and so changed the one around it
    monkeypatch.setattr("ampclip_lint.lint.gather.gather", None)
    monkeypatch.setattr("ampclip_lint.amp.analysis.analyse_program", None)
    assert said(lint(cache)) == said(fresh)


CHANGES = {
    "a file is edited": lambda: write("train.py", BAD.format(clip="nothing")),
    "what it imports is edited": lambda: write("clipping.py", "def shorten(p, bound): pass\n"),
    "a file is new": lambda: write("more.py", BAD.format(clip="torch.nn.utils.clip_grad_norm_")),
    "a file is gone": lambda: os.unlink("train.py"),
    "a file is renamed": lambda: os.rename("train.py", "fit.py"),
    "the configuration is new": lambda: write("ampclip-lint.toml", 'ignore = ["AMP101"]\n'),
    "the configuration is edited": lambda: write("pyproject.toml", '[tool.ampclip-lint]\nfail-on = "never"\n'),
    "a file is ignored": lambda: (Path(".git").mkdir(), write(".gitignore", "train.py\n")),
}


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_every_change_is_seen(change: Any, project: Path) -> None:
    cache = Cache(project / "c")
    for _ in range(3):
        before = lint(cache)
    change()
    after = lint(None)
    assert said(after) != said(before)
    assert said(lint(cache)) == said(after)


def test_a_change_that_leaves_no_trace_in_the_times_is_not_trusted(project: Path) -> None:
    cache = Cache(project / "c")
    lint(cache)
    os.utime("train.py", (2_000_000_000, 2_000_000_000))  # in the future, and to the second
    lint(cache)
    assert not entries(cache, "runs")


@pytest.mark.usefixtures("settled")
def test_a_copy_elsewhere_needs_no_analysis(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(project / "c")
    fresh = lint(cache)
    for name in ("train.py", "clipping.py"):
        os.utime(name, (1, 1))  # as a fresh checkout
    write("plain.py", "x = 2\n")
    monkeypatch.setattr("ampclip_lint.amp.analysis.analyse_program", None)
    assert said(lint(cache)) == said(fresh)


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("pedantic", [False, True])
def test_another_question_has_another_answer(pedantic: bool, project: Path) -> None:
    cache = Cache(project / "c")
    lint(cache)
    settings = Settings(pedantic=pedantic, fail_on="never")
    assert said(lint_paths(["."], settings, cache=cache)) == said(lint_paths(["."], settings))
    assert said(lint_paths(["train.py"], cache=cache)) == said(lint_paths(["train.py"]))


DAMAGE = {
    "empty": b"",
    "garbage": b"\xff\x00garbage",
    "cut off": None,
    "no object": b"[]",
    "deep": b"[" * 200_000,
    "of another version": b'{"watched": {}, "stamps": 3}',
}


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_entries_are_no_entries(damage: bytes | None, signed: bool, project: Path) -> None:
    cache = Cache(project / "c")
    for _ in range(2):
        fresh = lint(cache)
    for path in (*entries(cache, "runs"), *entries(cache, "results")):
        data = path.read_bytes()[:-7] if damage is None else damage
        path.write_bytes(cache_module._digest(data).encode() + b"\n" + data if signed else data)
    assert said(lint(cache)) == said(fresh)


def test_a_cache_that_cant_be_written_costs_nothing_but_time(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = said(lint(None))
    write("file", "")
    assert said(lint(Cache(project / "file"))) == fresh
    assert said(lint(Cache(project / "file" / "below"))) == fresh

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ampclip_lint.files.write_atomic", full)
    assert said(lint(Cache(project / "c"))) == fresh
    monkeypatch.setattr(os, "makedirs", full)
    assert said(lint(Cache(project / "d"))) == fresh


@pytest.mark.usefixtures("settled")
def test_runs_at_the_same_time_share_a_cache(project: Path) -> None:
    cache = Cache(project / "c")
    fresh = said(lint(None))
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(said(lint(cache)))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [fresh] * 6
    assert not list(Path(cache.folder).rglob("*.tmp"))


@pytest.mark.usefixtures("settled")
def test_the_cache_does_not_grow_for_ever(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "MAX_ENTRIES", 3)
    cache = Cache(here / "c")
    for number in range(6):
        cache.learn(f"{number}", {"number": number})
        os.utime(Path(cache.folder) / "results" / f"{number}.json", (number, number))
    assert [path.stem for path in entries(cache, "results")] == ["3", "4", "5"]
    monkeypatch.setattr(cache_module, "MAX_BYTES", 10)
    cache.learn("long", {"text": "x" * 100})
    assert cache.known("long") is None


@pytest.mark.usefixtures("settled")
def test_the_cache_lies_at_the_top_of_the_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AMPCLIP_LINT_CACHE_DIR")
    Path("sub").mkdir()
    monkeypatch.chdir("sub")
    run("check", "..")
    folder = project / ".ampclip_lint_cache"
    assert (folder / ".gitignore").read_text() == "*\n"
    assert (folder / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")
    assert entries(Cache(folder), "results")
    assert run("check", "..", "--no-cache", "--cache-dir", str(project / "other")).exit_code == 1
    assert not (project / "other").exists()
    run("check", "..", "--cache-dir", str(project / "other"))
    assert (project / "other").is_dir()


def test_what_is_written_is_read_back(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ampclip_lint.diagnostics import Applicability, Edit, Fix
    from ampclip_lint.lint import recall

    (found, *_) = lint(None).diagnostics
    from dataclasses import replace

    fixed = replace(found, fix=Fix("m", (Edit(found.span, "text\udcff"),), Applicability.UNSAFE))
    plain = json.loads(json.dumps(recall.plain_findings([found, fixed])))
    assert recall.findings(plain) == (found, fixed)


# --- start-up --------------------------------------------------------------------------------------------------------

HEAVY = {
    "libcst",
    "rich",
    "nbformat",
    "pathspec",
    "tomllib",
    "json",
    "tempfile",
    "multiprocessing",
    "concurrent.futures",
}
HEAVY |= {"importlib.metadata", "ampclip_rules", "ampclip_lint.amp", "ampclip_lint.lint.config", "hashlib"}


def loaded(*arguments: str) -> set[str]:
    """The modules that a process has loaded after `check`, out of those that take long."""
    script = textwrap.dedent(
        """
        import sys
        from ampclip_lint.cli import main
        from ampclip_lint.lint import quick
        quick.entry_points = lambda: [("builtin", "ampclip_rules:RULES")]
        try:
            main(["check", *sys.argv[1:]])
        except SystemExit as end:
            print(end.code, *sys.modules)
        """
    )
    paths = os.pathsep.join((str(ROOT), str(ROOT / "rules")))
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    code, *modules = done.stdout.split("\n")[-2].split()
    assert code == "0"
    return HEAVY & set(modules)


def test_a_file_without_a_scaler_loads_nothing_heavy(project: Path) -> None:
    assert loaded("plain.py") == set()
    assert loaded("-q", "plain.py", "clipping.py") == set()


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("scaler.unscale_(opt)\n", {}),
        ("x = 1  # noqa: AMP101\n", {}),
        ("x = 1  # AMPCLIP: ignore[AMP101]\n", {}),
        ("x = '\0'\n", {}),
        ("from helper import f\nf()\n", {"helper.py": "def f(s): s.get_scale()\n"}),
        ("x = 1\n", {"ampclip-lint.toml": ""}),
        ("x = 1\n", {"pyproject.toml": "[tool.ampclip-lint]\n"}),
    ],
)
def test_the_quick_look_is_in_doubt(text: str, more: dict[str, str], here: Path) -> None:
    write("a.py", text)
    for name, other in more.items():
        write(name, other)
    assert nothing_to_find(["a.py"]) is None


def test_the_quick_look_says_what_the_usual_run_says(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ampclip_lint.lint.quick.entry_points", lambda: [("builtin", "ampclip_rules:RULES")])
    write("pyproject.toml", "")
    write("a.py", "import os\nfrom b import x\n")
    write("b.py", "x = 'ä'\n")
    for arguments in (["a.py"], ["a.py", "./a.py", "b.py"], ["a.py", "--verbose"], ["a.py", "--statistics"]):
        assert nothing_to_find([a for a in arguments if a[0] != "-"]) is not None
        quick = run("check", *arguments)
        usual = run("check", "--exclude", "z", *arguments)
        assert (quick.stdout, quick.stderr, quick.exit_code) == (usual.stdout, usual.stderr, usual.exit_code)


def test_what_the_cache_holds_needs_no_engine(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("clean.py", "def f(scaler):\n    return scaler.get_scale()\n")
    os.unlink("train.py")
    modules = set(HEAVY)
    for _ in range(20):
        modules = loaded(".", "--cache-dir", "c")
        if "ampclip_lint.amp" not in modules:
            break
    assert not modules & {"libcst", "rich", "nbformat", "ampclip_rules", "ampclip_lint.amp", "importlib.metadata"}
