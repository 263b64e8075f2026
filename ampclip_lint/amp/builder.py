"""Building a graph while walking a program: where the flow is, what names stand for, and how both meet again.

The walk is an abstract interpretation of names only. Where paths with different values of a name meet, the name gets a
`Choice`, and each path notes in the graph which option it brings, so that a later test of the name takes the right arm.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from functools import cached_property
from itertools import chain, islice
from typing import Any

import libcst as cst

from ampclip_lint.amp import api
from ampclip_lint.amp.units import NO_UNITS, PLAIN, Known, OfGradients, Ref, Stored, UnitExpr
from ampclip_lint.amp.values import (
    Choice,
    Cond,
    Const,
    Ext,
    Formula,
    Grads,
    HasGrads,
    Items,
    Key,
    Kind,
    Map,
    Mod,
    Obj,
    Params,
    Seq,
    StageIs,
    Sym,
    Tensor,
    Value,
)
from ampclip_lint.diagnostics import Span
from ampclip_lint.flow.facts import (
    Atom,
    Equals,
    Forget,
    SetConstant,
    Shift,
    Subject,
    Truthy,
    symbol_subject,
)
from ampclip_lint.flow.graph import Edge, Graph, Guard
from ampclip_lint.records import dataclass
from ampclip_lint.syntax.concrete import ConcreteFunction
from ampclip_lint.syntax.index import FunctionInfo

Dangling = tuple[int, tuple[Guard, ...], str]
Env = dict[Key, Value]


#: The tag of a name that a path does not bind.
UNBOUND = -1
#: The tag of a name that a path does not bind to the optimizer that it holds on others. Which is so is followed: an
#: earlier activation may have made one at the same place.
UNMADE = -2
#: A name that may stand for more things than this is unknown.
MAX_OPTIONS = 8


_MACHINES = (Kind.SCALER, Kind.OPTIMIZER)


class TooLarge(Exception):
    """The budget for one function's graph is used up."""


class ConstructorTooLarge(TooLarge):
    """What makes the object of a method uses it up alone."""


@dataclass(eq=False)
class Frame:
    """One activation of a function: `path` are the calls that lead to it."""

    id: int
    path: tuple[Key, ...]
    info: FunctionInfo
    concrete: ConcreteFunction
    parent: int | None
    caller: Frame | None = None
    called_at: Place | None = None
    self_value: Value | None = None
    has_scaler_calls: bool = False


@dataclass(eq=False)
class Place:
    """Where an operation stands: its span, and the activation that it belongs to."""

    frame: Frame
    statement: cst.CSTNode
    twin: ast.stmt
    call: cst.Call | None = None

    @cached_property
    def span(self) -> Span:
        """Computed when somebody asks: most operations are never shown."""
        if self.call is None:
            return self.frame.concrete.span(self.twin)
        return self.frame.concrete.call_span(self.call, self.statement, self.twin)


@dataclass
class Flow:
    """Loose ends of the graph, and what names stand for there."""

    cur: list[Dangling]
    env: Env


@dataclass
class Scope:
    """Something that a jump may have to pass: a loop, a function, a try with handlers or a finally."""

    kind: str
    frame: Frame
    breaks: list[Flow] = field(default_factory=list)
    continues: list[Flow] = field(default_factory=list)
    returns: list[Flow] = field(default_factory=list)
    raises: list[Flow] = field(default_factory=list)
    implicit: list[Dangling] = field(default_factory=list)
    final: Callable[[], None] | None = None


@dataclass(frozen=True)
class Draft:
    """An operation whose objects are not settled yet; `link` makes an op of it when the whole function is known."""

    name: str
    args: tuple[Any, ...] = ()


class Builder:
    """The graph under construction."""

    #: Operations in the graph, and operations emitted in all (a loop's body is walked more than once).
    MAX_NODES = 8_000
    MAX_WORK = 12_000

    def __init__(self) -> None:
        self.graph = Graph()
        self.graph.add()
        self.flow = Flow([(0, (), "")], {})
        self.scopes: list[Scope] = []
        self.scratch = 0
        self.refs: dict[Key, Ref] = {}
        self.keys: dict[Ref, Key] = {}
        self.place: Place | None = None
        #: Keys of objects that are the same one: an attribute's first content, and what a path puts there.
        self.same: set[tuple[Key, Key]] = set()
        #: For names that some paths leave without a value, how their tags say so.
        self.left_open: dict[Key, set[int]] = {}
        #: Tags of names that are only ever given constants or known objects.
        self.flags: set[Subject] = set()
        self.instead: dict[Key, Guard] = {}
        """When there is something else in the place of a symbol, so that what it stands for does not exist."""
        self.work = 0

    # -- references -------------------------------------------------------------------------------------------------

    def ref(self, key: Key, text: str = "") -> Ref:
        """The reference that stands for a key in operations."""
        found = self.refs.get(key)
        if found is None:
            found = self.refs[key] = Ref(len(self.refs), text or "?")
            self.keys[found] = key
        return found

    @staticmethod
    def subject(sym: Sym) -> Subject:
        return symbol_subject(sym.key, sym.text)

    @staticmethod
    def tag(key: Key) -> Subject:
        return Subject(("tag", key), frozenset((("tag", key),)), "")

    # -- the loose ends ---------------------------------------------------------------------------------------------

    @property
    def dead(self) -> bool:
        return not self.flow.cur

    def emit(self, op: Any) -> int:
        """Append an operation at the loose ends."""
        self.work += 1
        if len(self.graph.nodes) > self.MAX_NODES or self.work > self.MAX_WORK:
            raise TooLarge
        node = self.graph.add(op, self.place)
        for source, guards, doubt in self.flow.cur:
            self.graph.connect(source, Edge(node, guards, doubt))
        if isinstance(op, Draft):
            for scope in reversed(self.scopes):
                if scope.kind == "try":
                    if not scope.implicit:
                        scope.implicit.extend((s, g, "exception") for s, g, _ in self.flow.cur)
                    scope.implicit.append((node, (), "exception"))
                    break
        self.flow.cur = [(node, (), "")]
        return node

    def fork(self) -> Flow:
        """A copy of the flow here."""
        return Flow(list(self.flow.cur), dict(self.flow.env))

    def kill(self) -> None:
        """No path goes on here."""
        self.flow = Flow([], self.flow.env)

    def assume(self, atom: Atom, holds: bool) -> None:
        """Go on only where the atom has this value."""
        guard = Guard(atom, holds)
        self.flow.cur = [(source, (*guards, guard), doubt) for source, guards, doubt in self.flow.cur]

    def split(self, formula: Formula) -> tuple[list[Dangling], list[Dangling]]:
        """The loose ends where a formula is true, and those where it is false."""
        if formula is True:
            return self.flow.cur, []
        if formula is False:
            return [], self.flow.cur
        if isinstance(formula, Atom):
            yes, no = Guard(formula, True), Guard(formula, False)
            cur = self.flow.cur
            return [(s, (*g, yes), d) for s, g, d in cur], [(s, (*g, no), d) for s, g, d in cur]
        assert isinstance(formula, tuple)
        if formula[0] == "not":
            true, false = self.split(formula[1])
            return false, true
        if formula[0] == "either":
            return list(self.flow.cur), list(self.flow.cur)
        start: list[Dangling] = self.flow.cur
        done: list[Dangling] = []
        for part in formula[1]:
            true, false = self.split(part)
            if formula[0] == "and":
                done, self.flow.cur = done + false, true
            else:
                done, self.flow.cur = done + true, false
        rest, self.flow.cur = self.flow.cur, start
        return (rest, done) if formula[0] == "and" else (done, rest)

    def branch_on(self, value: Value) -> tuple[Flow, Flow]:
        """Two flows: where the value is true, and where it is false."""
        if self.flow.cur:
            self.emit(None)  # The branch itself: traces show where a path was chosen.
        true, false = self.split(self.formula(value))
        return Flow(true, dict(self.flow.env)), Flow(false, dict(self.flow.env))

    def formula(self, value: Value | None) -> Formula:
        """The truth of a value."""
        match value:
            case Const(constant):
                return bool(constant)
            case Sym() if value.offset == 0:
                return Atom(self.subject(value), Truthy())
            case Ext(name) if api.may_be_setting(name):
                return Atom(self.subject(Sym(("ext", name), text=name)), Truthy())
            case Sym(_, offset):
                return ("not", Atom(self.subject(value), Equals(-offset)))
            case Cond(formula):
                return formula
            case Choice(key, options):
                return any_of(
                    all_of([Atom(self.tag(key), Equals(index)), self.formula(option)])
                    for index, option in enumerate(options)
                )
            case Seq(items) | Map(items):
                return bool(items)
            case Tensor(base=Sym() as base):
                return self.formula(base)
            case StageIs():
                return ("either",)
            case HasGrads() if not value.whole:
                return not value.negated  # Parameters without a gradient don't matter to what is done to the others.
            case None | Tensor() | Mod() | Grads() | Items() | Params() | HasGrads():
                return ("either",)
            case _:
                return True

    # -- meeting again ----------------------------------------------------------------------------------------------

    def join(self, flows: Iterable[Flow | None], site: Key) -> None:
        """Go on where several flows meet."""
        alive = [flow for flow in flows if flow is not None and flow.cur]
        if not alive:
            self.kill()
            return
        if len(alive) == 1:
            self.flow = alive[0]
            return
        first, *others = (flow.env for flow in alive)
        env = dict(first)  # Almost everything is the same in all of them.
        for key in _differing(first, others):
            values = [self.value_at(flow, key) for flow in alive]
            present = [value for value in values if value is not None]
            if all(value == present[0] for value in present[1:]):
                env[key] = present[0]
                if len(present) < len(alive):
                    env[key] = self._or_unbound(site, key, present[0], alive, [v is not None for v in values])
            else:
                phi = Phi(self, (site, key), present)
                for flow, value in zip(alive, values):
                    if value is not None:
                        phi.assign(flow, value)
                    else:
                        phi.leave_unbound(flow)
                self._same_slot(key, phi)
                env[key] = phi.value
        self.flow = Flow([end for flow in alive for end in flow.cur], env)

    def _or_unbound(self, site: Key, name: Key, value: Value, alive: list[Flow], bound: list[bool]) -> Value:
        """An optimizer under a name that other flows leave unbound. Whoever reads the name does not come from those.
        In a loop it may be bound since another round.
        """
        assert isinstance(name, tuple)
        optimizer = isinstance(value, Obj) and value.kind is Kind.OPTIMIZER
        if not optimizer or name[0] != "v" or isinstance(name[1], str) or name[1] < 0:
            return value
        if any(scope.kind == "loop" and scope.frame.id == name[1] for scope in self.scopes):
            return value
        key: Key = (site, name)
        self.flags.add(self.tag(key))
        before = self.flow
        self.left_open.setdefault(key, set()).add(UNMADE)
        for self.flow, binds in zip(alive, bound):
            self.emit(SetConstant(self.tag(key), 0 if binds else UNMADE))
        self.flow = before
        return Choice(key, (value,))

    def _same_slot(self, key: Key, phi: Phi) -> None:
        """What a name holds where its content is unknown, and the one object that some path puts there, are the same
        to the rest: only one of them exists.
        """
        made = {option.key for option in phi.options if isinstance(option, Obj) and option.kind in _MACHINES}
        symbolic = [symbol.key for symbol in map(_identity, phi.options) if symbol is not None]
        if len(made) == 1 and symbolic:
            (one,) = made
            self.same |= {(symbol, one) for symbol in symbolic}
            if isinstance(key, tuple) and key[0] == "a":
                self.same.add((("attr", key[1], key[2]), one))

    def value_at(self, flow: Flow, key: Key) -> Value | None:
        """What a key stands for in a flow; a piece of an object that nobody has set is what it was at first."""
        found = flow.env.get(key)
        if found is None and isinstance(key, tuple) and key[0] == "a" and not _is_made(key[1]):
            return Sym(("attr", key[1], key[2]), text=str(key[2]))
        return found


def _differing(first: Env, others: Sequence[Env]) -> Iterable[Key]:
    """The keys that do not stand for one and the same value in all of several flows, in their order."""
    found: dict[Key, None] = {}
    for other in others:
        if all(map(operator.is_, first, other)):  # Two forks of one flow, to which at most some names were added.
            found.update((key, None) for key, a, b in zip(first, first.values(), other.values()) if a is not b)
            longer = first if len(first) > len(other) else other
            found.update((key, None) for key in islice(longer, min(len(first), len(other)), None))
        else:
            found.update((key, None) for key, value in first.items() if other.get(key) is not value)
            found.update((key, None) for key in other if key not in first)
    return found if len(others) == 1 else [key for key in dict.fromkeys((*first, *chain(*others))) if key in found]


class Phi:
    """What a name stands for where several values of it meet, and the operations that say which one it is."""

    def __init__(self, builder: Builder, key: Key, values: Sequence[Value]) -> None:
        self.builder = builder
        self.key = key
        leaves = [leaf for value in values for leaf in _leaves(value)]
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        self.own: Value | None = None
        if tensors:
            reaches = [leaf.reach for leaf in tensors]
            reach = None if None in reaches else frozenset().union(*(r for r in reaches if r is not None))
            self.own = Tensor(
                Stored(builder.ref(("unit", key))),
                reach,
                any(leaf.of_gradients for leaf in tensors),
                any(leaf.of_weights for leaf in tensors),
                Sym(("phi", key)) if any(_identity(leaf) is not None for leaf in leaves) else None,
                any(leaf.of_loss for leaf in tensors),
            )
        elif any(_is_symbolic(leaf) for leaf in leaves):
            texts = {leaf.text for leaf in leaves if isinstance(leaf, Sym)}
            self.own = Sym(("phi", key), text=texts.pop() if len(texts) == 1 else "")
        self.options: list[Value] = []
        for leaf in leaves:
            # A number beside a symbol (a counter and its start) is a fact about the symbol, not another option.
            plain_number = self.own is not None and isinstance(leaf, Const) and _numeric(leaf)
            if not _is_symbolic(leaf) and not plain_number and leaf not in self.options:
                self.options.append(leaf)
        if len(self.options) > MAX_OPTIONS:
            # Too many to tell apart: one unknown value.
            self.options = []
            self.own = self.own or Sym(("phi", key))
        if self.own is not None:
            self.options.append(self.own)
        if self.own is None:
            builder.flags.add(builder.tag(key))
        symbol = self.own.base if isinstance(self.own, Tensor) else self.own
        if isinstance(symbol, Sym) and len(self.options) > 1:
            mine = Atom(builder.tag(key), Equals(len(self.options) - 1))
            builder.instead[symbol.key] = Guard(mine, False)
        unmade = any(isinstance(v, Choice) and UNMADE in builder.left_open.get(v.key, ()) for v in values)
        self.tagged = len(self.options) > 1 or unmade
        self.value: Value = Choice(key, tuple(self.options)) if self.tagged else self.options[0]

    def assign(self, flow: Flow, value: Value) -> None:
        """At the end of a flow: the name gets this value."""
        before, self.builder.flow = self.builder.flow, flow
        self._assign(value)
        flow.cur = self.builder.flow.cur
        self.builder.flow = before

    def leave_unbound(self, flow: Flow) -> None:
        """At the end of a flow that does not bind the name: whoever uses it did not come from here."""
        if self.tagged and flow.cur:
            before, self.builder.flow = self.builder.flow, flow
            self._leave_open(UNBOUND)
            flow.cur = self.builder.flow.cur
            self.builder.flow = before

    def _leave_open(self, how: int) -> None:
        self.builder.left_open.setdefault(self.key, set()).add(how)
        self.builder.emit(SetConstant(self.builder.tag(self.key), how))

    def _assign(self, value: Value) -> None:
        build = self.builder
        if isinstance(value, Choice):
            start, ends = build.flow.cur, []
            for index, option in enumerate(value.options):
                build.flow.cur = list(start)
                build.assume(Atom(build.tag(value.key), Equals(index)), True)
                self._assign(option)
                ends += build.flow.cur
            for how in sorted(build.left_open.get(value.key, ())):  # Where the name has no value, no one asks for it.
                build.flow.cur = list(start)
                build.assume(Atom(build.tag(value.key), Equals(how)), True)
                if self.tagged:
                    self._leave_open(how)
                ends += build.flow.cur
            build.flow.cur = ends
        elif isinstance(value, Cond):
            true, false = build.split(value.formula)
            build.flow.cur = true
            self._set(Const(True))
            true, build.flow.cur = build.flow.cur, false
            self._set(Const(False))
            build.flow.cur = true + build.flow.cur
        else:
            self._set(value)

    def _set(self, leaf: Value) -> None:
        build = self.builder
        if not build.flow.cur:
            return
        if leaf in self.options:
            index = self.options.index(leaf)
        elif self.own is not None:
            index = len(self.options) - 1
            self._set_own(leaf)
            made = {o.key for o in self.options if isinstance(o, Obj) and o.kind is Kind.OPTIMIZER}
            if len(made) == 1 and _identity(leaf) is not None and self.key[0][-1] == "if":  # type: ignore[index]
                # Here it is an optimizer that the program did not make, in the place of the one that it makes.
                build.emit(Draft("new_optimizer", (build.ref(made.pop()),)))
        else:
            # A value that was not foreseen (a loop whose second round differs from its first): any of the options.
            if len(self.options) > 1:
                build.emit(Forget(("tag", self.key)))
            return
        if self.tagged:
            build.emit(SetConstant(build.tag(self.key), index))

    def _set_own(self, leaf: Value) -> None:
        build = self.builder
        if isinstance(self.own, Tensor):
            assert isinstance(self.own.unit, Stored)
            build.emit(Draft("store", (self.own.unit.variable, unit_of(leaf))))
            if isinstance(self.own.base, Sym):
                source = _identity(leaf)
                target = build.subject(self.own.base)
                build.emit(Shift(target, build.subject(source), source.offset) if source else Forget(self.own.base.key))
            return
        assert isinstance(self.own, Sym)
        target = build.subject(self.own)
        if isinstance(leaf, Sym):
            build.emit(Shift(target, build.subject(leaf), leaf.offset))
        elif isinstance(leaf, Const) and _numeric(leaf):
            build.emit(SetConstant(target, leaf.value))
        else:
            build.emit(Forget(self.own.key))


def _is_made(key: Key) -> bool:
    """Whether the program itself makes the object: an attribute that nobody has set does not exist."""
    return isinstance(key, tuple) and key[0] == "instance"


def unit_of(value: Value | None) -> UnitExpr:
    """The unit expression of a value; constants and unknown values carry no scale. Zero carries every unit."""
    match value:
        case Tensor(unit):
            return unit
        case Const(0) | Const(0.0):
            return Known(NO_UNITS)
        case Grads(params):
            return OfGradients((params,))  # type: ignore[arg-type]
    return PLAIN


def _identity(leaf: Value) -> Sym | None:
    """The symbol that an unknown object or number goes by."""
    if isinstance(leaf, Sym):
        return leaf
    if isinstance(leaf, Tensor) and isinstance(leaf.base, Sym):
        return leaf.base
    return None


def _numeric(leaf: Const) -> bool:
    return isinstance(leaf.value, (int, float)) and not isinstance(leaf.value, bool)


def _leaves(value: Value) -> Iterable[Value]:
    if isinstance(value, Choice):
        for option in value.options:
            yield from _leaves(option)
    elif isinstance(value, Cond):
        yield Const(True)
        yield Const(False)
    else:
        yield value


def _is_symbolic(leaf: Value) -> bool:
    return isinstance(leaf, (Sym, Mod, Tensor))


def all_of(parts: Iterable[Formula]) -> Formula:
    """Conjunction, simplified."""
    kept = []
    for part in parts:
        if part is False:
            return False
        if part is not True:
            kept.append(part)
    return True if not kept else kept[0] if len(kept) == 1 else ("and", tuple(kept))


def any_of(parts: Iterable[Formula]) -> Formula:
    """Disjunction, simplified."""
    kept = []
    for part in parts:
        if part is True:
            return True
        if part is not False:
            kept.append(part)
    return False if not kept else kept[0] if len(kept) == 1 else ("or", tuple(kept))


def negate(formula: Formula) -> Formula:
    """Negation, simplified."""
    if isinstance(formula, bool):
        return not formula
    if isinstance(formula, tuple) and formula[0] == "not":
        inner: Formula = formula[1]
        return inner
    return ("not", formula)


__all__ = [
    "Builder",
    "Draft",
    "Env",
    "Flow",
    "Frame",
    "Key",
    "Obj",
    "Params",
    "Phi",
    "Place",
    "Scope",
    "TooLarge",
    "all_of",
    "any_of",
    "negate",
    "unit_of",
]
