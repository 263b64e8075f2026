"""Fixes as users meet them: what is offered, what `--fix` and `--diff` do to files, and that nothing else changes."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ampclip_lint.cli import main
from ampclip_lint.diagnostics import Edit, Position, Span
from ampclip_lint.fix import apply
from ampclip_lint.fix.check import Workspace
from ampclip_lint.fix.document import NotEditable, edited, with_edits
from ampclip_lint.fix.propose import TABLE, candidates
from ampclip_lint.fix.scene import Scene
from ampclip_lint.fix.tree import Tree
from ampclip_lint.lint.run import lint_source
from ampclip_lint.syntax.notebook import read_source
from ampclip_lint.syntax.source import SourceFile, decode
from ampclip_rules import RULES

HEAD = "from torch.nn.utils import clip_grad_norm_\n\n\n"
BAD = f"""\
{HEAD}def fit(model, loader, optimizer, scaler):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        clip_grad_norm_(model.parameters(), 1.0)  # all of them
        scaler.step(optimizer)
        scaler.update()
"""
CLIP = "        clip_grad_norm_"
UNSCALE = "        scaler.unscale_(optimizer)\n"
GOOD = BAD.replace(CLIP, UNSCALE + CLIP)
TWICE = f"""\
{HEAD}def fit(model, loader, optimizer, scaler):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        scaler.step(optimizer)
        optimizer.step()
        scaler.update()
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    result = CliRunner().invoke(main, ["check", *arguments], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def check(*arguments: str, stdin: str | bytes | None = None) -> Result:
    return run("--output-format", "concise", *arguments, stdin=stdin)


def put(name: str, text: str | bytes) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def fixes(text: str, *arguments: str) -> str:
    """What `--fix` makes of a file."""
    path = put("train.py", text)
    check("--fix", *arguments, "train.py")
    return path.read_bytes().decode()


# --- the command line


def test_safe_fixes_are_made_and_what_is_left_is_reported() -> None:
    path = put("train.py", BAD)
    result = check("--fix")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "No findings (1 file read, 1 analysed).\n1 finding fixed.\n"
    assert path.read_text() == GOOD


def test_a_second_fix_changes_nothing() -> None:
    path = put("train.py", BAD)
    check("--fix")
    before = path.stat()
    result = check("--fix")
    assert result.stderr.endswith("Nothing fixed.\n")
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert path.stat().st_ino == before.st_ino


def test_without_fix_nothing_is_written_and_the_fix_is_told() -> None:
    path = put("train.py", BAD)
    result = run("train.py")
    assert result.exit_code == 1
    assert "  = fix: insert `scaler.unscale_(optimizer)` before the clip (--fix)\n" in result.stdout
    assert result.stderr.endswith("1 fixable with --fix.\n")
    assert path.read_text() == BAD


def test_unsafe_fixes_are_made_only_when_asked_for() -> None:
    path = put("train.py", TWICE)
    result = run("--fix")
    assert result.exit_code == 1
    assert "= fix: remove `optimizer.step()` (--fix --unsafe-fixes)" in result.stdout
    assert result.stderr.endswith("Nothing fixed.\n1 fixable with --fix --unsafe-fixes.\n")
    assert path.read_text() == TWICE
    result = run("--fix", "--unsafe-fixes")
    assert (result.exit_code, path.read_text()) == (0, TWICE.replace("        optimizer.step()\n", ""))


def test_unsafe_fixes_alone_shows_and_writes_nothing() -> None:
    path = put("train.py", TWICE)
    result = run("--unsafe-fixes")
    assert result.stderr.endswith("1 fixable with --fix --unsafe-fixes.\n")
    assert path.read_text() == TWICE


def test_the_exit_code_counts_what_is_left() -> None:
    put("train.py", BAD + TWICE.replace(HEAD, "").replace("fit", "fit_twice"))
    result = check("--fix")
    assert result.exit_code == 1
    assert [line.split()[1] for line in result.stdout.splitlines()] == ["AMP305"]
    assert result.stderr.startswith("Found 1 error")
    assert "1 finding fixed." in result.stderr


def test_a_diff_is_printed_and_nothing_is_written() -> None:
    path = put("train.py", BAD)
    result = check("--diff")
    assert result.exit_code == 1
    assert result.stdout == (
        "--- train.py\n+++ train.py\n@@ -4,6 +4,7 @@\n def fit(model, loader, optimizer, scaler):\n"
        "     for batch in loader:\n         scaler.scale(model(batch)).backward()\n"
        "+        scaler.unscale_(optimizer)\n"
        "         clip_grad_norm_(model.parameters(), 1.0)  # all of them\n         scaler.step(optimizer)\n"
        "         scaler.update()\n"
    )
    assert result.stderr == "Would fix 1 finding.\n"
    assert path.read_text() == BAD
    assert check("--diff", "--fix").stdout == result.stdout
    assert path.read_text() == BAD


def test_a_diff_without_changes_is_empty_and_exits_with_0() -> None:
    put("train.py", TWICE)
    result = check("--diff")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "Nothing to fix.\n")
    assert check("--diff", "--unsafe-fixes").exit_code == 1
    assert check("--diff", "nowhere.py").exit_code == 2


def test_standard_input_is_fixed_to_standard_output() -> None:
    result = check("--fix", "-", stdin=BAD)
    assert (result.exit_code, result.stdout) == (0, GOOD)
    assert "1 finding fixed." in result.stderr
    result = check("--fix", "-", stdin=TWICE)
    assert (result.exit_code, result.stdout) == (1, TWICE)
    assert "AMP305" in result.stderr
    assert check("--diff", "-", "--stdin-filename", "pkg/a.py", stdin=BAD).stdout.startswith("--- pkg/a.py\n")


def test_json_has_the_edits() -> None:
    put("train.py", BAD)
    (found,) = json.loads(run("--output-format", "json").stdout)
    assert found["fix"] == {
        "applicability": "safe",
        "message": "insert `scaler.unscale_(optimizer)` before the clip",
        "edits": [
            {
                "content": UNSCALE,
                "filename": "train.py",
                "cell": None,
                "location": {"row": 7, "column": 1},
                "end_location": {"row": 7, "column": 1},
            }
        ],
    }
    put("train.py", HEAD + "scaler.unscale_((optimizer)\n")
    (found,) = json.loads(run("--output-format", "json").stdout)
    assert found["fix"] is None


def test_no_fix_is_looked_for_where_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    put("train.py", BAD)

    def never(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(apply, "Workspace", never)
    assert "fixable" not in check().stderr
    put("train.py", GOOD)
    assert run().exit_code == 0


def test_what_is_not_asked_for_is_looked_for_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    put("train.py", BAD)
    monkeypatch.setattr(apply, "MOST_ANALYSES", 0)
    assert "fix:" not in run().stdout
    assert check("--fix").exit_code == 0


def test_only_what_is_selected_is_fixed() -> None:
    path = put("train.py", BAD)
    check("--fix", "--ignore", "AMP101")
    assert path.read_text() == BAD
    text = BAD.replace("# all of them", "# ampclip: ignore[AMP101]")
    assert fixes(text) == text


# --- which files


def test_files_that_are_only_imported_are_never_written() -> None:
    helper = put("helper.py", f"{HEAD}def clip(model):\n    clip_grad_norm_(model.parameters(), 1.0)\n")
    train = put(
        "train.py",
        "from helper import clip\n\n\n"
        + BAD.replace(HEAD, "").replace("clip_grad_norm_(model.parameters(), 1.0)  # all of them", "clip(model)"),
    )
    before = helper.read_bytes()
    check("--fix", "train.py")
    assert helper.read_bytes() == before
    result = check("--fix", ".")
    assert result.exit_code == 0
    assert helper.read_bytes() == before
    assert "scaler.unscale_(optimizer)\n        clip(model)" in train.read_text()


def test_excluded_files_are_never_written() -> None:
    path = put("vendor/train.py", BAD)
    check("--fix", "--extend-exclude", "vendor")
    assert path.read_text() == BAD


def test_a_read_only_file_is_named_and_the_others_are_fixed() -> None:
    locked, free = put("locked.py", BAD), put("free.py", BAD)
    locked.chmod(0o444)
    result = check("--fix")
    assert result.exit_code == 1
    assert "warning: locked.py: not fixed: it is read-only\n" in result.stderr
    assert "1 finding fixed." in result.stderr
    assert (locked.read_text(), free.read_text()) == (BAD, GOOD)


def test_a_file_that_changed_meanwhile_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    path = put("train.py", BAD)
    real = apply.fix_all

    def slow(*arguments: object, **options: object) -> object:
        fixed = real(*arguments, **options)  # type: ignore[arg-type]
        path.write_text("# saved by an editor\n")
        return fixed

    monkeypatch.setattr(apply, "fix_all", slow)
    result = check("--fix")
    assert "warning: train.py: not fixed: it has changed while it was checked\n" in result.stderr
    assert path.read_text() == "# saved by an editor\n"


def test_a_link_stays_one_and_permissions_stay() -> None:
    real = put("real/train.py", BAD)
    real.chmod(0o755)
    link = Path("train.py")
    link.symlink_to(real)
    check("--fix", "train.py")
    assert link.is_symlink()
    assert real.read_text() == GOOD
    assert real.stat().st_mode & 0o777 == 0o755
    assert sorted(os.listdir("real")) == ["train.py"]


# --- bytes


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
def test_line_ends_are_kept(newline: str) -> None:
    path = put("train.py", BAD.replace("\n", newline).encode())
    check("--fix", "train.py")
    assert path.read_bytes() == GOOD.replace("\n", newline).encode()


def test_mixed_line_ends_are_kept_line_by_line() -> None:
    lines = BAD.split("\n")
    mixed = "".join(f"{line}\r\n" if index % 2 else f"{line}\n" for index, line in enumerate(lines[:-1]))
    path = put("train.py", mixed.encode())
    check("--fix", "train.py")
    fixed = path.read_bytes().decode()
    assert fixed.replace("\r\n", "\n") == GOOD
    kept = [line for line in fixed.splitlines(keepends=True) if "unscale_" not in line]
    assert kept == mixed.splitlines(keepends=True)


def test_a_missing_last_newline_stays_missing() -> None:
    text = TWICE.replace("        optimizer.step()\n        scaler.update()\n", "")
    assert fixes(text.rstrip("\n")) == text + "        scaler.update()"


def test_encodings_are_kept() -> None:
    latin = f"# -*- coding: latin-1 -*-\n# é\n{BAD}"
    path = put("train.py", latin.encode("latin-1"))
    check("--fix", "train.py")
    assert path.read_bytes() == f"# -*- coding: latin-1 -*-\n# é\n{GOOD}".encode("latin-1")
    path = put("train.py", b"\xef\xbb\xbf" + BAD.encode())
    check("--fix", "train.py")
    assert path.read_bytes() == b"\xef\xbb\xbf" + GOOD.encode()


def test_form_feeds_and_wide_characters_do_not_move_the_place() -> None:
    text = BAD.replace("def fit", "\f\ndef fit").replace("model(batch)", 'model(batch, "日本 𝔘")')
    assert fixes(text) == text.replace(CLIP, UNSCALE + CLIP)
    one_line = text.replace("backward()\n        clip", 'backward(); print("日本 𝔘"); clip')
    assert fixes(one_line) == one_line.replace("; clip", "; scaler.unscale_(optimizer); clip")


# --- layout


def test_a_suite_behind_its_colon() -> None:
    text = BAD.replace(f"{CLIP}(model.parameters(), 1.0)", "        if True: clip_grad_norm_(model.parameters(), 1.0)")
    assert fixes(text) == text.replace("if True: ", "if True: scaler.unscale_(optimizer); ")


def test_a_fix_reads_no_function_that_it_does_not_concern(monkeypatch: pytest.MonkeyPatch) -> None:
    import libcst

    read: list[str] = []
    parse = libcst.parse_module
    monkeypatch.setattr(libcst, "parse_module", lambda text, *more: read.append(text) or parse(text, *more))
    other = "\n\ndef report{}(values):\n    return sorted(values)\n"
    text = (
        BAD + "".join(map(other.format, range(3))) + '\n\nif __name__ == "__main__":\n    fit(None, [], None, None)\n'
    )
    assert fixes(text) == text.replace(CLIP, UNSCALE + CLIP)
    assert read
    assert not [text for text in read if "def report" in text]


def test_a_function_that_libcst_cannot_take_keeps_no_other_from_being_fixed() -> None:
    deep = f"\n\ndef deep(x):\n    return {'not ' * 1100}x\n\n\ndeep(1)\n"
    assert fixes(BAD + deep) == GOOD + deep


def test_two_fixes_on_one_line() -> None:
    text = f"""\
{HEAD}def fit(model, loader, first, second, scaler):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        scaler.unscale_(first); scaler.unscale_(second)
        first.step(); second.step()
        scaler.update()
"""
    wanted = text.replace("first.step(); second.step()", "scaler.step(first); scaler.step(second)")
    assert fixes(text) == wanted


def test_tabs_and_deep_indents() -> None:
    text = BAD.replace("    ", "\t")
    assert fixes(text) == GOOD.replace("    ", "\t")


def test_a_call_over_several_lines_moves_with_its_comment() -> None:
    text = f"""\
{HEAD}def fit(model, loader, optimizer, scaler):
    for i, batch in enumerate(loader):
        scaler.scale(model(batch) / 4).backward()
        scaler.unscale_(
            optimizer,  # the only one
        )  # for the clip
        if (i + 1) % 4 == 0:
            # clip what was summed
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
"""
    wanted = f"""\
{HEAD}def fit(model, loader, optimizer, scaler):
    for i, batch in enumerate(loader):
        scaler.scale(model(batch) / 4).backward()
        if (i + 1) % 4 == 0:
            # clip what was summed
            scaler.unscale_(
                optimizer,  # the only one
            )  # for the clip
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
"""
    assert fixes(text) == wanted


def test_a_condition_of_the_backward_goes_with_the_fix() -> None:
    text = f"""\
{HEAD}def fit(model, loader, optimizer, scaler, use_amp):
    for batch in loader:
        optimizer.zero_grad()
        if use_amp:
            scaler.scale(model(batch)).backward()
        else:
            model(batch).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        if use_amp:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
"""
    wanted = text.replace(CLIP, "        if use_amp:\n            scaler.unscale_(optimizer)\n" + CLIP)
    assert fixes(text) == wanted


def test_no_name_is_used_that_has_no_value_there() -> None:
    # `clip` knows neither object: the fix stands at the call, where both have names.
    text = f"""\
{HEAD}def clip(model):
    clip_grad_norm_(model.parameters(), 1.0)


def fit(model, loader, optimizer, scaler):
    for batch in loader:
        scaler.scale(model(batch)).backward()
        clip(model)
        scaler.step(optimizer)
        scaler.update()
"""
    assert fixes(text) == text.replace("        clip(model)\n", f"{UNSCALE}        clip(model)\n")


# --- comments that silence nothing


@pytest.mark.parametrize(
    ("comment", "left"),
    [
        ("  # ampclip: ignore[AMP101]", ""),
        ("  # ampclip: ignore[AMP101] was wrong once", ""),
        ("  # ampclip: ignore[AMP101, AMP201]", ""),
        ("  # noqa: AMP101", ""),
        ("  # noqa: AMP101, E501", "  # noqa: E501"),
        ("  # noqa: E501, AMP101", "  # noqa: E501"),
        ("  # noqa: E501,AMP101,F401", "  # noqa: E501,F401"),
        ("  # noqa: AMP101  # type: ignore", "  # type: ignore"),
        ("  # type: ignore  # noqa: AMP101", "  # type: ignore"),
    ],
)
def test_unused_suppressions_are_removed(comment: str, left: str) -> None:
    text = GOOD.replace("  # all of them", "%s")
    assert fixes(text % comment) == text % left


def test_an_unused_suppression_on_a_line_of_its_own_goes_with_the_line() -> None:
    assert fixes(f"# ampclip: ignore-file[AMP201]\n{GOOD}") == GOOD
    assert fixes("x = 1\n# ampclip: ignore-file[AMP201]\n") == "x = 1\n"


def test_a_comment_that_a_fix_makes_idle_is_removed_with_it() -> None:
    text = BAD.replace("        scaler.step", "        # ampclip: ignore[AMP201]\n        scaler.step")
    assert fixes(text) == GOOD


# --- notebooks

CELLS = [
    ["# %% text"],
    ["import torch\n", "%matplotlib inline\n", "from torch.nn.utils import clip_grad_norm_"],
    BAD.partition(HEAD)[2].rstrip("\n").splitlines(keepends=True),
]


def notebook(indent: int | None = 1, *, strings: bool = False, ascii_only: bool = False, end: str = "\n") -> str:
    kinds = ["markdown", "code", "code"]
    cells = [
        {
            "cell_type": kind,
            "metadata": {"z": "é", "a": [1, 2]},
            **({} if kind == "markdown" else {"outputs": [], "execution_count": None}),
            "source": "".join(lines) if strings else lines,
        }
        for kind, lines in zip(kinds, CELLS)
    ]
    whole = {"nbformat_minor": 5, "nbformat": 4, "cells": cells, "metadata": {}}
    return json.dumps(whole, indent=indent, ensure_ascii=ascii_only) + end


@pytest.mark.parametrize("strings", [False, True])
@pytest.mark.parametrize("indent", [1, 4, None])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_only_the_source_of_the_cell_changes(strings: bool, indent: int | None, ascii_only: bool) -> None:
    before = notebook(indent, strings=strings, ascii_only=ascii_only, end="")
    path = put("train.ipynb", before)
    result = check("--fix")
    assert result.exit_code == 0, result.output
    clip = json.dumps(CLIP)[1:-1]
    unscale = UNSCALE.replace("\n", "\\n")
    if strings:
        wanted = before.replace(clip, unscale + clip)
    else:
        between = ", " if indent is None else ",\n" + " " * indent * 4
        wanted = before.replace(f'"{clip}', f'"{unscale}"{between}"{clip}')
    assert path.read_text(encoding="utf-8") == wanted


def test_the_edits_of_a_notebook_are_told_by_cell() -> None:
    put("train.ipynb", notebook())
    (found,) = json.loads(run("--output-format", "json").stdout)
    (edit,) = found["fix"]["edits"]
    assert (edit["cell"], edit["location"]) == (3, {"row": 4, "column": 1})
    assert "+" in check("--diff").stdout


def test_the_last_line_of_a_cell_goes_without_leaving_the_cell() -> None:
    text = json.dumps(
        {
            "cells": [
                {
                    "cell_type": "code",
                    "metadata": {},
                    "source": ["x = 1\n", "y = 2  # noqa: AMP101\n", "# noqa: AMP201"],
                },
                {"cell_type": "code", "metadata": {}, "source": ["scaler.scale(loss).backward()"]},
            ],
            "metadata": {},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
    )
    path = put("a.ipynb", text)
    check("--fix")
    assert path.read_text() == text.replace("  # noqa: AMP101\\n", "").replace(', "# noqa: AMP201"', "")


# --- the parts


def span(row: int, column: int, end_row: int, end_column: int, cell: int | None = None) -> Span:
    return Span("a.py", Position(row, column), Position(end_row, end_column), cell=cell)


def test_edits_are_made_together() -> None:
    edits = [Edit(span(3, 1, 3, 1), "new\n"), Edit(span(1, 1, 2, 1), ""), Edit(span(2, 2, 2, 3), "-")]
    assert with_edits("one\r\nxyz\r\nend", edits) == "x-z\r\nnew\r\nend"
    with pytest.raises(NotEditable, match="overlap"):
        with_edits("abc\n", [Edit(span(1, 1, 1, 3), ""), Edit(span(1, 2, 1, 4), "")])


def test_a_text_that_is_written_in_two_ways_is_refused() -> None:
    data = "# -*- coding: utf-7 -*-\nx = 1  # +AGE-\n".encode("ascii")
    source = decode("a.py", None, data)
    assert isinstance(source, SourceFile)
    with pytest.raises(NotEditable):
        edited(source, data, [Edit(span(2, 5, 2, 6), "2")])


def test_a_notebook_in_an_old_format_is_refused() -> None:
    text = json.dumps(
        {
            "nbformat": 3,
            "nbformat_minor": 0,
            "metadata": {},
            "worksheets": [{"cells": [{"cell_type": "code", "input": "x = 1", "language": "python", "outputs": []}]}],
        }
    ).encode()
    source = read_source("a.ipynb", None, text)
    assert isinstance(source, SourceFile)
    with pytest.raises(NotEditable, match="old format"):
        edited(source, text, [Edit(span(1, 1, 1, 1, cell=1), "y = 2\n")])


LAYOUT = """\
import os


class A:
    def f(self):
        if self.a: x(); y()
        elif self.b:
            z()
        else:
            w(
                1,
            )  # tail
        return (p() if q else r())


@decorated
def g(): s(); t()
"""


def layout() -> tuple[Tree, dict[str, object]]:
    tree = Tree(SourceFile("a.py", None, LAYOUT))
    calls = {call.name: call for row in range(1, 20) for statement in tree.around(row) for call in statement.calls}
    return tree, calls  # type: ignore[return-value]


def test_statements_know_their_guards_and_functions() -> None:
    tree, calls = layout()
    guards = {name: calls[name].statement.block.guard for name in "xyzw"}  # type: ignore[attr-defined]
    assert guards == {"x": "self.a", "y": "self.a", "z": "self.b", "w": None}
    assert (calls["p"].guards, calls["r"].guards) == (("q",), ("not (q)",))  # type: ignore[attr-defined]
    assert [tree.function_at(row) for row in (1, 4, 12, 17)] == ["<module>", "A", "A.f", "g"]


@pytest.mark.parametrize(
    ("name", "before", "after", "removed"),
    [
        ("x", "if self.a: new(); x(); y()\n", "if self.a: x(); new(); y()\n", "if self.a: y()\n"),
        ("y", "if self.a: x(); new(); y()\n", "if self.a: x(); y(); new()\n", "if self.a: x()\n"),
        ("z", "            new()\n            z()\n", "            z()\n            new()\n", "            pass\n"),
        (
            "w",
            "            new()\n            w(\n",
            "            )  # tail\n            new()\n",
            "            pass  # tail",
        ),
        ("t", "def g(): s(); new(); t()\n", "def g(): s(); t(); new()\n", "def g(): s()\n"),
    ],
)
def test_inserting_and_removing(name: str, before: str, after: str, removed: str) -> None:
    tree, calls = layout()
    statement = calls[name].statement  # type: ignore[attr-defined]
    for edit, wanted in (
        (tree.before(statement, ["new()"]), before),
        (tree.after(statement, ["new()"]), after),
        (tree.remove(statement), removed),
    ):
        assert edit is not None
        text = with_edits(LAYOUT, [edit])
        assert wanted in text
        compile(text, "a.py", "exec")


def test_a_compound_statement_has_no_room_behind_a_colon() -> None:
    tree, calls = layout()
    statement = calls["x"].statement  # type: ignore[attr-defined]
    assert tree.before(statement, ["if a:", "    b()"]) is None
    assert tree.after(statement, ["if a:", "    b()"]) is None


# --- the documentation

PAGE = Path(__file__).resolve().parent.parent / "docs" / "fixing.md"
ROWS = {row[0]: row[-1] for row in re.findall(r"^\| (AMP\d{3}) \| (.+) \| (.+) \|$", PAGE.read_text("utf-8"), re.M)}
FIXTURES = sorted((Path(__file__).resolve().parent.parent / "fixtures").glob("*.py"))


def test_the_page_names_every_rule() -> None:
    without = set(re.findall(r"AMP\d{3}", PAGE.read_text("utf-8").rpartition("There is none for")[2]))
    assert ROWS.keys() == {"AMP002", *TABLE}
    assert {rule.code for rule in RULES} == ROWS.keys() | without
    assert not ROWS.keys() & without


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_the_page_says_what_kinds_of_fixes_there_are(path: Path) -> None:
    (code,) = [rule.code for rule in RULES if rule.name.replace("-", "_") == path.stem]
    text = path.read_text("utf-8")
    tree = Tree(SourceFile(path.name, None, text))
    found = lint_source(text, path.name, select=[code])
    assert found
    kinds = {
        candidate.applicability.value
        for finding in found
        for candidate in candidates(Scene(finding, {path.name: tree}.get))
    }
    assert kinds == set(ROWS[code].split(" or ")) if code in ROWS else not kinds


def test_the_example_of_the_page_is_true() -> None:
    program, diff = re.search(
        r"```python\n(.*?)```\n\n```diff\n\$ [^\n]*\n(.*?)```", PAGE.read_text("utf-8"), re.S
    ).groups()  # type: ignore[union-attr]
    put("train.py", program)
    result = check("--diff", "train.py")
    assert result.stdout + result.stderr == diff


def test_a_crash_costs_the_fix_and_not_the_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    put("train.py", BAD)

    def crash(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(Workspace, "fix", crash)
    result = check("--output-format", "full", "train.py")
    assert result.exit_code == 2
    assert "AMP101" in result.stdout
    assert "fix: " not in result.stdout
    assert "internal error in the fix of AMP101: KeyError" in result.stderr
