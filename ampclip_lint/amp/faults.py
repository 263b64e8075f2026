"""The kinds of faults that the engine tells apart, and a fault as rules see it."""

from __future__ import annotations

from enum import Enum

from ampclip_lint.amp.units import Ref
from ampclip_lint.diagnostics import Confidence, TraceStep
from ampclip_lint.records import dataclass


class FaultKind(Enum):
    """What can be wrong about one call, in the words of the protocol."""

    CLIP_SCALED = "gradients are clipped while they carry the loss scale"
    CLIP_PARTIAL = "a clip covers a scaled optimizer beside an unscaled one"
    CLIP_AFTER_STEP = "a clip of gradients that were already applied"
    CLIP_THRESHOLD_UNIT = "the clip's threshold carries a scale that the gradients do not"
    EDIT_SCALED = "gradients are edited non-linearly while they carry the loss scale"
    OVERFLOW_HIDDEN = "an overflow is clamped away before the scaler can see it"
    CLIP_WITHOUT_GRADIENTS = "a clip of gradients that are not made yet"
    UNSCALE_MID_ACCUMULATION = "scaled gradients are added to unscaled ones"
    DOUBLE_UNSCALE = "gradients are divided by the scale twice"
    UNSCALE_AFTER_STEP = "unscale_ after step"
    STEP_ON_SCALED = "the plain step applies scaled gradients"
    STEP_BYPASSES_SCALER = "the plain step applies unscaled gradients without the overflow check"
    BACKWARD_PLAIN = "a plain backward whose gradients are divided by the scale"
    SCALER_MISMATCH = "gradients scaled by one scaler are unscaled by another"
    DOUBLE_STEP = "the same gradients are applied twice"
    STEP_WITHOUT_GRADIENTS = "a step without gradients"
    CLOSURE = "scaler.step with a closure"
    ZERO_GRAD_MISSING = "new gradients are added to ones already applied"
    UPDATE_MID_ACCUMULATION = "the scale may change while scaled gradients are held"
    UPDATE_BETWEEN_STEPS = "the scale may change between steps that share a backward"
    UPDATE_MISSING = "no update since the last unscale_ or step"
    UPDATE_WITHOUT_CHECK = "update with no inf check on record"
    CLIP_EACH = "each tensor is clipped alone with the same bound"
    CLIP_MID_ACCUMULATION = "partial sums are clipped before the window is complete"
    SCALER_RECREATED = "the scaler is made anew for every step"
    READ_SCALED = "a gradient statistic is read while it carries the loss scale"
    STALE_SCALE_READ = "a scale read after step or update undoes the scale of an earlier quantity"
    NONFINITE_NORM_RAISES = "the first ordinary overflow raises"
    NORM_MISREAD = "the norm before clipping is taken for the norm after it"


#: Which fault is shown where several meet at one call: errors before warnings, the more specific unit rule first.
PRECEDENCE: tuple[FaultKind, ...] = (
    FaultKind.CLIP_PARTIAL,
    FaultKind.CLIP_SCALED,
    FaultKind.OVERFLOW_HIDDEN,
    FaultKind.EDIT_SCALED,
    FaultKind.CLIP_THRESHOLD_UNIT,
    FaultKind.UNSCALE_MID_ACCUMULATION,
    FaultKind.STEP_ON_SCALED,
    FaultKind.BACKWARD_PLAIN,
    FaultKind.UPDATE_BETWEEN_STEPS,
    FaultKind.UPDATE_MID_ACCUMULATION,
    FaultKind.DOUBLE_UNSCALE,
    FaultKind.SCALER_MISMATCH,
    FaultKind.ZERO_GRAD_MISSING,
    FaultKind.CLOSURE,
    FaultKind.UNSCALE_AFTER_STEP,
    FaultKind.UPDATE_MISSING,
    FaultKind.DOUBLE_STEP,
    FaultKind.STEP_WITHOUT_GRADIENTS,
    FaultKind.UPDATE_WITHOUT_CHECK,
    FaultKind.CLIP_AFTER_STEP,
    FaultKind.STEP_BYPASSES_SCALER,
    FaultKind.CLIP_WITHOUT_GRADIENTS,
    FaultKind.NONFINITE_NORM_RAISES,
    FaultKind.CLIP_MID_ACCUMULATION,
    FaultKind.SCALER_RECREATED,
    FaultKind.READ_SCALED,
    FaultKind.STALE_SCALE_READ,
    FaultKind.CLIP_EACH,
    FaultKind.NORM_MISREAD,
)

#: Faults of a pair's stage: their story begins at the last update, not where the gradients were cleared.
OF_STAGES = frozenset(
    {
        FaultKind.DOUBLE_STEP,
        FaultKind.DOUBLE_UNSCALE,
        FaultKind.UNSCALE_AFTER_STEP,
        FaultKind.UPDATE_MISSING,
        FaultKind.UPDATE_WITHOUT_CHECK,
    }
)


@dataclass(frozen=True)
class Mark:
    """A fault found at a node of a function's graph: at the call to move, which may stand earlier on the path."""

    kind: FaultKind
    at: int
    optimizers: tuple[Ref, ...] = ()
    scaler: Ref | None = None


@dataclass(frozen=True)
class Fault:
    """A fault with the path that leads to it, as rules read it.

    `subject` is the optimizer and `scaler` the scaler as the source writes them.
    """

    kind: FaultKind
    confidence: Confidence
    trace: tuple[TraceStep, ...]
    subject: str
    scaler: str
