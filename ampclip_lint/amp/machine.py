"""The GradScaler machine: what each operation does to buffers, stages and scales, exactly as torch does it.

`run` is the table of torch.amp.GradScaler (``torch/amp/grad_scaler.py``) as one ``match`` over operations. It judges
nothing: that a gradient is applied at a wrong unit is visible in the state, and a run-time error ends the run with
torch's text. tests/test_machine_torch.py compares it with torch on every word of operations up to a length.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from enum import Enum
from typing import Generic, TypeVar

from ampclip_lint.amp.ops import (
    AtStage,
    Backward,
    Clip,
    ClipKind,
    CompareReturnedNorm,
    Edit,
    Escape,
    Freeze,
    GradientsExist,
    Hook,
    Multiply,
    NewOptimizer,
    NewScaler,
    Op,
    OptimizerStep,
    RaiseOnNonfinite,
    Read,
    Reenter,
    Retire,
    Scale,
    ScalerStep,
    Store,
    Unscale,
    Update,
    ZeroGrad,
)
from ampclip_lint.amp.units import (
    MIXED,
    NO_UNITS,
    ONE,
    TRUE_GRADIENT,
    Age,
    Bounded,
    Inverse,
    Known,
    OfGradients,
    Product,
    Ref,
    Root,
    ScaleOf,
    Stored,
    Sum,
    Unit,
    UnitExpr,
    Units,
    aged,
    invert,
    product,
    root,
    scale_of,
    union,
)
from ampclip_lint.records import dataclass

ALREADY_UNSCALED = "unscale_() has already been called on this optimizer since the last update()."
UNSCALE_AFTER_STEP = "unscale_() is being called after step()."
ALREADY_STEPPED = "step() has already been called since the last update()."
NO_CHECKS_FOR_STEP = "No inf checks were recorded for this optimizer."
NO_CHECKS_FOR_UPDATE = "No inf checks were recorded prior to update."
SCALE_IS_NONE = (
    "Attempted {} but _scale is None.  "
    "This may indicate your script did not use scaler.scale(loss or outputs) earlier in the iteration."
)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)


class Table(Mapping[K, V], Generic[K, V]):
    """An immutable, hashable mapping for the parts of a state."""

    __slots__ = ("_hash", "_items")

    def __init__(self, items: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        self._items: dict[K, V] = dict(items)
        self._hash: int | None = None

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = sum(map(hash, self._items.items()))
        return hash(self._hash)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self._items == other._items

    def put(self, key: K, value: V) -> Table[K, V]:
        """The table with one entry changed."""
        before = self._items.get(key)
        if before == value and key in self._items:
            return self
        changed = Table({**self._items, key: value})
        if self._hash is not None:  # What is left of the sum is as it was.
            changed._hash = self._hash + hash((key, value)) - (hash((key, before)) if key in self._items else 0)
        return changed


class Stage(Enum):
    """Where a (scaler, optimizer) pair stands; ``update()`` alone brings it back to READY."""

    READY = "ready"
    UNSCALED = "unscaled"
    STEPPED = "stepped"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Buffer:
    """The gradients of one optimizer.

    `units` must be in it, `maybe` may be in it; with `unknown`, code outside the program may have put anything there.
    `applied`: a step has consumed them. `bent`: something that is not linear in S was done to them at a wrong unit.
    `lost`: they were cleared before a step applied them. `owed`: an update that came too early belongs behind the next
    step. `absent`: the optimizer is not made yet, or not on this path. `frozen`: its parameters need no gradients now.
    The node indices say where a property came from, for reports: the last backward, the unscale_ (or division by hand)
    that made it true, the plain backwards in it, the update that made it stale, the backward that added to gradients
    already applied, an unscale_ that came too early, the last clip, a hook that clamps, an update without a check that
    came while they were held, the first update since what may be in it came.
    """

    units: Units = NO_UNITS
    maybe: Units = NO_UNITS
    unknown: bool = False
    applied: bool = False
    bent: bool = False
    backward_at: int | None = None
    unscaled_at: int | None = None
    divided_at: int | None = None
    plain_at: tuple[int, ...] = ()
    stale_at: int | None = None
    carried_at: int | None = None
    deferred_at: int | None = None
    clipped_at: int | None = None
    hooked_at: int | None = None
    lost: bool = False
    owed: bool = False
    unchecked_at: int | None = None
    aged_at: int | None = None
    absent: bool = False
    frozen: bool = False


@dataclass(frozen=True)
class Pair:
    """Stage of an optimizer at a scaler, whether an inf check is on record, and the call that set the stage."""

    stage: Stage = Stage.READY
    recorded: bool = False
    at: int | None = None
    renewed: bool = False


@dataclass(frozen=True)
class ScalerState:
    """`scaled`: scale() was called, so the scale exists. `checked`: some inf check is on record since update()."""

    scaled: bool = True
    checked: bool = False
    unknown: bool = False


@dataclass(frozen=True)
class State:
    """Everything that the operations of a program change."""

    buffers: Table[Ref, Buffer] = field(default_factory=Table)
    pairs: Table[tuple[Ref, Ref], Pair] = field(default_factory=Table)
    scalers: Table[Ref, ScalerState] = field(default_factory=Table)
    variables: Table[Ref, Units] = field(default_factory=Table)
    explained: bool = False
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        parts = (self.buffers, self.pairs, self.scalers, self.variables, self.explained)
        object.__setattr__(self, "_hash", hash(parts))  # States are looked up all the time.

    def __hash__(self) -> int:
        return self._hash

    def buffer(self, optimizer: Ref) -> Buffer:
        return self.buffers.get(optimizer, Buffer())

    def pair(self, scaler: Ref, optimizer: Ref) -> Pair:
        return self.pairs.get((scaler, optimizer), Pair())

    def scaler(self, scaler: Ref) -> ScalerState:
        return self.scalers.get(scaler, ScalerState())

    def with_buffer(self, optimizer: Ref, buffer: Buffer) -> State:
        return replace(self, buffers=self.buffers.put(optimizer, buffer))

    def with_pair(self, scaler: Ref, optimizer: Ref, pair: Pair) -> State:
        return replace(self, pairs=self.pairs.put((scaler, optimizer), pair))

    def without_variables(self, live: frozenset[Ref]) -> State:
        """Without the variables that nothing reads any more."""
        if all(variable in live for variable in self.variables):
            return self
        kept = Table({variable: units for variable, units in self.variables.items() if variable in live})
        return replace(self, variables=kept)

    def with_scaler(self, scaler: Ref, value: ScalerState) -> State:
        return replace(self, scalers=self.scalers.put(scaler, value))


@dataclass(frozen=True)
class Outcome:
    """The state behind an operation, or torch's error text where it raises."""

    state: State
    error: str | None = None


def evaluate(expr: UnitExpr, state: State, disabled: frozenset[Ref] = frozenset()) -> Units:
    """The units of a value in a state. A disabled scaler's S is 1."""
    match expr:
        case Known(units):
            return units
        case Stored(variable):
            return state.variables.get(variable, TRUE_GRADIENT)
        case ScaleOf(scaler):
            return TRUE_GRADIENT if scaler in disabled else frozenset({scale_of(scaler)})
        case OfGradients(optimizers):
            return union(state.buffer(optimizer).units for optimizer in optimizers) or TRUE_GRADIENT
        case Product(left, right):
            return product(evaluate(left, state, disabled), evaluate(right, state, disabled))
        case Inverse(of):
            return frozenset(map(invert, evaluate(of, state, disabled)))
        case Root(of):
            return frozenset(map(root, evaluate(of, state, disabled)))
        case Sum(parts):
            return union(evaluate(part, state, disabled) for part in parts)
        case Bounded(of):
            return frozenset(unit if unit.is_one else MIXED for unit in evaluate(of, state, disabled))


def run(op: Op, state: State, disabled: frozenset[Ref] = frozenset(), node: int = -1) -> Outcome:
    """What torch does at `op`; scalers in `disabled` are inert. `node` is noted in the buffers it touches."""
    match op:
        case NewScaler(scaler):
            fresh = new_epoch(scaler, state, node)
            return Outcome(fresh.with_scaler(scaler, ScalerState(scaled=False)))
        case NewOptimizer(optimizer, made):
            if made or state.buffer(optimizer).absent:
                return Outcome(state.with_buffer(optimizer, Buffer(unknown=not made)))
            return Outcome(state)
        case Retire(optimizer):
            return Outcome(state.with_buffer(optimizer, Buffer(absent=True)))
        case Scale(scaler):
            return Outcome(state.with_scaler(scaler, replace(state.scaler(scaler), scaled=True)))
        case Backward(loss, must, may):
            units = evaluate(loss, state, disabled)
            must, may = as_frozen(op, state)
            for optimizer in must:
                if not state.buffer(optimizer).absent:
                    state = state.with_buffer(optimizer, _contribute(state.buffer(optimizer), units, node))
            for optimizer in may:
                held = state.buffer(optimizer)
                if held.absent:
                    continue
                plain = (node,) if ONE in units else held.plain_at  # The last one is the likeliest.
                more = replace(held, maybe=held.maybe | units, backward_at=node, plain_at=plain)
                state = state.with_buffer(optimizer, more)
            for optimizer in op.vague:
                if not state.buffer(optimizer).absent:
                    state = state.with_buffer(optimizer, replace(state.buffer(optimizer), unknown=True))
            return Outcome(_renew(state, must))
        case Unscale(scaler, optimizer):
            return Outcome(state) if scaler in disabled else _unscale(scaler, optimizer, op.buffer, state, node)
        case Clip(optimizers, bound, kind):
            clipped = _clip(optimizers, bound, kind, state, disabled)
            return Outcome(keep_norm(op, clipped, evaluate(OfGradients(optimizers), state, disabled)))
        case Multiply(optimizers, factor):
            by = evaluate(factor, state, disabled)
            for optimizer in optimizers:
                held = state.buffer(optimizer)
                if op.each and held.divided_at == node:
                    continue  # Another tensor of the same buffer: the loop multiplies each of them once.
                divided = node if by != TRUE_GRADIENT else held.divided_at
                multiplied = replace(held, units=product(held.units, by), divided_at=divided)
                state = state.with_buffer(optimizer, multiplied)
            return Outcome(state)
        case Edit(optimizers, added):
            plus = TRUE_GRADIENT if added is None else evaluate(added, state, disabled) or TRUE_GRADIENT
            for optimizer in optimizers:
                held = state.buffer(optimizer)
                bent = held.bent or (bool(held.units) and held.units != plus)
                state = state.with_buffer(optimizer, replace(held, bent=bent))
            return Outcome(state)
        case ScalerStep(scaler, optimizer):
            if scaler in disabled:
                return Outcome(apply_gradients(op.buffer, state))
            return _scaler_step(scaler, optimizer, op.buffer, state, node)
        case OptimizerStep(optimizer):
            return Outcome(apply_gradients(optimizer, state))
        case Update(scaler, new_scale):
            if op.restores and scaler not in disabled:
                fresh = new_epoch(scaler, state, node)
                return Outcome(replace(fresh, pairs=state.pairs, scalers=state.scalers))
            return Outcome(state) if scaler in disabled else _update(scaler, new_scale, state, node)
        case ZeroGrad(optimizers):
            for optimizer in optimizers:
                old = state.buffer(optimizer)
                state = state.with_buffer(
                    optimizer,
                    Buffer(hooked_at=old.hooked_at, lost=_loses(old), absent=old.absent, frozen=old.frozen),
                )
            return Outcome(state)
        case Freeze(optimizers, holds):
            for optimizer in optimizers:
                state = state.with_buffer(optimizer, replace(state.buffer(optimizer), frozen=holds))
            return Outcome(state)
        case Hook(optimizers):
            for optimizer in optimizers:
                state = state.with_buffer(optimizer, replace(state.buffer(optimizer), hooked_at=node))
            return Outcome(state)
        case Store(variable, value):
            return Outcome(replace(state, variables=state.variables.put(variable, evaluate(value, state, disabled))))
        case Reenter():
            for optimizer, held in state.buffers.items():
                if not held.absent:
                    state = state.with_buffer(optimizer, Buffer(unknown=True, hooked_at=held.hooked_at))
            for scaler in state.scalers:
                state = state.with_scaler(scaler, ScalerState(scaled=True, unknown=True))
            return Outcome(replace(state, pairs=Table()))
        case Read() | RaiseOnNonfinite() | CompareReturnedNorm() | GradientsExist() | AtStage():
            return Outcome(state)
        case Escape(scalers, optimizers, stages):
            return Outcome(_escape(scalers, optimizers, stages, state))


def as_frozen(op: Backward, state: State) -> tuple[tuple[Ref, ...], tuple[Ref, ...]]:
    """Which optimizers a backward must reach and which it may. What is frozen may have been so only since the loss was
    computed.
    """
    still = tuple(optimizer for optimizer in op.must if state.buffer(optimizer).frozen)
    return tuple(optimizer for optimizer in op.must if optimizer not in still), (*op.may, *still)


def _loses(held: Buffer) -> bool:
    """Whether clearing throws gradients away that no step has applied."""
    return bool(held.units) and not held.applied


def keep_norm(op: Clip, state: State, units: Units) -> State:
    """The norm that a clip returns is kept in a variable."""
    return state if op.result is None else replace(state, variables=state.variables.put(op.result, units))


def _contribute(held: Buffer, units: Units, node: int) -> Buffer:
    again = ONE not in units or node in held.plain_at
    plain = held.plain_at if again else (*held.plain_at, node)
    return replace(held, lost=False, units=held.units | units, backward_at=node, plain_at=plain)


def _renew(state: State, optimizers: tuple[Ref, ...]) -> State:
    """A backward after unscale_ or step: the pair's stage is about older gradients now."""
    pairs = state.pairs
    for key, pair in state.pairs.items():
        if key[1] in optimizers and pair.stage in (Stage.UNSCALED, Stage.STEPPED) and not pair.renewed:
            pairs = pairs.put(key, replace(pair, renewed=True))
    return replace(state, pairs=pairs)


def _unscale(scaler: Ref, optimizer: Ref, buffer: Ref, state: State, node: int) -> Outcome:
    if not state.scaler(scaler).scaled:
        return Outcome(state, SCALE_IS_NONE.format("unscale_"))
    pair, held = state.pair(scaler, optimizer), state.buffer(buffer)
    if pair.stage is Stage.UNSCALED:
        return Outcome(state, ALREADY_UNSCALED)
    if pair.stage is Stage.STEPPED:
        return Outcome(state, UNSCALE_AFTER_STEP)
    some = bool(held.units or held.maybe) or held.unknown or pair.stage is Stage.UNKNOWN
    by = frozenset({scale_of(scaler, -1)})
    fresh = replace(
        held,
        units=product(held.units, by),
        maybe=product(held.maybe, by),
        unscaled_at=node,
        plain_at=(),
        deferred_at=None,
    )
    state = state.with_buffer(buffer, fresh).with_pair(scaler, optimizer, Pair(Stage.UNSCALED, some, node))
    known = state.scaler(scaler)
    return Outcome(state.with_scaler(scaler, replace(known, checked=known.checked or some)))


def _scaler_step(scaler: Ref, optimizer: Ref, buffer: Ref, state: State, node: int) -> Outcome:
    if not state.scaler(scaler).scaled:
        return Outcome(state, SCALE_IS_NONE.format("step"))
    pair = state.pair(scaler, optimizer)
    if pair.stage is Stage.STEPPED:
        return Outcome(state, ALREADY_STEPPED)
    if pair.stage in (Stage.READY, Stage.UNKNOWN):
        state = _unscale(scaler, optimizer, buffer, state, node).state
        pair = state.pair(scaler, optimizer)
    if not pair.recorded:
        return Outcome(state, NO_CHECKS_FOR_STEP)
    state = apply_gradients(buffer, state)
    return Outcome(state.with_pair(scaler, optimizer, Pair(Stage.STEPPED, True, node)))


def apply_gradients(optimizer: Ref, state: State) -> State:
    """The optimizer consumes what its buffer holds."""
    held = state.buffer(optimizer)
    if not (held.units or held.maybe or held.unknown):
        return state
    return state.with_buffer(optimizer, replace(held, applied=True))


def wrong_when_applied(buffer: Buffer) -> bool:
    """The law: a gradient that is applied carries no power of S, and nothing non-linear was done to it while it did."""
    return buffer.bent or any(not unit.is_one for unit in buffer.units)


def _clip(
    optimizers: tuple[Ref, ...], bound: UnitExpr | None, kind: ClipKind, state: State, disabled: frozenset[Ref]
) -> State:
    """A clip compares with its bound. One buffer of another unit spoils a joint norm for all of them."""
    if bound is None:
        return state
    limit = evaluate(bound, state, disabled)
    if kind in (ClipKind.HAND, ClipKind.ADAPTIVE):
        # The bound of a clip by hand is the factor that it multiplies with, which must carry no scale.
        touched = [optimizer for optimizer in optimizers if state.buffer(optimizer).units]
        for optimizer in touched if limit != TRUE_GRADIENT else ():
            state = state.with_buffer(optimizer, replace(state.buffer(optimizer), bent=True))
        return state
    held = [optimizer for optimizer in optimizers if state.buffer(optimizer).units]
    wrong = [optimizer for optimizer in held if state.buffer(optimizer).units != limit]
    for optimizer in held if wrong and kind is not ClipKind.VALUE else wrong:
        state = state.with_buffer(optimizer, replace(state.buffer(optimizer), bent=True))
    return state


def _update(scaler: Ref, new_scale: bool, state: State, node: int) -> Outcome:
    known = state.scaler(scaler)
    if not known.scaled:
        return Outcome(state, SCALE_IS_NONE.format("update"))
    if not (new_scale or known.checked or known.unknown):
        return Outcome(state, NO_CHECKS_FOR_UPDATE)
    return Outcome(new_epoch(scaler, state, node))


def new_epoch(scaler: Ref, state: State, node: int) -> State:
    """After update(): all stages are READY, and what carries the scale carries an old one."""
    pairs = {key: pair for key, pair in state.pairs.items() if key[0] != scaler}
    buffers: dict[Ref, Buffer] = {}
    for optimizer, held in state.buffers.items():
        units, maybe = aged(held.units, scaler), aged(held.maybe, scaler)
        stale = node if held.units and not held.applied else held.stale_at
        since = node if maybe != held.maybe and held.aged_at is None else held.aged_at
        buffers[optimizer] = replace(held, units=units, maybe=maybe, stale_at=stale, aged_at=since)
    variables = {variable: aged(units, scaler) for variable, units in state.variables.items()}
    scalers = state.scalers.put(scaler, ScalerState(scaled=True, checked=False))
    return replace(
        state, buffers=Table(buffers), pairs=Table(pairs), variables=Table(variables), scalers=scalers, explained=False
    )


def _escape(scalers: tuple[Ref, ...], optimizers: tuple[Ref, ...], stages: bool, state: State) -> State:
    """Outside code may have done anything with these: unknown until cleared and updated."""
    for optimizer in optimizers:
        state = state.with_buffer(optimizer, Buffer(unknown=True))
    if not stages:
        return state
    pairs = dict(state.pairs)
    for scaler in scalers:
        state = state.with_scaler(scaler, ScalerState(scaled=True, checked=True, unknown=True))
        for key in pairs:
            if key[0] == scaler:
                pairs[key] = Pair(Stage.UNKNOWN, True)
    for optimizer in optimizers:
        for key in pairs:
            if key[1] == optimizer:
                pairs[key] = Pair(Stage.UNKNOWN, True)
    return replace(state, pairs=Table(pairs))


def as_if_disabled(state: State, disabled: frozenset[Ref]) -> State:
    """A state in which it turns out only now that a scaler was disabled all along: its S was 1."""

    def plain(units: Units) -> Units:
        if not any(scaler in disabled for unit in units for scaler, _ in unit.powers):
            return units
        return frozenset(
            Unit(tuple((s, p) for s, p in unit.powers if s not in disabled), unit.age) if unit.powers else unit
            for unit in units
        )

    for optimizer, held in state.buffers.items():
        units, maybe = plain(held.units), plain(held.maybe)
        if units is not held.units or maybe is not held.maybe:
            state = state.with_buffer(optimizer, replace(held, units=units, maybe=maybe, stale_at=None))
    return state


def stale_or_mixed(units: Units) -> bool:
    """Whether some contribution carries a scale that is not the one in force."""
    return any(unit.age is not Age.CURRENT for unit in units)


def carries(units: Units) -> bool:
    """Whether some contribution carries a scale at all."""
    return any(not unit.is_one for unit in units)
