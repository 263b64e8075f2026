"""Notebooks as users meet them: what is read, what is skipped, and where a finding is said to stand."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
import pytest
from click.testing import CliRunner, Result
from nbformat import v4

from ampclip_lint.cli import main
from ampclip_lint.diagnostics import Position, Span
from ampclip_lint.syntax.notebook import read_source
from ampclip_lint.syntax.source import FileProblem, SourceFile
from test_cli import imported_by

SETUP = """\
import torch
from torch.cuda.amp import GradScaler
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = GradScaler()"""
BACKWARD = """\
optimizer.zero_grad()
loss = model(torch.ones(2)).sum()
scaler.scale(loss).backward()"""
CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
STEP = "scaler.step(optimizer)\nscaler.update()"
TRAIN = f"""\
def train(model, loader, optimizer, scaler, loss_fn):
    for x, y in loader:
        optimizer.zero_grad()
        scaler.scale(loss_fn(model(x), y)).backward()
        {CLIP}
        scaler.step(optimizer)
        scaler.update()"""
MESSAGE = "gradients of `optimizer` are clipped while they carry the loss scale of `scaler`"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    result = CliRunner().invoke(main, list(arguments), input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def check(*arguments: str, stdin: str | bytes | None = None) -> Result:
    return run("check", "--output-format", "concise", *arguments, stdin=stdin)


def notebook(*cells: str | dict[str, Any], metadata: dict[str, Any] | None = None) -> str:
    """A notebook of code cells; what is no text is a cell of its own kind."""
    made = [v4.new_code_cell(cell) if isinstance(cell, str) else cell for cell in cells]
    return nbformat.writes(v4.new_notebook(cells=made, metadata=metadata or {}))


def write(name: str, *cells: str | dict[str, Any], metadata: dict[str, Any] | None = None) -> None:
    put(name, notebook(*cells, metadata=metadata))


def put(name: str, text: str | bytes) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def places(result: Result) -> list[str]:
    """Place and code of each finding of a concise report."""
    return [" ".join(line.split()[: 3 if ":cell " in line else 2]) for line in result.stdout.splitlines()]


def program(*cells: str | dict[str, Any], metadata: dict[str, Any] | None = None) -> str:
    found = read_source("nb.ipynb", None, notebook(*cells, metadata=metadata).encode())
    assert isinstance(found, SourceFile)
    return found.text


# --- where findings are said to stand


def test_cells_are_one_program_and_findings_name_cell_and_row() -> None:
    write("nb.ipynb", v4.new_markdown_cell("# Title\n\ntext"), SETUP, BACKWARD, f"print(loss)\n{CLIP}", STEP)
    result = check("nb.ipynb")
    assert result.exit_code == 1
    assert result.stdout == f"nb.ipynb:cell 4:2:1: AMP101 clip-before-unscale [error] {MESSAGE}\n"
    assert result.stderr == "Found 1 error (1 file read, 1 analysed).\n"


def test_the_frame_is_cut_from_the_cell_and_steps_in_other_cells_name_theirs() -> None:
    write("nb.ipynb", SETUP, BACKWARD, f"{CLIP}\n{STEP}")
    lines = run("check", "nb.ipynb").stdout.splitlines()
    assert lines[0] == f"nb.ipynb:cell 3:1:1: AMP101 clip-before-unscale [error] {MESSAGE}"
    assert lines[1:6] == ["  |", f"1 | {CLIP}", f"  | {'^' * len(CLIP)}", "2 | scaler.step(optimizer)", "  |"]
    steps = [re.sub(r" +", " ", line).strip() for line in lines[6:9]]
    assert steps == [
        f"= path: cell 2:1 | optimizer.zero_grad(){' '}gradients are cleared, no gradients",
        "cell 2:3 | scaler.scale(loss).backward() backward adds scaled gradients, unit S",
        f"1 | {CLIP} gradients are clipped by norm, unit S",
    ]


def test_the_frame_does_not_reach_into_the_next_cell() -> None:
    write("nb.ipynb", SETUP, BACKWARD, CLIP, STEP)
    lines = run("check", "nb.ipynb").stdout.splitlines()
    assert lines[1:5] == ["  |", f"1 | {CLIP}", f"  | {'^' * len(CLIP)}", "  |"]


def test_json_has_the_cell_of_the_finding_and_of_each_step() -> None:
    write("nb.ipynb", SETUP, BACKWARD, f"\n{CLIP}", STEP)
    put("train.py", TRAIN)
    script, cells = sorted(json.loads(run("check", "--output-format", "json").stdout), key=lambda f: f["cell"] or 0)
    assert (cells["filename"], cells["cell"], cells["location"]) == ("nb.ipynb", 3, {"row": 2, "column": 1})
    assert cells["end_location"] == {"row": 2, "column": len(CLIP) + 1}
    assert [(step["cell"], step["location"]["row"]) for step in cells["trace"]] == [(2, 1), (2, 3), (3, 2)]
    assert (script["filename"], script["cell"], script["location"]["row"]) == ("train.py", None, 5)
    assert {step["cell"] for step in script["trace"]} == {None}


def test_the_fingerprint_does_not_change_when_cells_are_added() -> None:
    def fingerprints() -> list[str]:
        return [found["fingerprint"] for found in json.loads(run("check", "--output-format", "json").stdout)]

    write("nb.ipynb", SETUP, BACKWARD, CLIP, STEP)
    before = fingerprints()
    write("nb.ipynb", v4.new_markdown_cell("new"), "import os", SETUP, BACKWARD, f"\n{CLIP}", STEP)
    assert fingerprints() == before
    assert len(before) == 1


def test_findings_come_in_the_order_of_the_cells() -> None:
    others = [TRAIN.replace("train", f"train{index}") for index in range(10)]
    write("nb.ipynb", *others)
    assert places(check("nb.ipynb")) == [f"nb.ipynb:cell {index}:5:9: AMP101" for index in range(1, 11)]


def test_columns_count_characters() -> None:
    write("nb.ipynb", SETUP, BACKWARD, f"größe = 'ä'; {CLIP}", STEP)
    assert places(check("nb.ipynb")) == ["nb.ipynb:cell 3:1:14: AMP101"]


def test_rows_of_a_text() -> None:
    file = read_source("nb.ipynb", None, notebook("a\nb\n", v4.new_markdown_cell("x"), "", "c").encode())
    assert isinstance(file, SourceFile)
    assert file.text == "a\nb\n\n\nc\n"
    assert [file.where(row) for row in range(1, 6)] == ["cell 1:1", "cell 1:2", "cell 1:3", "cell 3:1", "cell 4:1"]
    assert file.where(6) == "cell 4:2"
    shown = file.shown(Span("nb.ipynb", Position(2, 1), Position(2, 2), "f"))
    assert shown == Span("nb.ipynb", Position(2, 1), Position(2, 2), "f", 1)
    assert (file.part(1), file.part(4), file.line(5)) == (("a", "b", ""), ("c",), "c")
    plain = SourceFile("a.py", None, "a\nb\n")
    assert plain.where(2) == "2"
    assert plain.part(None) == ("a", "b", "")


# --- which files


def test_notebooks_below_a_folder_are_read_and_checkpoints_are_not() -> None:
    write("work/nb.ipynb", TRAIN)
    write("work/.ipynb_checkpoints/nb-checkpoint.ipynb", TRAIN)
    put("work/a.py", TRAIN)
    expected = ["work/a.py:5:9: AMP101", "work/nb.ipynb:cell 1:5:9: AMP101"]
    assert places(check("work")) == expected
    assert places(check()) == expected
    assert run("check", "--show-files").stdout == "work/a.py\nwork/nb.ipynb\n"


def test_a_notebook_on_standard_input() -> None:
    text = notebook(SETUP, BACKWARD, CLIP, STEP)
    result = check("--stdin-filename", "sub/nb.ipynb", "-", stdin=text)
    assert places(result) == ["sub/nb.ipynb:cell 3:1:1: AMP101"]


@pytest.mark.parametrize("statement", ["from helpers import clip", "from .helpers import clip", "import helpers"])
@pytest.mark.parametrize("twin", [False, True])
def test_imports_from_a_notebook_find_the_files_beside_it(statement: str, twin: bool) -> None:
    call = "helpers.clip(model)" if statement == "import helpers" else "clip(model)"
    put("work/helpers.py", f"import torch\n\ndef clip(model):\n    {CLIP}\n")
    write("work/nb.ipynb", f"{statement}\n{SETUP}", BACKWARD, call, STEP)
    if twin:  # a notebook is no module: it does not hide the file of the same name
        write("work/helpers.ipynb", "from torch.cuda.amp import GradScaler\nscaler = GradScaler()")
    for arguments in (("work",), ()):
        result = run("check", *arguments)
        assert result.stdout.startswith("work/helpers.py:4:5: AMP101")
        assert re.search(r"work/nb\.ipynb:cell 2:3 \| scaler\.scale\(loss\)\.backward\(\)", result.stdout)


def test_notebooks_in_other_languages_are_skipped_without_a_word() -> None:
    for name, metadata in (
        ("a.ipynb", {"language_info": {"name": "R"}}),
        ("b.ipynb", {"kernelspec": {"name": "ir", "display_name": "R", "language": "julia"}}),
    ):
        write(name, "scaler.unscale_(x) <- function( {", metadata=metadata)
    result = check("--verbose")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "No findings (2 files read, 0 analysed).\n0 findings suppressed by comments.\n"


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"language_info": {"name": "python", "version": "3.11"}},
        {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        {"kernelspec": {"name": "x", "display_name": "My kernel"}},
    ],
)
def test_notebooks_in_python_and_of_an_unknown_kernel_are_read(metadata: dict[str, Any]) -> None:
    write("nb.ipynb", TRAIN, metadata=metadata)
    assert places(check()) == ["nb.ipynb:cell 1:5:9: AMP101"]


def test_cells_that_are_no_code_or_no_python_count_and_are_skipped() -> None:
    other = v4.new_code_cell("SELECT clip FROM scaler", metadata={"vscode": {"languageId": "sql"}})
    write("nb.ipynb", v4.new_markdown_cell("scaler.step("), v4.new_raw_cell("if ("), other, TRAIN)
    assert places(check()) == ["nb.ipynb:cell 4:5:9: AMP101"]


def test_outputs_are_ignored() -> None:
    output = v4.new_output("stream", text=f"{TRAIN}\n# ampclip: ignore[AMP101]\n")
    write("nb.ipynb", v4.new_code_cell("import torch", outputs=[output]))
    result = check("--verbose")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "(1 file read, 0 analysed)" in result.stderr


def test_an_output_that_is_against_the_format_does_not_hide_the_code() -> None:
    output = {"x" * 1000: [None] * 100_000}
    lines = TRAIN.splitlines(keepends=True)
    cell = {"cell_type": "code", "metadata": {}, "source": lines, "outputs": [output]}
    put("nb.ipynb", json.dumps({"nbformat": 4, "metadata": {}, "cells": [cell]}))
    result = check()
    assert places(result) == ["nb.ipynb:cell 1:5:9: AMP101"]
    assert result.stderr == "Found 1 error (1 file read, 1 analysed).\n"


def test_an_old_notebook_is_converted() -> None:
    from nbformat import v3

    sheet = v3.new_worksheet(cells=[v3.new_text_cell("markdown", "x"), v3.new_code_cell(TRAIN)])
    put("nb.ipynb", nbformat.writes(v3.new_notebook(worksheets=[sheet]), version=3))
    assert places(check()) == ["nb.ipynb:cell 2:5:9: AMP101"]


def test_line_ends_in_cells_and_a_byte_order_mark() -> None:
    text = notebook(SETUP, BACKWARD.replace("\n", "\r\n"), f"x = 1\r\n{CLIP}", STEP)
    put("nb.ipynb", b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert places(check()) == ["nb.ipynb:cell 3:2:1: AMP101"]


# --- magics


@pytest.mark.parametrize(
    ("line", "python"),
    [
        ("%matplotlib inline", "pass"),
        ("    %autoreload 2", "    pass"),
        ("\t!nvidia-smi", "\tpass"),
        ("!pip install 'torch", "pass"),
        ("!!ls", "pass"),
        ("?model", "pass"),
        ("??model.fit", "pass"),
        ("model?", "pass"),
        ("model.fit??", "pass"),
        ("%timeit?", "pass"),
        ("*int*?", "pass"),
        ("layers[0]?;", "pass"),
        ("pip install -q torch", "pass"),
        ("cd ..", "pass"),
        ("load_ext autoreload", "pass"),
        ("files = !ls *.py", "files = get_ipython()"),
        ("a, b = %sql select 1", "a, b = get_ipython()"),
        ("cfg.x[0] =!ls", "cfg.x[0] = get_ipython()"),
        ("%time f(x)", "0    ;f(x)"),
        ("  %timeit -n 10 -r3 -q y = f(x)  # why", f"  {'0':<20};y = f(x)  # why"),
        ("%time", "pass"),
        ("%time for x in", "pass"),
        ("%run train.py", "pass"),
    ],
)
def test_lines_that_only_a_notebook_understands(line: str, python: str) -> None:
    assert program(line) == f"{python}\n"


@pytest.mark.parametrize(
    "cell",
    [
        "x = (a\n     % b)",
        "x = a \\\n    % b",
        "x = [\n%b\n]",
        'text = """\n%time\n!ls\nwhat?\n"""',
        "text = '''it\\'s ''' + \"'''\"\ny = 1",
        "f(  # a bracket ( in a comment\n  x\n)\ny = 2",
        "x = 'what?'  # really?",
        "# why?",
        "y = x != z",
        "y = x % z",
        "y %= z",
        "x = '(' + \"[\"\ny = 1",
        "cat = 1\nls = cat - 1\nrun (1)\npip [0]\nrm -1",
        "x;",
        "print(f'{x!r:>{width}}')",
    ],
)
def test_what_is_python_stays(cell: str) -> None:
    assert program(cell) == f"{cell}\n"
    # And what looks the same at the start of a statement is a magic again.
    assert program(f"{cell}\n%time") == f"{cell}\npass\n"


def test_a_command_that_goes_on_takes_its_lines_with_it() -> None:
    assert program("!pip install \\\n  torch \\\n  numpy\nx = 1") == "pass\n\n\nx = 1\n"
    assert program("out = !ls \\\n  -l\nx = 1") == "out = get_ipython()\n\nx = 1\n"
    assert program("%time f(x) \\\n  + 1\nx = 1") == "pass\n\nx = 1\n"


@pytest.mark.parametrize(
    "magic", ["%%bash", "%%html", "%%writefile train.py", "%%javascript", "%%sql x", "%%!", "%%sh"]
)
def test_cells_that_are_not_for_this_namespace_are_left_out(magic: str) -> None:
    assert program("a", f"{magic}\nscaler.step(", "b") == "a\nb\n"
    assert program(f"\n# a comment\n{magic}\nscaler.step(", "b") == "b\n"
    assert program(f"%%time\n{magic}\nscaler.step(", "b") == "b\n"


@pytest.mark.parametrize("magic", ["%%time", "%%timeit -n 1", "%%capture out", "%%prun", " %%time"])
def test_cells_that_are_measured_keep_their_body(magic: str) -> None:
    assert program(f"{magic}\nx = 1\n%%bash") == "pass\nx = 1\npass\n"
    write("nb.ipynb", SETUP, BACKWARD, f"{magic}\n{CLIP}", STEP)
    assert places(check()) == ["nb.ipynb:cell 3:2:1: AMP101"]


def test_a_measured_statement_is_checked_and_shown_as_it_is_written() -> None:
    write("nb.ipynb", SETUP, BACKWARD, f"%time {CLIP}", STEP)
    lines = run("check", "nb.ipynb").stdout.splitlines()
    assert lines[0].startswith("nb.ipynb:cell 3:1:7: AMP101 ")
    assert lines[2:4] == [f"1 | %time {CLIP}", f"  |       {'^' * len(CLIP)}"]


def test_magics_semicolons_and_await_do_not_stop_the_run() -> None:
    write(
        "nb.ipynb",
        "%load_ext autoreload\n!pip install torch",
        f"{SETUP};",
        "await fetch()\nasync with session as s:\n    s\nasync for x in y: pass\nmodel?",
        "%%bash\nif [ x ]; then",
        BACKWARD,
        f"if True:\n    !ls\n    {CLIP};\nfiles = !ls",
        STEP,
    )
    assert places(check()) == ["nb.ipynb:cell 6:3:5: AMP101"]


# --- suppressions


@pytest.mark.parametrize("comment", ["# ampclip: ignore[AMP101] S is 1", "# noqa: AMP101"])
def test_comments_silence_their_line_of_their_cell(comment: str) -> None:
    write("nb.ipynb", TRAIN.replace("1.0)", f"1.0)  {comment}"), TRAIN.replace("train", "other"))
    result = check("--verbose")
    assert places(result) == ["nb.ipynb:cell 2:5:9: AMP101"]
    assert "1 finding suppressed by comments." in result.stderr
    write("nb.ipynb", SETUP, BACKWARD, f"%time {CLIP}  {comment}", STEP)
    assert places(check()) == []


def test_a_comment_for_the_file_may_stand_in_any_cell() -> None:
    write("nb.ipynb", TRAIN, "# ampclip: ignore-file[AMP101]", TRAIN.replace("train", "other"))
    assert (check().exit_code, places(check())) == (0, [])


def test_unused_suppressions_name_their_cell() -> None:
    write("nb.ipynb", TRAIN, "x = 1\ny = 2  # ampclip: ignore[AMP101]\n")
    write("plain.ipynb", v4.new_markdown_cell("a"), "\nx = 1  # noqa: AMP102")
    assert places(check()) == [
        "nb.ipynb:cell 1:5:9: AMP101",
        "nb.ipynb:cell 2:2:26: AMP002",
        "plain.ipynb:cell 2:2:16: AMP002",
    ]
    assert "2 | y = 2  # ampclip: ignore[AMP101]\n" in run("check").stdout


def test_a_suppression_without_a_code_is_named_with_its_cell() -> None:
    write("nb.ipynb", "import torch", TRAIN.replace("1.0)", "1.0)  # ampclip: ignore"))
    result = check()
    assert places(result) == ["nb.ipynb:cell 2:5:9: AMP101"]
    assert "warning: nb.ipynb:cell 2:5: `ampclip: ignore` needs a code" in result.stderr


# --- what is broken


@pytest.mark.parametrize(
    ("cells", "place"),
    [
        ((SETUP, "x = 1\nscaler.unscale_((optimizer)", "y = 1"), "cell 2:2:16"),
        ((SETUP, v4.new_markdown_cell("x"), "for x in y:\n    # nothing", "z = 1"), "cell 3:2:"),
        ((SETUP, 'text = """\nabc', "z = 1"), "cell 2:1:8"),
        ((SETUP, "  %time x\n!(", "x = = 1"), "cell 2:"),
    ],
)
def test_a_syntax_error_names_the_cell_that_is_at_fault(cells: Sequence[str | dict[str, Any]], place: str) -> None:
    write("nb.ipynb", *cells)
    put("train.py", TRAIN)
    result = check()
    assert len(result.stdout.splitlines()) == 2
    assert result.stdout.startswith(f"nb.ipynb:{place}")
    assert " AMP001 syntax-error " in result.stdout
    assert "train.py:5:9: AMP101" in result.stdout


def test_rows_in_the_message_of_a_syntax_error_are_rows_of_the_cell() -> None:
    write("nb.ipynb", SETUP, "x = 1\nf(\n]")
    assert "does not match opening parenthesis '(' on line 2" in check().stdout
    assert "nb.ipynb: not valid Python: closing parenthesis ']'" in run("trace", "nb.ipynb").stderr
    assert "on line 2 (cell 2:3)" in run("trace", "nb.ipynb").stderr


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"scaler = GradScaler()\n", "not a notebook: not JSON (line 1: expecting value)"),
        (b'{"nbformat": 4,\n "GradScaler": \n', "not a notebook: not JSON (line 3: expecting value)"),
        (b'{"GradScaler": 1}', "not a notebook: no `nbformat` in it"),
        (b'["GradScaler"]', "not a notebook: no `nbformat` in it"),
        (b'{"cells": [], "GradScaler": 1}', "not a notebook: no `nbformat` in it"),
        (
            b'{"nbformat": 4, "GradScaler": 1}',
            "not a valid notebook: The notebook is invalid and is missing an expected",
        ),
        (b'{"nbformat": 9, "GradScaler": 1}', "not a valid notebook: Unsupported nbformat version 9"),
        (b'{"nbformat": [], "GradScaler": 1}', "not a valid notebook: "),
        (b'{"nbformat": 4, "metadata": {}, "cells": ["GradScaler"]}', "not a valid notebook: "),
        (
            b'{"nbformat": 4, "metadata": {}, "cells": [{"metadata": {}}], "": "GradScaler"}',
            "cell 1 has no `cell_type`",
        ),
        (
            b'{"nbformat": 4, "metadata": {}, "cells": [{"cell_type": "code", "metadata": {}}], "": "GradScaler"}',
            "cell 1 has no `source`",
        ),
        (b'{"nbformat": 3, "GradScaler": 1}', "not a valid notebook: "),
        (b"[" * 100_000 + b'"GradScaler"', "not a notebook: nested too deeply"),
        (b'{"nbformat": 4, "GradScaler": "\xe9"}', "not valid utf-8 at byte 31"),
        (b"\xff\xfe{\0", "not valid utf-8 at byte 0 (it looks like utf-16)"),
        (notebook("x = 'GradScaler\0'").encode(), "null byte in cell 1: not Python source"),
    ],
)
def test_broken_notebooks_are_named_once_and_the_run_goes_on(content: bytes, reason: str) -> None:
    put("broken.ipynb", content)
    put("train.py", TRAIN)
    result = check()
    assert (result.exit_code, places(result)) == (1, ["train.py:5:9: AMP101"])
    assert result.stderr.count("broken.ipynb") == 1
    assert f"warning: broken.ipynb: {reason}" in result.stderr or f"not a valid notebook: {reason}" in result.stderr
    assert run("trace", "broken.ipynb").stderr.startswith("error: broken.ipynb: not ") or "null" in reason
    assert result.stderr.endswith("Found 1 error (2 files read, 1 analysed).\n")


def test_a_broken_notebook_without_a_scaler_is_nobody_s_business() -> None:
    put("broken.ipynb", b"{clip")
    put("empty.ipynb", b"")
    assert (check().exit_code, check().stdout, check().stderr) == (0, "", "No findings (2 files read, 0 analysed).\n")


def test_half_a_surrogate_pair_does_no_harm() -> None:
    text = notebook(SETUP, BACKWARD, f"x = 'SURROGATE'; {CLIP}", STEP).replace("SURROGATE", "\\ud800")
    put("nb.ipynb", text)
    assert places(check()) == ["nb.ipynb:cell 3:1:10: AMP101"]


def test_nbformat_has_nothing_to_say(caplog: pytest.LogCaptureFixture) -> None:
    cell = {"cell_type": "code", "source": TRAIN, "metadata": {}, "outputs": [], "execution_count": None}
    for name, made in (
        ("no_ids", {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}),
        ("same_ids", {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{**cell, "id": "a"}] * 2}),
        (
            "old",
            {
                "nbformat": 3,
                "nbformat_minor": 0,
                "metadata": {},
                "worksheets": [{"cells": [{"cell_type": "code", "input": TRAIN, "outputs": [], "new": 1}]}],
            },
        ),
    ):
        put(f"{name}.ipynb", json.dumps(made))
    with warnings.catch_warnings(), caplog.at_level(logging.CRITICAL + 1):
        warnings.simplefilter("error")
        result = check()
    assert len(places(result)) == 4
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", PROGRAM, "."], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


PROGRAM = f"""\
import sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from ampclip_lint.syntax.notebook import read_source
for path in Path(sys.argv[1]).glob("*.ipynb"):
    assert read_source(path.name, path, path.read_bytes()).cells
"""


def test_a_problem_has_the_name_of_the_file() -> None:
    assert read_source("nb.ipynb", None, b"x") == FileProblem(
        "nb.ipynb", "not a notebook: not JSON (line 1: expecting value)"
    )
    found = read_source("nb.py", None, b"x")
    assert isinstance(found, SourceFile)
    assert (found.text, found.cells) == ("x", ())


# --- the other commands


def test_trace_and_graph_show_cells() -> None:
    write("nb.ipynb", SETUP, BACKWARD, CLIP, STEP, TRAIN)
    text = run("trace", "nb.ipynb").stdout
    assert text.startswith("<module> (nb.ipynb:cell 1:1): scaler `scaler`, optimizer `optimizer`\n")
    assert re.search(r"^  cell 3:1 \| torch\.nn\.utils\.clip_grad_norm_.*: S$", text, re.MULTILINE)
    assert re.search(r"^  cell 4:1 \| scaler\.step\(optimizer\) ", text, re.MULTILINE)
    assert run("trace", "nb.ipynb::train").stdout.startswith("train (nb.ipynb:cell 5:1): ")
    assert "nb.ipynb:cell 5:5  gradients are clipped by norm" in run("graph", "nb.ipynb::train").stdout


# --- what is imported


def test_only_a_notebook_that_can_matter_loads_nbformat() -> None:
    write("plain.ipynb", "x = 1")
    write("helper.ipynb", "import torch\ntorch.nn.utils.clip_grad_norm_(p, 1)")
    put("plain.py", "x = 1\n")
    assert "nbformat" not in imported_by("check", ".")
    write("nb.ipynb", SETUP)
    assert "nbformat" in imported_by("check", "nb.ipynb")
