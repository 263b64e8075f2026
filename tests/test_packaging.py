"""What the repository promises to those who install it, as far as that shows without building."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ampclip_lint

ROOT = Path(__file__).resolve().parent.parent


def project() -> dict[str, Any]:
    if sys.version_info < (3, 11):
        tomllib = pytest.importorskip("tomli")
    else:
        import tomllib
    data: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return data


def requirement(text: str) -> str:
    found = re.match(r"[\w.-]+", text)
    assert found is not None
    return found[0]


def test_torch_is_needed_for_tests_only() -> None:
    table = project()["project"]
    assert sorted(requirement(item) for item in table["dependencies"]) == [
        "click", "libcst", "nbformat", "pathspec", "rich", "tomli",
    ]  # fmt: skip
    assert "torch==2.13.0" in table["optional-dependencies"]["test"]


def test_both_packages_are_built_and_typed() -> None:
    packages = project()["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert packages == ["ampclip_lint", "rules/ampclip_rules"]
    for package in packages:
        assert (ROOT / package / "__init__.py").is_file()
        assert (ROOT / package / "py.typed").is_file()


def test_the_entry_points_exist() -> None:
    from importlib import import_module

    table = project()["project"]
    points = [*table["scripts"].values(), *table["entry-points"]["ampclip_lint.rules"].values()]
    assert len(points) == 2
    for point in points:
        module, _, name = point.partition(":")
        assert getattr(import_module(module), name)


def test_the_package_tells_its_version_and_offers_lint_source() -> None:
    from ampclip_lint.lint.run import lint_source

    assert re.fullmatch(r"\d+\.\d+\.\d+", ampclip_lint.__version__)
    assert ampclip_lint.lint_source is lint_source
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ampclip_lint.nothing  # type: ignore[attr-defined]


def test_importing_the_package_loads_nothing_of_it() -> None:
    program = (
        "import sys; before = set(sys.modules)\n"
        "import ampclip_lint; assert ampclip_lint.__version__; dir(ampclip_lint)\n"
        "print('\\n'.join(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()} - set(sys.stdlib_module_names)
    assert loaded == {"ampclip_lint"}
    assert [name for name in done.stdout.split() if name.startswith("ampclip_lint.")] == []


def test_every_public_name_can_be_imported_and_is_typed() -> None:
    tree = ast.parse((ROOT / "ampclip_lint" / "__init__.py").read_text(encoding="utf-8"))
    typed = {alias.asname for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed - {None} | {"__version__"} == set(ampclip_lint.__all__)
    for name in ampclip_lint.__all__:
        found = getattr(ampclip_lint, name)
        assert name == "__version__" or found.__doc__, name
    assert set(ampclip_lint.__all__) <= set(dir(ampclip_lint))


def test_the_public_names_are_documented() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert [name for name in ampclip_lint.__all__ if f"`{name}" not in text] == []


def test_paths_may_be_one_path(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("x = 1\n")
    for paths in (file, str(file), [file], (str(file),)):
        result = ampclip_lint.lint_paths(paths, ampclip_lint.Settings(isolated=True))
        assert (result.files, result.missing) == (1, ())


def test_the_changelog_knows_the_version() -> None:
    assert f"## {ampclip_lint.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", ["ampclip-lint check fixtures", 'pip install -e ".[test]" && pytest'])
def test_the_readme_s_first_screen_has_the_two_lines(command: str) -> None:
    first_screen = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:20]
    assert any(command in line for line in first_screen)
