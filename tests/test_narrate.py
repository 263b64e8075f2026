"""The path of a finding, step by step as users read it."""

from __future__ import annotations

import textwrap

import pytest

from ampclip_lint.amp.analysis import FunctionAnalysis, analyse_program
from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.narrate import names_of
from ampclip_lint.amp.ops import OPERATIONS
from ampclip_lint.flow.facts import Above, Atom, Below, Equals, IsNone, Predicate, Residue, Subject, Truthy
from ampclip_lint.syntax.source import SourceFile

HEADER = "from torch.cuda.amp import GradScaler\nfrom torch.nn.utils import clip_grad_norm_\n"


def analyse(text: str, function: str) -> FunctionAnalysis:
    file = SourceFile("t.py", None, HEADER + textwrap.dedent(text).strip("\n") + "\n")
    (analysis,) = analyse_program([file], only=function).functions
    return analysis


def story(text: str, kind: FaultKind, function: str = "train") -> list[str]:
    """The steps to the first fault of a kind."""
    for site in analyse(text, function).sites(OPERATIONS):
        for fault in site.faults(kind):
            return [
                f"{step.span.start.row} {step.message}" + (f" -- {step.unit}" if step.unit is not None else "")
                for step in fault.trace
            ]
    raise AssertionError(f"no {kind}")


def test_a_branch_is_told_and_what_a_call_proves_is_not() -> None:
    text = """
    def train(model, loader, opt, scaler, use_amp):
        for x in loader:
            opt.zero_grad()
            if use_amp:
                scaler.scale(model(x)).backward()
            else:
                model(x).backward()
            clip_grad_norm_(model.parameters(), 1.0)
            if use_amp:
                scaler.step(opt)
                scaler.update()
            else:
                opt.step()
    """
    assert story(text, FaultKind.CLIP_SCALED) == [
        "5 gradients are cleared -- no gradients",
        "6 on the path where `use_amp` is true",
        "7 backward adds scaled gradients -- S",
        "10 gradients are clipped by norm -- S",
    ]


def test_branches_that_make_no_difference_are_not_told() -> None:
    text = """
    def train(model, loader, opt, scaler, every, name, log):
        n = 1
        if name == "big":
            n = 2
        for i, x in enumerate(loader):
            if i >= every:
                log(i, n)
            scaler.scale(model(x)).backward()
            scaler.unscale_(opt)
            if i - log.last <= every:
                continue
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
    """
    assert story(text, FaultKind.UNSCALE_MID_ACCUMULATION) == [
        "10 backward adds scaled gradients -- S",
        "11 `scaler.unscale_` divides the gradients of `opt` by S -- 1",
        "12 on the path where `every >= i - log.last`",
        "10 in the next iteration, backward adds scaled gradients -- 1 + S",
    ]


def test_a_test_for_none_is_told() -> None:
    text = """
    def train(model, loader, opt, scaler=None):
        for x in loader:
            opt.zero_grad()
            if scaler is not None:
                scaler.scale(model(x)).backward()
                clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(opt)
                scaler.update()
            else:
                model(x).backward()
                opt.step()
    """
    assert story(text, FaultKind.CLIP_SCALED)[1] == "6 on the path where `scaler is not None`"


def test_over_the_back_edge_of_a_loop() -> None:
    text = """
    def train(model, loader, opt, accum):
        scaler = GradScaler()
        for i, x in enumerate(loader):
            scaler.scale(model(x) / accum).backward()
            scaler.unscale_(opt)
            clip_grad_norm_(model.parameters(), 1.0)
            if (i + 1) % accum == 0:
                scaler.step(opt)
                scaler.update()
                opt.zero_grad()
    """
    assert story(text, FaultKind.UNSCALE_MID_ACCUMULATION) == [
        "6 backward adds scaled gradients -- S",
        "7 `scaler.unscale_` divides the gradients of `opt` by S -- 1",
        "8 gradients are clipped by norm -- 1",
        "9 on the path where `(i + 1) % accum != 0`",
        "6 in the next iteration, backward adds scaled gradients -- 1 + S",
    ]


def test_a_story_of_stages_goes_back_to_the_last_update() -> None:
    text = """
    def train(model, loader, opt):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            scaler.scale(model(x)).backward()
            scaler.step(opt)
    """
    assert story(text, FaultKind.UPDATE_MISSING) == [
        "6 gradients are cleared -- no gradients",
        "7 backward adds scaled gradients -- S",
        "8 `scaler.step` divides the gradients of `opt` by S and applies them -- 1",
        "6 in the next iteration, gradients are cleared -- no gradients",
        "7 backward adds scaled gradients -- S",
        "8 `scaler.step` raises: step() has already been called since the last update() -- S",
    ]


def test_helpers_tell_where_they_stand_and_objects_keep_their_names() -> None:
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
    assert story(text, FaultKind.CLIP_SCALED, "Trainer.train") == [
        "13 gradients are cleared -- no gradients",
        "14 backward adds scaled gradients -- S",
        "9 gradients are clipped by norm -- S",
    ]


def test_two_optimizers_keep_to_the_one_that_is_wrong() -> None:
    text = """
    def train(g, d, opt_g, opt_d, loader):
        scaler = GradScaler()
        for x in loader:
            opt_d.zero_grad()
            scaler.scale(d(x)).backward()
            scaler.unscale_(opt_d)
            clip_grad_norm_(d.parameters(), 1.0)
            scaler.step(opt_d)
            opt_g.zero_grad()
            scaler.scale(g(x)).backward()
            clip_grad_norm_(g.parameters(), 1.0)
            scaler.step(opt_g)
            scaler.update()
    """
    assert story(text, FaultKind.CLIP_SCALED) == [
        "11 gradients are cleared -- no gradients",
        "12 backward adds scaled gradients -- S",
        "13 gradients are clipped by norm -- S",
    ]


def test_a_partial_clip_tells_of_the_other_optimizer() -> None:
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
    assert story(text, FaultKind.CLIP_PARTIAL)[-3:] == [
        "8 backward adds scaled gradients -- S",
        "9 `scaler.unscale_` divides the gradients of `opt_d` by S -- 1",
        "10 gradients are clipped by norm -- S",
    ]


N = Subject("n", frozenset(), "n")


@pytest.mark.parametrize(
    ("text", "predicate", "yes", "no"),
    [
        ("use_amp", Truthy(), "use_amp", "not use_amp"),
        ("a < b", Truthy(), "a < b", "not (a < b)"),
        ("scaler", IsNone(), "scaler is None", "scaler is not None"),
        ("mode", Equals("amp"), "mode == 'amp'", "mode != 'amp'"),
        ("norm", Above(1.0), "norm > 1", "norm <= 1"),
        ("norm", Below(0.5), "norm < 0.5", "norm >= 0.5"),
        ("i", Residue(N, -1), "(i + 1) % n == 0", "(i + 1) % n != 0"),
        ("i", Residue(N, 0), "i % n == 0", "i % n != 0"),
        ("i", Residue(N, 2), "i % n == 2", "i % n != 2"),
        ("i", Residue(4, 3), "(i + 1) % 4 == 0", "(i + 1) % 4 != 0"),
        ("a - b", Residue(4, 0), "(a - b) % 4 == 0", "(a - b) % 4 != 0"),
    ],
)
def test_guards_read_like_source(text: str, predicate: Predicate, yes: str, no: str) -> None:
    analysis = analyse(
        "def train(loss, opt, scaler):\n    scaler.scale(loss).backward()\n    scaler.step(opt)", "train"
    )
    assert analysis.domain is not None
    names = names_of(analysis.domain)
    atom = Atom(Subject(("value", text), frozenset(), text), predicate)
    assert (names.atom(atom, True), names.atom(atom, False)) == (yes, no)


def test_what_only_the_engine_asks_has_no_words() -> None:
    analysis = analyse(
        "def train(loss, opt, scaler):\n    scaler.scale(loss).backward()\n    scaler.step(opt)", "train"
    )
    assert analysis.domain is not None
    names = names_of(analysis.domain)
    assert names.where(Atom(Subject(("tag", "x"), frozenset(), ""), Equals(1)), True) is None
    assert names.where(Atom(Subject(("value", "x"), frozenset(), ""), Truthy()), True) is None
    (enabled,) = analysis.domain.linked.enabled.values()
    assert names.where(enabled, False) == "where `scaler` is disabled"
    switch = Atom(Subject("amp-switch", frozenset(), "the mixed precision switch"), Truthy())
    assert names.where(switch, True) == "where mixed precision is on (presumed to be one switch)"
