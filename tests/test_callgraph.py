"""Who may call whom, by names alone: where the analysis starts."""

from __future__ import annotations

import ast

import pytest

from ampclip_lint.amp.callgraph import CallGraph
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
