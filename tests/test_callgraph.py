"""Who may call whom, by names alone: where the analysis starts."""

from __future__ import annotations

import ast

import pytest

from ampclip_lint.amp.callgraph import CallGraph
from ampclip_lint.amp.models import Models
from ampclip_lint.syntax.index import ModuleIndex, ProgramIndex
from ampclip_lint.syntax.source import SourceFile

WRAPPER = """\
class Wrapped:
    def {method}(self, state):
        self.scaler.step(self.optimizer)
"""


def roots(**files: str) -> list[str]:
    """Where the analysis of these files starts, which one program imports together."""
    files["program"] = "import tokens, wrapper\n"
    modules = [ModuleIndex(SourceFile(f"{name}.py", None, text), ast.parse(text)) for name, text in files.items()]
    return [info.qualname for info in CallGraph(ProgramIndex(modules)).roots()]


@pytest.mark.parametrize("method", ["__setstate__", "__getitem__", "load", "append"])
def test_what_every_object_has_is_called_only_by_who_speaks_of_the_class(method: str) -> None:
    wrapper = WRAPPER.format(method=method)
    caller = f"def restore(thing):\n    thing.{method}(1)\n"
    assert roots(wrapper=wrapper, tokens=caller) == [f"Wrapped.{method}"]
    assert roots(wrapper=wrapper, tokens=f"from wrapper import Wrapped\n\n\n{caller}") == ["restore"]


def test_other_methods_are_called_by_who_imports_nothing_of_the_class() -> None:
    caller = "def restore(thing):\n    thing.take_a_step(1)\n"
    assert roots(wrapper=WRAPPER.format(method="take_a_step"), tokens=caller) == ["restore"]


@pytest.mark.parametrize("statements", [10, 2000])
def test_a_very_large_class_is_not_called_where_its_model_is_meant(statements: int) -> None:
    body = "".join(f"        self.a{number} = {number}\n" for number in range(statements))
    text = f"class Accelerator:\n    def make_ready(self, thing):\n        self.scaler.step(thing)\n{body}"
    modules = [
        ModuleIndex(SourceFile(name, None, text), ast.parse(text))
        for name, text in {
            "accelerate/accelerator.py": text,
            "accelerate/again.py": "from .accelerator import Accelerator\n\n\ndef again(it):\n    it.make_ready(1)\n",
        }.items()
    ]
    starts = [info.qualname for info in CallGraph(ProgramIndex(modules, Models())).roots()]
    assert starts == (["again"] if statements < 1000 else ["Accelerator.make_ready"])
