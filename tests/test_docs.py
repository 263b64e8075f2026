"""The pages beside those of the rules: generated parts are fresh, links lead somewhere, names are real ones."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

from ampclip_lint.cli import main
from ampclip_lint.lint.config import KEYS, parse_config
from ampclip_lint.lint.registry import validate
from ampclip_lint.report.formats import FORMATS
from ampclip_rules import RULES

ROOT = Path(__file__).resolve().parent.parent
RUN = [
    "README.md",
    "docs/api.md",
    "docs/ci.md",
    "docs/configuration.md",
    "docs/contributing-a-rule.md",
    "docs/editors.md",
    "docs/fixing.md",
    "docs/output.md",
    "docs/quickstart.md",
    "docs/suppressing.md",
]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_pages", ROOT / "docs" / "build_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["build_pages"] = module  # dataclasses look a class's module up there
    spec.loader.exec_module(module)
    return module


build = script()
sessions = sys.modules["sessions"]  # as build_pages has it
TRANSITIONS = build.automaton()


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


# --- generated parts -------------------------------------------------------------------------------------------------


def test_pages_are_fresh() -> None:
    assert build.stale(ROOT, build.pages()) == [], "run `python docs/build_pages.py`"


def test_stale_and_missing_pages_are_found(tmp_path: Path) -> None:
    (tmp_path / "same.md").write_text("s")
    (tmp_path / "old.md").write_text("o")
    assert build.stale(tmp_path, {"same.md": "s", "old.md": "n", "gone.md": ""}) == ["gone.md", "old.md"]


def test_only_the_blocks_of_a_page_are_rewritten() -> None:
    page = "a\n<!-- generated: one -->\nold\n<!-- end -->\nb\n"
    assert build.filled(page, {"one": lambda: ["new"]}) == page.replace("old", "\nnew\n")
    with pytest.raises(SystemExit, match="one"):
        build.filled(page, {})


def test_known_misjudgements_are_told_by_rule_and_direction(tmp_path: Path) -> None:
    assert list(build.known(tmp_path)) == ["At present there is none."]
    (tmp_path / "double_step.py").write_text(
        "def fn_bad_b():\n    # Nobody looks\n    # there.\n    pass\n\n\n"
        "def fp_ok_a():\n    # Too eager.\n    step()  # expect: AMP301\n\n\ndef ok_c():\n    # Fine.\n    pass\n"
    )
    (tmp_path / "clip_after_step.py").write_text("def fn_bad_d():\n    pass  # Dead code.\n")
    place = "in [fixtures/double_step.py](../fixtures/double_step.py)"
    assert [line for line in build.known(tmp_path) if line] == [
        "### [AMP103 clip-after-step](rules/clip-after-step.md): wrong, but not reported\n",
        "- `fn_bad_d` in [fixtures/clip_after_step.py](../fixtures/clip_after_step.py): Dead code.",
        "### [AMP305 double-step](rules/double-step.md): reported, but right\n",
        f"- `fp_ok_a` (AMP301) {place}: Too eager.",
        "### [AMP305 double-step](rules/double-step.md): wrong, but not reported\n",
        f"- `fn_bad_b` {place}: Nobody looks there.",
    ]


def test_known_misjudgements_of_several_files_are_told_by_direction(tmp_path: Path) -> None:
    for name in ("fp_ok_a", "fn_bad_b", "bad_c"):
        (tmp_path / "programs" / name / "utils").mkdir(parents=True)
        (tmp_path / "programs" / name / "train.py").write_text(
            "# Why it is done.\n# known: Nobody looks there.\nstep()\n"
        )
    (tmp_path / "programs" / "fp_ok_a" / "utils" / "grad.py").write_text("clip()  # expect: AMP101, AMP202\n")
    place = "[fixtures/programs/fp_ok_a](../fixtures/programs/fp_ok_a)"
    assert [line for line in build.known(tmp_path) if line] == [
        "### Programs of several files: reported, but right\n",
        f"- `fp_ok_a` (AMP101, AMP202) in {place}: Nobody looks there.",
        "### Programs of several files: wrong, but not reported\n",
        "- `fn_bad_b` in [fixtures/programs/fn_bad_b](../fixtures/programs/fn_bad_b): Nobody looks there.",
    ]


# --- the automaton ---------------------------------------------------------------------------------------------------


def test_the_automaton_is_complete() -> None:
    assert {(t.place, t.call) for t in TRANSITIONS} == {(p, c) for p in build.PLACES for c in build.CALLS}
    back = {(t.place, t.call) for t in TRANSITIONS if t.target == "READY" and t.place in ("UNSCALED", "STEPPED")}
    assert back == {("UNSCALED", "scaler.update()"), ("STEPPED", "scaler.update()")}, "update() alone leads back"


@pytest.mark.parametrize("transition", TRANSITIONS, ids=lambda t: f"{t.place} {t.call} {t.condition}".strip())
def test_torch_takes_every_step_of_the_automaton(transition: Any) -> None:
    torch = pytest.importorskip("torch")
    weights = [torch.zeros(2, requires_grad=True) for _ in range(2)]
    names: dict[str, Any] = {
        "scaler": torch.amp.GradScaler("cpu"),
        "optimizer": torch.optim.SGD(weights[:1], lr=1.0),
        "other": torch.optim.SGD(weights[1:], lr=1.0),
    }

    def perform(call: str) -> None:
        names["loss"] = sum(weight.sum() for weight in weights)
        exec(call, names)

    def place() -> str:
        scaler = names["scaler"]
        if scaler._scale is None:
            return build.NEW
        return str(scaler._per_optimizer_states[id(names["optimizer"])]["stage"].name)

    *before, call = transition.word
    assert call == transition.call
    for earlier in before:
        perform(earlier)
    assert place() == transition.place
    if transition.error is None:
        perform(call)
        assert place() == transition.target
    else:
        with pytest.raises((RuntimeError, AssertionError), match=re.escape(transition.error)):
            perform(call)


def test_the_picture_shows_the_automaton() -> None:
    tree = ElementTree.fromstring(read("docs/automaton.svg"))
    texts = ["".join(node.itertext()) for node in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert [text for text in texts if text.isupper()] == list(build.PLACES)
    arrows = {(t.place, t.target) for t in TRANSITIONS if t.target not in (None, t.place)}
    drawn = [node for node in tree.iter("{http://www.w3.org/2000/svg}path") if node.get("marker-end")]
    assert len(drawn) == len(arrows) == 6
    assert sum(text.startswith("·") for text in texts) == sum(t.error is not None for t in TRANSITIONS)


# --- what the pages say ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if ":" not in target:
            assert (page.parent / target.partition("#")[0]).exists(), target


def test_the_index_leads_to_every_page() -> None:
    seen: set[Path] = set()
    pending = [ROOT / "docs" / "index.md"]
    while pending:
        page = pending.pop().resolve()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        targets = re.findall(r"\]\(([^)#:\s]+)\)", page.read_text(encoding="utf-8"))
        pending += [page.parent / target for target in targets]
    assert set(map(Path.resolve, (ROOT / "docs").rglob("*.md"))) <= seen


def test_the_changelog_names_every_rule() -> None:
    text = " ".join(read("CHANGELOG.md").split())
    assert [rule.code for rule in RULES if f"{rule.code} {rule.name}" not in text] == []


def test_the_documented_configuration_is_complete_and_valid() -> None:
    if sys.version_info < (3, 11):
        tomllib = pytest.importorskip("tomli")
    else:
        import tomllib
    (block,) = re.findall(
        r"^```toml\n(\[tool\.ampclip-lint\]\n.*?)^```$", read("docs/configuration.md"), re.MULTILINE | re.DOTALL
    )
    table = tomllib.loads(block)["tool"]["ampclip-lint"]
    assert set(table) == set(KEYS)
    parse_config(ROOT / "pyproject.toml", table, validate(RULES))


@pytest.mark.parametrize("name", ["docs/index.md", "docs/how-it-works.md", "docs/limitations.md", *RUN])
def test_commands_and_options_exist(name: str) -> None:
    text = read(name)
    used = set(re.findall(r"(?:^\s*(?:\$ )?|&& |`)ampclip-lint ([a-z]+)", text, re.MULTILINE))
    assert used <= set(main.commands), used - set(main.commands)
    known = {
        option
        for command in (main, *main.commands.values())
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for option in parameter.opts
    }
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - {"--check", "--help"}
    assert options <= known, options - known


def test_every_command_and_format_is_documented() -> None:
    text = "".join(map(read, RUN))
    assert [command for command in main.commands if f"ampclip-lint {command}" not in text] == []
    assert [name for name in FORMATS if f"| `{name}` |" not in read("docs/output.md")] == []


# --- pages whose commands are run ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUN)
def test_every_block_is_a_file_or_is_run(name: str) -> None:
    by_hand = re.sub(r"^<!-- generated: .*?^<!-- end -->$", "", read(name), flags=re.MULTILINE | re.DOTALL)
    blocks = list(build.BLOCK.finditer(by_hand))
    assert blocks
    for block in blocks:
        assert block["file"] or block["edited"] or block["body"].startswith("$ "), block[0]


def test_the_answer_to_a_command_is_what_it_says_now() -> None:
    page = (
        "<!-- file: a/t.py -->\n\n```python\nx = 1\n```\n\n```text\n$ ampclip-lint check a\nold\n$ mv a/t.py b.py\n"
        "$ cat b.py\n$ ampclip-lint check gone\n$ echo $?\n```\n\n```json\n{}\n```\n"
    )
    assert build.answered(page) == page.replace("old\n", "No findings (1 file read, 0 analysed).\n").replace(
        "cat b.py\n", "cat b.py\nx = 1\n"
    ).replace("gone\n", "gone\nerror: gone: no such file or directory\n").replace("echo $?\n", "echo $?\n2\n")


def test_a_page_can_change_a_file() -> None:
    page = (
        "<!-- file: a.py -->\n\n```python\nx = 1\ny = 1\n```\n\n"
        "<!-- edit: a.py -->\n\n```diff\n x = 1\n-y = 1\n+y = 2\n+z = 3\n```\n\n```text\n$ cat a.py\n```\n"
    )
    assert build.answered(page) == page.replace("cat a.py\n", "cat a.py\nx = 1\ny = 2\nz = 3\n")
    for wrong in ("-q = 1", "-"):
        with pytest.raises(SystemExit, match=r"an edit of a\.py does not fit in one place"):
            build.answered(page.replace("-y = 1", wrong))


def test_an_answer_may_have_fences_in_it() -> None:
    page = "<!-- file: a -->\n\n````text\n```\nx\n```\n````\n\n````text\n$ cat a\n````\n"
    assert build.answered(page) == page.replace("cat a\n", "cat a\n```\nx\n```\n")


def test_what_is_shown_and_not_run_is_in_the_readme() -> None:
    assert [command for command in sessions.UNRUN if f"$ {command}\n" not in read("README.md")] == []


def test_a_page_can_not_use_what_nobody_runs() -> None:
    with pytest.raises(SystemExit, match="does not know: rm"):
        build.answered("<!-- file: a -->\n\n```text\n```\n\n```text\n$ rm -rf x\n```\n")


def test_the_limits_of_the_comparison_with_torch_are_documented() -> None:
    source = (ROOT / "tests" / "program_verdicts.py").read_text(encoding="utf-8")
    (limits,) = (
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "LIMITS"
    )
    assert isinstance(limits, ast.Dict)
    names = [ast.literal_eval(key) for key in limits.keys if key is not None]
    text = " ".join(read("docs/limitations.md").split())
    assert names
    assert [name for name in names if f"*{name}*" not in text] == []
