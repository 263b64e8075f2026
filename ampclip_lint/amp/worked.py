"""Worked numbers: small gradients as vectors of two numbers, and what each kind of fault makes of them at a scale S.

The law needs no measurement: a fault that leaves a power of S behind is a formula. These are the numbers that messages
and pages speak of. What a fault does through other means than S (an exception, an overflow, an update in between) has
no formula here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.loops import Curve
from ampclip_lint.records import dataclass

Vector = tuple[float, ...]

G: Vector = (3.0, 4.0)
G1, G2 = G, (-5.0, 12.0)
"""Two microbatches."""
NOISE: Vector = (1.0, 1.0)
M = 1.0
"""The threshold of a clip."""
OTHER_SCALE = 16.0
"""S′, the scale of a second scaler."""

SCALES = tuple(2.0**power for power in range(17))
"""From S = 1 to the 65536 that a scaler starts with."""


def norm(g: Vector) -> float:
    """The Euclidean norm."""
    return math.hypot(*g)


def times(factor: float, g: Vector) -> Vector:
    """A multiple."""
    return tuple(factor * x for x in g)


def plus(a: Vector, b: Vector) -> Vector:
    """A sum."""
    return tuple(x + y for x, y in zip(a, b))


def clip(g: Vector, bound: float) -> Vector:
    """The gradient, shortened to a norm of `bound` where it is longer."""
    return times(min(1.0, bound / norm(g)), g)


@dataclass(frozen=True)
class Formula:
    """What a fault makes of the worked gradients: `applied` at a scale, where `intended` was meant."""

    text: str
    intended: Vector
    applied: Callable[[float], Vector]
    quantity: str = "norm of the applied gradient"


def _partly_scaled(scale: float) -> Vector:
    """Of g = 3 and h = 4, only g is unscaled, and both are clipped by their joint norm."""
    g, h = clip((3.0, scale * 4.0), M)
    return (g, h / scale)


FORMULAS: Mapping[FaultKind, Formula] = {
    FaultKind.CLIP_SCALED: Formula(
        "clip(S·g, M)/S = clip(g, M/S)", clip(G, M), lambda s: times(1 / s, clip(times(s, G), M))
    ),
    FaultKind.CLIP_PARTIAL: Formula("clip((g, S·h), M), then h/S", clip(G, M), _partly_scaled),
    FaultKind.CLIP_THRESHOLD_UNIT: Formula("clip(g, M·S)", clip(G, M), lambda s: clip(G, M * s)),
    FaultKind.CLIP_AFTER_STEP: Formula("g, not clip(g, M)", clip(G, M), lambda _: G),
    FaultKind.CLIP_WITHOUT_GRADIENTS: Formula("g, not clip(g, M)", clip(G, M), lambda _: G),
    FaultKind.EDIT_SCALED: Formula("(S·g + n)/S", plus(G, NOISE), lambda s: times(1 / s, plus(times(s, G), NOISE))),
    FaultKind.UNSCALE_MID_ACCUMULATION: Formula("g1 + S·g2", plus(G1, G2), lambda s: plus(G1, times(s, G2))),
    FaultKind.DOUBLE_UNSCALE: Formula("g/S", G, lambda s: times(1 / s, G)),
    FaultKind.STEP_ON_SCALED: Formula("S·g", G, lambda s: times(s, G)),
    FaultKind.BACKWARD_PLAIN: Formula("g1 + g2/S", plus(G1, G2), lambda s: plus(G1, times(1 / s, G2))),
    FaultKind.SCALER_MISMATCH: Formula("g·S/S′ with S′ = 16", G, lambda s: times(s / OTHER_SCALE, G)),
    FaultKind.ZERO_GRAD_MISSING: Formula("g1/S + g2", G2, lambda s: plus(times(1 / s, G1), G2)),
    FaultKind.READ_SCALED: Formula("‖S·g‖", G, lambda s: times(s, G), "norm that is read"),
}


def curve(kind: FaultKind) -> Curve | None:
    """The worked numbers of a kind of fault from S = 1 to 65536; None where S alone does not make them."""
    formula = FORMULAS.get(kind)
    if formula is None:
        return None
    applied = tuple((scale, norm(formula.applied(scale))) for scale in SCALES)
    return Curve(formula.text, formula.quantity, norm(formula.intended), applied)
