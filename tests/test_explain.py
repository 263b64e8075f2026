"""What `ampclip-lint trace` and `graph` print, on small programs, exactly as users see it."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from ampclip_lint.amp.explain import graph_text, trace_text
from ampclip_lint.syntax.functions import matching
from ampclip_lint.syntax.source import SourceFile

ROOT = Path(__file__).resolve().parent.parent
HEADER = "from torch.cuda.amp import GradScaler\nfrom torch.nn.utils import clip_grad_norm_\n"


def source(text: str, name: str = "t.py") -> SourceFile:
    return SourceFile(name, None, HEADER + textwrap.dedent(text).strip("\n") + "\n")


def rows(text: str, function: str | None = None) -> list[str]:
    """The lines of a trace, with blanks squeezed, without the source text."""
    found = []
    for line in trace_text([source(text)], function).splitlines():
        place, bar, rest = line.partition(" | ")
        if bar:
            columns = re.split(r"\s{2,}", rest.strip(), maxsplit=2 if place.strip() else 1)
            found.append(f"{place.strip()}| " + " ; ".join(re.sub(r"\s{2,}", "  ", c) for c in columns[-2:]))
        else:
            found.append(re.sub(r"\s{2,}", "  ", line.strip()))
    return found


BRANCHES = """
def train(model, loader, opt, scaler, use_amp):
    for x in loader:
        opt.zero_grad()
        loss = model(x)
        if use_amp:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        if use_amp:
            scaler.step(opt)
            scaler.update()
        else:
            opt.step()
"""


def test_a_trace_is_a_table_with_the_worlds_told_apart_by_their_guards() -> None:
    assert trace_text([source(BRANCHES)], "train") == textwrap.dedent(
        """\
        train (t.py:3): scaler `scaler`, optimizer `opt`
           5 | opt.zero_grad()                           gradients are cleared                                               opt: no gradients
           8 | scaler.scale(loss).backward()             backward adds scaled gradients                                      opt: S
          10 | loss.backward()                           backward adds gradients                                             opt: 1
          11 | clip_grad_norm_(model.parameters(), 1.0)  gradients are clipped by norm                                       opt: S  [use_amp]   opt: 1  [not use_amp]
             ! gradients are clipped while they carry the loss scale
          13 | scaler.step(opt)                          `scaler.step` divides the gradients of `opt` by S and applies them  opt: 1 (applied)
          14 | scaler.update()                           `scaler.update` may change S                                        opt: 1 (applied)
          16 | opt.step()                                `opt.step` applies the gradients                                    opt: 1 (applied)
        """  # noqa: E501
    )


def test_guards_that_nothing_asks_again_still_tell_worlds_apart() -> None:
    text = """
    def step(model, loss, opt, scaler, use_amp):
        opt.zero_grad()
        if use_amp:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
    """
    assert rows(text)[5] == "9| gradients are clipped by norm ; opt: S  [use_amp]  opt: 1  [not use_amp]"


def test_a_flag_of_the_scaler() -> None:
    text = """
    def step(model, loss, opt, fp16):
        scaler = GradScaler(enabled=fp16)
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
    """
    assert rows(text) == [
        "step (t.py:3): scaler `scaler`, optimizer `opt`",
        "4| `scaler` is made ; opt: unknown",
        "! the scaler is made anew for every step",
        "5| gradients are cleared ; opt: no gradients",
        "6| backward adds scaled gradients ; opt: S  [fp16]  opt: 1  [not fp16]",
        "7| `scaler.step` divides the gradients of `opt` by S and applies them ; opt: 1 (applied)",
        "8| `scaler.update` may change S ; opt: 1 (applied)",
    ]


def test_accumulation() -> None:
    text = """
    def train(model, loader, opt, accum):
        scaler = GradScaler()
        opt.zero_grad()
        for i, x in enumerate(loader):
            scaler.scale(model(x) / accum).backward()
            scaler.unscale_(opt)
            clip_grad_norm_(model.parameters(), 1.0)
            if (i + 1) % accum == 0:
                scaler.step(opt)
                scaler.update()
                opt.zero_grad()
    """
    found = rows(text)
    assert found[3:7] == [
        "7| backward adds scaled gradients ; opt: 1 + S or S",
        "8| `scaler.unscale_` divides the gradients of `opt` by S ; opt: 1",
        "! scaled gradients are added to unscaled ones",
        "9| gradients are clipped by norm ; opt: 1",
    ]


def test_helpers_and_attributes() -> None:
    text = """
    class Trainer:
        def __init__(self, net, opt):
            self.net, self.opt = net, opt
            self.scaler = GradScaler()

        def clip(self):
            clip_grad_norm_(self.net.parameters(), 1.0)

        def train(self, loader):
            for x in loader:
                self.opt.zero_grad()
                self.scaler.scale(self.net(x)).backward()
                self.clip()
                self.scaler.step(self.opt)
                self.scaler.update()
    """
    found = rows(text, "Trainer.train")
    assert found[:3] == [
        "Trainer.train (t.py:11): scaler `self.scaler`, optimizer `self.opt`",
        "13| gradients are cleared ; self.opt: no gradients",
        "14| backward adds scaled gradients ; self.opt: S",
    ]
    assert found[-3:] == [
        "in Trainer.clip:",
        "t.py:9| gradients are clipped by norm ; self.opt: S",
        "! gradients are clipped while they carry the loss scale",
    ]
    assert "`?`" not in "\n".join(found)


def test_two_optimizers() -> None:
    text = """
    def train(g, d, opt_g, opt_d, loader):
        scaler = GradScaler()
        for x in loader:
            opt_d.zero_grad()
            opt_g.zero_grad()
            scaler.scale(d(g(x))).backward()
            scaler.unscale_(opt_d)
            clip_grad_norm_([*d.parameters(), *g.parameters()], 1.0)
            scaler.step(opt_d)
            scaler.step(opt_g)
            scaler.update()
    """
    found = rows(text)
    assert found[0] == "train (t.py:3): scaler `scaler`, optimizers `opt_d`, `opt_g`"
    assert found[4:8] == [
        "8| backward adds scaled gradients to `opt_d` and `opt_g` ; opt_d: S  opt_g: S",
        "9| `scaler.unscale_` divides the gradients of `opt_d` by S ; opt_d: 1  opt_g: S",
        "10| gradients of `opt_d` and `opt_g` are clipped by norm ; opt_d: 1  opt_g: S",
        "! a clip covers a scaled optimizer beside an unscaled one",
    ]


def test_an_operation_that_raises() -> None:
    text = """
    def step(loss, opt, scaler):
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        scaler.unscale_(opt)
        scaler.step(opt)
    """
    assert rows(text)[3:] == [
        "6| `scaler.unscale_` raises: unscale_() has already been called on this optimizer since the last update() ; "
        "opt: raises",
        "! gradients are divided by the scale twice",
    ]


def test_two_scalers_have_two_scales() -> None:
    text = """
    def step(loss, other, a, b, s1, s2):
        s1.scale(loss).backward()
        s1.step(a)
        s2.scale(other).backward()
        s2.step(b)
        s1.update()
        s2.update()
    """
    assert "S(s1)" in trace_text([source(text)], "step")


def test_where_nothing_is_found_the_text_says_so() -> None:
    plain = source("def f(x):\n    return x\n")
    assert trace_text([plain], None) == "t.py: no function in which scaled gradients are followed\n"
    assert trace_text([plain], "f") == "f (t.py:3): no scaler here, nor in what it calls: nothing to show\n"
    assert trace_text([plain], "g") == "t.py: no function `g`\n"
    broken = SourceFile("t.py", None, "def f(:\n")
    assert trace_text([broken], None).startswith("t.py:1: not valid Python: ")


def test_the_body_of_a_module() -> None:
    text = """
    import torch
    net = torch.nn.Linear(2, 1)
    opt = torch.optim.SGD(net.parameters(), 0.1)
    scaler = GradScaler()
    scaler.scale(net(x)).backward()
    scaler.step(opt)
    scaler.update()
    """
    found = rows(text, "<module>")
    assert found[0] == "<module> (t.py:1): scaler `scaler`, optimizer `opt`"
    assert "7| backward adds scaled gradients ; opt: S" in found
    assert matching("<module>", ["f"]) == ["<module>"]  # what the command line asks


def test_a_graph_says_what_each_node_does_and_which_worlds_get_there() -> None:
    found = [re.sub(r"\s+", " ", line).strip() for line in graph_text([source(BRANCHES)], "train").splitlines()]
    assert found[0] == "train (t.py:3): scaler `scaler`, optimizer `opt`"
    assert re.fullmatch(r"\d+ nodes, \d+ worlds", found[1])
    assert found[2] == "0 entry"
    assert any(re.fullmatch(r"-> \d+ if use_amp", line) for line in found)
    assert any(re.fullmatch(r"-> \d+ if not use_amp", line) for line in found)
    assert any(re.fullmatch(r"-> \d+ if scaler is not None \(proven by the call\)", line) for line in found)
    clip = next(index for index, line in enumerate(found) if "clipped" in line)
    assert re.fullmatch(r"\d+ t.py:11 gradients are clipped by norm", found[clip])
    assert re.fullmatch(r"\d worlds; opt: (1 or S|S or 1)", found[clip + 1])


def test_a_graph_in_the_language_of_graphviz() -> None:
    text = graph_text([source(BRANCHES)], "train", dot=True)
    assert text.startswith("// train (t.py:3): scaler `scaler`, optimizer `opt`\ndigraph flow {\n")
    assert text.endswith("}\n")
    assert '[label="use_amp"]' in text
    assert '[label="not use_amp"]' in text
    assert "no scaler" in graph_text([source("def f(x): ...")], "f", dot=True)


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "cases").glob("*.py")), ids=lambda path: path.stem)
def test_no_inner_name_of_the_engine_gets_out(path: Path) -> None:
    text = trace_text([SourceFile(path.name, path, path.read_text(encoding="utf-8"))], None)
    assert not re.search(r"`\?|\?:|\('|frozenset|Ref\(|\btag\b.*==|empty", text)
