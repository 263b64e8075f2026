"""The two judges themselves: what they read, what they notice, and that they leave no trace."""

from __future__ import annotations

import functools
import math
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from ampclip_lint.testing import (
    ARGUMENTS,
    ExpectationError,
    Kit,
    Mismatch,
    ProgramError,
    Raised,
    check_expectations,
    judge,
    judge_overflow,
    load_module,
    parse_expectations,
    read_programs,
)

ROOT = Path(__file__).parent.parent


# --- expectations ----------------------------------------------------------------------------------------------------


def expected(text: str) -> list[tuple[int, str]]:
    return [(e.row, e.code) for e in parse_expectations(text)]


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("x = 1  # expect: AMP101\n", [(1, "AMP101")]),
        ("x = 1  #expect:AMP101\n", [(1, "AMP101")]),
        ("x = 1  # expect: AMP102, AMP101 , AMP101\n", [(1, "AMP101"), (1, "AMP102")]),
        ("x = 1  # a reason # expect: AMP101\n", [(1, "AMP101")]),
        ("# expect: AMP101\nx = 1\n", [(2, "AMP101")]),
        ("if x:\n    # expect: AMP101\n    # another comment\n\n    y = 1\n", [(5, "AMP101")]),
        ("f(\n    # expect: AMP101\n    a,\n    b,  # expect: AMP102\n)\n", [(3, "AMP101"), (4, "AMP102")]),
        ("# expect: AMP101\nx = 1  # expect: AMP102\n", [(2, "AMP101"), (2, "AMP102")]),
        ("text = '# expect: AMP101'\n", []),
        ('"""\n# expect: AMP101\n"""\n', []),
        ("x = 1  # we expect nothing, unexpected: fine\n", []),
    ],
)
def test_expectations(text: str, result: list[tuple[int, str]]) -> None:
    assert expected(text) == result


@pytest.mark.parametrize(
    "text",
    [
        "x = 1  # expect:\n",
        "x = 1  # expect: clip-before-unscale\n",
        "x = 1  # expect: AMP101 because of this\n",
        "x = 1  # expect: AMP101 AMP102\n",
        "x = 1  # expect : AMP101\n",
        "x = 1  # Expect: AMP101\n",
        "x = 1  # expect: AMP101 # expect: AMP102\n",
        "x = 1\n# expect: AMP101\n",
        "x = (1  # expect: AMP101\n",
    ],
)
def test_what_does_not_parse_is_an_error(text: str) -> None:
    with pytest.raises(ExpectationError):
        parse_expectations(text)


@dataclass
class Finding:
    code: str
    span: SimpleNamespace

    @staticmethod
    def at(row: int, code: str) -> Finding:
        return Finding(code, SimpleNamespace(start=SimpleNamespace(row=row)))


def test_expectations_are_compared_both_ways() -> None:
    text = "a  # expect: AMP101\nb\nc  # expect: AMP102, AMP103\n"
    reported = [Finding.at(1, "AMP101"), Finding.at(2, "AMP101"), Finding.at(3, "AMP103")]
    assert check_expectations(text, "f.py", lint=lambda text, name: reported) == [
        Mismatch("f.py", 2, "AMP101", "unexpected"),
        Mismatch("f.py", 3, "AMP102", "missing"),
    ]


def test_the_right_code_on_the_wrong_line_is_two_mismatches() -> None:
    mismatches = check_expectations("a  # expect: AMP101\nb\n", "f.py", lint=lambda *_: [Finding.at(2, "AMP101")])
    assert [str(m) for m in mismatches] == ["f.py:1: missing AMP101", "f.py:2: unexpected AMP101"]


# --- files of programs -----------------------------------------------------------------------------------------------

PROGRAMS = """\
import torch

def helper():
    pass  # expect: AMP101

def bad_first(net):
    # raises: RuntimeError: step() has already been called
    helper()


class Trainer:
    pass


def fp_ok_second():
    # The guard is too clever.
    return "def ok_third(): ..."


def other():
    pass
"""


def test_programs_own_the_lines_up_to_their_end() -> None:
    first, second = read_programs(PROGRAMS)
    assert (first.name, first.first_row, first.last_row) == ("bad_first", 1, 8)
    assert first.raises == ("RuntimeError", "step() has already been called")
    assert (first.is_wrong, first.is_flagged, first.reasons) == (True, True, ())
    assert (second.name, second.first_row, second.last_row) == ("fp_ok_second", 9, 17)
    assert (second.is_wrong, second.is_flagged, second.reasons) == (False, True, ("The guard is too clever.",))
    assert second.holds(11)
    assert not second.holds(18)


def test_a_malformed_raises_comment_is_an_error() -> None:
    with pytest.raises(ExpectationError):
        read_programs("def bad_x():\n    # raises: no, it does not\n    pass\n")


def test_modules_are_loaded_by_path(tmp_path: Path) -> None:
    file = tmp_path / "programs.py"
    file.write_text("def ok_x():\n    return 3\n")
    assert load_module(file).ok_x() == 3


def test_torch_is_not_imported_before_a_program_runs() -> None:
    code = "import sys, ampclip_lint.testing as t; t.parse_expectations('x'); sys.exit('torch' in sys.modules)"
    environment = {"PYTHONPATH": str(ROOT)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


# --- the dynamic judge -----------------------------------------------------------------------------------------------

torch = pytest.importorskip("torch")


def test_every_documented_argument_is_there() -> None:
    kit = Kit()
    for name in ARGUMENTS:
        assert getattr(kit, name) is not None
    assert len(kit.loader) == 6
    assert kit.net_b(kit.net_a(kit.xb)).shape == kit.yb.shape
    assert kit.optims == {"g": kit.opt_a, "d": kit.opt_b}


@pytest.mark.parametrize("name", ["net", "net_a", "net_b"])
@pytest.mark.parametrize("batch", range(6))
def test_gradients_are_large_enough_to_be_clipped(name: str, batch: int) -> None:
    kit = Kit()
    net = getattr(kit, name)
    xb, yb = kit.loader[batch]
    (kit.crit(net(xb), yb) / 6).backward()
    assert torch.nn.utils.get_total_norm([p.grad for p in net.parameters()]) > 1.5


def ok(net, loader, opt, scaler, crit):
    for xb, yb in loader:
        opt.zero_grad()
        scaler.scale(crit(net(xb), yb)).backward()
        scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()


def bad_clip(net, loader, opt, scaler, crit):
    for xb, yb in loader:
        opt.zero_grad()
        scaler.scale(crit(net(xb), yb)).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()


def test_a_right_program() -> None:
    verdict = judge(ok)
    assert verdict.invariant
    assert verdict.clip_active
    assert verdict.scaled
    assert verdict.steps == 6
    assert verdict.error is None
    assert [row.scale for row in verdict.rows] == ["1", "8", "64", "changing"]
    assert [row.difference for row in verdict.rows] == [0.0] * 4


def test_a_wrong_program_shows_the_scale() -> None:
    verdict = judge(bad_clip)
    assert not verdict.invariant
    assert [row.ratio for row in verdict.rows[:3]] == pytest.approx([1, 1 / 8, 1 / 64], rel=1e-4)


def test_the_worked_example() -> None:
    def program(weight, scaler):
        opt = torch.optim.SGD([weight], lr=1.0)
        scaler.scale(weight @ torch.tensor([3.0, 4.0])).backward()
        torch.nn.utils.clip_grad_norm_([weight], 1.0)
        scaler.step(opt)
        applied.append(weight.grad.tolist())

    applied: list[list[float]] = []
    fill = {"weight": lambda kit: torch.zeros(2, requires_grad=True)}
    row = judge(program, fill=fill).rows[1]
    assert (row.scale, row.intended, row.applied, row.ratio) == ("8", *map(pytest.approx, (1.0, 0.125, 0.125)))
    assert applied[2] == pytest.approx([0.075, 0.1])


def test_nothing_is_clipped_where_the_bound_is_large() -> None:
    def loose(net, xb, yb, opt, scaler, crit):
        scaler.scale(crit(net(xb), yb)).backward()
        scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1e6)
        scaler.step(opt)
        scaler.update()

    verdict = judge(loose)
    assert verdict.invariant
    assert not verdict.clip_active


def test_clipping_by_hand_is_noticed_between_microbatches_too() -> None:
    def by_hand(net, loader, crit):
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for xb, yb in loader:
            crit(net(xb), yb).backward()
            if xb is loader[0][0]:
                for p in net.parameters():
                    p.grad.mul_(0.5)
        opt.step()

    assert judge(by_hand).clip_active


def new_style(torch):
    return torch.amp.GradScaler("cuda", 1024.0)


def legacy(torch):
    return torch.cuda.amp.GradScaler(1024.0)


def short(torch):
    return torch.GradScaler(init_scale=1024.0)


def by_partial(torch):
    return functools.partial(torch.amp.GradScaler, device="cuda")(growth_interval=1)


class Subclass(torch.amp.GradScaler):
    pass


def subclass(torch):
    return Subclass("cuda")


@pytest.mark.parametrize("make", [new_style, legacy, short, by_partial, subclass], ids=lambda make: make.__name__)
@pytest.mark.parametrize("unscale", [True, False])
def test_scalers_of_every_spelling_are_judged(make, unscale: bool) -> None:
    def program(net, loader, opt, crit):
        scaler = make(torch)
        assert isinstance(scaler, torch.amp.GradScaler)
        for xb, yb in loader:
            opt.zero_grad()
            with torch.autocast("cuda"), torch.cuda.amp.autocast():
                loss = crit(net(xb), yb)
            scaler.scale(loss).backward()
            if unscale:
                scaler.unscale_(opt)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()

    verdict = judge(program)
    assert verdict.scaled
    assert verdict.error is None
    assert verdict.invariant == unscale


def test_a_disabled_scaler_stays_disabled() -> None:
    def program(net, xb, yb, opt, crit):
        scaler = torch.amp.GradScaler("cuda", 2.0**16, 2.0, 0.5, 2000, False)
        scaler.scale(crit(net(xb), yb)).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)

    verdict = judge(program)
    assert verdict.invariant
    assert not verdict.scaled


@pytest.mark.parametrize("update", [True, False])
def test_an_explicit_scale_of_one_stays_until_an_update(update: bool) -> None:
    def program(net, loader, crit):
        scaler = torch.amp.GradScaler("cuda", init_scale=1.0)
        for xb, yb in loader if update else loader[:1]:
            opt = torch.optim.SGD(net.parameters(), lr=0.01)
            opt.zero_grad()
            scaler.scale(crit(net(xb), yb)).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(opt)
            if update:
                scaler.update()

    assert judge(program).invariant is not update


def test_an_update_between_two_steps_shows_only_where_the_scale_changes() -> None:
    def program(net_a, net_b, xb, yb, opts, scaler, crit):
        scaler.scale(crit(net_b(net_a(xb)), yb)).backward()
        for o in opts:
            scaler.step(o)
            scaler.update()

    verdict = judge(program)
    assert not verdict.invariant
    assert [row.difference for row in verdict.rows[:3]] == [0.0] * 3
    assert verdict.rows[3].ratio == pytest.approx(0.25)


def test_two_scalers_have_two_scales() -> None:
    def program(net, xb, yb, opt, crit):
        first, second = torch.amp.GradScaler(), torch.amp.GradScaler()
        second.scale(crit(net(xb), yb))
        first.scale(crit(net(xb), yb)).backward()
        second.step(opt)

    assert not judge(program).invariant


def test_a_fused_optimizer_divides_by_itself() -> None:
    def program(net, loader, scaler, crit):
        opt = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
        for xb, yb in loader:
            opt.zero_grad()
            scaler.scale(crit(net(xb), yb)).backward()
            scaler.step(opt)
            scaler.update()

    assert judge(program).invariant


@pytest.mark.parametrize("fused", [True, False])
def test_a_clip_in_a_hook_before_the_step_counts(fused: bool) -> None:
    def program(net, loader, scaler, crit):
        opt = torch.optim.SGD(net.parameters(), lr=1e-3, fused=fused)
        opt.register_step_pre_hook(lambda *_: torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0) and None)
        for xb, yb in loader:
            opt.zero_grad()
            scaler.scale(crit(net(xb), yb)).backward()
            scaler.step(opt)
            scaler.update()

    assert judge(program).invariant is not fused


def test_of_a_wrapping_optimizer_only_the_inner_step_counts() -> None:
    class Wrapper(torch.optim.Optimizer):
        def __init__(self, inner):
            super().__init__(inner.param_groups, {})
            self.inner = inner

        def step(self, closure=None):
            return self.inner.step(closure)

    def program(net, xb, yb, opt, scaler, crit):
        scaler.scale(crit(net(xb), yb)).backward()
        scaler.step(Wrapper(opt))
        scaler.update()

    verdict = judge(program)
    assert verdict.steps == 1
    assert verdict.invariant


def test_errors_of_torch_are_told() -> None:
    def program(net, xb, yb, opt, scaler, crit):
        scaler.scale(crit(net(xb), yb)).backward()
        scaler.step(opt)
        scaler.step(opt)

    verdict = judge(program)
    assert not verdict.invariant
    assert verdict.error == Raised("RuntimeError", "step() has already been called since the last update().")
    assert verdict.rows[0].error == verdict.error


def test_a_program_that_fails_without_a_scaler_is_no_evidence() -> None:
    def program(net, opt):
        net.forwrad()

    with pytest.raises(ProgramError, match="AttributeError"):
        judge(program)


def test_unknown_parameters_are_refused() -> None:
    with pytest.raises(ProgramError, match="'model'"):
        judge(lambda model: None)


def test_parameters_with_defaults_keep_them() -> None:
    seen = []
    judge(lambda loader=3, flag=True: seen.append((loader, flag)))
    assert set(seen) == {(3, True)}


def test_the_judge_leaves_no_trace() -> None:
    before = torch.amp.GradScaler.__init__, torch.amp.GradScaler.update, torch.autocast.__init__
    torch.manual_seed(7)
    random.seed(7)
    numbers = (torch.get_rng_state().clone(), random.getstate())
    judge(bad_clip)
    assert before == (torch.amp.GradScaler.__init__, torch.amp.GradScaler.update, torch.autocast.__init__)
    assert torch.equal(numbers[0], torch.get_rng_state())
    assert numbers[1] == random.getstate()
    kit = Kit()
    kit.crit(kit.net(kit.xb), kit.yb).backward()
    kit.opt.step()  # no hook of the judge is left to fail here


# --- overflow --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_right_program_skips_the_step(value: float) -> None:
    verdict = judge_overflow(ok, value=value)
    assert (verdict.applied, verdict.hidden, verdict.skipped, verdict.backed_off) == (False, False, True, True)
    assert verdict.error is None


def test_a_value_clip_hides_the_overflow() -> None:
    def program(net, loader, opt, scaler, crit):
        for xb, yb in loader:
            opt.zero_grad()
            scaler.scale(crit(net(xb), yb)).backward()
            torch.nn.utils.clip_grad_value_(net.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()

    verdict = judge_overflow(program, at=1)
    assert (verdict.applied, verdict.hidden, verdict.skipped, verdict.backed_off) == (False, True, False, False)


def test_a_plain_step_applies_the_overflow() -> None:
    def program(net, loader, opt, scaler, crit):
        for xb, yb in loader:
            opt.zero_grad()
            scaler.scale(crit(net(xb), yb)).backward()
            scaler.unscale_(opt)
            opt.step()
            scaler.update()

    verdict = judge_overflow(program, at=6)
    assert verdict.applied
    assert not verdict.skipped
    assert verdict.backed_off


def test_an_overflow_that_is_cleared_is_not_hidden() -> None:
    def program(net, loader, opt, scaler, crit):
        for xb, yb in loader[:2]:
            opt.zero_grad()
            scaler.scale(crit(net(xb), yb)).backward()
        scaler.step(opt)
        scaler.update()

    verdict = judge_overflow(program, at=1)
    assert (verdict.applied, verdict.hidden) == (False, False)


def test_a_joint_clip_carries_nan_to_the_other_optimizer() -> None:
    def program(net_a, net_b, xb, yb, opts, scaler, crit):
        scaler.scale(crit(net_a(xb), yb) + crit(net_b(xb), yb)).backward()
        for o in opts:
            scaler.unscale_(o)
        torch.nn.utils.clip_grad_norm_([*net_a.parameters(), *net_b.parameters()], 1.0)
        for o in opts:
            scaler.step(o)
        scaler.update()

    assert judge_overflow(program, value=math.nan).applied


def test_an_error_raised_by_the_overflow_is_told() -> None:
    def program(net, loader, opt, scaler, crit):
        for xb, yb in loader:
            opt.zero_grad()
            scaler.scale(crit(net(xb), yb)).backward()
            scaler.unscale_(opt)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)
            scaler.step(opt)
            scaler.update()

    error = judge_overflow(program, at=2).error
    assert error is not None
    assert error.type == "RuntimeError"


def test_without_a_gradient_nothing_can_overflow() -> None:
    with pytest.raises(ProgramError):
        judge_overflow(lambda opt: None)
