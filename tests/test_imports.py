"""Programs over several files: what is checked, what is only read, and how names find their way. With the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from ampclip_lint.syntax import neighbours
from console import found, run

TRAIN = """\
{imports}

def fit(model, loader, optimizer, scaler, criterion):
    for inputs, targets in loader:
        optimizer.zero_grad()
        scaler.scale(criterion(model(inputs), targets)).backward()
        {clip}(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""
CLIP = """\
import torch


def shorten(parameters, bound):
    torch.nn.utils.clip_grad_norm_(parameters, bound)
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(files: dict[str, str]) -> None:
    for name, text in files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def train(imports: str, clip: str) -> str:
    return TRAIN.format(imports=imports, clip=clip)


IN_THE_HELPER = [("pkg/clipping.py", 5, "AMP101")]
SPELLINGS = [
    ("from pkg.clipping import shorten", "shorten"),
    ("from pkg.clipping import shorten as cut", "cut"),
    ("from .clipping import shorten", "shorten"),
    ("from . import clipping", "clipping.shorten"),
    ("import pkg.clipping", "pkg.clipping.shorten"),
    ("import pkg.clipping as c", "c.shorten"),
    ("from pkg import shorten", "shorten"),
    ("from pkg import exported", "exported"),
    ("from pkg import *", "shorten"),
    ("from . import shorten", "shorten"),
]


@pytest.mark.parametrize(("imports", "clip"), SPELLINGS)
@pytest.mark.parametrize("target", [".", "pkg/train.py", "pkg"])
def test_every_spelling_of_an_import_leads_to_the_helper(imports: str, clip: str, target: str) -> None:
    write(
        {
            "pyproject.toml": "",
            "pkg/__init__.py": "from .clipping import *\nfrom .clipping import shorten as exported\n",
            "pkg/clipping.py": CLIP,
            "pkg/train.py": train(imports, clip),
        }
    )
    assert found(target) == IN_THE_HELPER


def test_the_file_alone_counts_what_it_imports() -> None:
    write({"train.py": train("from clipping import shorten", "shorten"), "clipping.py": CLIP})
    assert found("train.py") == [("clipping.py", 5, "AMP101")]
    assert "1 file read, 1 analysed with 1 that it imports" in run("check", "train.py").stderr


def test_a_program_in_a_package_without_init_files_and_in_src() -> None:
    write(
        {
            "pyproject.toml": "",
            "src/tools/clipping.py": CLIP,
            "scripts/train.py": train("from tools.clipping import shorten", "shorten"),
        }
    )
    assert found("scripts/train.py") == [("src/tools/clipping.py", 5, "AMP101")]


def test_the_helper_alone_says_nothing() -> None:
    write({"train.py": train("from clipping import shorten", "shorten"), "clipping.py": CLIP})
    assert found("clipping.py") == []


def test_functions_of_imported_files_are_not_checked_for_their_own_sake() -> None:
    wrong = train("import torch", "torch.nn.utils.clip_grad_norm_")
    write({"other.py": wrong, "train.py": "from other import fit\n\n\ndef unscale_(x):\n    return x\n"})
    assert found("train.py") == []
    assert found("train.py", "other.py") == [("other.py", 7, "AMP101")]


def test_standard_input_stands_where_its_name_says() -> None:
    write({"pkg/__init__.py": "", "pkg/clipping.py": CLIP})
    text = train("from .clipping import shorten", "shorten")
    assert found("-", "--stdin-filename", "pkg/train.py", stdin=text) == IN_THE_HELPER
    assert found("-", stdin=text) == []


def test_the_nearest_of_modules_with_one_name() -> None:
    harmless = "def shorten(parameters, bound):\n    return bound\n"
    write(
        {
            "a/train.py": train("from utils import shorten", "shorten"),
            "a/utils.py": harmless,
            "b/train.py": train("from utils import shorten", "shorten"),
            "b/utils.py": CLIP,
        }
    )
    assert found(".") == [("b/utils.py", 5, "AMP101")]


def test_a_scaler_and_a_class_of_another_module() -> None:
    write(
        {
            "common.py": (
                "import torch\n\ntry:\n    from torch.cuda.amp import GradScaler\nexcept ImportError:\n"
                "    GradScaler = None\n\nscaler = torch.amp.GradScaler('cuda')\n"
            ),
            "base.py": (
                "from common import GradScaler\n\n\nclass Base:\n    def __init__(self, model, optimizer):\n"
                "        self.model, self.optimizer, self.scaler = model, optimizer, GradScaler()\n"
            ),
            "train.py": (
                "import torch\nimport common\nfrom base import Base\n\n\n"
                "class Trainer(Base):\n    def step(self, loss):\n        self.optimizer.zero_grad()\n"
                "        self.scaler.scale(loss).backward()\n"
                "        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)\n"
                "        self.scaler.step(self.optimizer)\n        self.scaler.update()\n\n\n"
                "def fit(model, loader, optimizer, criterion):\n    for x, y in loader:\n"
                "        optimizer.zero_grad()\n        common.scaler.scale(criterion(model(x), y)).backward()\n"
                "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
                "        common.scaler.step(optimizer)\n        common.scaler.update()\n"
            ),
        }
    )
    assert found("train.py") == [("train.py", 10, "AMP101"), ("train.py", 19, "AMP101")]


def test_suppressions_and_ignores_of_an_imported_file_hold() -> None:
    write({"train.py": train("from clipping import shorten", "shorten")})
    write(
        {"clipping.py": CLIP.replace("norm_(parameters, bound)", "norm_(parameters, bound)  # ampclip: ignore[AMP101]")}
    )
    assert found("train.py") == []
    write({"clipping.py": CLIP, "ampclip-lint.toml": '[per-file-ignores]\n"clipping.py" = ["AMP101"]\n'})
    assert found("train.py") == []


def test_nothing_is_reported_in_files_that_are_excluded() -> None:
    write(
        {
            "ampclip-lint.toml": 'extend-exclude = ["vendored"]\n',
            "vendored/clipping.py": CLIP,
            "train.py": train("from vendored.clipping import shorten", "shorten"),
        }
    )
    assert found(".") == []
    assert found("train.py") == []


def test_comments_of_imported_files_are_not_judged() -> None:
    write({"train.py": train("from clipping import shorten", "shorten")})
    write({"clipping.py": CLIP + "\n\nX = 1  # ampclip: ignore[AMP201]\n"})
    assert found("train.py") == [("clipping.py", 5, "AMP101")]
    assert ("clipping.py", 8, "AMP002") in found("train.py", "clipping.py")


def test_an_unreadable_import_is_named_and_the_run_goes_on() -> None:
    imports = "from clipping import shorten\nfrom helper import x\n\ndef look(scaler):\n    x(scaler.get_scale())\n"
    write({"train.py": train(imports, "shorten"), "clipping.py": CLIP})
    Path("helper.py").write_bytes(b"x = '\xff'\n# optim\n")
    result = run("check", "train.py")
    assert result.exit_code == 1
    assert "helper.py: not valid utf-8 at byte 5" in result.stderr


def test_imports_in_a_circle_end() -> None:
    write(
        {
            "train.py": train("from clipping import shorten", "shorten"),
            "clipping.py": "import train\nfrom train import fit\n" + CLIP,
        }
    )
    assert found("train.py") == [("clipping.py", 7, "AMP101")]


def test_too_many_imports_are_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "MAX_FILES", 2)
    write({f"m{index}.py": CLIP for index in range(4)})
    write({"train.py": train("\n".join(f"from m{index} import shorten as s{index}" for index in range(4)), "s0")})
    result = run("check", "train.py")
    assert "imports lead to more than 2 files" in result.stderr
    assert "m0.py:5:5" in result.stdout


def test_trace_follows_imports() -> None:
    write({"train.py": train("from clipping import shorten", "shorten"), "clipping.py": CLIP})
    result = run("trace", "train.py::fit")
    assert "clip_grad_norm_(parameters, bound)" in result.stdout


def test_of_two_definitions_the_last_one_counts_unless_it_stands_in() -> None:
    harmless = "def shorten(parameters, bound):\n    return bound\n\n\n"
    clip = CLIP.partition("\n\n\n")[2]
    text = train("import torch", "shorten")
    write({"train.py": f"{harmless}{clip}\n\n{text}"})
    assert found("train.py") == [("train.py", 6, "AMP101")]
    write({"train.py": f"{clip}\n\n{harmless}{text}"})
    assert found("train.py") == []
    indented = "".join(f"    {line}\n" if line else "\n" for line in clip.split("\n"))
    write({"train.py": f"try:\n{indented}except ImportError:\n    def shorten(p, b):\n        pass\n\n\n{text}"})
    assert found("train.py") == [("train.py", 3, "AMP101")]


def test_a_method_of_a_list_under_a_name_of_its_own() -> None:
    text = train("import torch", "torch.nn.utils.clip_grad_norm_")
    write(
        {
            "train.py": text.replace("    for inputs", "    seen = []\n    keep = seen.append\n    for inputs").replace(
                "        scaler.step", "        keep(1)\n        scaler.step"
            )
        }
    )
    assert found("train.py") == [("train.py", 9, "AMP101")]
