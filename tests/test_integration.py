"""The GitHub Action, the pre-commit hooks, and what the pages on CI and editors tell others to run: it is run here."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from lupa import lua54

from ampclip_lint.cli import main
from ampclip_lint.report.formats import FORMATS
from console import run

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^<!-- file: (\S+) -->\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = {step["id"]: step for step in ACTION["runs"]["steps"] if "id" in step}
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))

needs_bash = pytest.mark.skipif(sys.platform == "win32" or shutil.which("bash") is None, reason="needs bash")


def files(page: str) -> dict[str, str]:
    """The files that a page shows, by name."""
    return dict(BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8")))


CI, EDITORS = files("ci.md"), files("editors.md")


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """An environment in which `ampclip-lint` is this checkout, and `pip` installs nothing."""
    programs = tmp_path / "programs"
    programs.mkdir()
    script(programs / "ampclip-lint", f'exec {shlex.quote(sys.executable)} -m ampclip_lint "$@"')
    script(programs / "pip", f'[ "$1" = install ] && echo "$@" >> {shlex.quote(str(tmp_path / "installed"))}')
    return {
        "PATH": os.pathsep.join([str(programs), os.path.dirname(sys.executable), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "rules")]),
        "HOME": str(tmp_path),
        "GITHUB_ACTIONS": "true",
        "CI": "true",
    }


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the program of docs/ci.md in it, and with one that is right."""
    folder = tmp_path / "a project"
    (folder / "src" / "right and good").mkdir(parents=True)
    (folder / "scripts").mkdir()
    for name in ("train.py", "src/loop.py", "scripts/train.py"):
        (folder / name).write_text(CI["train.py"])
    right = CI["train.py"].replace("        clip", "        scaler.unscale_(optimizer)\n        clip")
    (folder / "src" / "right and good" / "train.py").write_text(right)
    return folder


def bash(text: str, folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """A script as GitHub's runner runs it."""
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text],
        cwd=folder,
        env={**environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


# --- shapes ----------------------------------------------------------------------------------------------------------


def valid(path: Path, schema: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_the_action_is_valid() -> None:
    valid(ROOT / "action.yml", "vendor.github-actions")


@pytest.mark.parametrize("name", [name for name in CI if name.endswith((".yml", ".yaml")) and "pre-commit" not in name])
def test_the_recipes_are_valid(name: str, tmp_path: Path) -> None:
    path = tmp_path / Path(name).name
    path.write_text(CI[name], encoding="utf-8")
    valid(path, "vendor.gitlab-ci" if "gitlab" in name else "vendor.github-workflows")


def test_what_others_provide_is_pinned_to_a_major_version() -> None:
    uses = [step["uses"] for step in ACTION["runs"]["steps"] if "uses" in step]
    for name, text in CI.items():
        if name.startswith(".github/"):
            (job,) = yaml.safe_load(text)["jobs"].values()
            uses += [step["uses"] for step in job["steps"] if "uses" in step]
    for use in uses:
        assert re.fullmatch(r"(actions/[\w-]+|github/codeql-action/upload-sarif)@v\d+|OWNER/ampclip-lint@v0\.1\.0", use)


def test_the_page_knows_the_action_s_inputs_and_outputs() -> None:
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    for name, put in ACTION["inputs"].items():
        row = re.search(rf"^\| `{name}` \| (.*?) \|", page, re.MULTILINE)
        assert row is not None, name
        assert put["default"] in row[1], name
    assert [name for name in ACTION["outputs"] if f"| `{name}` |" not in page] == []
    given = yaml.safe_load(CI[".github/workflows/ampclip-lint.yml"])["jobs"]["ampclip-lint"]["steps"][-1]["with"]
    assert given.keys() <= ACTION["inputs"].keys()


# --- the action ------------------------------------------------------------------------------------------------------


def test_no_script_of_the_action_has_an_expression_in_it() -> None:
    scripts = [step for step in ACTION["runs"]["steps"] if "run" in step]
    assert scripts
    for step in scripts:
        assert "${{" not in step["run"]
        assert step["shell"] == "bash"


def stepped(step: str, project: Path, shell: Mapping[str, str], **inputs: str) -> tuple[Any, dict[str, str], str]:
    """What a step of the action does with these inputs: the process, its outputs, the summary."""
    runner = project.parent / "runner"
    runner.mkdir(exist_ok=True)
    values = {f"inputs.{name}": put["default"] for name, put in ACTION["inputs"].items()}
    values |= {f"inputs.{name.replace('_', '-')}": value for name, value in inputs.items()}
    values["steps.install.outputs.command"] = "ampclip-lint"
    environment = {
        name: re.sub(r"\$\{\{ (\S+) \}\}", lambda match: values[match[1]], text)
        for name, text in STEPS[step].get("env", {}).items()
    }
    environment |= {
        "RUNNER_TEMP": str(runner),
        "GITHUB_OUTPUT": str(runner / "output"),
        "GITHUB_STEP_SUMMARY": str(runner / "summary"),
        "GITHUB_ACTION_PATH": str(ROOT),
    }
    done = bash(STEPS[step]["run"], project, {**shell, **environment})
    output, summary = (
        (runner / name).read_text(encoding="utf-8") if (runner / name).exists() else ""
        for name in ("output", "summary")
    )
    return done, dict(line.split("=", 1) for line in output.splitlines()), summary


@needs_bash
def test_findings_are_annotated_summed_up_and_written_as_sarif(project: Path, shell: Mapping[str, str]) -> None:
    done, outputs, summary = stepped("check", project, shell)
    assert (done.returncode, outputs["exit-code"]) == (1, "1")
    annotated = re.findall(r"^::error file=(.*?),line=8,", done.stdout, re.MULTILINE)
    assert annotated == ["scripts/train.py", "src/loop.py", "train.py"]
    assert "Found 3 errors (4 files read" in done.stderr
    log = json.loads(Path(outputs["sarif"]).read_text(encoding="utf-8"))
    places = [result["locations"][0]["physicalLocation"] for result in log["runs"][0]["results"]]
    assert [place["artifactLocation"]["uri"] for place in places] == annotated
    assert summary.startswith("### ampclip-lint\n\n    scripts/train.py:8:9: AMP101 ")
    assert len(re.findall(r"^    \S", summary, re.MULTILINE)) == 3


@needs_bash
def test_without_findings_the_action_says_so(project: Path, shell: Mapping[str, str]) -> None:
    done, outputs, summary = stepped("check", project, shell, paths="src/right and good\n\n")
    assert (done.returncode, outputs["exit-code"], done.stdout) == (0, "0", "")
    assert json.loads(Path(outputs["sarif"]).read_text())["runs"][0]["results"] == []
    assert summary == "### ampclip-lint\n\nNo findings.\n"


@needs_bash
def test_inputs_become_arguments(project: Path, shell: Mapping[str, str]) -> None:
    done, outputs, _ = stepped(
        "check", project, shell, paths="src\nscripts/train.py\n", args="--ignore  AMP101\n--verbose\n", fail_on="info"
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert "analysed src/right and good/train.py" in done.stderr
    done, outputs, _ = stepped("check", project, shell, fail_on="never")
    assert (done.returncode, outputs["exit-code"]) == (0, "0")
    assert "::error" in done.stdout


@needs_bash
@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"paths": "gone"}, "gone: no such file"),
        ({"paths": "--version"}, "--version: no such file"),
        ({"args": "--wrong"}, "No such option"),
        ({"fail_on": "sometimes"}, "'sometimes' is not one of"),
    ],
)
def test_what_can_not_be_used_is_exit_code_2(
    project: Path, shell: Mapping[str, str], inputs: dict[str, str], said: str
) -> None:
    done, outputs, summary = stepped("check", project, shell, **inputs)
    assert (done.returncode, outputs["exit-code"]) == (2, "2")
    assert said in done.stderr
    assert "No findings." not in summary


@needs_bash
@pytest.mark.parametrize("name", ["paths", "args", "fail_on"])
@pytest.mark.parametrize("value", ["$(touch owned)", "`touch owned`", "; touch owned", "'; touch owned; '", "*\n?"])
def test_no_input_is_ever_run_or_expanded(project: Path, shell: Mapping[str, str], name: str, value: str) -> None:
    done, _, _ = stepped("check", project, shell, **{name: value})
    assert done.returncode == 2
    assert not (project / "owned").exists()
    assert "train.py: " not in done.stderr


@needs_bash
def test_names_in_the_summary_are_not_taken_for_markdown(project: Path, shell: Mapping[str, str]) -> None:
    (project / "train.py").rename(project / "```<img>.py")
    _, _, summary = stepped("check", project, shell)
    assert "    ```<img>.py:8:9: " in summary


@needs_bash
def test_the_action_installs_into_an_environment_of_its_own(project: Path, shell: Mapping[str, str]) -> None:
    wheel = project.parent / "ampclip_lint-7-py3-none-any.whl"
    information = "ampclip_lint-7.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("stand_in.py", "def main():\n    print('installed')\n")
        archive.writestr(f"{information}/METADATA", "Metadata-Version: 2.1\nName: ampclip-lint\nVersion: 7\n")
        archive.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{information}/entry_points.txt", "[console_scripts]\nampclip-lint = stand_in:main\n")
        archive.writestr(f"{information}/RECORD", "")
    done, outputs, _ = stepped("install", project, shell, package=str(wheel))
    assert done.returncode == 0, done.stderr
    ran = subprocess.run([outputs["command"]], capture_output=True, text=True, check=True)
    assert ran.stdout == "installed\n"


def test_without_a_package_the_action_installs_itself() -> None:
    assert '"${PACKAGE:-$GITHUB_ACTION_PATH}"' in STEPS["install"]["run"]
    assert ACTION["inputs"]["package"]["default"] == ""


# --- hooks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_a_hook_runs_on_the_files_that_it_gets(
    hook: dict[str, Any], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    program, *arguments = shlex.split(hook["entry"])
    assert program == "ampclip-lint"
    assert hook["types_or"] == ["python", "jupyter"]
    assert hook["pass_filenames"] is hook["require_serial"] is True
    result = run(*arguments, "src/loop.py", "src/right and good/train.py")
    assert "2 files read" in result.stderr
    assert run(*arguments, "src/right and good/train.py").exit_code == 0
    (project / "ampclip-lint.toml").write_text('extend-exclude = ["src"]\n')
    assert run(*arguments, "src/loop.py").exit_code == 0


def test_the_hooks_in_the_page_exist() -> None:
    configurations = [yaml.safe_load(text) for name, text in CI.items() if "pre-commit" in name]
    assert configurations
    known = {hook["id"] for hook in HOOKS}
    for configuration in configurations:
        (repository,) = configuration["repos"]
        assert repository.keys() == {"repo", "rev", "hooks"}
        for hook in repository["hooks"]:
            assert hook["id"] in known
            assert hook.keys() <= {"id", "args", "pass_filenames"}


# --- recipes ---------------------------------------------------------------------------------------------------------


def commands(name: str) -> list[str]:
    """The commands that a recipe has a machine run."""
    if name == "Jenkinsfile":
        return re.findall(r"\bsh '(.*?)'$", CI[name], re.MULTILINE)
    recipe = yaml.safe_load(CI[name])
    if "gitlab" in name:
        return list(recipe["ampclip-lint"]["script"])
    return [step["run"] for step in recipe["jobs"]["ampclip-lint"]["steps"] if "run" in step]


@needs_bash
@pytest.mark.parametrize(
    ("name", "report"),
    [
        (".github/workflows/plain.yml", None),
        (".gitlab-ci.yml", "gl-code-quality-report.json"),
        ("Jenkinsfile", "ampclip-lint.xml"),
    ],
)
def test_the_recipes_run(name: str, report: str | None, project: Path, shell: Mapping[str, str]) -> None:
    install, check = commands(name)
    assert bash(install, project, shell).returncode == 0
    assert (project.parent / "installed").read_text() == "install git+https://github.com/OWNER/ampclip-lint@v0.1.0\n"
    done = bash(check, project, shell)
    assert done.returncode == 1
    if report is None:
        assert done.stdout.startswith("::error file=scripts/train.py,line=8,")
    else:
        assert CI[name].count(report) == 2, "what is written is what is collected"
        text = (project / report).read_text()
        assert len(re.findall("AMP101 clip-before-unscale", text)) == 3
        assert done.stdout.startswith("scripts/train.py:8:9: AMP101")


# --- editors ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def buffer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(EDITORS["train.py"])
    return path


def test_the_task_of_vs_code_finds_its_problems(buffer: Path) -> None:
    (task,) = json.loads(EDITORS[".vscode/tasks.json"])["tasks"]
    result = run(*task["args"])
    pattern = task["problemMatcher"]["pattern"]
    found = re.compile(pattern.pop("regexp"), re.ASCII).fullmatch(result.stdout.splitlines()[0])
    assert found is not None
    assert {name: found[index] for name, index in pattern.items()} == {
        "file": "train.py",
        "line": "8",
        "column": "9",
        "code": "AMP101 clip-before-unscale",
        "severity": "error",
        "message": "gradients of `optimizer` are clipped while they carry the loss scale of `scaler`",
    }


def test_the_command_for_language_clients_reads_the_buffer(buffer: Path) -> None:
    tool = yaml.safe_load(EDITORS["efm/config.yaml"])["tools"]["ampclip-lint"]
    _, *arguments = shlex.split(tool["lint-command"].replace("${INPUT}", str(buffer)))
    result = run(*arguments, stdin=EDITORS["train.py"])
    assert (result.exit_code, result.stderr) == (1, "")
    assert re.fullmatch(r"train\.py:8:9: AMP101 .*\n", result.stdout)
    assert tool["lint-formats"] == ["%f:%l:%c: %m"]


VIM = """
local buffer_name, buffer_lines, exists = ...
local lint = { linters = {}, linters_by_ft = {} }
package.loaded.lint = lint
vim = {
  diagnostic = { severity = { ERROR = 1, WARN = 2, INFO = 3 } },
  json = { decode = decode },
  api = {
    nvim_buf_get_name = function() return buffer_name end,
    nvim_buf_get_lines = function(_, from) return { buffer_lines[from + 1] } end,
  },
  fn = {
    fnamemodify = function(name) return cwd .. "/" .. name end,
    byteidxcomp = function(line, index) return (utf8.offset(line, index + 1) or 0) - 1 end,
  },
}
"""


def test_the_linter_for_neovim_tells_what_is_in_the_buffer(buffer: Path) -> None:
    lua = lua54.LuaRuntime(encoding="utf-8")

    def decode(text: str) -> Any:
        return lua.table_from(json.loads(text), recursive=True)

    text = EDITORS["train.py"].replace("model.parameters(), 1.0", 'model.parameters(), {"ä": 1.0}["ä"]')
    text = f"from helpers import clip\n{text}        scaler.scale(model(inputs)).backward()\n        clip(model)\n"
    helper = (
        "from torch.nn.utils import clip_grad_norm_\n\n\ndef clip(model):\n    clip_grad_norm_(model.parameters(), 1)\n"
    )
    Path("helpers.py").write_text(helper)
    lua.globals().decode, lua.globals().cwd = decode, str(buffer.parent)
    lua.execute(VIM, str(buffer), lua.table_from(text.split("\n")))
    lua.execute(EDITORS["ampclip_lint.lua"])
    linter = lua.eval("require('lint').linters.ampclip_lint")
    assert (linter.cmd, linter.stdin, linter.ignore_exitcode) == ("ampclip-lint", True, True)
    result = run(*(item() if callable(item) else item for item in linter.args.values()), stdin=text)
    assert {found["filename"] for found in json.loads(result.stdout)} == {"train.py", "helpers.py"}
    (found,) = linter.parser(result.stdout, 0).values()
    line = text.split("\n")[8].encode()
    assert line[found.col : found.end_col] == 'clip_grad_norm_(model.parameters(), {"ä": 1.0}["ä"])'.encode()
    assert (found.lnum, found.end_lnum, found.severity, found.code) == (8, 8, 1, "AMP101")
    assert len(linter.parser("", 0)) == 0, "nothing is said where the command could not work"


# --- what the protocol for editors promises


def answer(*arguments: str, stdin: str | bytes) -> Any:
    from click.testing import CliRunner

    command = ["check", "--quiet", "--force-exclude", "--output-format", "json", "--stdin-filename", *arguments, "-"]
    result = CliRunner().invoke(main, command, input=stdin)
    assert result.exit_code in (0, 1), result.stderr
    assert result.stdout.isascii()
    return json.loads(result.stdout)


def test_editors_get_an_array_whatever_the_buffer_holds(buffer: Path) -> None:
    text = EDITORS["train.py"]
    assert [found["code"] for found in answer("train.py", stdin=text)] == ["AMP101"]
    assert [found["code"] for found in answer(str(buffer), stdin=text.replace("\n", "\r\n"))] == ["AMP101"]
    assert answer("train.py", stdin="") == []
    assert answer("not/there/yet.py", stdin="x = 1\n") == []
    assert [found["code"] for found in answer("train.py", stdin=text + "scaler.scale((")] == ["AMP001"]
    assert answer("train.py", "--ignore", "AMP001", stdin=text + "scaler.scale((") == []
    latin = f"# -*- coding: latin-1 -*-\ns = 'ä'\n{text}".encode("latin-1")
    assert [found["location"]["row"] for found in answer("train.py", stdin=latin)] == [10]
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": text}]
    notebook = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    assert [(found["cell"], found["location"]["row"]) for found in answer("a.ipynb", stdin=notebook)] == [(1, 8)]
    Path("ampclip-lint.toml").write_text('extend-exclude = ["train.py"]\n')
    assert answer("train.py", stdin=text) == []


def test_files_outside_the_working_directory_have_absolute_names(buffer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (buffer.parent / "elsewhere").mkdir()
    monkeypatch.chdir(buffer.parent / "elsewhere")
    (found,) = answer(str(buffer), stdin=EDITORS["train.py"])
    assert found["filename"] == buffer.as_posix()


# --- every command of every page -------------------------------------------------------------------------------------

NOT_RUN = {
    "pip install . && ampclip-lint check fixtures": "installs; the check is that of the tests of fixtures",
    'pip install -e ".[test]" && pytest': "installs, and runs these tests",
    'pip install -e ".[dev]"': "installs",
    "pytest": "runs these tests",
    "pytest tests/test_fixtures_static.py tests/test_fixtures_torch.py -k some_name": "the name is to be filled in",
    "ruff check && ruff format --check && mypy": "is run before every commit",
    "python docs/build_rules.py": "run with --check by test_rule_docs.py",
    "python docs/build_pages.py": "run with --check by test_docs.py",
    "python docs/build_evidence.py": "run with --check by test_fixtures_torch.py",
    "python docs/build_corpus.py": "run with --check by test_corpus.py",
    "python benchmarks/random_programs.py --programs 2000": "takes long; the tests run it on fewer",
    "python benchmarks/fuzz.py": "takes long; the tests share its generators",
    "python benchmarks/corpus.py": "downloads releases",
    "pip install x": "a line of a notebook",
    "python -m ampclip_lint": "run by the test of the module",
    "ruff format": "the name of a formatter",
    "python benchmarks/speed.py --write": "takes long, and downloads peers and releases",
    "python benchmarks/growth.py --write": "takes long; the tests count the worlds of small ones",
    "python benchmarks/speed.py --equal DIR": "takes long, on a folder of one's own",
    "python docs/build_speed.py": "run with --check by test_benchmark_speed.py",
    "python rules/new_rule.py AMP107 clip-before-backward": "run in a copy by test_new_rule.py",
    "python rules/new_rule.py AMP199 some-name": "run in a copy by test_new_rule.py",
}
PROGRAMS = "ampclip-lint|pip|pytest|python|ruff|pre-commit|git"


def shown() -> Iterator[tuple[str, str]]:
    """(page, command) for each command that a reader may type which no session has."""
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]):
        text = path.read_text(encoding="utf-8")
        prose = re.sub(r"^(`{3,}).*?^\1$|^<!-- generated: .*?^<!-- end -->$", "", text, flags=re.MULTILINE | re.DOTALL)
        if path.name == "performance.md":  # its tables are what benchmarks/speed.py has measured
            prose = re.sub(r"^\|.*$", "", prose, flags=re.MULTILINE)
        for match in re.finditer(rf"^    ((?:{PROGRAMS}) .*)$|`((?:{PROGRAMS}) [^`]*|pytest)`", prose, re.MULTILINE):
            yield path.relative_to(ROOT).as_posix(), (match[1] or match[2]).replace("\n", " ")


#: What stands for something in a command, and an example of it.
PLACEHOLDERS = {"FILE[::FUNC]": "train.py", "FILE::FUNC": "train.py::train", "FILE": "train.py", "CODE": "AMP101"}


def test_every_command_in_prose_is_run_or_known(buffer: Path) -> None:
    (buffer.parent / "src").mkdir()
    ran = 0
    for page, command in shown():
        if command in NOT_RUN:
            continue
        # Usage has its explanation behind it.
        words = shlex.split(re.split(r" {2,}", command)[0])
        assert words[0] == "ampclip-lint", (page, command)
        if len(words) == 2 and words[1] in main.commands:
            continue  # it is spoken of
        words = [PLACEHOLDERS.get(word, word) for word in words[1:] if not re.fullmatch(r"\[PATHS?(\.\.\.)?\]", word)]
        result = run(*words, stdin=EDITORS["train.py"])
        assert result.exit_code in (0, 1), (page, command, result.output)
        ran += 1
    assert ran > 10


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ampclip_lint", "--version"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "rules")])},
        check=True,
    )
    assert done.stdout == run("--version").stdout


def test_what_is_not_run_is_still_shown() -> None:
    commands = {command for _, command in shown()}
    assert set(NOT_RUN) <= commands, set(NOT_RUN) - commands


def test_the_formats_in_the_page_are_formats() -> None:
    for name, text in {**CI, **EDITORS}.items():
        for found in re.findall(r"--(?:output-format|report)[ =]\"?(\w+)", text):
            assert found in FORMATS, name
