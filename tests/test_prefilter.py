"""The byte prefilter: fast, and it loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from ampclip_lint.amp.callgraph import SEEDS
from ampclip_lint.syntax.prefilter import is_candidate, is_helper, is_seed, mentions_scaler, select

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    "text",
    [
        "from torch.cuda.amp import GradScaler",
        "def step(s, loss, opt):\n    s.scale(loss).backward()\n",
        "loss = s.scale(loss)\n(loss / n).backward()\n",
        "def finish(self):\n    self.scaler.step(self.opt)\n    self.scaler.update()\n",
        "losses = map(self.amp_scaler.scale, losses)\n",
        "def prepare(s, opt):\n    s.unscale_(opt)\n",
        "class NativeScaler:\n    def __call__(self, loss): self._scaler.step(o)\n",
    ],
)
def test_seeds(text: str) -> None:
    assert is_seed(text.encode())
    assert mentions_scaler(text)
    assert is_candidate("a.py", text.encode())


@pytest.mark.parametrize(
    "text",
    ["x = 1\n", "from sklearn.preprocessing import StandardScaler\nStandardScaler().fit(x)\n", "loss.backward()\n"],
)
def test_files_without_a_loss_scale_are_no_seeds(text: str) -> None:
    assert not is_seed(text.encode())


def test_every_word_that_the_analysis_starts_from_makes_a_seed() -> None:
    for word in SEEDS:
        assert is_seed(f"x.{word}(y)\n".encode()), word


def test_helpers() -> None:
    assert is_helper(b"def cut(model):\n    clip_grad_norm_(model.parameters(), 1.0)\n")
    assert is_helper(b"def go(loss):\n    loss.backward()\n")
    assert not is_helper(b"def f(x):\n    return x + 1\n")


SEED = "scaler.scale(loss).backward()\n"
USE = f"{SEED}cut(p)\n"
CLIP = "def cut(p):\n    clip_grad_norm_(p, 1.0)\n"


def chosen(files: dict[str, str]) -> list[str]:
    named = [(name, text.encode()) for name, text in files.items()]
    return [named[index][0] for index in select(named)]


@pytest.mark.parametrize(
    ("importing", "helper"),
    [
        ("from helpers import cut", "helpers.py"),
        ("from pkg.helpers import cut", "src/pkg/helpers.py"),
        ("from pkg.helpers import *", "pkg/helpers.py"),
        ("import pkg.helpers as h; cut = h.cut", "pkg/helpers.py"),
        ("from . import helpers\ncut = helpers.cut", "pkg/helpers.py"),
        ("from .helpers import (\n    cut,  # the clip\n    other,\n)", "pkg/helpers.py"),
        ("from ..utils.helpers import cut", "utils/helpers.py"),
        ("if x:\n    from pkg import a, helpers\n    cut = helpers.cut", "pkg/helpers.py"),
        ("import os, pkg.helpers\ncut = pkg . helpers . cut", "pkg/helpers.py"),
    ],
)
def test_what_a_seed_uses_belongs_to_the_program(importing: str, helper: str) -> None:
    files = {"pkg/train.py": f"{importing}\n{USE}", helper: CLIP, "elsewhere/other.py": CLIP}
    assert chosen(files) == ["pkg/train.py", helper]


def test_what_imports_a_seed_belongs_to_the_program_whatever_it_speaks_of() -> None:
    files = {
        "lib/engine.py": "class Engine:\n    def clip(self): self.scaler.unscale_(self.opt)\n",
        "lib/__init__.py": "from .engine import Engine\n",
        "main.py": "from lib import Engine\nclass Glue:\n    def fit(self):\n        Engine().run()\n",
        "cli.py": "from main import Glue\nGlue().fit()\n",
        "setup.py": "from cli import main\n",
        "other.py": "import os\n",
    }
    assert chosen(files) == ["lib/engine.py", "lib/__init__.py", "main.py", "cli.py"]


def test_bases_of_classes_belong_to_the_program_whatever_they_speak_of() -> None:
    files = {
        "base.py": "from root import Root\nclass Base(Root):\n    def run(self):\n        self.go()\n",
        "root.py": "class Root: pass\n",
        "train.py": f"from base import Base\nfrom plain import x\nclass T(Base):\n    def go(self):\n        {SEED}",
        "plain.py": "x = 1\n",
    }
    assert chosen(files) == ["base.py", "root.py", "train.py"]


def test_a_package_passes_names_on() -> None:
    files = {
        "pkg/train.py": f"from pkg.utils import cut\n{USE}",
        "pkg/utils/__init__.py": "from .grads import cut\n",
        "pkg/utils/grads.py": f"from .more import x\n{CLIP}    x.step()\n",
        "pkg/utils/more.py": "x = optimizer\n",
        "pkg/utils/plain.py": "x = 1\n",
    }
    assert chosen(files) == [name for name in files if not name.endswith("plain.py")]


def test_without_a_seed_there_is_no_program() -> None:
    assert chosen({"a.py": CLIP, "b.py": "from a import cut\nloss.backward()\n"}) == []


def test_no_fixture_with_a_finding_is_lost() -> None:
    for path in (ROOT / "fixtures").glob("*.py"):
        assert is_seed(path.read_bytes()), path
