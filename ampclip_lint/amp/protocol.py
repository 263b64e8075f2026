"""What is wrong at an operation, and how the analysis goes on behind it.

`advance` runs the machine on a legal operation. At a fault it names the call to move, and continues with the state
that the corrected program would have there, so that one cause gives one finding; a predicted run-time error ends the
path. Rules never see this code: they ask `FunctionAnalysis` for the faults at a site.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ampclip_lint.amp.faults import FaultKind, Mark
from ampclip_lint.amp.machine import (
    Buffer,
    Pair,
    ScalerState,
    Stage,
    State,
    Table,
    as_frozen,
    carries,
    evaluate,
    keep_norm,
    new_epoch,
    run,
    stale_or_mixed,
)
from ampclip_lint.amp.ops import (
    AtStage,
    Backward,
    Clip,
    ClipKind,
    CompareReturnedNorm,
    Edit,
    GradientsExist,
    Multiply,
    Op,
    OptimizerStep,
    RaiseOnNonfinite,
    Read,
    ScalerStep,
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
    Known,
    OfGradients,
    Ref,
    Unit,
    Units,
    scale_of,
)
from ampclip_lint.records import dataclass

_IDLE = frozenset({FaultKind.CLIP_AFTER_STEP, FaultKind.CLIP_WITHOUT_GRADIENTS, FaultKind.CLIP_EACH})


@dataclass(frozen=True)
class Step:
    """The state behind an operation (``None`` where the path ends) and the faults that were found there."""

    state: State | None
    marks: tuple[Mark, ...] = ()


class Protocol:
    """
    The protocol of one function: which optimizers its program clears decides what a missing zero_grad is, and which
    scalers it ever checks (by unscale_ or step) decides where a missing check shows.
    """

    def __init__(self, clears: Iterable[Ref] = (), checks: Iterable[Ref] | None = None) -> None:
        self.clears = frozenset(clears)
        self.checks = None if checks is None else frozenset(checks)

    def advance(self, op: Op, node: int, state: State, disabled: frozenset[Ref]) -> Step:
        if isinstance(op, (Unscale, ScalerStep, OptimizerStep)):
            user = op.optimizer if isinstance(op, OptimizerStep) else op.buffer
            if state.buffer(user).absent:
                return Step(None)  # Whoever uses it did not come past the place that makes it.
        match op:
            case Backward():
                return self._backward(op, node, state, disabled)
            case Unscale(scaler, optimizer) if scaler not in disabled:
                return self._unscale(op, node, _promote(state, (op.buffer,)), disabled)
            case Clip(optimizers):
                state = _promote(state, optimizers)
                return self._clip(op, node, self._catch_up(optimizers, state, disabled), disabled)
            case Edit(optimizers):
                return self._edit(op, node, _promote(state, optimizers), disabled)
            case Multiply(optimizers):
                return Step(run(op, _promote(state, optimizers), disabled, node).state)
            case ZeroGrad():
                return self._zero_grad(op, node, state, disabled)
            case Read():
                return self._read(op, node, state, disabled)
            case RaiseOnNonfinite() | CompareReturnedNorm():
                return self._check(op, node, state)
            case GradientsExist(optimizers, holds):
                return Step(_where_gradients_exist(state, optimizers, holds))
            case AtStage(scaler, optimizer, name, holds):
                return Step(_where_stage_is(state, scaler, optimizer, Stage[name], holds))
            case ScalerStep(scaler, optimizer) if scaler not in disabled:
                return self._scaler_step(op, node, _promote(state, (op.buffer,)), disabled)
            case OptimizerStep(optimizer):
                return self._optimizer_step(op, node, _promote(state, (optimizer,)), disabled)
            case Update(scaler) if scaler not in disabled:
                return self._update(op, node, state, disabled)
        return Step(run(op, state, disabled, node).state)

    # -- backward ---------------------------------------------------------------------------------------------------

    def _backward(self, op: Backward, node: int, state: State, disabled: frozenset[Ref]) -> Step:
        units = evaluate(op.loss, state, disabled)
        marks: list[Mark] = []
        must, may = as_frozen(op, state)
        op = replace(op, must=must, may=may)
        if not units:
            return Step(None)  # Still the number 0: it has no graph to go back through, torch raises.
        if len(units) > 1:
            # A sum of a scaled loss and a plain one, or of one and a penalty made from scaled gradients.
            scaler = next((s for unit in units for s, _ in unit.powers), None)
            kind = FaultKind.BACKWARD_PLAIN if ONE in units else FaultKind.EDIT_SCALED
            marks.append(Mark(kind, node, (*op.must, *op.may), scaler))
            units = TRUE_GRADIENT if scaler is None else frozenset({scale_of(scaler)})
            op = replace(op, loss=Known(units))
        for optimizer in op.must:
            held = state.buffer(optimizer)
            if held.absent:
                continue
            corrected, found = self._before_contribution(held, units, node, optimizer)
            marks += found
            early = next((m for m in found if m.kind is FaultKind.UNSCALE_MID_ACCUMULATION), None)
            if early is not None:
                state = _as_if_not_unscaled(state, optimizer)
                corrected = replace(corrected, deferred_at=early.at)
            state = state.with_buffer(optimizer, corrected)
            settled = (FaultKind.BACKWARD_PLAIN, FaultKind.SCALER_MISMATCH)
            if any(mark.kind in settled and mark.at == node for mark in found):
                # It counts as scaled, and like the others.
                rest = replace(op, must=tuple(o for o in op.must if o != optimizer))
                state = state.with_buffer(optimizer, replace(corrected, backward_at=node))
                after = self._backward(rest, node, state, disabled)
                return Step(after.state, (*marks, *after.marks))
        if marks:
            state = replace(state, explained=True)
        return Step(run(op, state, disabled, node).state, tuple(marks))

    def _before_contribution(self, held: Buffer, units: Units, node: int, optimizer: Ref) -> tuple[Buffer, list[Mark]]:
        """The buffer as a corrected program would have it when this contribution comes."""
        if held.applied and held.units:
            # Gradients that a step has applied wait to be cleared. Whether that is forgotten shows at the next step.
            return Buffer(carried_at=node), []
        if held.unknown and not held.units:
            return replace(held, applied=False), []  # What is new was not part of any step yet.
        scaled = [unit for unit in units if carries_now(unit)]
        if scaled and held.hooked_at is not None:
            mark = _mark(FaultKind.OVERFLOW_HIDDEN, held.hooked_at, optimizer, scaled[0])
            return replace(held, hooked_at=None), [mark]
        if held.clipped_at is not None and held.units and (scaled or held.unscaled_at is not None):
            if not (scaled and ONE in held.units):
                mark = _mark(FaultKind.CLIP_MID_ACCUMULATION, held.clipped_at, optimizer, next(iter(units)))
                return replace(held, clipped_at=None), [mark]
        own = [unit for unit in held.units if carries_now(unit)]
        if scaled and ONE in held.units:
            if held.unscaled_at is not None:
                return _emptied(held), [
                    _mark(FaultKind.UNSCALE_MID_ACCUMULATION, held.unscaled_at, optimizer, scaled[0])
                ]
            if held.divided_at is not None:
                return _emptied(held), [
                    _mark(FaultKind.UNSCALE_MID_ACCUMULATION, held.divided_at, optimizer, scaled[0])
                ]
            if held.plain_at:
                plain = FaultKind.BACKWARD_PLAIN
                return _emptied(held), [_mark(plain, at, optimizer, scaled[0]) for at in held.plain_at]
        if scaled and any(unit.age is not Age.CURRENT for unit in held.units):
            at = held.stale_at if held.stale_at is not None else node
            return _emptied(held), [_mark(FaultKind.UPDATE_MID_ACCUMULATION, at, optimizer, scaled[0])]
        if scaled and own and own[0] != scaled[0]:
            # Which of the two scalers will unscale them is not known yet: nothing more is said of these gradients.
            return Buffer(unknown=True), [_mark(FaultKind.SCALER_MISMATCH, node, optimizer, scaled[0])]
        if own and units == TRUE_GRADIENT:
            return held, [_mark(FaultKind.BACKWARD_PLAIN, node, optimizer, own[0])]
        return held, []

    # -- unscale_ and step ------------------------------------------------------------------------------------------

    def _unscale(self, op: Unscale, node: int, state: State, disabled: frozenset[Ref]) -> Step:
        pair = state.pair(op.scaler, op.optimizer)
        if pair.stage is Stage.UNSCALED:
            return self._repeated(FaultKind.DOUBLE_UNSCALE, node, pair, op, state)
        if pair.stage is Stage.STEPPED:
            return self._repeated(FaultKind.UNSCALE_AFTER_STEP, node, pair, op, state)
        if not state.scaler(op.scaler).scaled:
            return Step(None, self._never_scaled(node, op, state))
        state, marks = self._divisible(node, op, state)
        out = run(op, state, disabled, node)
        return Step(None if out.error else out.state, marks)

    def _scaler_step(self, op: ScalerStep, node: int, state: State, disabled: frozenset[Ref]) -> Step:
        pair, subject = state.pair(op.scaler, op.optimizer), (op.buffer,)
        if op.closure:
            return Step(None, (Mark(FaultKind.CLOSURE, node, subject, op.scaler),))
        if pair.stage is Stage.STEPPED:
            return self._repeated(FaultKind.DOUBLE_STEP, node, pair, op, state)
        held = state.buffer(op.buffer)
        if not state.scaler(op.scaler).scaled:
            return Step(None, self._never_scaled(node, op, state))
        if pair.stage is Stage.UNSCALED and pair.renewed and held.units and held.unscaled_at is None:
            # Cleared and filled anew since unscale_: nothing divides these.
            return self._repeated(FaultKind.UPDATE_MISSING, node, pair, op, state)
        marks: tuple[Mark, ...] = ()
        if held.carried_at is not None and op.buffer in self.clears:
            marks = (Mark(FaultKind.ZERO_GRAD_MISSING, held.carried_at, subject, op.scaler),)
            state = _settle(state, op.buffer)
        if pair.stage is Stage.READY:
            state, found = self._left_behind(op, state) or self._divisible(node, op, state)
            marks += found
        elif held.applied and carries(held.units):
            marks += (Mark(FaultKind.DOUBLE_STEP, node, subject, op.scaler),)
        elif held.divided_at is not None and carries(held.units):
            marks += (Mark(FaultKind.DOUBLE_UNSCALE, held.divided_at, subject, op.scaler),)
            fixed = replace(held, units=TRUE_GRADIENT, divided_at=None)
            state = replace(state.with_buffer(op.buffer, fixed), explained=True)
        if pair.stage is Stage.UNSCALED and not pair.recorded and held.units:
            # unscale_ found no gradients, so it has recorded no check; those that came later have none.
            at = pair.at if pair.at is not None else node
            return Step(None, (*marks, Mark(FaultKind.STEP_WITHOUT_GRADIENTS, at, subject, op.scaler)))
        if not (held.units or held.maybe or held.unknown):
            known = state.explained or pair.stage is Stage.UNKNOWN
            lost = () if known else (Mark(FaultKind.STEP_WITHOUT_GRADIENTS, node, subject, op.scaler),)
            return Step(None, (*marks, *lost))
        out = run(op, state, disabled, node)
        if out.error:
            return Step(None, marks)
        after = out.state
        if after.buffer(op.buffer).owed:
            settled = replace(after.buffer(op.buffer), owed=False)
            after = after.with_buffer(op.buffer, settled).with_pair(op.scaler, op.optimizer, Pair())
        return Step(after, marks)

    def _left_behind(self, op: ScalerStep, state: State) -> tuple[State, tuple[Mark, ...]] | None:
        """
        What a step without gradients of its own would raise for: all that may be here came from a backward whose
        gradients another optimizer has applied, and an update has passed since. None where that is not so.
        """
        held = state.buffer(op.buffer)
        if held.units or held.unknown or held.applied or held.aged_at is None or not held.maybe:
            return None
        old = all(unit.power(op.scaler) and unit.age is not Age.CURRENT for unit in held.maybe)
        shared = any(other.applied and other.backward_at == held.backward_at for other in state.buffers.values())
        if not (old and shared):
            return None
        fixed = replace(held, units=frozenset({scale_of(op.scaler)}), maybe=NO_UNITS, aged_at=None, owed=True)
        mark = Mark(FaultKind.UPDATE_BETWEEN_STEPS, held.aged_at, (op.buffer,), op.scaler)
        return replace(state.with_buffer(op.buffer, fixed), explained=True), (mark,)

    def _never_scaled(self, node: int, op: Unscale | ScalerStep, state: State) -> tuple[Mark, ...]:
        """Torch asserts that scale() was called before: the backward was a plain one, or there was none."""
        held = state.buffer(op.buffer)
        if state.explained:
            return ()
        if held.plain_at:
            return tuple(Mark(FaultKind.BACKWARD_PLAIN, at, (op.buffer,), op.scaler) for at in held.plain_at)
        if any(unit.powers for unit in held.units):
            return (Mark(FaultKind.SCALER_MISMATCH, node, (op.buffer,), op.scaler),)
        return (Mark(FaultKind.STEP_WITHOUT_GRADIENTS, node, (op.buffer,), op.scaler),)

    def _repeated(self, kind: FaultKind, node: int, pair: Pair, op: Unscale | ScalerStep, state: State) -> Step:
        """The pair's stage was never reset: which mistake it is depends on what came in between."""
        held = state.buffer(op.buffer)
        since = held.backward_at is not None and held.unscaled_at is None and not held.applied
        fresh = (pair.renewed or since) and (bool(held.units or held.maybe) or held.carried_at is not None)
        behind = kind in (FaultKind.UNSCALE_AFTER_STEP, FaultKind.UPDATE_MISSING)
        if (fresh and (pair.at == node or behind)) or (
            not fresh and pair.at == node and not held.units and not held.unknown
        ):
            kind = FaultKind.UPDATE_MISSING
        return Step(None, (Mark(kind, node, (op.buffer,), op.scaler),))

    def _divisible(self, node: int, op: Unscale | ScalerStep, state: State) -> tuple[State, tuple[Mark, ...]]:
        """What unscale_ (or the division inside step) is about to divide; corrected where it is not S."""
        scaler, buffer = op.scaler, op.buffer
        held = state.buffer(buffer)

        def found(kind: FaultKind, *places: int | None) -> tuple[State, tuple[Mark, ...]]:
            # An update that came too early is called behind the step in the corrected program.
            owed = held.stale_at is not None and held.stale_at in places
            fixed = replace(held, units=wanted, stale_at=None, plain_at=(), owed=owed)
            corrected = replace(state.with_buffer(buffer, fixed), explained=True)
            return corrected, tuple(Mark(kind, node if at is None else at, (buffer,), scaler) for at in places)

        wanted = frozenset({scale_of(scaler)})
        if held.carried_at is not None and buffer in self.clears:
            if isinstance(op, Unscale):
                return state, ()  # It shows where a step applies them; they may be cleared before.
            mark = Mark(FaultKind.ZERO_GRAD_MISSING, held.carried_at, (buffer,), scaler)
            return _settle(state, buffer), (mark,)
        seen = carries(held.units) or held.divided_at is not None or bool(held.plain_at)
        if not held.units or (held.unknown and not seen) or held.units == wanted:
            return state, ()
        if held.applied and isinstance(op, Unscale):
            return state, ()  # Nothing applies them again, as far as this call goes.
        if held.applied:
            return found(FaultKind.DOUBLE_STEP, node)
        moved = held.stale_at is not None and (stale_or_mixed(held.units) or held.unscaled_at is not None)
        if moved:
            shared = any(
                other.applied and other.backward_at == held.backward_at
                for key, other in state.buffers.items()
                if key != buffer
            )
            if shared:
                return found(FaultKind.UPDATE_BETWEEN_STEPS, held.stale_at)
            late = FaultKind.DOUBLE_UNSCALE if held.unscaled_at is not None else FaultKind.UPDATE_MID_ACCUMULATION
            return found(late, held.stale_at)
        if held.units == TRUE_GRADIENT:
            for at in (held.divided_at, held.unscaled_at):
                if at is not None:
                    return found(FaultKind.DOUBLE_UNSCALE, at)
            return found(FaultKind.BACKWARD_PLAIN, *(held.plain_at or (None,)))
        return found(FaultKind.SCALER_MISMATCH, node)

    def _optimizer_step(self, op: OptimizerStep, node: int, state: State, disabled: frozenset[Ref]) -> Step:
        held = state.buffer(op.optimizer)
        by_scaler = held.unscaled_at is not None or held.divided_at is not None
        if held.carried_at is not None and by_scaler and op.optimizer in self.clears:
            mark = Mark(FaultKind.ZERO_GRAD_MISSING, held.carried_at, (op.optimizer,), next(iter(state.scalers), None))
            after = run(op, _settle(state, op.optimizer), disabled, node).state
            return Step(after, (mark,))
        scaled = [unit for unit in held.units if not unit.is_one]
        if held.units and held.applied:
            stepped = [
                key[0] for key, pair in state.pairs.items() if key[1] == op.optimizer and pair.stage is Stage.STEPPED
            ]
            if stepped or (held.unscaled_at is not None and not held.maybe):
                # The scaler has applied them already, in this window or before its last update.
                scaler = stepped[0] if stepped else next(iter(state.scalers), None)
                return Step(state, (Mark(FaultKind.DOUBLE_STEP, node, (op.optimizer,), scaler),))
        if scaled:
            owner = next((s for unit in scaled for s, _ in unit.powers), None)
            mark = Mark(FaultKind.STEP_ON_SCALED, node, (op.optimizer,), owner)
            return Step(_as_if_stepped(state, op.optimizer, owner), (mark,))
        if held.units == TRUE_GRADIENT and by_scaler and not held.applied and not op.guarded:
            scalers = [key[0] for key, pair in state.pairs.items() if key[1] == op.optimizer]
            scaler = scalers[0] if scalers else next(iter(state.scalers), None)
            mark = Mark(FaultKind.STEP_BYPASSES_SCALER, node, (op.optimizer,), scaler)
            return Step(run(op, state, disabled, node).state, (mark,))
        return Step(run(op, state, disabled, node).state)

    # -- everything between backward and step -----------------------------------------------------------------------

    def _edit(self, op: Edit, node: int, state: State, disabled: frozenset[Ref]) -> Step:
        plus = TRUE_GRADIENT if op.added is None else evaluate(op.added, state, disabled) or TRUE_GRADIENT
        wrong = tuple(o for o in op.optimizers if state.buffer(o).units and state.buffer(o).units != plus)
        if wrong:
            return Step(state, (Mark(FaultKind.EDIT_SCALED, node, wrong, _scaler_of(state.buffer(wrong[0]))),))
        return Step(state)

    def _read(self, op: Read, node: int, state: State, disabled: frozenset[Ref]) -> Step:
        units = [unit for unit in evaluate(op.value, state, disabled) if not unit.is_one]
        if not units:
            return Step(state)
        scaler = next((s for unit in units for s, _ in unit.powers), None)
        # Divided by a scale that is not the one it was multiplied with, or that it does not carry any more.
        undone = MIXED in units or any(power < 0 for unit in units for _, power in unit.powers)
        kind = FaultKind.STALE_SCALE_READ if undone else FaultKind.READ_SCALED
        holders = tuple(o for o, held in state.buffers.items() if set(units) & held.units)
        return Step(state, (Mark(kind, node, holders, scaler),))

    def _check(self, op: RaiseOnNonfinite | CompareReturnedNorm, node: int, state: State) -> Step:
        """A test of the norm between unscale_ (or a scaled backward) and step."""
        raises = isinstance(op, RaiseOnNonfinite)
        for optimizer, held in state.buffers.items():
            if raises and carries(held.units) and not held.applied:
                return Step(state, (Mark(FaultKind.NONFINITE_NORM_RAISES, node, (optimizer,), _scaler_of(held)),))
        for (scaler, optimizer), pair in state.pairs.items():
            if pair.stage is Stage.UNSCALED:
                kind = FaultKind.NONFINITE_NORM_RAISES if raises else FaultKind.NORM_MISREAD
                return Step(state, (Mark(kind, node, (optimizer,), scaler),))
        return Step(state)

    def _clip(self, op: Clip, node: int, state: State, disabled: frozenset[Ref]) -> Step:
        held = {o: state.buffer(o) for o in op.optimizers}
        scaled = _scaled(op.optimizers, state)
        norm = evaluate(OfGradients(op.optimizers), state, disabled)
        marks = self._clip_faults(op, node, state, disabled, held, scaled)
        if marks:
            # The corrected program measures true gradients here. A clip that does nothing explains nothing.
            idle = {mark.kind for mark in marks} <= _IDLE
            return Step(keep_norm(op, replace(state, explained=state.explained or not idle), TRUE_GRADIENT), marks)
        state = keep_norm(op, state, norm)
        if op.bound is not None:
            for optimizer, buffer in held.items():
                if buffer.units and not buffer.applied:
                    state = state.with_buffer(optimizer, replace(buffer, clipped_at=node))
        return Step(state)

    def _clip_faults(
        self,
        op: Clip,
        node: int,
        state: State,
        disabled: frozenset[Ref],
        held: dict[Ref, Buffer],
        scaled: tuple[Ref, ...],
    ) -> tuple[Mark, ...]:
        """What is wrong with a clip."""
        if op.bound is None or not held:
            return ()
        filled = [b for b in held.values() if b.units or b.maybe or b.unknown]
        if filled and all(b.applied and b.unscaled_at is not None and not b.maybe for b in filled):
            scaler = next((key[0] for key in state.pairs if key[1] in held), next(iter(state.scalers), None))
            return (Mark(FaultKind.CLIP_AFTER_STEP, node, tuple(held), scaler),)
        limit = evaluate(op.bound, state, disabled)
        if op.kind in (ClipKind.HAND, ClipKind.ADAPTIVE):
            return self._clip_by_hand(op, node, state, held, scaled, limit)
        if op.kind is ClipKind.VALUE and scaled:
            return (Mark(FaultKind.OVERFLOW_HIDDEN, node, scaled, _scaler_of(held[scaled[0]])),)
        limit_scaled = any(not unit.is_one for unit in limit)
        wrong = tuple(o for o in scaled if held[o].units != limit)
        if any(power < 0 for o in wrong for unit in held[o].units for _, power in unit.powers):
            return ()  # Divided once too often: that division is the call to remove, and shows at the step.
        if wrong:
            if any(unit.age is not Age.CURRENT for o in wrong for unit in held[o].units):
                # The update that made them stale is the call to move, and shows at the next division.
                return ()
            others = [key for key, pair in state.pairs.items() if pair.stage is Stage.UNSCALED and key[1] not in wrong]
            kind = FaultKind.CLIP_PARTIAL if others and not limit_scaled else FaultKind.CLIP_SCALED
            if limit_scaled:
                kind = FaultKind.CLIP_THRESHOLD_UNIT
            return (Mark(kind, node, wrong, _scaler_of(held[wrong[0]])),)
        if limit_scaled and any(ONE in b.units for b in held.values()):
            owner = next((s for unit in limit for s, _ in unit.powers), None)
            return (Mark(FaultKind.CLIP_THRESHOLD_UNIT, node, tuple(held), owner),)
        return self._idle_clip(op, node, state, held)

    def _idle_clip(self, op: Clip, node: int, state: State, held: dict[Ref, Buffer]) -> tuple[Mark, ...]:
        """A clip at the right unit that does nothing, or not what it seems to."""
        subject = tuple(held)
        scaler = next((key[0] for key in state.pairs if key[1] in held), next(iter(state.scalers), None))
        filled = any(b.units or b.maybe or b.unknown for b in held.values())
        if not filled and not any(b.absent or b.lost for b in held.values()) and not state.explained:
            return (Mark(FaultKind.CLIP_WITHOUT_GRADIENTS, node, subject, scaler),)
        protected = any(b.unscaled_at is not None or carries(b.units) for b in held.values())
        if op.each and op.kind is ClipKind.NORM and protected:
            return (Mark(FaultKind.CLIP_EACH, node, subject, scaler),)
        return ()

    def _catch_up(self, optimizers: Iterable[Ref], state: State, disabled: frozenset[Ref]) -> State:
        """An early unscale_ was reported: the corrected program calls it here, before gradients are used."""
        for optimizer in optimizers:
            held = state.buffer(optimizer)
            scaler = _scaler_of(held)
            if held.deferred_at is None or scaler is None or state.pair(scaler, optimizer).stage is not Stage.READY:
                continue
            done = run(Unscale(scaler, optimizer), state, disabled, held.deferred_at)
            state = done.state if done.error is None else state
        return state

    def _clip_by_hand(
        self, op: Clip, node: int, state: State, held: dict[Ref, Buffer], scaled: tuple[Ref, ...], factor: Units
    ) -> tuple[Mark, ...]:
        """A multiplication by a number made from gradients: right where that number carries no scale."""
        if factor == TRUE_GRADIENT or not any(b.units for b in held.values()):
            return ()
        if not scaled:
            return (Mark(FaultKind.CLIP_THRESHOLD_UNIT, node, tuple(held)),)
        scaler = _scaler_of(held[scaled[0]])
        if op.kind is ClipKind.ADAPTIVE:
            return (Mark(FaultKind.EDIT_SCALED, node, scaled, scaler),)
        others = [key for key, pair in state.pairs.items() if pair.stage is Stage.UNSCALED and key[1] not in scaled]
        return (Mark(FaultKind.CLIP_PARTIAL if others else FaultKind.CLIP_SCALED, node, scaled, scaler),)

    # -- update -----------------------------------------------------------------------------------------------------

    def _update(self, op: Update, node: int, state: State, disabled: frozenset[Ref]) -> Step:
        known = state.scaler(op.scaler)
        if op.restores:
            return Step(run(op, state, disabled, node).state)
        if not known.scaled:
            lost = () if state.explained else (Mark(FaultKind.UPDATE_WITHOUT_CHECK, node, (), op.scaler),)
            return Step(None, lost)
        if not (op.new_scale or known.checked or known.unknown):
            holds = any(unit.power(op.scaler) and carries_now(unit) for b in state.buffers.values() for unit in b.units)
            vague = any(b.unknown or b.maybe for b in state.buffers.values())
            never = self.checks is not None and op.scaler not in self.checks
            if never or not (holds or vague or state.explained):
                return Step(None, (Mark(FaultKind.UPDATE_WITHOUT_CHECK, node, (), op.scaler),))
            # Held scaled gradients explain it: the finding comes where they are used next, or cleared.
            state = new_epoch(op.scaler, state, node)
            for optimizer, held in state.buffers.items():
                if any(unit.power(op.scaler) for unit in held.units) and not held.applied:
                    state = state.with_buffer(optimizer, replace(held, unchecked_at=node))
            return Step(state)
        return Step(new_epoch(op.scaler, state, node))

    def _zero_grad(self, op: ZeroGrad, node: int, state: State, disabled: frozenset[Ref]) -> Step:
        marks = tuple(
            Mark(FaultKind.UPDATE_WITHOUT_CHECK, held.unchecked_at, (), _scaler_of(held))
            for held in map(state.buffer, op.optimizers)
            if held.unchecked_at is not None
            and held.stale_at is not None
            and held.unscaled_at is None
            and not held.applied
        )
        if marks:
            return Step(None, marks[:1])  # torch has raised at the update.
        return Step(run(op, state, disabled, node).state)


def _where_gradients_exist(state: State, optimizers: Iterable[Ref], holds: bool) -> State | None:
    """The state behind a test for gradients; None where it cannot have that answer."""
    held = {optimizer: state.buffer(optimizer) for optimizer in optimizers}
    if holds:
        possible = any(buffer.units or buffer.maybe or buffer.unknown for buffer in held.values())
        return state if possible or not held else None
    if any(buffer.units for buffer in held.values()):
        return None
    for optimizer, buffer in held.items():
        state = state.with_buffer(optimizer, replace(buffer, maybe=NO_UNITS, unknown=False))
    return state


def _where_stage_is(state: State, scaler: Ref, optimizer: Ref, stage: Stage, holds: bool) -> State | None:
    """The state behind a test of the scaler's own record; None where it cannot have that answer."""
    known = state.pair(scaler, optimizer)
    if known.stage is not Stage.UNKNOWN:
        return state if (known.stage is stage) == holds else None
    return state.with_pair(scaler, optimizer, replace(known, stage=stage)) if holds else state


def _scaled(optimizers: Iterable[Ref], state: State) -> tuple[Ref, ...]:
    """Those of the optimizers whose gradients must carry a scale."""
    return tuple(o for o in optimizers if any(not unit.is_one for unit in state.buffer(o).units))


def carries_now(unit: Unit) -> bool:
    """Whether a unit carries a scale that is in force."""
    return bool(unit.powers) and unit.age is Age.CURRENT


def _mark(kind: FaultKind, at: int, optimizer: Ref, unit: Unit) -> Mark:
    return Mark(kind, at, (optimizer,), unit.powers[0][0] if unit.powers else None)


def _scaler_of(buffer: Buffer) -> Ref | None:
    return next((scaler for unit in buffer.units for scaler, _ in unit.powers), None)


def _emptied(held: Buffer) -> Buffer:
    """As if the wrong part had the unit of what comes now."""
    return replace(
        held,
        units=NO_UNITS,
        unscaled_at=None,
        divided_at=None,
        plain_at=(),
        stale_at=None,
        clipped_at=None,
        bent=False,
    )


def _as_if_not_unscaled(state: State, optimizer: Ref) -> State:
    """An early unscale_ is as if it had not been called."""
    pairs = {
        key: (Pair() if key[1] == optimizer and pair.stage is Stage.UNSCALED else pair)
        for key, pair in state.pairs.items()
    }
    return replace(state, pairs=Table(pairs))


def _settle(state: State, optimizer: Ref) -> State:
    return replace(state.with_buffer(optimizer, replace(state.buffer(optimizer), carried_at=None)), explained=True)


def _as_if_stepped(state: State, optimizer: Ref, scaler: Ref | None) -> State:
    """A plain step of scaled gradients is as if scaler.step had been called."""
    held = state.buffer(optimizer)
    state = state.with_buffer(optimizer, replace(held, units=TRUE_GRADIENT, applied=True, stale_at=None))
    state = replace(state, explained=True)
    if scaler is None:
        return state
    # ... and update() with it: that it is missing too is no finding of its own.
    state = state.with_pair(scaler, optimizer, Pair())
    return state.with_scaler(scaler, replace(state.scaler(scaler), checked=True))


def _promote(state: State, optimizers: Iterable[Ref]) -> State:
    """
    Where only one kind of contribution can be in a buffer that the program names, it must be; unless an update has
    passed since: then it is rather what another optimizer's loss left there, if anything.
    """
    for optimizer in optimizers:
        held = state.buffer(optimizer)
        if any(unit.age is not Age.CURRENT for unit in held.maybe):
            continue
        if held.applied and len(held.maybe) == 1:
            state = state.with_buffer(optimizer, Buffer(units=held.maybe, backward_at=held.backward_at))
        elif not held.units and len(held.maybe) == 1 and not held.unknown:
            state = state.with_buffer(optimizer, replace(held, units=held.maybe, maybe=NO_UNITS))
    return state


__all__ = ["MIXED", "Protocol", "ScalerState", "Step", "ZeroGrad"]
