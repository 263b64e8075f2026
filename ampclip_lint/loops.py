"""What a training loop is when it is shown: its objects, calls, doubts, and what its gradients go through.

Knows nothing about syntax trees, graphs or output formats; `ampclip_lint.amp.inventory` reads it off an analysis.
"""

from __future__ import annotations

from enum import Enum

from ampclip_lint.diagnostics import Span
from ampclip_lint.records import dataclass


@dataclass(frozen=True)
class Scaler:
    """A scaler of a loop. What its construction says is as the source writes it; None where that is not seen."""

    name: str
    made_at: tuple[Span, ...] = ()
    """Where it is constructed; empty where it comes from outside."""
    device: str | None = None
    enabled: str | None = None
    init_scale: str | None = None
    inert: bool = False
    """Whether S is 1 all the time."""


@dataclass(frozen=True)
class Clip:
    """A clip (or a mere measurement of a norm) in a loop."""

    span: Span
    kind: str
    threshold: str | None
    """As the source writes it; None where the call does not show it."""
    units: tuple[str, ...]
    """What the gradients are when it is reached, one text for each case."""


@dataclass(frozen=True)
class Call:
    """A call of a loop in the order of the program, with what it does and what the gradients are behind it."""

    span: Span
    what: str
    units: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Each optimizer with the units that its gradients may have."""


@dataclass(frozen=True)
class Doubt:
    """Something that could not be decided, and why."""

    span: Span
    reason: str


@dataclass(frozen=True)
class Suspicion:
    """A place where the engine found a fault, whether or not a rule that is selected speaks of it."""

    span: Span
    remark: bool = False
    """True where nothing that is applied is wrong by it."""


@dataclass(frozen=True)
class Loop:
    """A root function in which gradients are made or applied under a scaler, with all that it calls."""

    name: str
    span: Span
    scalers: tuple[Scaler, ...] = ()
    optimizers: tuple[str, ...] = ()
    windows: tuple[str, ...] = ()
    """The conditions under which gradients are applied, where not every backward is followed by a step."""
    clips: tuple[Clip, ...] = ()
    calls: tuple[Call, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    suspicions: tuple[Suspicion, ...] = ()


class Age(str, Enum):
    """Whether the scale in a unit is the one in force, one from before an update, or both in one sum."""

    CURRENT = "current"
    STALE = "stale"
    MIXED = "mixed"


@dataclass(frozen=True, order=True)
class Level:
    """One of the units in a buffer: the power of S (of all scalers together), and how it is written."""

    power: int
    text: str
    age: Age = Age.CURRENT


@dataclass(frozen=True)
class Held:
    """What an optimizer's gradients are: the units in their sum, none where there are no gradients."""

    levels: tuple[Level, ...] = ()
    unknown: bool = False


@dataclass(frozen=True)
class Moment:
    """One event on the path to a finding, with what every optimizer's gradients are behind it."""

    span: Span
    event: str
    """One word: ``backward``, ``unscale_``, ``clip`` …"""
    held: tuple[Held, ...]
    """In the order of the history's optimizers."""
    marked: bool = False
    """Whether it is the call that the finding speaks of."""


@dataclass(frozen=True)
class History:
    """The path to a finding as the gradients' units see it."""

    optimizers: tuple[str, ...]
    moments: tuple[Moment, ...]


@dataclass(frozen=True)
class Curve:
    """Worked numbers of a fault: what a program intends and what it gets instead, at scales S."""

    formula: str
    """What is applied (or read), for people."""
    quantity: str
    """What the numbers are: a norm of what."""
    intended: float
    applied: tuple[tuple[float, float], ...]
    """Pairs of S and the number."""
