"""What names stand for while a function is lowered: objects, constants, symbols, conditions, tensors.

Values are immutable and compared by content. A symbol is the unknown value that some place of the program produces;
facts about it are void when that place is reached again.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import field
from enum import Enum
from typing import Union

from ampclip_lint.amp.units import UnitExpr
from ampclip_lint.flow.facts import Atom
from ampclip_lint.records import dataclass
from ampclip_lint.syntax.index import ClassInfo, FunctionInfo

Key = Hashable


class Kind(Enum):
    """What an object is known to be."""

    SCALER = "scaler"
    OPTIMIZER = "optimizer"
    INSTANCE = "instance"


@dataclass(frozen=True)
class Const:
    """A constant: None, a bool, a number, a string."""

    value: Hashable

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and type(other.value) is type(self.value) and other.value == self.value

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True)
class Sym:
    """The unknown value of `key`, plus an integer; `text` is how the source writes it."""

    key: Key
    offset: int = 0
    text: str = field(default="", compare=False)


@dataclass(frozen=True)
class Obj:
    """An object that the program makes: identity is the place that makes it."""

    key: Key
    kind: Kind
    cls: ClassInfo | None = None
    text: str = field(default="", compare=False)


@dataclass(frozen=True)
class Cond:
    """A truth value as a formula over atoms: an `Atom`, a bool, or ("not" | "and" | "or", parts…)."""

    formula: Formula


Formula = Union[bool, Atom, tuple]  # type: ignore[type-arg]


@dataclass(frozen=True)
class Mod:
    """``of % modulus`` of a counter."""

    of: Sym
    modulus: Hashable


@dataclass(frozen=True)
class Choice:
    """One of several values; a world knows which by the fact about `key`'s tag."""

    key: Key
    options: tuple[Value, ...]


@dataclass(frozen=True)
class Seq:
    """A list or tuple of known values; `key` is the place that makes it."""

    items: tuple[Value, ...]
    key: Key = field(default=None, compare=False)


@dataclass(frozen=True)
class Map:
    """A dict with constant keys; `key` is the place that makes it."""

    items: tuple[tuple[Hashable, Value], ...]
    key: Key = None


@dataclass(frozen=True)
class Items:
    """The elements of an unknown collection: `Sym` of each index, or pairs of them."""

    of: tuple[Value, ...]
    counted: bool = False


@dataclass(frozen=True)
class Fn:
    """A function of the program; `frame` is where its free names live, `bound` its self."""

    info: FunctionInfo
    frame: int
    bound: Value | None = None


@dataclass(frozen=True)
class LambdaFn:
    """A lambda; `node` is its concrete syntax, compared by identity."""

    node: int
    frame: int


@dataclass(frozen=True)
class Cls:
    """A class of the program."""

    info: ClassInfo


@dataclass(frozen=True)
class Ext:
    """Something outside the program, by qualified name."""

    name: str


@dataclass(frozen=True)
class Partial:
    """``functools.partial``: a callable with its first arguments."""

    function: Value
    args: tuple[Value, ...]
    kwargs: tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class Super:
    """``super()`` in a method of `cls` with instance `of`."""

    cls: ClassInfo
    of: Value


@dataclass(frozen=True)
class Method:
    """A method of something that is not a function of the program."""

    of: Value
    name: str


@dataclass(frozen=True)
class Params:
    """Parameters: those of these owners (modules, or whatever an optimizer was built from)."""

    owners: frozenset[Key]
    single: bool = False


@dataclass(frozen=True)
class Groups:
    """``optimizer.param_groups``, or one of them."""

    optimizer: Key
    single: bool = False


@dataclass(frozen=True)
class Grads:
    """Gradient tensors of these parameters; in-place edits of them edit the buffers."""

    params: Params
    single: bool = True


@dataclass(frozen=True)
class HasGrads:
    """Whether these parameters have gradients: ``p.grad is not None``; of all of them where `whole`, else of one."""

    params: Params
    whole: bool = False
    negated: bool = False


@dataclass(frozen=True)
class StageIs:
    """Whether a scaler's private record says that an optimizer is at a stage: ``OptState.UNSCALED``."""

    scaler: Key
    optimizer: Key
    stage: str
    negated: bool = False


@dataclass(frozen=True)
class Tensor:
    """A number or tensor with a unit. `reach`: the modules whose parameters flow into it (None: not known).

    `of_gradients`: computed from gradients; `of_weights`: from parameters; `of_loss`: a number made from a scaled loss;
    `clamped`: gradients changed element by element, by a "value" limit or another non-linear "edit";
    `factor`: gradients times this number.
    """

    unit: UnitExpr
    reach: frozenset[Key] | None = None
    of_gradients: bool = False
    of_weights: bool = False
    base: Value | None = field(default=None)
    of_loss: bool = False
    clamped: str = ""
    factor: Value | None = None


Value = Union[
    Const,
    Sym,
    Obj,
    Cond,
    Mod,
    Choice,
    Seq,
    Map,
    Items,
    Fn,
    LambdaFn,
    Cls,
    Ext,
    Partial,
    Super,
    Method,
    Params,
    Groups,
    Grads,
    HasGrads,
    StageIs,
    Tensor,
]
NONE = Const(None)


def options_of(value: Value | None) -> tuple[Value | None, ...]:
    """The values that a value may be: its options where it is a choice, else itself."""
    return value.options if isinstance(value, Choice) else (value,)


@dataclass
class Arguments:
    """Evaluated arguments of a call."""

    positional: list[Value] = field(default_factory=list)
    keyword: dict[str, Value] = field(default_factory=dict)
    open: bool = False

    def get(self, index: int, name: str) -> Value | None:
        if index < len(self.positional):
            return self.positional[index]
        return self.keyword.get(name)

    def all(self) -> list[Value]:
        return [*self.positional, *self.keyword.values()]
