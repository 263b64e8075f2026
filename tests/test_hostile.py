"""Odd and hostile input on the command line: what is refused is named, the run goes on, nothing is executed."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import ModuleType

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ampclip_lint import lint_paths
from ampclip_lint.cli import FORMATS, main
from ampclip_lint.lint.registry import load_rules
from ampclip_lint.lint.suppress import hint
from ampclip_lint.syntax import concrete
from ampclip_lint.syntax.discover import MAX_STARS
from ampclip_lint.syntax.source import read_bytes
from odd_input import KINDS, Odd, draw, pool

ROOT = Path(__file__).resolve().parent.parent
posix = pytest.mark.skipif(os.name != "posix", reason="signals, pipes and devices of POSIX")
WATCHDOG = 120
"""Seconds after which a process counts as hanging; none of these inputs takes more than a few."""

HEAD = "from torch.nn.utils import clip_grad_norm_\n"
ORDER = (
    "scaler.scale(model(b)).backward()", "clip_grad_norm_(model.parameters(), 1.0)", "scaler.step(optimizer)",
    "scaler.update()",
)  # fmt: skip


def fit(first: str = "") -> str:
    """A training loop in the wrong order, with a line before it."""
    body = "".join(f"        {line}\n" for line in ORDER)
    before = f"    {first}" if first else ""
    return f"{HEAD}def fit(model, loader, optimizer, scaler):\n{before}\n    for b in loader:\n{body}"


def nested(opening: str, depth: int) -> str:
    lines = [" " * (level + 1) + opening.format(level) for level in range(depth)]
    lines += [" " * (depth + 1) + line for line in ORDER]
    return HEAD + "def fit(model, b, optimizer, scaler):\n" + "\n".join(lines) + "\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    result = CliRunner().invoke(main, list(arguments), input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def check(*arguments: str) -> Result:
    return run("check", "--output-format", "concise", *arguments)


def environment(**more: str) -> dict[str, str]:
    found = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "rules"))), **more}
    return {name: value for name, value in found.items() if name not in ("FORCE_COLOR", "NO_COLOR")}


STARTED = """\
import sys
from ampclip_lint.lint import registry
if not registry.entry_points():
    registry.entry_points = lambda: [("builtin", "ampclip_rules:RULES")]
from ampclip_lint.cli import main
"""


def started(*arguments: str, first: str = "", **options: object) -> subprocess.Popen[str]:
    """The command in a process of its own: a bare checkout has no entry points, so they are put in."""
    code = f"{STARTED}{first}\nmain({list(arguments)!r}, prog_name='ampclip-lint')"
    return subprocess.Popen([sys.executable, "-c", code], text=True, env=environment(), **options)  # type: ignore[call-overload,no-any-return]


def finished(*arguments: str, first: str = "") -> tuple[int, str, str]:
    """Exit code and both outputs of the command; one that hangs is killed, and fails."""
    process = started(*arguments, first=first, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, err = process.communicate(timeout=WATCHDOG)
    finally:
        process.kill()
    return process.returncode, out, err


def fresh(name: str, content: str | bytes) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# --- deep, long, generated

DEEP = {
    "parentheses": fit("x = " + "(" * 10_000 + "1" + ")" * 10_000),
    "parentheses_that_python_takes": fit("x = " + "(" * 150 + "1" + ")" * 150),
    "lists": fit("x = " + "[" * 5_000 + "]" * 5_000),
    "sum": fit("x = " + "+".join(["a"] * 100_000)),
    "sum_that_python_takes": fit("x = " + "+".join(["a"] * 800)),
    "signs": fit("x = " + "-" * 50_000 + "1"),
    "attributes": fit("x = a" + ".b" * 900),
    "calls": fit("x = a" + "()" * 900),
    "conjunction": fit("x = " + " and ".join(["a"] * 50_000)),
    "comprehension": fit("x = [a " + "for x in y " * 5_000 + "]"),
    "strings": fit("x = (" + "'a' " * 20_000 + ")"),
    "lambdas": fit("x = " + "lambda: " * 900 + "1"),
    "conditions": fit("x = " + "".join(f"a if b{i} else " for i in range(900)) + "1"),
    "elif": fit("if a: pass\n" + "".join(f"    elif b{i}: pass\n" for i in range(3_000))),
    "digits": fit("x = " + "9" * 100_000),
    "hexadecimal": fit("x = 0x" + "f" * 1_000_000),
    "string": fit("x = '" + "a" * 1_000_000 + "'"),
    "table": fit("x = {" + ", ".join(f"{i}: [{i}]" for i in range(60_000)) + "}"),
    "statements": fit("; ".join(f"a{i} = {i}" for i in range(60_000))),
    "comment": fit("# " + "x" * 1_000_000),
    "power": fit("x = 9**9**9**9 + (1 << (1 << 40)); y = 'a' * 10**12; z = list(range(10**18))"),
    "backslashes": fit("x = 1" + " \\\n + 1" * 5_000),
    "branches": HEAD + "def fit(model, b, optimizer, scaler, c):\n" + "".join(
        f"    if c[{i}]:\n        scaler.scale(model(b)).backward()\n" for i in range(10_000)
    ),
    "flags": HEAD + f"def fit(model, b, optimizer, scaler, {', '.join(f'f{i}' for i in range(300))}):\n" + "".join(
        f"    if f{i} and not f{i * 7 % 300} or f{i * 11 % 300}:\n        scaler.unscale_(optimizer)\n"
        for i in range(60)
    ),
    **{
        f"{kind}_{depth}": nested(opening, depth)
        for kind, opening in {
            "if": "if c{0}:", "for": "for x{0} in y:", "while": "while c{0}:", "with": "with c{0} as x:",
            "def": "def f{0}(optimizer=optimizer):", "class": "class C{0}:",
        }.items()
        for depth in (2_000, 15)
    },
}  # fmt: skip


def test_nothing_of_any_depth_or_length_ends_the_run_or_is_passed_over_in_silence() -> None:
    for name, text in DEEP.items():
        fresh(f"odd/{name}.py", text)
    fresh("train.py", fit())
    code, out, err = finished("check", "--extend-select", "AMP003", "--output-format", "json", ".")
    assert "Traceback" not in err and "internal error" not in err
    assert code == 1, err
    found: dict[str, set[str]] = {}
    for finding in json.loads(out):
        found.setdefault(Path(finding["filename"]).stem, set()).add(finding["code"])
    assert found.pop("train") == {"AMP101"}
    # The bodies of nested functions and classes are nobody's: no call leads there.
    silent = {"def_15", "class_15"}
    assert set(DEEP) - silent == set(found) - silent
    for name in ("parentheses_that_python_takes", "hexadecimal", "string", "comment", "power", "if_15", "with_15"):
        assert "AMP101" in found[name], name
    for name in ("conjunction", "sum_that_python_takes", "table", "statements", "branches"):
        assert found[name] == {"AMP003"}, name
    assert {finding["code"] for finding in json.loads(out) if "_2000" in finding["filename"]} == {"AMP001"}


def test_what_is_too_long_or_too_deep_says_so() -> None:
    fresh("long.py", DEEP["table"])
    fresh("deep.py", DEEP["conjunction"])
    fresh("recursive.py", DEEP["sum_that_python_takes"])
    assert "`fit` could not be read: it is too long" in check("--select", "AMP003", "long.py").stdout
    for name in ("deep.py", "recursive.py"):
        assert "`fit` could not be read: it is nested too deeply" in check("--select", "AMP003", name).stdout


@pytest.mark.parametrize("name", ["conjunction", "table", "comprehension"])
def test_what_is_too_long_or_too_deep_never_meets_libcst(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[int] = []
    parse = concrete.cst.parse_module
    monkeypatch.setattr(concrete.cst, "parse_module", lambda text: met.append(len(text)) or parse(text))
    fresh("odd.py", DEEP[name])
    check("odd.py")
    assert max(met, default=0) < 1_000


def test_the_bounds_leave_room_for_code_that_people_write() -> None:
    lines = "".join(f"    total{i} = compute(a, b[{i}], key={i}) + other.attribute.value\n" for i in range(2_000))
    fresh("long.py", fit().replace("    for b", lines + "    for b", 1))
    fresh("wide.py", fit("x = " + " and ".join(["a"] * 200)))
    assert check("long.py").stdout.count("AMP101") == 1
    assert check("wide.py").stdout.count("AMP101") == 1


def test_functions_and_classes_that_go_round_in_circles() -> None:
    fresh("a.py", "from b import *\nimport a\nfrom a import fit\nfrom . import a as fit2\n" + fit())
    fresh("b.py", "from c import *\nfrom b import *\n" + fit())
    fresh("c.py", "from a import *\nimport b as a\n" + fit())
    fresh(
        "strange.py",
        HEAD
        + """
def f(*args, **kw):
    f(f, f=f, *f(f(f)))(f(f))
    scaler = kw["scaler"]; scaler.scale(args[0](f)).backward(); scaler.step(f(f)); scaler.update()
    return f
f = f(f)
class A(A): pass
class B(C):
    def m(self): self.m = self.m(self.m); self.scaler.scale(self.m).backward(); super().m()
class C(B):
    def m(self): super().m(); B.m(self); C.m(self)
class D(metaclass=D, *D, **D): scaler = D
class E(E.F.G[E](), E):
    def __init__(self): E.__init__(self); self.__init__(); super().__init__(); self.scaler = self.scaler.scaler = self
    def __getattr__(self, name): return getattr(self, name)
    def __call__(self): self(); self.scaler.step(self); self.scaler.unscale_(self)
lambda f=f: (lambda g: g(g))(lambda g: g(g).scaler.step(g))
"""
        + "".join(f"@decorator{i}(lambda: decorator{i})\n" for i in range(1_000))
        + "def decorated(model, b, optimizer, scaler):\n    scaler.scale(model(b)).backward()\n",
    )
    result = check(".")
    assert "internal error" not in result.stderr
    for name in ("a.py", "b.py", "c.py"):
        assert f"{name}:" in result.stdout and "AMP101" in result.stdout


def test_many_functions_of_one_name() -> None:
    one = "def fit(model, b, optimizer, scaler):\n    scaler.scale(model(b)).backward()\n    scaler.step(optimizer)\n"
    fresh("same.py", one * 1_500)
    code, _, err = finished("check", "same.py")
    assert (code, "internal error" in err) == (0, False)


@pytest.mark.parametrize(
    "text",
    [
        "print 'hello'\nexec 'x'\ntry: pass\nexcept E, e: pass\n",
        "type X[T: (int, str), *Ts, **P] = list[T]\ndef g[T](x: T) -> T: ...\n",
        "x = t'{a!r:>{w}}'\n",
        "x = f'{f\"{f'{1}'}\"}'\ny = f'{'a' 'b'}'\n",
        "match x:\n    case [1, *_] | {'a': 1, **r} | C(x=1): pass\n    case y if (z := y): pass\n",
        "async def f():\n    async with a as b, c:\n        return [await x async for x in y]\n",
        "try: pass\nexcept* E: pass\n",
        "exec('scaler.unscale_(o)')\neval(\"__import__('os')\")\n",
        "\f\tx = 1\n",
        "x = '\\ud800\\N{BULLET}'; ﬁ = 2; \u1e9b\u0323 = 1\n",
        "x = 1if y else 2; z = '\\d'\n",
    ],
)
def test_syntax_of_every_age_is_read_or_named(text: str, recwarn: pytest.WarningsRecorder) -> None:
    fresh("odd.py", text + fit())
    fresh("train.py", fit())
    result = check(".")
    assert result.exit_code == 1
    assert "train.py:6:9: AMP101" in result.stdout
    assert "odd.py" in result.stdout, "read, or a syntax error"
    assert not recwarn.list


def test_floods_of_comments_and_imports_are_read_in_one_go() -> None:
    floods = {
        "noqa": "# noqa:" + ":noqa:" * 300_000, "codes": "# noqa: " + "A1," * 300_000,
        "again": "# " + "#noqa: A1 " * 50_000, "open": "# ampclip: ignore[" * 60_000, "hash": "#" * 1_000_000,
        "blanks": "# ampclip" + " " * 1_000_000, "kind": "# ampclip:" + "a" * 1_000_000 + " " * 1_000_000,
        "tabs": "\t" * 1_000_000, "lines": "\t\n" * 300_000, "import": "import (" * 100_000,
        "from": "from x import (\n" * 50_000, "names": "from x import (" + "a, " * 200_000,
        "space": "from x import a" + " " * 1_000_000 + "b", "class": "class A(\n" * 50_000,
        "slash": "import a" + "\\\n" * 300_000 + "b", "dots": "from " + "." * 500_000 + " import x",
    }  # fmt: skip
    for name, text in floods.items():
        fresh(f"{name}.py", f"{text}\n{fit()}")
    code, out, err = finished("check", "--output-format", "concise", ".")
    assert code == 1 and "internal error" not in err
    for name in floods:
        assert f"{name}.py:" in out, name
    # One message a line, and no longer than it must be.
    assert err.count("open.py") == 1 and max(map(len, err.splitlines())) < 300


def test_the_quick_look_for_suppressions_sees_all_of_them() -> None:
    test = hint(load_rules())
    assert (
        test(b"x  # noqa: E501, AMP101\n") and test(b"# noqa:E1 # ampclip: ignore[AMP101]\n") and test(b"# AMPCLIP :x")
    )
    assert not test(b"# noqa: E501\nAMP101\n# noqa\n: x\n")
    assert test(b"# noqa: E501\n" * 1000 + b"# noqa:amp2")


# --- bytes


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (fit().encode("utf-16"), "not valid utf-8 at byte 0 (it looks like utf-16)"),
        (fit().encode("utf-16-be"), "null byte at byte 0: not a Python source file"),
        (fit().encode("utf-32"), "not valid utf-8 at byte 0 (it looks like utf-16)"),
        (b"x = '\xe9'\n" + fit().encode(), "not valid utf-8 at byte 5"),
        (b"# coding: rot13\n" + fit().encode(), "can't be decoded as rot13"),
        (b"# coding: bz2\n" + fit().encode(), "can't be decoded as bz2"),
        (b"# coding: undefined\n" + fit().encode(), "can't be decoded as undefined"),
        (b"# coding: os.system\n" + fit().encode(), "unknown encoding: os.system"),
        (b"\xef\xbb\xbf# coding: latin-1\n" + fit().encode(), "encoding problem: utf-8"),
        (fit().encode() + b"\0", "null byte"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_text_are_named_and_the_run_goes_on(data: bytes, reason: str) -> None:
    fresh("odd.py", data)
    fresh("train.py", fit())
    result = check(".")
    assert result.exit_code == 1 and result.stdout.startswith("train.py:6:9: AMP101")
    assert f"warning: odd.py: {reason}" in result.stderr


@pytest.mark.parametrize(
    "data",
    [
        b"# coding: latin-1\nx = '\xe9'\n" + fit().encode(),
        b"\xef\xbb\xbf" + fit().encode(),
        fit().replace("\n", "\r\n").encode(),
        fit().replace("\n", "\r").encode(),
        b"\f\n" + fit("x = 1\f; y = '\x0b\x1c\u2028'").encode(),
        b"\t\t\t\n" * 1000 + fit().encode(),
        b"# coding: utf-7\n" + fit().encode(),
    ],
)
def test_text_in_other_forms_is_read(data: bytes) -> None:
    fresh("odd.py", data)
    assert check("odd.py").stdout.count("AMP101") == 1


def test_an_empty_file_is_a_clean_one() -> None:
    fresh("empty.py", b"")
    fresh("empty.ipynb", b"")
    assert (check("empty.py").exit_code, check("empty.py").stdout) == (0, "")
    assert check("empty.ipynb").exit_code == 0


def test_a_notebook_of_50_megabytes_and_one_that_is_nested_without_end() -> None:
    cells = [{"cell_type": "code", "metadata": {}, "source": fit(), "execution_count": None,
              "outputs": [{"output_type": "stream", "name": "stdout", "text": "x" * 50_000_000}]}]  # fmt: skip
    text = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    fresh("big.ipynb", text)
    fresh("deep.ipynb", '{"nbformat": 4, "unscale_": ' + "[" * 200_000 + "]" * 200_000 + "}")
    result = check(".")
    assert "big.ipynb:cell 1:6:9: AMP101" in result.stdout
    assert "deep.ipynb: not a notebook" in result.stderr


def test_a_finding_that_one_cell_begins_and_another_ends_stays_in_its_cell() -> None:
    first, second = fit().split("clip_grad_norm_(model", 1)
    head, loop = first.rsplit("\n", 1)
    sources = [f"{head}\n{loop}clip_grad_norm_(\n", f"model{second}"]
    cells = [
        {"cell_type": "code", "metadata": {}, "source": text, "outputs": [], "execution_count": None}
        for text in sources
    ]
    fresh("odd.ipynb", json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    (finding,) = lint_paths(["odd.ipynb"]).diagnostics
    assert finding.span.cell == 1
    assert finding.span.end.row <= len(sources[0].split("\n"))


# --- files


@posix
def test_what_is_no_file_is_named_and_not_waited_for() -> None:
    os.mkfifo("pipe.py")
    os.mkfifo("pipe.ipynb")
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{short}/socket.py")
        os.symlink(f"{short}/socket.py", "socket.py")
        os.symlink("/dev/zero", "device.py")
        os.symlink("loop.py", "loop.py")
        os.symlink("nowhere.py", "dangling.py")
        os.makedirs("folder.py")
        os.makedirs("folder.ipynb/inside")
        os.symlink("..", "folder.py/up")
        fresh("folder.ipynb/inside/train.py", fit())
        code, out, err = finished("check", "--output-format", "concise", ".")
    assert code == 1
    assert [line.split(":")[0] for line in out.splitlines()] == ["folder.ipynb/inside/train.py"]
    for name in ("pipe.py", "pipe.ipynb", "socket.py", "device.py"):
        assert f"warning: {name}: not a regular file" in err
    assert "warning: loop.py: too many levels of symbolic links" in err
    assert "warning: dangling.py: no such file (a broken link?)" in err


@posix
def test_an_import_that_leads_to_a_pipe_is_not_waited_for() -> None:
    os.mkfifo("helper.py")
    fresh("train.py", "import helper\n" + fit())
    code, _, err = finished("check", "train.py")
    assert code == 1 and "warning: helper.py: not a regular file" in err


def test_a_file_that_vanishes_between_the_walk_and_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh("gone.py", fit())
    fresh("train.py", fit())

    def vanish(name: str, path: Path) -> object:
        if name == "gone.py":
            Path(path).unlink()
        return read_bytes(name, path)

    monkeypatch.setattr("ampclip_lint.syntax.scan.read_bytes", vanish)
    result = check(".")
    assert result.stdout.count("AMP101") == 1 and "warning: gone.py: no such file" in result.stderr


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_named() -> None:
    fresh("secret.py", fit()).chmod(0)
    fresh("closed/train.py", fit())
    Path("closed").chmod(0)
    try:
        result = check(".")
    finally:
        Path("closed").chmod(0o700)
    assert "warning: secret.py: permission denied" in result.stderr
    assert "warning: closed: folder can't be read: permission denied" in result.stderr


HOSTILE_NAME = "a\n::error::b\x1b[31m<script>&\"'.py"


@posix
@pytest.mark.parametrize("output_format", FORMATS)
def test_names_and_content_act_on_no_reader(output_format: str) -> None:
    fresh(HOSTILE_NAME, fit("x = '\x1b]0;title\x07\x9b31m\u202e'"))
    fresh(os.fsdecode(b"latin-\xe9.py"), fit())
    Path("x").mkdir()
    result = run("check", "--output-format", output_format, ".")
    assert result.exit_code == 1
    assert not {"\x1b", "\x9b", "\x07", "\u202e"} & set(result.output)
    assert not any(line.startswith("::error::b") for line in result.output.splitlines())
    if output_format in ("json", "sarif", "gitlab"):
        json.loads(result.stdout)
    if output_format == "junit":
        import xml.etree.ElementTree as ElementTree

        assert "<script>" not in result.stdout
        ElementTree.fromstring(result.stdout)


@posix
def test_the_page_of_the_audit_takes_no_markup_from_what_it_shows() -> None:
    fresh(HOSTILE_NAME, fit("x = '</pre><script>alert(1)</script>\x1b'").replace("optimizer", "optimizer_b_"))
    run("audit", "--html", "page.html", ".")
    page = Path("page.html").read_text("utf-8")
    assert "<script>alert" not in page and "<script>&amp;" not in page and "\x1b" not in page


@posix
@pytest.mark.parametrize(
    "variables", [{"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}, {"COLUMNS": "1"}]
)
def test_poor_terminals_are_written_to(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    fresh("größe.py", fit("x = 'é😀'"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    code, out, err = finished("check", "--color", "always", ".")
    assert code == 1 and "AMP101" in out and "Traceback" not in err


# --- what is read is never run

TRACE = "open('executed', 'w').close()\n"


def test_nothing_that_is_read_is_imported_or_executed() -> None:
    evil = f"import os; os.system('touch executed')\n{TRACE}"
    fresh("helper.py", evil + fit())
    fresh("torch.py", evil)
    fresh("conftest.py", evil)
    fresh("sitecustomize.py", evil)
    fresh("pkg/__init__.py", evil)
    fresh("train.py", f"{evil}from helper import *\nimport torch, pkg\n{fit()}")
    fresh(
        "ampclip-lint.toml",
        f"[models]\n\"acme.amp\" = '''\n{evil}class Scaler: pass\n@exit()\ndef f(x=exit()): pass\n'''\n"
        "\"evil\" = 'evil.py'\n",
    )
    fresh("evil.py", f"{evil}def f(): pass\n")
    fresh("book.ipynb", json.dumps({"cells": [
        {"cell_type": "code", "metadata": {}, "source": f"!touch executed\n%run evil.py\n{evil}{fit()}", "outputs": []}
    ], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}))  # fmt: skip
    for command in (("check", "."), ("audit", "."), ("trace", "train.py"), ("config", ".")):
        code, _, err = finished(*command)
        assert code in (0, 1), err
    assert not Path("executed").exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x = " + "[" * 100_000, "nested too deeply"),
        ("x = " + "9" * 100_000, "can't be read: Exceeds the limit"),
        ("[models]\na = '''\nx = " + "(" * 100_000 + "\n'''", "not valid Python"),
        ("[models]\na = '''\nx = " + "-" * 100_000 + "1\n'''", "not valid Python"),
        ('[models]\na = "def f(): pass\\u0000"', "not valid Python"),
        ("[models]\na = '''\nx = " + "9" * 100_000 + "\n'''", "not valid Python"),
        ("a" * 1_000_000, "not valid TOML"),
    ],
)
def test_a_configuration_that_bursts_is_refused(text: str, reason: str) -> None:
    fresh("ampclip-lint.toml", text)
    fresh("train.py", fit())
    result = check(".")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ampclip-lint.toml: ") and reason in result.stderr


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"version": ' + "9" * 100_000 + "}", "\xff", '{"version": 1, "findings": 1e999}']
)
def test_a_baseline_that_bursts_is_refused(text: str) -> None:
    fresh("baseline.json", text)
    result = check("--baseline", "baseline.json", ".")
    assert result.exit_code == 2 and "error: baseline.json: " in result.stderr


def test_patterns_that_would_take_for_ever_are_passed_over() -> None:
    Path(".git").mkdir()
    fresh(".gitignore", "*a*a*a*a*a*a*a*a*a*a*a*b\n[\n!\n" + "**/" * 2_000 + "x\nignored.py\n")
    fresh(f"{'a' * 200}.py", fit())
    fresh("ignored.py", fit())
    code, out, _ = finished("check", "--output-format", "concise", "--extend-exclude", "*a*a*a*a*a*a*a*a*a*a*a*b", ".")
    assert code == 1 and out.count("AMP101") == 1


# --- how a run ends

SLOW = """\
import os, signal
from ampclip_lint.lint import run as module
def lint_paths(*args, **kwargs):
    os.kill(os.getpid(), {signal})
    import time; time.sleep(60)
module.lint_paths = lint_paths
"""


@posix
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_without_a_traceback(number: int, code: int) -> None:
    fresh("train.py", fit())
    found, out, err = finished("check", ".", first=SLOW.format(signal=int(number)))
    assert (found, out) == (code, "")
    assert "Traceback" not in err and err in ("interrupted\n", "")


MIDWAY = """\
import os, signal
real = os.fsync
def fsync(handle):
    os.kill(os.getpid(), {signal})
    import time; time.sleep(0.1)
    real(handle)
os.fsync = fsync
"""
OLD = '{"version": 1, "findings": []}'
"""What a run may replace: a baseline must be one."""
WRITING = {
    "--output-file": ("check", "--no-cache", "--output-file", "old", "."),
    "--write-baseline": ("check", "--no-cache", "--write-baseline", "old", "."),
    "--html": ("audit", "--html", "old", "."),
}


@posix
@pytest.mark.parametrize("option", WRITING)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_killed_while_it_writes_leaves_the_old_file(option: str, number: int) -> None:
    fresh("train.py", fit())
    fresh("old", OLD)
    code, _, err = finished(*WRITING[option], first=MIDWAY.format(signal=int(number)))
    assert code == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[signal.Signals(number)]
    assert "Traceback" not in err
    assert Path("old").read_text() == OLD
    # Nothing can be cleaned behind SIGKILL; what is left is no file that anybody reads.
    left = {path.suffix for path in Path().iterdir()} - {".py", ""}
    assert left == ({".tmp"} if number == signal.SIGKILL else set())


STRUCK = """\
import os, signal
struck = False
def strike(name, before):
    real = getattr(os, name)
    def stand_in(*arguments):
        global struck
        first, struck = not struck, True
        if not before:
            real(*arguments)
        if first:
            os.kill(os.getpid(), {signal})
            import time; time.sleep(0.1)
        if before:
            real(*arguments)
    setattr(os, name, stand_in)
strike({call!r}, {before})
"""
MOMENTS = [("fsync", True), ("fsync", False), ("chmod", True), ("replace", True), ("replace", False)]
"""A system call that writing a file needs, and whether the signal comes before it or behind it."""
ENDED = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}


@posix
@pytest.mark.parametrize(("call", "before"), MOMENTS)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_fixes_that_are_killed_leave_each_file_whole(call: str, before: bool, number: signal.Signals) -> None:
    for name in "ab":
        fresh(f"{name}.py", fit())
    code, _, err = finished("check", "--fix", ".", first=STRUCK.format(signal=int(number), call=call, before=before))
    assert code == ENDED[number]
    assert "Traceback" not in err
    done = (call, before) == ("replace", False)
    assert [Path(f"{name}.py").read_text() == fit() for name in "ab"] == [not done, True]
    left = [path.name for path in Path().iterdir() if path.suffix != ".py"]
    assert len(left) == (number == signal.SIGKILL and not done)
    assert all(name.startswith(".a.py.") and name.endswith(".tmp") for name in left)
    # The next run does what is left to do.
    assert run("check", "--fix", "--no-cache", "-q", ".").exit_code == 0
    assert all("unscale_" in Path(f"{name}.py").read_text() for name in "ab")


@posix
@pytest.mark.parametrize(("call", "before"), MOMENTS)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("made", [False, True])
def test_a_cache_that_is_killed_is_a_cache(call: str, before: bool, number: signal.Signals, made: bool) -> None:
    fresh("train.py", fit())
    cached = ("check", "--output-format", "concise", "--cache-dir", "c", "train.py")
    if made:  # else what marks the folder is the first to be written
        for name in (".gitignore", "CACHEDIR.TAG"):
            fresh(f"c/{name}", "as it is")
    code, _, err = finished(*cached, first=STRUCK.format(signal=int(number), call=call, before=before))
    assert code == ENDED[number]
    assert "Traceback" not in err
    left = list(Path("c").rglob("*.tmp"))
    assert len(left) == (number == signal.SIGKILL and (call, before) != ("replace", False))
    assert not Path("c/.gitignore").exists() or Path("c/.gitignore").read_text() == ("as it is" if made else "*\n")
    for path in left:
        os.utime(path, (0, 0))
    (after, out, err), (again, out_again, err_again) = finished(*cached), finished(*cached)
    assert (after, again) == (1, 1)
    assert out == out_again and out.count("AMP101") == 1
    assert err == err_again
    assert not list(Path("c").rglob("*.tmp"))


def test_what_may_still_be_written_stays_in_a_cache() -> None:
    fresh("train.py", fit())
    fresh("c/runs/.b.json.x.tmp", "half")
    finished("check", "--cache-dir", "c", "train.py")
    assert Path("c/runs/.b.json.x.tmp").exists()


FULL = """\
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))
sys.dont_write_bytecode = True
"""


@posix
@pytest.mark.parametrize("option", WRITING)
def test_a_disk_that_is_full_leaves_the_old_file(option: str) -> None:
    fresh("train.py", fit())
    fresh("old", OLD)
    code, _, err = finished(*WRITING[option], first=FULL)
    assert code == 2 and "error: old: can't be written: file too large" in err
    assert Path("old").read_text() == OLD
    assert sorted(path.name for path in Path().iterdir()) == ["old", "train.py"]


@posix
def test_a_disk_that_is_full_leaves_what_was_to_be_fixed() -> None:
    fresh("train.py", fit())
    code, out, err = finished("check", "--fix", "--output-format", "concise", ".", first=FULL)
    assert (code, out.count("AMP101")) == (1, 1)
    assert "train.py: not fixed: file too large" in err
    assert Path("train.py").read_text() == fit()
    assert [path.name for path in Path().iterdir()] == ["train.py"]


@posix
def test_a_disk_that_is_full_costs_the_cache_and_nothing_else() -> None:
    fresh("train.py", fit())
    code, out, err = finished("check", "--output-format", "concise", "--cache-dir", "c", ".", first=FULL)
    assert (code, out.count("AMP101"), err.count("error")) == (1, 1, 1)
    assert {path.name for path in Path("c").rglob("*") if path.is_file()} <= {".gitignore"}


@posix
@pytest.mark.parametrize("closed", [(1,), (2,), (1, 2), (0, 1, 2)])
def test_streams_that_are_closed(closed: tuple[int, ...]) -> None:
    fresh("train.py", fit())
    words = " ".join(f"{number}{'<' if number == 0 else '>'}&-" for number in closed)
    code = f"{STARTED}main(['check', '.'])"
    process = subprocess.run(
        ["sh", "-c", f'"$0" -c "$1" {words}', sys.executable, code],
        env=environment(), capture_output=True, text=True, timeout=WATCHDOG, check=False,
    )  # fmt: skip
    assert (process.returncode, "Traceback" in process.stderr) == (1, False)
    if 0 in closed:
        process = subprocess.run(
            ["sh", "-c", '"$0" -c "$1" 0<&-', sys.executable, f"{STARTED}main(['check', '-'])"],
            env=environment(), capture_output=True, text=True, timeout=WATCHDOG, check=False,
        )  # fmt: skip
        assert (process.returncode, process.stderr) == (2, "error: -: standard input is closed\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_an_output_that_is_full_is_exit_code_2() -> None:
    fresh("train.py", fit())
    with open("/dev/full", "w") as full:
        process = started("check", ".", stdout=full, stderr=subprocess.PIPE)
        _, err = process.communicate(timeout=WATCHDOG)
    assert (process.returncode, err) == (2, "error: output: no space left on device\n")


@posix
def test_a_working_directory_that_is_gone() -> None:
    code, _, err = finished("check", ".", first="import os; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')")
    assert (code, err) == (2, "error: working directory: no such file or directory\n")


@posix
def test_a_reader_that_has_seen_enough_ends_the_run_quietly() -> None:
    fresh(
        "train.py",
        fit() + "".join(f"def f{i}(s, o, l):\n    s.scale(l).backward()\n    o.step()\n" for i in range(300)),
    )
    process = started("check", ".", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    err = process.stderr.read()
    process.wait(WATCHDOG)
    assert "Traceback" not in err and "Broken pipe" not in err and "Exception ignored" not in err


def test_the_page_says_what_is_so() -> None:
    page = (ROOT / "docs" / "robustness.md").read_text("utf-8")
    for claim in (
        f"more than {MAX_STARS} `*`",
        "exit code 130, SIGTERM with 143",
        "not a regular file",
        "`.NAME.….tmp`",
    ):
        assert claim in page
    fresh("null.py", b"\0" + fit().encode())
    assert check("null.py").exit_code == 0, "what is left out is no finding"


# --- by chance


@pytest.fixture(scope="module")
def fuzz() -> Iterator[ModuleType]:
    """benchmarks/fuzz.py, which holds the linter to the same by the hundred thousand."""
    spec = importlib.util.spec_from_file_location("fuzz", ROOT / "benchmarks" / "fuzz.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = before


SAMPLES = pool([ROOT / "fixtures"])


@settings(
    max_examples=150, derandomize=True, database=None, deadline=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(st.randoms(use_true_random=False))
def test_odd_input_by_chance(fuzz: ModuleType, rng: Random) -> None:
    odd = draw(SAMPLES, rng)
    fuzz.judge(odd, Random(rng.random()), Path())


def test_the_generator_draws_all_kinds_and_reaches_the_engine(fuzz: ModuleType) -> None:
    outcomes, kinds = fuzz.Counter(), set()
    for number in range(200):
        rng = Random(f"sample/{number}")
        odd = draw(SAMPLES, rng)
        kinds.add(odd.kind)
        outcomes += fuzz.judge(odd, rng, Path())
    assert kinds == set(KINDS)
    # The check means something only where inputs come far, and some do not.
    assert min(outcomes[name] for name in ("findings", "broken", "unread", "analysed")) >= 5, outcomes


def test_the_judge_of_odd_input_sees_what_is_wrong(fuzz: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = Odd("program", "odd.py", fit().encode())

    def crash(*_args: object, **_options: object) -> None:
        raise ValueError("asked to")

    monkeypatch.setattr("ampclip_lint.amp.analysis.analyse_program", crash)
    with pytest.raises(ValueError, match="asked to"):
        fuzz.judge(odd, Random(0), Path())
