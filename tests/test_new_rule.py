"""The scaffold of a rule, in a copy of the rules."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A repository with the rules alone."""
    shutil.copytree(ROOT / "rules", tmp_path / "rules", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "fixtures").mkdir()
    (tmp_path / "ampclip_lint").mkdir()
    shutil.copy(ROOT / "ampclip_lint" / "__init__.py", tmp_path / "ampclip_lint")
    return tmp_path


@pytest.fixture(scope="module")
def new_rule() -> ModuleType:
    spec = importlib.util.spec_from_file_location("new_rule", ROOT / "rules" / "new_rule.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_module_fixture_and_registration(new_rule: ModuleType, copy: Path) -> None:
    written = new_rule.scaffold(copy, "AMP199", "clip-for-luck")
    assert [path.relative_to(copy).as_posix() for path in written] == [
        "rules/ampclip_rules/clip_for_luck.py",
        "fixtures/clip_for_luck.py",
        "rules/ampclip_rules/__init__.py",
    ]
    program = (
        "from ampclip_rules import RULES\n"
        "from ampclip_lint.lint.registry import validate\n"
        "validate(RULES)\n"
        "print([(rule.code, rule.name) for rule in RULES])\n"
        "assert [rule.code for rule in RULES] == sorted(rule.code for rule in RULES)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(copy / "rules"), str(ROOT)])}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "('AMP199', 'clip-for-luck')" in done.stdout
    for path in written:
        compile(path.read_text(encoding="utf-8"), str(path), "exec")
    registry = written[2].read_text(encoding="utf-8").splitlines()
    imports = [line for line in registry if line.startswith("from ")]
    assert imports == sorted(imports)


@pytest.mark.parametrize(
    ("code", "name", "message"),
    [
        ("AMP101", "some-thing", "AMP101 is in RULES already"),
        ("AMP999", "clip-before-unscale", "is there already"),
        ("amp1", "some-thing", "is not a rule code"),
        ("AMP999", "Some_Thing", "is not a rule name"),
    ],
)
def test_nothing_is_overwritten(new_rule: ModuleType, copy: Path, code: str, name: str, message: str) -> None:
    before = {path: path.read_bytes() for path in copy.rglob("*.py")}
    with pytest.raises(SystemExit, match=message):
        new_rule.scaffold(copy, code, name)
    assert {path: path.read_bytes() for path in copy.rglob("*.py")} == before
