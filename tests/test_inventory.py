"""What the engine tells of training loops: objects, windows, clips, doubts, and the histories of faults."""

from __future__ import annotations

import textwrap

import pytest

from ampclip_lint.amp.analysis import analyse_program
from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.inventory import MAX_MOMENTS, history_of, training_loop
from ampclip_lint.loops import Age, History, Loop
from ampclip_lint.syntax.source import SourceFile

HEADER = "import torch\nfrom torch.nn.utils import clip_grad_norm_, clip_grad_value_\n"


def loops(text: str, header: str = HEADER) -> list[Loop]:
    program = analyse_program([SourceFile("t.py", None, header + textwrap.dedent(text).strip("\n") + "\n")])
    return [loop for function in program.functions if (loop := training_loop(function)) is not None]


def loop(text: str, header: str = HEADER) -> Loop:
    (found,) = loops(text, header)
    return found


def history(text: str, kind: FaultKind) -> History:
    program = analyse_program([SourceFile("t.py", None, HEADER + textwrap.dedent(text).strip("\n") + "\n")])
    found = (
        history_of(function, mark, visit)
        for function in program.functions
        for _, mark, visit in function.found()
        if mark.kind is kind
    )
    first = next(found)
    assert first is not None
    return first


def told(found: History) -> list[str]:
    """Each moment: the event, the line, a mark at the fault, and what each optimizer holds."""
    return [
        f"{moment.event}{'!' if moment.marked else ''} "
        + " | ".join("?" if held.unknown else "+".join(level.text for level in held.levels) for held in moment.held)
        for moment in found.moments
    ]


ACCUMULATING = """
def train(model, loader, accum, use_amp, limit):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", enabled=use_amp, init_scale=2.0**10)
    for i, x in enumerate(loader):
        scaler.scale(model(x)).backward()
        if (i + 1) % accum == 0:
            scaler.unscale_(opt)
            clip_grad_norm_(model.parameters(), max_norm=limit)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
"""


def test_a_loop_with_all_that_it_has() -> None:
    found = loop(ACCUMULATING)
    assert (found.name, found.span.start.row, found.optimizers) == ("train", 3, ("opt",))
    (scaler,) = found.scalers
    assert (scaler.name, [at.start.row for at in scaler.made_at]) == ("scaler", [5])
    assert (scaler.device, scaler.enabled, scaler.init_scale, scaler.inert) == ('"cuda"', "use_amp", "2.0**10", False)
    assert found.windows == ("(i + 1) % accum == 0",)
    (clip,) = found.clips
    assert (clip.kind, clip.threshold, clip.units) == ("norm", "limit", ("1",))
    assert [(call.span.start.row, call.what) for call in found.calls] == [
        (5, "`scaler` is made"),
        (7, "backward adds scaled gradients"),
        (9, "`scaler.unscale_` divides the gradients of `opt` by S"),
        (10, "gradients are clipped by norm"),
        (11, "`scaler.step` applies the gradients of `opt`"),
        (12, "`scaler.update` may change S"),
        (13, "gradients are cleared"),
    ]
    assert found.calls[1].units == (("opt", ("S",)),)
    assert (found.doubts, found.suspicions) == ((), ())


@pytest.mark.parametrize(
    ("construction", "device", "enabled", "init_scale"),
    [
        ("torch.amp.GradScaler()", None, None, None),
        ("torch.amp.GradScaler(device, 2.0**8)", "device", None, "2.0**8"),
        ("torch.cuda.amp.GradScaler(1024.0)", '"cuda"', None, "1024.0"),
        ("torch.cuda.amp.GradScaler(enabled=cfg.amp)", '"cuda"', "cfg.amp", None),
        ("torch.GradScaler('cpu', 8.0, 2.0, 0.5, 100, amp)", "'cpu'", "amp", "8.0"),
        ("torch.amp.GradScaler(*args)", None, None, None),
    ],
)
def test_what_a_construction_says(
    construction: str, device: str | None, enabled: str | None, init_scale: str | None
) -> None:
    (scaler,) = loop(
        ACCUMULATING.replace('torch.amp.GradScaler("cuda", enabled=use_amp, init_scale=2.0**10)', construction)
    ).scalers
    assert (scaler.device, scaler.enabled, scaler.init_scale) == (device, enabled, init_scale)


def test_a_scaler_from_outside_and_one_that_never_scales() -> None:
    text = """
    def step(model, loss, opt, scaler):
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(opt)
    """
    assert loop(text + "    scaler.update()\n").scalers[0].made_at == ()
    made = loop(
        text.replace("opt, scaler", "opt").replace("opt.zero_grad()", "scaler = torch.amp.GradScaler(init_scale=1.0)")
    )
    assert made.scalers[0].inert


def test_norms_that_are_only_measured_are_told_apart_and_values_have_thresholds() -> None:
    found = loop(
        """
        def step(model, loss, opt, scaler, high):
            opt.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            clip_grad_norm_(model.parameters(), float("inf"))
            clip_grad_value_(model.parameters(), high)
            scaler.step(opt)
            scaler.update()
        """
    )
    assert [(clip.kind, clip.threshold) for clip in found.clips] == [("measured", None), ("value", "high")]


@pytest.mark.parametrize(
    ("condition", "windows"),
    [
        ("(i + 1) % n == 0", ("(i + 1) % n == 0",)),
        ("not last and full", ("not last and full",)),
        ("(i + 1) % n == 0 or i == len(loader) - 1", 2),
    ],
)
def test_conditions_of_a_step(condition: str, windows: tuple[str, ...] | int) -> None:
    found = loop(
        f"""
        def train(model, loader, opt, scaler, n, last, full):
            for i, x in enumerate(loader):
                scaler.scale(model(x)).backward()
                if {condition}:
                    scaler.step(opt)
                    scaler.update()
                    opt.zero_grad()
        """
    ).windows
    assert len(found) == windows if isinstance(windows, int) else " and ".join(found) == windows[0]


def test_a_switch_of_mixed_precision_is_no_window() -> None:
    found = loop(
        """
        def train(model, loader, opt, scaler, amp):
            for x in loader:
                opt.zero_grad()
                if amp:
                    scaler.scale(model(x)).backward()
                    scaler.step(opt)
                    scaler.update()
                else:
                    model(x).backward()
                    opt.step()
        """
    )
    assert found.windows == ()


def test_a_rest_behind_the_loop_does_not_hide_the_window() -> None:
    found = loop(
        """
        def train(model, loader, opt, scaler, n):
            opt.zero_grad()
            for i, x in enumerate(loader):
                scaler.scale(model(x)).backward()
                if (i + 1) % n == 0:
                    scaler.step(opt)
                    scaler.update()
                    opt.zero_grad()
            if (i + 1) % n != 0:
                scaler.step(opt)
                scaler.update()
                opt.zero_grad()
        """
    )
    assert found.windows == ("(i + 1) % n == 0",)


def doubts(text: str, header: str = HEADER) -> list[tuple[int, str]]:
    return [(doubt.span.start.row, doubt.reason) for found in loops(text, header) for doubt in found.doubts]


def test_why_something_is_not_decided() -> None:
    step = """
    def step(opt, scaler):
        scaler.step(opt)
        scaler.update()
    """
    unseen = "the gradients of `opt` are unknown here: a backward that makes them is not seen"
    assert doubts(step) == [(4, unseen)]
    backward = """
    def step(loss, opt, scaler):
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
    """
    assert doubts(backward) == [(5, "no step of `opt` is seen: who applies these gradients is not known")]
    nobody = """
    def step(loss, scaler):
        scaler.scale(loss).backward()
        scaler.update()
    """
    assert doubts(nobody) == [(3, "no optimizer is known here, so no gradients are followed")]
    escaping = """
    def step(loss, opt, scaler, engine):
        opt.zero_grad()
        scaler.scale(loss).backward()
        engine.reduce(opt)
        scaler.step(opt)
        scaler.update()
    """
    assert doubts(escaping) == [(6, "code that is not followed may change the gradients of `opt` here")]


def test_a_class_of_the_project_with_the_name_of_torch_s_is_told() -> None:
    text = """
    class GradScaler:
        def scale(self, loss):
            return loss
        def unscale_(self, opt):
            pass
        def step(self, opt):
            opt.step()
        def update(self):
            pass


    def train(loss, opt):
        scaler = GradScaler()
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        scaler.step(opt)
        scaler.update()
    """
    assert doubts(text) == [(14, "it speaks of loss scaling, but no scaler of torch is recognised")]


def test_what_is_no_loop_is_none() -> None:
    assert loops("def make(amp):\n    return torch.amp.GradScaler('cuda', enabled=amp)") == []
    assert loops("def train(loss, opt):\n    opt.zero_grad()\n    loss.backward()\n    opt.step()") == []


CLIPPED = """
def step(model, loss, opt, scaler):
    opt.zero_grad()
    scaler.scale(loss).backward()
    clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
"""


def test_a_fault_is_a_suspicion_and_a_remark_where_nothing_wrong_is_applied() -> None:
    (suspicion,) = loop(CLIPPED).suspicions
    assert (suspicion.span.start.row, suspicion.remark) == (6, False)
    each = """
    def step(model, loss, opt, scaler):
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        for p in model.parameters():
            clip_grad_norm_(p, 1.0)
        scaler.step(opt)
        scaler.update()
    """
    assert [suspicion.remark for suspicion in loop(each).suspicions] == [True]


def test_the_history_of_an_early_clip() -> None:
    assert told(history(CLIPPED, FaultKind.CLIP_SCALED)) == ["zero_grad ", "backward S", "clip! S"]


def test_the_history_of_a_sum_of_units_shows_what_torch_does() -> None:
    found = history(
        """
        def train(model, loader, opt, scaler):
            for i, x in enumerate(loader):
                scaler.scale(model(x)).backward()
                scaler.unscale_(opt)
                if (i + 1) % 4 == 0:
                    scaler.step(opt)
                    scaler.update()
                    opt.zero_grad()
        """,
        FaultKind.UNSCALE_MID_ACCUMULATION,
    )
    assert told(found)[-3:] == ["backward S", "unscale_! 1", "backward 1+S"]


def test_every_optimizer_of_the_path_has_its_line_and_old_scales_are_told() -> None:
    found = history(
        """
        def step(model, loss, first, second, scaler):
            first.zero_grad()
            second.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(first)
            scaler.update()
            scaler.step(second)
            scaler.update()
        """,
        FaultKind.UPDATE_BETWEEN_STEPS,
    )
    assert found.optimizers == ("first", "second")
    assert told(found)[-4:] == ["backward S | S", "scaler.step 1 | S", "update! 1 | S_old", "scaler.step 1 | mixed"]
    ages = [level.age for held in found.moments[-1].held for level in held.levels]
    assert ages == [Age.CURRENT, Age.MIXED]


def test_a_history_is_bounded() -> None:
    many = "".join("    scaler.scale(loss).backward()\n" for _ in range(2 * MAX_MOMENTS))
    found = history(CLIPPED.replace("    scaler.scale(loss).backward()\n", many), FaultKind.CLIP_SCALED)
    assert len(found.moments) == MAX_MOMENTS
    assert found.moments[-1].marked
