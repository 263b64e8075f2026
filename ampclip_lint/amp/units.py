"""Units of gradients and scalars: the power of each loss scale that they carry. Knows nothing about programs.

The unit of a gradient is an element of the free abelian group over the scales S of the program's scalers. A buffer
holds a sum of contributions; its abstract value is the *set* of units in that sum: ``{}`` is an empty buffer, ``{1}``
a true gradient, ``{S}`` a scaled one, ``{1, S}`` the sum nobody wants. Join is union.

An ``update()`` may change S. A unit made before it is then *stale*, and a stale S never cancels against the current
one: the product is *mixed*, and mixed stays mixed. So the domain is finite by construction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Union

from ampclip_lint.records import dataclass

#: Beyond this power a unit is reported as mixed: no program that means it scales four times.
MAX_POWER = 4


@dataclass(frozen=True)
class Ref:
    """A scaler, an optimizer, a variable: identity by `index`, `text` for messages."""

    index: int
    text: str

    def __hash__(self) -> int:
        return self.index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and other.index == self.index

    def __str__(self) -> str:
        return self.text


class Age(Enum):
    """Whether a unit's scale is the one in force, an earlier one, or a mixture of both."""

    CURRENT = "current"
    STALE = "stale"
    MIXED = "mixed"


@dataclass(frozen=True)
class Unit:
    """A product of powers of scales; no powers is the unit of a true gradient."""

    powers: tuple[tuple[Ref, int], ...] = ()
    age: Age = Age.CURRENT

    @property
    def is_one(self) -> bool:
        return not self.powers and self.age is not Age.MIXED

    def power(self, scaler: Ref) -> int:
        return dict(self.powers).get(scaler, 0)

    def __str__(self) -> str:
        if self.age is Age.MIXED:
            return "mixed"
        if not self.powers:
            return "1"
        several = len(self.powers) > 1
        parts = []
        for scaler, power in self.powers:
            name = f"S({scaler})" if several else "S"
            name += "_old" if self.age is Age.STALE else ""
            parts.append(name if power == 1 else f"{name}^{power}")
        return "·".join(parts)


ONE = Unit()
MIXED = Unit((), Age.MIXED)
Units = frozenset[Unit]
NO_UNITS: Units = frozenset()
TRUE_GRADIENT: Units = frozenset({ONE})


def multiply(left: Unit, right: Unit) -> Unit:
    """The unit of a product. Scales of different epochs do not cancel: the product is mixed."""
    if Age.MIXED in (left.age, right.age):
        return MIXED
    if left.powers and right.powers and left.age is not right.age:
        return MIXED
    powers = dict(left.powers)
    for scaler, power in right.powers:
        powers[scaler] = powers.get(scaler, 0) + power
    kept = tuple(sorted(((s, p) for s, p in powers.items() if p), key=lambda item: item[0].index))
    if any(abs(power) > MAX_POWER for _, power in kept):
        return MIXED
    return Unit(kept, (left.age if left.powers else right.age) if kept else Age.CURRENT)


def invert(unit: Unit) -> Unit:
    """The unit of 1/x."""
    return Unit(tuple((scaler, -power) for scaler, power in unit.powers), unit.age)


def scale_of(scaler: Ref, power: int = 1) -> Unit:
    """The unit of ``scaler.get_scale()``, or of a power of it."""
    return Unit(((scaler, power),))


def aged(units: Units, scaler: Ref) -> Units:
    """The units after ``scaler.update()``: its S is stale now. Two epochs in one sum are mixed."""
    result: set[Unit] = set()
    for unit in units:
        if unit.age is Age.CURRENT and unit.power(scaler):
            stale = Unit(unit.powers, Age.STALE)
            result.add(MIXED if stale in units else stale)
        elif unit.age is Age.STALE and unit.power(scaler):
            result.add(MIXED)
        else:
            result.add(unit)
    return frozenset(result)


def product(left: Units, right: Units) -> Units:
    """The units of a product of sums."""
    return frozenset(multiply(a, b) for a in left for b in right)


def units_text(units: Units) -> str:
    """How a set of units is written in traces: ``empty``, ``1``, ``S``, ``1 + S``."""
    if not units:
        return "empty"
    return " + ".join(sorted(map(str, units)))


# -- Unit expressions: what the unit of a value will be, evaluated in a world. --------------------------------------


@dataclass(frozen=True)
class Known:
    """These units."""

    units: Units


@dataclass(frozen=True)
class Stored:
    """The units last assigned to a variable."""

    variable: Ref


@dataclass(frozen=True)
class ScaleOf:
    """The current scale of a scaler: 1 where it is disabled."""

    scaler: Ref


@dataclass(frozen=True)
class OfGradients:
    """The units in the buffers of these optimizers, as they are when the value is read."""

    optimizers: tuple[Ref, ...]


@dataclass(frozen=True)
class Product:
    """left × right."""

    left: UnitExpr
    right: UnitExpr


@dataclass(frozen=True)
class Inverse:
    """1 / of."""

    of: UnitExpr


@dataclass(frozen=True)
class Root:
    """√of."""

    of: UnitExpr


@dataclass(frozen=True)
class Sum:
    """A sum or a selection: the units of all parts."""

    parts: tuple[UnitExpr, ...]


@dataclass(frozen=True)
class Bounded:
    """A value compared with a constant (``min``, ``clamp``): linear in S only where its unit is 1."""

    of: UnitExpr


UnitExpr = Union[Known, Stored, ScaleOf, OfGradients, Product, Inverse, Root, Sum, Bounded]
PLAIN = Known(TRUE_GRADIENT)


def leaves(expr: UnitExpr) -> Iterator[UnitExpr]:
    """The parts of an expression that are not made of others."""
    match expr:
        case Product(left, right):
            yield from leaves(left)
            yield from leaves(right)
        case Inverse(of) | Root(of) | Bounded(of):
            yield from leaves(of)
        case Sum(parts):
            for part in parts:
                yield from leaves(part)
        case _:
            yield expr


def stored_in(expr: UnitExpr) -> set[Ref]:
    """The variables whose units an expression reads."""
    return {leaf.variable for leaf in leaves(expr) if isinstance(leaf, Stored)}


def root(unit: Unit) -> Unit:
    """The unit of a square root."""
    if any(power % 2 for _, power in unit.powers):
        return MIXED
    return Unit(tuple((scaler, power // 2) for scaler, power in unit.powers), unit.age)


def union(parts: Iterable[Units]) -> Units:
    """The units of a sum of values."""
    return frozenset(unit for part in parts for unit in part)
