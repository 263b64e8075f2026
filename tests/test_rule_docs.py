"""The documentation in the rules: complete, executed, and the same as the pages made from it."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import SECTIONS, Rule
from ampclip_lint.lint.run import lint_source
from ampclip_lint.testing import parse_expectations
from ampclip_rules import RULES

ROOT = Path(__file__).resolve().parent.parent
PRELUDE = {
    "torch": "import torch",
    "clip_grad_norm_": "from torch.nn.utils import clip_grad_norm_",
    "clip_grad_value_": "from torch.nn.utils import clip_grad_value_",
    "GradScaler": "from torch.amp import GradScaler",
    "SGD": "from torch.optim import SGD",
    "Adam": "from torch.optim import Adam",
    "chain": "from itertools import chain",
}
EXAMPLES = [
    pytest.param(rule, index, id=f"{rule.code}-{index}") for rule in RULES for index in range(len(rule.examples))
]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def program(block: str) -> str:
    """The block as a module: its free names become imports or parameters of a function around it."""
    try:
        tree = ast.parse(block)
    except SyntaxError:
        return block
    if any(isinstance(node, (ast.FunctionDef, ast.ClassDef)) for node in tree.body):
        return block
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    free = dict.fromkeys(node.id for node in names if node.id not in bound and not hasattr(builtins, node.id))
    lines = [PRELUDE[name] for name in free if name in PRELUDE]
    lines.append(f"def example({', '.join(name for name in free if name not in PRELUDE)}):")
    lines += [f"    {line}" for line in block.splitlines()]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_sections_are_all_there_in_order(rule: Rule) -> None:
    assert rule.headings == SECTIONS
    for heading in SECTIONS:
        assert rule.section(heading), heading


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_the_documentation_reads_well(rule: Rule) -> None:
    assert "TODO" not in rule.doc
    assert re.match(r"(Flags|Reports|Says) ", rule.section("What it does"))
    assert rule.summary
    if rule.code >= "AMP1":
        assert "S = 8" in rule.section("Why is this bad?"), "the worked example has numbers"
    for heading in ("Example", "Use instead"):
        assert "```python\n" in rule.section(heading) or rule.advisory


@pytest.mark.parametrize(("rule", "index"), EXAMPLES)
def test_examples_give_exactly_what_they_expect(rule: Rule, index: int) -> None:
    text = program(rule.examples[index])
    if rule.code == "AMP001" and index == 0:  # no tokens to find comments among
        expected = [(row, "AMP001") for row, line in enumerate(text.splitlines(), 1) if "# expect: AMP001" in line]
    else:
        expected = [(expectation.row, expectation.code) for expectation in parse_expectations(text)]
    shown = [other.code for other in RULES if other.severity is not Severity.INFO or other is rule]
    findings = lint_source(text, f"{rule.name}.py", select=shown)
    found = [(diagnostic.span.start.row, diagnostic.code) for diagnostic in findings]
    assert found == expected
    assert {code for _, code in expected} == ({rule.code} if index == 0 else set())


def test_pages_are_fresh() -> None:
    build = script("build_rules")
    assert build.stale(ROOT, build.pages(RULES)) == [], "run `python docs/build_rules.py`"


def test_stale_pages_are_found(tmp_path: Path) -> None:
    build = script("build_rules")
    folder = tmp_path / "docs" / "rules"
    folder.mkdir(parents=True)
    (folder / "gone.md").write_text("x")
    (folder / "same.md").write_text("s")
    (folder / "old.md").write_text("old")
    wanted = {"docs/rules/b.md": "", "docs/rules/old.md": "new", "docs/rules/same.md": "s"}
    assert build.stale(tmp_path, wanted) == ["docs/rules/b.md", "docs/rules/gone.md", "docs/rules/old.md"]


def test_pages_link_to_files_that_are_there() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+\.(?:md|py))\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).is_file(), f"{page}: {target}"
