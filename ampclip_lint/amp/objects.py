"""Scalers, optimizers and modules: how they are made, which parameters are whose, and in which worlds."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from ampclip_lint.amp import api
from ampclip_lint.amp.builder import Draft, Flow
from ampclip_lint.amp.expressions import Expressions
from ampclip_lint.amp.units import Ref, Stored
from ampclip_lint.amp.values import (
    NONE,
    Arguments,
    Choice,
    Const,
    Grads,
    Groups,
    HasGrads,
    Key,
    Kind,
    Map,
    Obj,
    Params,
    Seq,
    StageIs,
    Sym,
    Tensor,
    Value,
)
from ampclip_lint.flow.facts import Atom, Equals, IsNone, Learn, Subject, Truthy
from ampclip_lint.flow.graph import Graph
from ampclip_lint.syntax.concrete import ConcreteFunctions
from ampclip_lint.syntax.index import ClassInfo


class Objects(Expressions):
    """What is known of the objects of a program."""

    def __init__(self, program: object) -> None:
        super().__init__(program)  # type: ignore[arg-type]
        self.concretes = self.program.shared(ConcreteFunctions)
        self.owned: dict[Key, frozenset[Key] | None] = {}
        self.scaler_evidence: set[Ref] = set()
        self.constructed_scalers: set[Ref] = set()
        self.inert_scalers: set[Ref] = set()
        self.optimizer_evidence: set[Ref] = set()
        self.holds: set[tuple[Key, Key]] = set()

    # -- worlds -----------------------------------------------------------------------------------------------------

    def each_option(self, value: Value, node: cst.CSTNode, use: object, numbers: bool = False) -> Value:
        """Call each thing that the callee (or its object) may be, in the worlds where it is that."""
        if not isinstance(value, Choice):
            return use(value)  # type: ignore[operator, no-any-return]
        arms: list[tuple[Flow, object]] = []
        start = self.fork()
        for index, option in enumerate(value.options):
            if isinstance(option, Const) and not numbers:
                continue  # Calling it would raise: being here proves that it is another option.
            self.flow = Flow(list(start.cur), dict(start.env))
            self.assume(Atom(self.tag(value.key), Equals(index)), True)
            arms.append((self.flow, lambda option=option: use(option)))  # type: ignore[operator]
        if not arms:
            self.flow = start
            return self.fresh(self.label(node))
        return self.merge_values(arms, ("callee", self.label(node)))

    def branch_on(self, value: Value) -> tuple[Flow, Flow]:
        """Two flows; where the test asks for gradients, or for a stage, both know its answer."""
        arms = super().branch_on(value)
        if isinstance(value, StageIs) and isinstance(value.scaler, tuple) and value.scaler[0] == "choice":
            # One of several scalers: whose record it is, and so what it says, is not known.
            for arm in arms:
                self.flow = arm
                if arm.cur:
                    self.emit(Draft("escape", ((self.ref(value.optimizer),),)))
        elif isinstance(value, StageIs):
            pair = (self.ref(value.scaler), self.ref(value.optimizer), value.stage)
            for arm, holds in zip(arms, (not value.negated, value.negated)):
                self.flow = arm
                if arm.cur:
                    self.emit(Draft("at_stage", (*pair, holds)))
        if isinstance(value, HasGrads) and value.whole:
            target = self.targets(value.params)
            for arm, holds in zip(arms, (not value.negated, value.negated)):
                self.flow = arm
                if arm.cur:
                    self.emit(Draft("gradients_exist", (target, holds)))
        return arms

    def in_scratch(self, use: object) -> Value:
        """Run something whose operations are thrown away."""
        graph, flow, scopes = self.graph, self.flow, self.scopes
        self.graph = Graph()
        self.graph.add()
        self.flow = Flow([(0, (), "")], dict(flow.env))
        self.scopes = []
        self.scratch += 1
        try:
            return use()  # type: ignore[operator, no-any-return]
        finally:
            self.scratch -= 1
            self.graph, self.flow, self.scopes = graph, flow, scopes

    def materialize(self, value: Tensor, name: str) -> Tensor:
        """Keep the unit that a value has now under a name: what it was made from may change before it is used."""
        slot = self.ref(("slot", self.frame.id, name, self.twin.lineno if self.twin is not None else 0), name)
        self.emit(Draft("store", (slot, value.unit)))
        return replace(value, unit=Stored(slot))

    # -- scalers and optimizers -------------------------------------------------------------------------------------

    def enabled(self, key: Key, text: str = "") -> Subject:
        """The subject "this scaler is enabled"."""
        return Subject(
            ("enabled", self.ref(key, text)),
            frozenset((("enabled", self.ref(key, text)),)),
            f"{text or 'scaler'} is enabled",
        )

    def new_scaler(self, name: str | None, arguments: Arguments, node: cst.Call, cls: ClassInfo | None = None) -> Value:
        """A scaler is constructed: its ``enabled`` argument ties it to the flag that it is given."""
        enabled_at, scale_at = api.SCALERS.get(name or "", (4, 0))
        key: Key = ("scaler", self.making.get(self.label(node)) or self.site(self.label(node)))
        ref = self.ref(key)
        self.at(node)
        self.emit(Draft("new_scaler", (ref,)))
        self.scaler_evidence.add(ref)
        self.constructed_scalers.add(ref)
        flag = arguments.get(enabled_at, "enabled")
        initial = arguments.get(scale_at, "init_scale")
        if isinstance(initial, Const) and initial.value in (1, 1.0) and not isinstance(initial.value, bool):
            self.inert_scalers.add(ref)
        subject = self.enabled(key)
        if flag is None:
            if not arguments.open:
                self.emit(Learn(Atom(subject, Truthy()), True))
        else:
            true, false = self.branch_on(self.as_test(flag))
            for flow, holds in ((true, True), (false, False)):
                if flow.cur:
                    self.flow = flow
                    self.emit(Learn(Atom(subject, Truthy()), holds))
            self.join([true, false], ("enabled", self.site(self.label(node))))
        return Obj(key, Kind.SCALER, cls)

    def new_optimizer(self, arguments: Arguments, node: cst.Call, cls: ClassInfo | None = None) -> Value:
        key: Key = ("optimizer", self.making.get(self.label(node)) or self.site(self.label(node)))
        ref = self.ref(key)
        self.optimizer_evidence.add(ref)
        owned: frozenset[Key] | None = None
        first = arguments.get(0, "params")
        if first is not None:
            owned = self.owners(first)
        self.at(node)
        self.emit(Draft("new_optimizer", (ref,)))
        before = self.owned.get(key, frozenset())
        self.owned[key] = None if owned is None or before is None else owned | before
        return Obj(key, Kind.OPTIMIZER, cls)

    def _not_none(self, base: Value) -> None:
        """Calling a method proves that the object is there, and so does giving it to the scaler."""
        if isinstance(base, Tensor) and isinstance(base.base, Sym):
            base = base.base
        if isinstance(base, Sym):
            self.assume(Atom(self.subject(base), IsNone()), False)

    def frame_of_scaler_call(self) -> None:
        self.frame.has_scaler_calls = True

    # -- whose parameters, and what a loss reaches ------------------------------------------------------------------

    def owners(self, value: Value | None) -> frozenset[Key] | None:
        """Whose parameters a value stands for: of modules, of an optimizer, or of the value itself."""
        match value:
            case Params(owners):
                return owners
            case Grads(params):
                return params.owners
            case Seq(items) if items:
                parts = [self.owners(item) for item in items]
                return None if None in parts else frozenset().union(*(p for p in parts if p is not None))
            case Map(items):
                for name, item in items:
                    if name == "params":
                        return self.owners(item)
                parts = [self.owners(item) for _, item in items]
                return None if None in parts else frozenset().union(*(p for p in parts if p is not None))
            case Groups(optimizer):
                return frozenset((("optimizer", optimizer),))
            case Choice(_, options):
                parts = [self.owners(option) for option in options if option != NONE]
                return None if None in parts else frozenset().union(*(p for p in parts if p is not None))
            case Sym(key, 0) | Obj(key):
                return frozenset((key,))
            case Tensor(base=Sym(key)):
                return frozenset((key,))
        return None

    def targets(self, value: Value | None) -> Ref:
        """A reference for a set of parameters, settled when the function's optimizers are known."""
        owners = self.owners(value)
        return self.ref(("targets", owners), "gradients")

    def parts_of(self, key: Key, depth: int = 3) -> frozenset[Key]:
        """A module and the modules that it is known to hold."""
        parts = {key}
        if depth:
            for place, value in self.flow.env.items():
                if isinstance(place, tuple) and place[0] == "a" and place[1] == key:
                    inner = self.key_of(value)
                    if inner is not None and isinstance(value, (Sym, Obj)) and inner not in parts:
                        if not (isinstance(value, Obj) and value.kind in (Kind.SCALER, Kind.OPTIMIZER)):
                            parts |= self.parts_of(inner, depth - 1)
        return frozenset(parts)

    def hold(self, owner: Key, value: Value) -> None:
        key = self.key_of(self.one(value))
        if key is not None:
            self.holds.add((owner, key))

    def freeze(self, parameters: Value, needed: Value) -> None:
        if isinstance(needed, Const):
            self.at()
            self.emit(Draft("freeze", (self.targets(parameters), not needed.value)))

    def reach_of(self, parts: list[Value]) -> frozenset[Key] | None:
        """The modules that flow into a value computed from these."""
        result: frozenset[Key] = frozenset()
        for part in parts:
            if isinstance(part, Tensor):
                if part.reach is None:
                    return None
                result |= part.reach
            elif isinstance(part, (Seq, Choice)):
                inner = self.reach_of(list(part.items if isinstance(part, Seq) else part.options))
                if inner is None:
                    return None
                result |= inner
            elif isinstance(part, Map):
                inner = self.reach_of([item for _, item in part.items])
                if inner is None:
                    return None
                result |= inner
            elif isinstance(part, (Sym, Obj)):
                result |= self.parts_of(part.key, 1)
        return result
