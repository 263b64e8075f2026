"""Words of operations, run side by side on torch's GradScaler and on the machine.

Judges nothing itself: see test_machine_torch.py.

A word is a sequence of tokens; `walk` visits all words up to a length as a prefix tree, whose branches end at the first
run-time error. torch runs each word at several loss scales. The losses are linear in weights that start at zero and the
optimizers are SGD with a learning rate of 1, so that a step shows the gradient it applied; every number is a small
integer times a power of two, so that only a clip rounds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ampclip_lint.amp.machine import ScalerState, State, Table, evaluate, run, wrong_when_applied
from ampclip_lint.amp.ops import (
    Backward,
    Clip,
    ClipKind,
    Multiply,
    NewScaler,
    Op,
    OptimizerStep,
    Scale,
    ScalerStep,
    Store,
    Unscale,
    Update,
    ZeroGrad,
)
from ampclip_lint.amp.units import PLAIN, TRUE_GRADIENT, Inverse, Ref, ScaleOf, Stored

GRADIENTS = ((3.0, 4.0), (-5.0, 12.0))

#: Scales of the first and the second scaler, and whether each update() doubles them. The first is the reference: where
#: S is 1 and stays 1, a program computes what it would without a scaler.
SCALES = (((1.0, 1.0), False), ((8.0, 64.0), False), ((64.0, 8.0), False), ((8.0, 8.0), True))

#: Thresholds far below, just below and just above the norm of the first of the `GRADIENTS`, and above all norms.
THRESHOLDS = (0.25, 4.5, 5.5, 4096.0)

A, B = Ref(0, "a"), Ref(1, "b")
OPTIMIZERS = (Ref(2, "opt0"), Ref(3, "opt1"))
REMEMBERED = Ref(4, "s")


@dataclass(frozen=True)
class Saved:
    """What a word has left behind in torch: all that `Bench` needs to go on from there."""

    grads: tuple[Any, ...]
    backwards: tuple[int, ...]
    scalers: tuple[tuple[float | None, dict[int, dict[str, Any]]], ...]
    remembered: float


class Bench:
    """Real optimizers and real scalers, and how to bring them back to an earlier moment."""

    def __init__(self, scales: tuple[float, float], doubling: bool, enabled: bool = True) -> None:
        self.weights = [torch.zeros(2, requires_grad=True) for _ in OPTIMIZERS]
        self.optimizers = [torch.optim.SGD([weight], lr=1.0) for weight in self.weights]
        self.factor = 2.0 if doubling else 1.0
        self.options = [
            {"init_scale": scale, "growth_interval": 1 if doubling else 10**9, "enabled": enabled} for scale in scales
        ]
        self.scalers = [self.new_scaler(index) for index in range(len(scales))]
        self.backwards = [0 for _ in OPTIMIZERS]
        self.remembered = 1.0

    def new_scaler(self, index: int) -> torch.amp.GradScaler:
        return torch.amp.GradScaler("cpu", **self.options[index])

    def loss(self, *indices: int) -> torch.Tensor:
        """A loss over these optimizers' weights; the gradients of successive losses differ."""
        terms = []
        for index in indices:
            gradient = GRADIENTS[(self.backwards[index] + index) % len(GRADIENTS)]
            terms.append((self.weights[index] * torch.tensor(gradient)).sum())
            self.backwards[index] += 1
        return torch.stack(terms).sum() if len(terms) > 1 else terms[0]

    def grads(self) -> list[torch.Tensor]:
        return [weight.grad for weight in self.weights if weight.grad is not None]

    def save(self) -> Saved:
        """Hands the tensors over: call `load` before anything else is done."""
        scalers = []
        for scaler in self.scalers:
            scale = scaler._scale.item() if scaler.is_enabled() and scaler._scale is not None else None
            stages = scaler._per_optimizer_states if scaler.is_enabled() else {}
            scalers.append((scale, {key: dict(stage) for key, stage in stages.items()}))
        grads = tuple(weight.grad for weight in self.weights)
        return Saved(grads, tuple(self.backwards), tuple(scalers), self.remembered)

    def load(self, saved: Saved) -> None:
        for weight, grad in zip(self.weights, saved.grads):
            weight.grad = None if grad is None else grad.clone()
            weight.data.zero_()
        self.backwards = list(saved.backwards)
        self.remembered = saved.remembered
        for scaler, (scale, stages) in zip(self.scalers, saved.scalers):
            if scaler.is_enabled():
                # The growth tracker counts from 0 again: it decides only where the interval is 1, and is 0 there.
                scaler._scale = None if scale is None else torch.tensor(scale)
                scaler._growth_tracker = None if scale is None else torch.tensor(0, dtype=torch.int32)
                scaler._per_optimizer_states.clear()
                scaler._per_optimizer_states.update({key: dict(stage) for key, stage in stages.items()})

    def applied(self) -> tuple[float, ...]:
        """The gradients that steps have applied since `load`."""
        return tuple(-value for weight in self.weights for value in weight.tolist())


@dataclass(frozen=True)
class Token:
    """A letter of a word: what torch does, given a threshold, and which operations that is."""

    name: str
    act: Callable[[Bench, float], object]
    ops: tuple[Op, ...]
    steps: tuple[Ref, ...] = ()
    bounded: bool = False


def scaled_backward(name: str, scaler: Ref, *indices: int) -> Token:
    optimizers = tuple(OPTIMIZERS[index] for index in indices)
    return Token(
        name,
        lambda bench, _: bench.scalers[scaler.index].scale(bench.loss(*indices)).backward(),
        (Scale(scaler), Backward(ScaleOf(scaler), optimizers)),
    )


def plain_backward(name: str, *indices: int) -> Token:
    optimizers = tuple(OPTIMIZERS[index] for index in indices)
    return Token(name, lambda bench, _: bench.loss(*indices).backward(), (Backward(PLAIN, optimizers),))


def unscale(name: str, scaler: Ref, index: int) -> Token:
    return Token(
        name,
        lambda bench, _: bench.scalers[scaler.index].unscale_(bench.optimizers[index]),
        (Unscale(scaler, OPTIMIZERS[index]),),
    )


def clip_norm(name: str, *indices: int) -> Token:
    optimizers = tuple(OPTIMIZERS[index] for index in indices)
    return Token(
        name,
        lambda bench, bound: torch.nn.utils.clip_grad_norm_([bench.weights[index] for index in indices], bound),
        (Clip(optimizers),),
        bounded=True,
    )


def clip_norm_scaled(name: str, scaler: Ref, index: int) -> Token:
    return Token(
        name,
        lambda bench, bound: torch.nn.utils.clip_grad_norm_(
            [bench.weights[index]], bound * bench.scalers[scaler.index].get_scale()
        ),
        (Clip((OPTIMIZERS[index],), ScaleOf(scaler)),),
        bounded=True,
    )


def clip_norm_remembered(name: str, index: int) -> Token:
    return Token(
        name,
        lambda bench, bound: torch.nn.utils.clip_grad_norm_([bench.weights[index]], bound * bench.remembered),
        (Clip((OPTIMIZERS[index],), Stored(REMEMBERED)),),
        bounded=True,
    )


def clip_value(name: str, index: int) -> Token:
    def act(bench: Bench, bound: float) -> None:
        # Without any gradient torch complains about an empty list; that is no matter of the scaler's.
        if bench.weights[index].grad is not None:
            torch.nn.utils.clip_grad_value_([bench.weights[index]], bound)

    return Token(name, act, (Clip((OPTIMIZERS[index],), kind=ClipKind.VALUE),), bounded=True)


def divide(name: str, scaler: Ref, index: int) -> Token:
    def act(bench: Bench, _: float) -> None:
        grad = bench.weights[index].grad
        if grad is not None:
            grad /= bench.scalers[scaler.index].get_scale()

    return Token(name, act, (Multiply((OPTIMIZERS[index],), Inverse(ScaleOf(scaler))),))


def remember(name: str, scaler: Ref) -> Token:
    def act(bench: Bench, _: float) -> None:
        bench.remembered = bench.scalers[scaler.index].get_scale()

    return Token(name, act, (Store(REMEMBERED, ScaleOf(scaler)),))


def divide_remembered(name: str, index: int) -> Token:
    def act(bench: Bench, _: float) -> None:
        grad = bench.weights[index].grad
        if grad is not None:
            grad /= bench.remembered

    return Token(name, act, (Multiply((OPTIMIZERS[index],), Inverse(Stored(REMEMBERED))),))


def scaler_step(name: str, scaler: Ref, index: int) -> Token:
    optimizer = OPTIMIZERS[index]
    return Token(
        name,
        lambda bench, _: bench.scalers[scaler.index].step(bench.optimizers[index]),
        (ScalerStep(scaler, optimizer),),
        steps=(optimizer,),
    )


def plain_step(name: str, index: int) -> Token:
    optimizer = OPTIMIZERS[index]
    return Token(name, lambda bench, _: bench.optimizers[index].step(), (OptimizerStep(optimizer),), steps=(optimizer,))


def update(name: str, scaler: Ref) -> Token:
    return Token(name, lambda bench, _: bench.scalers[scaler.index].update(), (Update(scaler),))


def update_to(name: str, scaler: Ref) -> Token:
    """``scaler.update(new_scale)``: the scale it has, or the doubled one where updates double."""

    def act(bench: Bench, _: float) -> None:
        chosen = bench.scalers[scaler.index]
        chosen.update(chosen.get_scale() * bench.factor)

    return Token(name, act, (Update(scaler, new_scale=True),))


def zero_grad(name: str, *indices: int) -> Token:
    def act(bench: Bench, _: float) -> None:
        for index in indices:
            bench.optimizers[index].zero_grad()

    return Token(name, act, (ZeroGrad(tuple(OPTIMIZERS[index] for index in indices)),))


def recreate(name: str, scaler: Ref) -> Token:
    """``scaler = GradScaler(…)`` once more."""

    def act(bench: Bench, _: float) -> None:
        bench.scalers[scaler.index] = bench.new_scaler(scaler.index)

    return Token(name, act, (NewScaler(scaler),))


#: The letters of semantics.md, section 0.
ONE_OPTIMIZER = (
    scaled_backward("B", A, 0),
    plain_backward("b", 0),
    unscale("U", A, 0),
    clip_norm("C", 0),
    clip_norm_scaled("K", A, 0),
    clip_value("V", 0),
    divide("D", A, 0),
    scaler_step("S", A, 0),
    plain_step("O", 0),
    update("P", A),
    zero_grad("Z", 0),
)

TWO_OPTIMIZERS = (
    scaled_backward("B", A, 0, 1),
    scaled_backward("B0", A, 0),
    scaled_backward("B1", A, 1),
    plain_backward("b1", 1),
    unscale("U0", A, 0),
    unscale("U1", A, 1),
    clip_norm("C", 0, 1),
    clip_norm("C0", 0),
    scaler_step("S0", A, 0),
    scaler_step("S1", A, 1),
    plain_step("O0", 0),
    update("P", A),
    zero_grad("Z", 0, 1),
)

TWO_SCALERS = (
    scaled_backward("Ba", A, 0),
    scaled_backward("Bb", B, 0),
    unscale("Ua", A, 0),
    unscale("Ub", B, 0),
    clip_norm("C", 0),
    scaler_step("Sa", A, 0),
    scaler_step("Sb", B, 0),
    plain_step("O", 0),
    update("Pa", A),
    update("Pb", B),
    zero_grad("Z", 0),
)

#: Scales that a variable keeps (R), divides by (D) or multiplies a threshold with (T), and update() to a value (N).
REMEMBERED_SCALE = (
    scaled_backward("B", A, 0),
    plain_backward("b", 0),
    unscale("U", A, 0),
    clip_norm("C", 0),
    remember("R", A),
    divide_remembered("D", 0),
    clip_norm_remembered("T", 0),
    scaler_step("S", A, 0),
    plain_step("O", 0),
    update_to("N", A),
    zero_grad("Z", 0),
)

RECREATED_SCALER = (
    scaled_backward("B", A, 0),
    unscale("U", A, 0),
    scaler_step("S", A, 0),
    update("P", A),
    zero_grad("Z", 0),
    recreate("G", A),
)

ALPHABETS = {
    "1 optimizer": ONE_OPTIMIZER,
    "2 optimizers": TWO_OPTIMIZERS,
    "2 scalers": TWO_SCALERS,
    "remembered S": REMEMBERED_SCALE,
}


#: Letters of all kinds over two optimizers and two scalers: too many to enumerate, for words drawn by chance.
EVERYTHING = (
    scaled_backward("B", A, 0, 1),
    scaled_backward("B0", A, 0),
    scaled_backward("B1", A, 1),
    scaled_backward("Bb0", B, 0),
    plain_backward("b0", 0),
    plain_backward("b1", 1),
    unscale("U0", A, 0),
    unscale("U1", A, 1),
    unscale("Ub0", B, 0),
    clip_norm("C", 0, 1),
    clip_norm("C0", 0),
    clip_norm_scaled("K0", A, 0),
    clip_value("V1", 1),
    divide("D0", A, 0),
    remember("R", A),
    divide_remembered("Dr0", 0),
    clip_norm_remembered("T1", 1),
    scaler_step("S0", A, 0),
    scaler_step("S1", A, 1),
    scaler_step("Sb0", B, 0),
    plain_step("O0", 0),
    plain_step("O1", 1),
    update("P", A),
    update("Pb", B),
    update_to("N", A),
    zero_grad("Z", 0, 1),
    zero_grad("Z0", 0),
)


@dataclass(frozen=True)
class Outcome:
    """How a word ends: with an error on either side, or, where its last letter is a step, with verdicts on that step.

    `right` has one verdict of torch for each threshold, or a single one where no threshold occurs in the word.
    """

    word: tuple[Token, ...]
    torch_error: str | None
    machine_error: str | None
    right: tuple[bool, ...] | None = None
    machine_right: bool = True

    def __str__(self) -> str:
        return " ".join(token.name for token in self.word)

    @property
    def raises(self) -> bool:
        return self.torch_error is not None or self.machine_error is not None


@dataclass(frozen=True)
class Position:
    """Where a word has led to: the machine's state, and torch's by threshold (once the word has one) and by scale."""

    word: tuple[Token, ...]
    state: State
    worlds: tuple[tuple[Saved, ...], ...]


class Course:
    """The two runners, torch and the machine, at one loss scale after the other."""

    def __init__(self, enabled: bool = True) -> None:
        self.benches = [Bench(scales, doubling, enabled) for scales, doubling in SCALES]
        self.disabled = frozenset() if enabled else frozenset({A, B})
        self.start = Position((), start(), (tuple(bench.save() for bench in self.benches),))

    def advance(self, position: Position, token: Token) -> tuple[Outcome, Position]:
        """One letter more. Where it raises, the new position is of no use."""
        word = (*position.word, token)
        state, machine_error = run_token(token, position.state, self.disabled)
        torch_error, applied, worlds = self._torch(token, position.worlds)
        if torch_error or machine_error or not token.steps:
            return Outcome(word, torch_error, machine_error), Position(word, state, worlds)
        right = tuple(all(close(first, other) for other in rest) for first, *rest in applied)
        return Outcome(word, None, None, right, machine_right(token, state)), Position(word, state, worlds)

    def _torch(
        self, token: Token, worlds: tuple[tuple[Saved, ...], ...]
    ) -> tuple[str | None, list[list[tuple[float, ...]]], tuple[tuple[Saved, ...], ...]]:
        if token.bounded and len(worlds) == 1:
            worlds = worlds * len(THRESHOLDS)
        errors: set[str | None] = set()
        applied: list[list[tuple[float, ...]]] = []
        reached: list[tuple[Saved, ...]] = []
        for threshold, row in zip(THRESHOLDS, worlds):
            steps, behind = [], []
            for bench, saved in zip(self.benches, row):
                bench.load(saved)
                try:
                    token.act(bench, threshold)
                    errors.add(None)
                except (AssertionError, RuntimeError) as error:
                    errors.add(str(error))
                if token.steps:
                    steps.append(bench.applied())
                behind.append(bench.save())
            applied.append(steps)
            reached.append(tuple(behind))
        # Whether it raises must not depend on S or on a threshold. If it does, no text of the machine matches this one.
        error = errors.pop() if len(errors) == 1 else " / ".join(sorted(map(str, errors)))
        return error, applied, tuple(reached)


def start() -> State:
    """Nothing was scaled yet."""
    return State(scalers=Table({A: ScalerState(scaled=False), B: ScalerState(scaled=False)}))


def run_token(token: Token, state: State, disabled: frozenset[Ref] = frozenset()) -> tuple[State, str | None]:
    """The machine's state behind a token, or torch's error as the machine predicts it."""
    for op in token.ops:
        outcome = run(op, state, disabled)
        if outcome.error is not None:
            return state, outcome.error
        state = outcome.state
    return state, None


def machine_right(token: Token, state: State) -> bool:
    """The machine's verdict on a token that steps, from the state behind it."""
    return not any(wrong_when_applied(state.buffer(optimizer)) for optimizer in token.steps)


def walk(alphabet: tuple[Token, ...], length: int, enabled: bool = True) -> Iterator[Outcome]:
    """All words up to a length, each as long as neither side raises before its last letter."""
    course = Course(enabled)
    pending = [course.start]
    while pending:
        position = pending.pop()
        for token in alphabet:
            outcome, behind = course.advance(position, token)
            yield outcome
            if not outcome.raises and len(behind.word) < length:
                pending.append(behind)


def chance(alphabet: tuple[Token, ...], words: int, length: int, seed: int) -> Iterator[Outcome]:
    """Words drawn by chance. A letter that makes both sides raise is reported and drawn anew."""
    course = Course()
    draw = random.Random(seed)
    for _ in range(words):
        position = course.start
        for _ in range(length):
            outcome, behind = course.advance(position, draw.choice(alphabet))
            yield outcome
            if not outcome.raises:
                position = behind
            if disagreement(outcome):
                break


def spell(alphabet: tuple[Token, ...], text: str) -> Outcome:
    """The outcome of one word, written as its letters with blanks in between."""
    letters = {token.name: token for token in alphabet}
    course = Course()
    position = course.start
    outcome = None
    for name in text.split():
        assert outcome is None or not outcome.raises, f"`{outcome}` raises {outcome.torch_error}"
        outcome, position = course.advance(position, letters[name])
    assert outcome is not None
    return outcome


def disagreement(outcome: Outcome) -> str:
    """What torch and the machine do not agree on; "" where they agree."""
    if outcome.torch_error != outcome.machine_error:
        return f"torch raises {outcome.torch_error!r}, the machine {outcome.machine_error!r}"
    if outcome.right is None or all(outcome.right) == outcome.machine_right:
        return ""
    if outcome.machine_right:
        return "missed: torch applies another gradient at another S"
    return "flagged, but right at every threshold"


def too_loose_beside_a_right_one(outcome: Outcome) -> bool:
    """Whether a word is flagged for nothing but a clip that another one makes void.

    A threshold M·S for true gradients is too loose. It is flagged, and where a right clip limits the same gradients to
    M, it changes nothing. So: without its too loose clips the word is right for the machine, and a right clip is left.
    """
    rest: list[Token] = []
    loose = limited = False
    state = start()
    for token in outcome.word:
        clips = [op for op in token.ops if isinstance(op, Clip)]
        verdicts = {_clip_verdict(clip, state) for clip in clips}
        loose = loose or "loose" in verdicts
        limited = limited or "right" in verdicts
        if "loose" not in verdicts:
            rest.append(token)
        state, _ = run_token(token, state)
    state = start()
    for token in rest:
        state, error = run_token(token, state)
        if error is not None:
            return False
    return loose and limited and machine_right(outcome.word[-1], state)


def _clip_verdict(clip: Clip, state: State) -> str:
    assert clip.bound is not None
    limit = evaluate(clip.bound, state)
    for optimizer in clip.optimizers:
        units = state.buffer(optimizer).units
        if units == limit:
            return "right"
        if units == TRUE_GRADIENT and all(unit.powers and all(power > 0 for _, power in unit.powers) for unit in limit):
            return "loose"
    return "other"


def close(left: tuple[float, ...], right: tuple[float, ...]) -> bool:
    """Equal but for the 1e-6 that clip_grad_norm_ adds to a norm, and for rounding."""
    size = max(map(abs, (*left, *right)))
    return all(abs(a - b) <= 1e-4 * size for a, b in zip(left, right))
