"""Who may import whom. The order of the layers is the order of the pipeline, and there is no way back."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ENGINE = ROOT / "ampclip_lint"
RULES = ROOT / "rules" / "ampclip_rules"

# Layer: the layers of the package, and the libraries outside it, that it may import.
ALLOWED: dict[str, tuple[set[str], set[str]]] = {
    "diagnostics": ({"records"}, set()),
    "files": (set(), set()),
    "records": (set(), set()),
    "processes": (set(), set()),
    "loops": ({"diagnostics", "records"}, set()),
    "syntax": ({"diagnostics", "processes", "records"}, {"libcst", "nbformat", "pathspec"}),
    "flow": ({"records"}, set()),
    "amp": ({"diagnostics", "loops", "processes", "syntax", "flow", "records"}, {"libcst"}),
    "lint": ({"", "diagnostics", "files", "loops", "processes", "syntax", "amp", "records"}, {"tomli"}),
    "fix": ({"diagnostics", "files", "syntax", "amp", "lint", "records"}, {"libcst"}),
    "report": ({"", "diagnostics", "loops", "syntax", "lint"}, {"rich"}),
    "testing": ({"diagnostics", "lint"}, {"torch"}),
    "cli": ({"", "diagnostics", "files", "syntax", "amp", "lint", "fix", "report"}, {"click", "rich"}),
    "__main__": ({"cli"}, set()),
    "": ({"diagnostics", "syntax", "lint"}, set()),  # the package itself
}
FOR_RULES = {
    "ampclip_lint.lint.rule",
    "ampclip_lint.amp.analysis",
    "ampclip_lint.amp.ops",
    "ampclip_lint.amp.faults",
    "ampclip_lint.amp.units",
    "ampclip_lint.diagnostics",
}


def sources(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def layer(path: Path) -> str:
    first = path.relative_to(ENGINE).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def imports(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Line, dotted name, and whether it runs when the module is imported; wherever in the file the import stands."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    late = {
        node
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, node not in late
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            if node.module == "ampclip_lint":  # a module of the package, or a name that the package itself has
                for alias in node.names:
                    inner = (ENGINE / alias.name).is_dir() or (ENGINE / f"{alias.name}.py").is_file()
                    yield node.lineno, f"ampclip_lint.{alias.name}" if inner else "ampclip_lint", node not in late
            else:
                yield node.lineno, node.module or "", node not in late


@pytest.mark.parametrize("path", sources(ENGINE), ids=lambda path: path.relative_to(ENGINE).as_posix())
def test_engine_modules_import_only_what_stands_before_them(path: Path) -> None:
    here = layer(path)
    inner, outer = ALLOWED[here]
    for line, name, _ in imports(path):
        package, _, rest = name.partition(".")
        if package == "ampclip_lint":
            target = rest.partition(".")[0]
            assert target in inner | {here}, f"{path}:{line}: {here or 'the package'} must not import {name}"
        else:
            known = package in {*sys.stdlib_module_names, "tomllib", *outer}  # tomllib: since 3.11
            assert known, f"{path}:{line}: {here or 'the package'} must not import {name}"


@pytest.mark.parametrize("path", sources(RULES), ids=lambda path: path.name)
def test_rules_see_only_what_is_made_for_them(path: Path) -> None:
    for line, name, _ in imports(path):
        if name.partition(".")[0] == "ampclip_rules":
            assert path.name == "__init__.py", f"{path}:{line}: rules do not build on each other"
        elif name.partition(".")[0] == "ampclip_lint":
            assert name in FOR_RULES, f"{path}:{line}: a rule must not import {name}"
        else:
            assert name.partition(".")[0] in sys.stdlib_module_names, f"{path}:{line}: a rule must not import {name}"


def test_the_engine_does_not_know_the_rules_by_name() -> None:
    for path in sources(ENGINE):
        assert "ampclip_rules" not in path.read_text(encoding="utf-8"), path


def test_only_the_judge_imports_torch_and_only_when_it_is_called() -> None:
    for path in (*sources(ENGINE), *sources(RULES)):
        for line, name, early in imports(path):
            if name.partition(".")[0] in ("torch", "numpy"):
                assert path.name == "testing.py", f"{path}:{line}"
                assert not early, f"{path}:{line}: the import must stand in a function"


def test_the_folder_of_the_rules_is_not_a_package() -> None:
    # `rules.ampclip_rules` would be a second copy of every rule.
    for path in (*sources(ROOT / "ampclip_lint"), *sources(ROOT / "rules"), *sources(ROOT / "tests")):
        for line, name, _ in imports(path):
            assert name.partition(".")[0] != "rules", f"{path}:{line}"


def test_rules_are_short() -> None:
    for path in sources(RULES):
        if path.name == "__init__.py":
            continue  # two lines a rule
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 60, f"{path}: the engine lacks a question"


def test_the_flow_layer_speaks_no_word_of_gradients() -> None:
    for path in sources(ENGINE / "flow"):
        names = {
            word.lower()
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            for word in re.findall(r"[A-Z]?[a-z]+", getattr(node, "id", "") or getattr(node, "attr", "") or "")
        }
        assert not names & {"scaler", "gradient", "gradients", "grad", "optimizer", "clip", "unscale"}, path
