"""The operations that a program is lowered to. Everything else that it does is of no consequence here."""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import Union, get_args

from ampclip_lint.amp.units import PLAIN, Ref, UnitExpr
from ampclip_lint.flow.facts import Subject
from ampclip_lint.records import dataclass


class ClipKind(Enum):
    """How a clip limits gradients."""

    NORM = "norm"
    VALUE = "value"
    HAND = "hand"
    ADAPTIVE = "adaptive"


@dataclass(frozen=True)
class NewScaler:
    """A scaler is constructed: nothing was scaled with it yet."""

    scaler: Ref


@dataclass(frozen=True)
class NewOptimizer:
    """An optimizer is constructed, or given by a call outside the program (not `made` then, and perhaps given before):
    until here it did not exist on this path.
    """

    optimizer: Ref
    made: bool = True


@dataclass(frozen=True)
class Retire:
    """Nothing refers to an optimizer any more: its gradients are never applied."""

    optimizer: Ref


@dataclass(frozen=True)
class Scale:
    """``scaler.scale(loss)`` is evaluated."""

    scaler: Ref
    asks: tuple[Subject, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Backward:
    """
    A backward pass: a contribution of the loss's unit reaches the `must` buffers, and may reach the `may` ones; of the
    `vague` ones nothing is known behind it.
    """

    loss: UnitExpr
    must: tuple[Ref, ...]
    may: tuple[Ref, ...] = ()
    asks: tuple[Subject, ...] = field(default=(), compare=False)
    vague: tuple[Ref, ...] = ()


@dataclass(frozen=True)
class Unscale:
    """``scaler.unscale_(optimizer)``."""

    scaler: Ref
    optimizer: Ref
    asks: tuple[Subject, ...] = field(default=(), compare=False)
    inner: Ref | None = None

    @property
    def buffer(self) -> Ref:
        """Whose gradients it works on: those of the optimizer inside, where `optimizer` is a wrapper."""
        return self.inner or self.optimizer


@dataclass(frozen=True)
class Clip:
    """Gradients of these optimizers are limited by `bound` (``None``: no bound, the norm is measured only).

    `result` is the variable that keeps the norm before clipping; `each`: one tensor at a time, with the same bound.
    """

    optimizers: tuple[Ref, ...]
    bound: UnitExpr | None = PLAIN
    kind: ClipKind = ClipKind.NORM
    asks: tuple[Subject, ...] = field(default=(), compare=False)
    result: Ref | None = None
    each: bool = False


@dataclass(frozen=True)
class Multiply:
    """Gradients are multiplied by hand: ``p.grad.mul_(factor)``; `each`: one tensor a round of a loop over them."""

    optimizers: tuple[Ref, ...]
    factor: UnitExpr
    asks: tuple[Subject, ...] = field(default=(), compare=False)
    each: bool = False


@dataclass(frozen=True)
class Edit:
    """An edit of gradients: `added` is the unit of what is added; ``None``: not linear at all (sign, copy)."""

    optimizers: tuple[Ref, ...]
    added: UnitExpr | None = None
    asks: tuple[Subject, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class ScalerStep:
    """``scaler.step(optimizer)``."""

    scaler: Ref
    optimizer: Ref
    closure: bool = False
    asks: tuple[Subject, ...] = field(default=(), compare=False)
    inner: Ref | None = None

    @property
    def buffer(self) -> Ref:
        """Whose gradients it works on: those of the optimizer inside, where `optimizer` is a wrapper."""
        return self.inner or self.optimizer


@dataclass(frozen=True)
class OptimizerStep:
    """``optimizer.step()``; `guarded`: on this path a test has shown that the gradients are finite."""

    optimizer: Ref
    asks: tuple[Subject, ...] = field(default=(), compare=False)
    guarded: bool = False


@dataclass(frozen=True)
class Update:
    """``scaler.update()``; with a new scale it needs no inf check. `restores`: ``load_state_dict``, which sets the
    scale but no stage.
    """

    scaler: Ref
    new_scale: bool = False
    restores: bool = False
    asks: tuple[Subject, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class ZeroGrad:
    """Gradients of these optimizers are cleared."""

    optimizers: tuple[Ref, ...]


@dataclass(frozen=True)
class Store:
    """A variable gets a value of this unit."""

    variable: Ref
    value: UnitExpr
    asks: tuple[Subject, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Read:
    """A number made from gradients or from a scaled loss is logged, compared or returned."""

    value: UnitExpr
    asks: tuple[Subject, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Reenter:
    """A method of an object is called from outside: other methods may have used what ``__init__`` made."""


@dataclass(frozen=True)
class Freeze:
    """The parameters of these optimizers get no gradients from here on (``requires_grad = False``), or do again."""

    optimizers: tuple[Ref, ...]
    holds: bool


@dataclass(frozen=True)
class Hook:
    """A hook that clamps the gradients of these optimizers runs at every backward from here on."""

    optimizers: tuple[Ref, ...]


@dataclass(frozen=True)
class GradientsExist:
    """A test has shown that there are gradients of these optimizers, or that none of them has any."""

    optimizers: tuple[Ref, ...]
    holds: bool


@dataclass(frozen=True)
class AtStage:
    """A test has shown that a pair is at the stage of this name (as in torch's ``OptState``), or that it is not."""

    scaler: Ref
    optimizer: Ref
    stage: str
    holds: bool


@dataclass(frozen=True)
class RaiseOnNonfinite:
    """An exception is raised where gradients, or their norm, are not finite."""

    asks: tuple[Subject, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class CompareReturnedNorm:
    """The norm that a clip returned, which is the one before clipping, is required to be within its bound."""

    asks: tuple[Subject, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Escape:
    """Code outside the program received these objects: what it did to them is unknown.

    Without `stages` only the gradients are in doubt: a method of an optimizer cannot reach the scaler's records.
    """

    scalers: tuple[Ref, ...]
    optimizers: tuple[Ref, ...]
    stages: bool = True


Op = Union[
    NewScaler,
    NewOptimizer,
    Retire,
    Scale,
    Backward,
    Unscale,
    Clip,
    Multiply,
    Edit,
    ScalerStep,
    OptimizerStep,
    Update,
    ZeroGrad,
    Store,
    Read,
    Escape,
    Hook,
    Freeze,
    Reenter,
    GradientsExist,
    AtStage,
    RaiseOnNonfinite,
    CompareReturnedNorm,
]

#: The classes of all operations.
OPERATIONS: tuple[type, ...] = get_args(Op)

#: Where a fault can show, or a scaler be in use. What has none of these is not explored.
JUDGED: tuple[type, ...] = (
    Backward,
    Unscale,
    Clip,
    Edit,
    Read,
    ScalerStep,
    OptimizerStep,
    Update,
    CompareReturnedNorm,
    RaiseOnNonfinite,
)
