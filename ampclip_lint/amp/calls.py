"""Calls: the protocol's own methods, functions of the program (followed in place), and what the API table knows."""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from functools import reduce
from typing import Any

import libcst as cst

from ampclip_lint.amp import api
from ampclip_lint.amp.builder import Draft, Flow, Frame, Place, Scope, all_of, any_of, unit_of
from ampclip_lint.amp.expressions import BOUND_METHODS, Expressions, _code, chosen
from ampclip_lint.amp.relevance import Relevance
from ampclip_lint.amp.units import (
    PLAIN,
    Bounded,
    Inverse,
    OfGradients,
    Product,
    Ref,
    Root,
    ScaleOf,
    Stored,
    Sum,
    UnitExpr,
    stored_in,
)
from ampclip_lint.amp.values import (
    NONE,
    Choice,
    Cls,
    Cond,
    Const,
    Ext,
    Fn,
    Grads,
    Groups,
    HasGrads,
    Items,
    Key,
    Kind,
    LambdaFn,
    Map,
    Method,
    Obj,
    Params,
    Partial,
    Seq,
    StageIs,
    Super,
    Sym,
    Tensor,
    Value,
    options_of,
)
from ampclip_lint.flow.facts import Atom, Equals, IsNone, Learn, SetConstant, Subject, Truthy
from ampclip_lint.flow.graph import Graph
from ampclip_lint.records import dataclass
from ampclip_lint.syntax.concrete import ConcreteFunction
from ampclip_lint.syntax.index import ClassInfo, FunctionInfo, ModuleIndex, dotted, qualified

#: Methods that torch's own objects have: seeing one of them says nothing about a class of the program.
GENERIC = frozenset(
    {
        "step",
        "update",
        "zero_grad",
        "scale",
        "backward",
        "parameters",
        "named_parameters",
        "train",
        "eval",
        "to",
        "cuda",
        "cpu",
        "state_dict",
        "load_state_dict",
        "unscale_",
        "get_scale",
        "param_groups",
        "is_enabled",
        "forward",
        "modules",
        "named_modules",
        "append",
        "items",
        "values",
        "keys",
        "get",
        "module",
        "item",
        "mean",
        "sum",
        "grad",
        "detach",
        "data",
        "device",
        "size",
        "shape",
        "children",
        "apply",
        "requires_grad_",
        "defaults",
        "state",
        "add_param_group",
        "no_sync",
        "dataset",
        "sampler",
        "set_epoch",
        "write",
        "log",
        "add_scalar",
        "close",
        "flush",
        "n",
        "lr",
        "name",
        "type",
    }
)
MAX_DEPTH = 14
#: So many activations of one method, each of another object, may be inside each other.
MAX_NESTED = 2
#: The words of a generator that may give parameters.
_OF_PARAMETERS = frozenset({"param_groups", "parameters", "named_parameters"})
#: The words of functions that only look at objects or keep them.
_HARMLESS = (
    "save",
    "load",
    "log",
    "print",
    "state_dict",
    "checkpoint",
    "dump",
    "lr_scheduler",
    "get_lr",
    "len",
    "id",
    "str",
    "repr",
)


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


class Calls(Expressions):
    """Evaluation of calls."""

    def __init__(self, program: object) -> None:
        super().__init__(program)  # type: ignore[arg-type]
        self.frame_ids: dict[Hashable, int] = {}
        self.concretes: dict[FunctionInfo, ConcreteFunction] = {}
        self.owned: dict[Key, frozenset[Key] | None] = {}
        self.classes_of: dict[Key, ClassInfo | None] = {}
        self.scaler_evidence: set[Ref] = set()
        self.asked_for_scale: set[Ref] = set()
        self.constructed_scalers: set[Ref] = set()
        self.inert_scalers: set[Ref] = set()
        self.optimizer_evidence: set[Ref] = set()
        #: What a model asks whether it is an optimizer: what it does to it then proves nothing.
        self.in_question: dict[Subject, Ref] = {}
        #: What is none, by its class, even where a model has it step in worlds that do not exist.
        self.no_optimizers: set[Ref] = set()
        self.module_evidence: set[Key] = set()
        self.framework_evidence: set[Key] = set()
        self.followed: set[FunctionInfo] = set()
        self.gaps: list[tuple[object, str]] = []
        self.no_grad = 0
        self.called: set[Key] = set()
        self.finite_tests = 0
        self.finite_symbols: list[Sym] = []
        #: What surrounds the current statement: "loop", or the text of an if's condition.
        self.enclosing: list[str] = []
        self.clip_bounds: dict[Ref, Value] = {}
        self.closures: set[FunctionInfo] = set()
        #: Activations that call a function of the program again and again, as its callers would.
        self.repeats: list[Frame] = []
        #: Activations of functions that have nested ones.
        self.closing: dict[int, Frame] = {}
        self.holds: set[tuple[Key, Key]] = set()

    def is_active(self, frame: int | str) -> bool:
        if isinstance(frame, str):
            return True  # the names of a module
        return any(around.id == frame for around in self.around()) or frame in self.closing

    # -- the call itself --------------------------------------------------------------------------------------------

    def call_expression(self, node: cst.Call) -> Value:
        if isinstance(node.func, cst.Name) and node.func.value == "super":
            cls = self.frame.info.owner
            if cls is not None and self.frame.self_value is not None:
                return Super(cls, self.frame.self_value)
        if isinstance(node.func, cst.Attribute):
            base = self.evaluate(node.func.value)
            arguments = self.arguments(node)
            views = node.func.attr.value in ("items", "values", "keys") and not arguments.all()
            if views and isinstance(base, Choice) and all(_is_mapping(option) for option in base.options):
                # Asked again, a dict shows the same things: no new value for each time.
                parts = (NONE if option == NONE else self.method(option, node, arguments) for option in base.options)
                return chosen(base, list(parts))
            return self.each_option(base, node, lambda option: self.method(option, node, arguments))
        function = self.evaluate(node.func)
        arguments = self.arguments(node)
        return self.each_option(function, node, lambda option: self.apply(option, arguments, node))

    def arguments(self, node: cst.Call) -> Arguments:
        result = Arguments()
        for arg in node.args:
            value = self.evaluate(arg.value)
            if arg.star == "*":
                if isinstance(value, Seq):
                    result.positional.extend(value.items)
                elif isinstance(value, (Params, Grads)):
                    result.positional.append(value)
                else:
                    result.open = True
            elif arg.star == "**":
                if isinstance(value, Map):
                    result.keyword.update((str(key), item) for key, item in value.items)
                else:
                    result.open = True
            elif arg.keyword is not None:
                result.keyword[arg.keyword.value] = value
            else:
                result.positional.append(value)
        return result

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

    def method(self, base: Value, node: cst.Call, arguments: Arguments) -> Value:
        """``base.name(…)``."""
        assert isinstance(node.func, cst.Attribute)
        name = node.func.attr.value
        own_step = isinstance(base, Obj) and base.kind is Kind.OPTIMIZER and name in ("step", "zero_grad")
        if (
            own_step
            or isinstance(base, (Tensor, Grads, Params, Groups, Seq, Map, Items))
            or (isinstance(base, Obj) and base.kind in (Kind.SCALER, Kind.OPTIMIZER) and base.cls is None)
        ):
            return self.known_method(base, name, arguments, node)
        function = self.attribute(base, name, node.func)
        return self.each_option(function, node, lambda option: self._method_value(base, name, option, arguments, node))

    def _method_value(self, base: Value, name: str, function: Value, arguments: Arguments, node: cst.Call) -> Value:
        if isinstance(function, (Fn, Cls, Ext, Partial, LambdaFn, Method)):
            return self.apply(function, arguments, node)
        if isinstance(function, Obj) or (
            isinstance(function, Sym) and function != Sym(("attr", self.key_of(base), name))
        ):
            return self.apply(function, arguments, node)
        return self.known_method(base, name, arguments, node)

    def apply(self, function: Value, arguments: Arguments, node: cst.Call) -> Value:
        """Call a value."""
        match function:
            case Fn():
                return self.follow(function, arguments, node)
            case Cls(info):
                return self.instantiate(info, arguments, node)
            case Ext(name):
                return self.external(name, arguments, node)
            case Partial(inner, args, kwargs):
                merged = Arguments(
                    [*args, *arguments.positional], {**dict(kwargs), **arguments.keyword}, arguments.open
                )
                return self.each_option(inner, node, lambda option: self.apply(option, merged, node))
            case Method(of, name):
                return self.known_method(of, name, arguments, node)
            case Sym(key=("attr", owner, str(name)), offset=0) if name in BOUND_METHODS:
                # A bound method under a name of its own: ``scale = scaler.scale``.
                text = function.text.rpartition(".")[0]
                return self.known_method(Sym(owner, text=text), name, arguments, node)
            case LambdaFn():
                return self.follow_lambda(function, arguments, node)
            case Obj(cls=cls) if cls is not None:
                method = self.program.method(cls, "__call__")
                if method is not None:
                    return self.follow(Fn(method, -1, function), arguments, node)
                forward = self.program.method(cls, "forward")
                if forward is not None and self.relevant(forward, strict=True):
                    return self.follow(Fn(forward, -1, function), arguments, node)
        return self.unknown_call(function, arguments, node)

    # -- functions of the program -----------------------------------------------------------------------------------

    def relevant(self, info: FunctionInfo, strict: bool = False) -> bool:
        """Whether following a function can matter: it takes part in the protocol, or is small enough to be a test."""
        if not strict and info.is_small:
            return True
        return self.program.shared(Relevance).holds(info)

    def concrete(self, info: FunctionInfo) -> ConcreteFunction:
        found = self.concretes.get(info)
        if found is None:
            cache = self.program.__dict__.setdefault("_concrete", {})
            found = cache.get(info)
            if found is None:
                found = cache[info] = ConcreteFunction(info)
            self.concretes[info] = found
        return found

    def depth(self) -> int:
        return sum(1 for _ in self.around()) - 1

    def follow(self, function: Fn, arguments: Arguments, node: cst.Call) -> Value:
        """Lower a function of the program in place of its call."""
        info = function.info
        if info.is_generator or not self.relevant(info):
            if "contextmanager" in "".join(info.decorators):
                return self.fresh(self.label(node))
            return self._generated(function, arguments, node) or self.opaque(function, arguments, node)
        again = [frame.self_value for frame in self.around() if frame.info is info]
        if function.bound in again or len(again) >= MAX_NESTED:
            self.escape(arguments.all(), node)
            return self.opaque(function, arguments, node)
        if self.depth() >= MAX_DEPTH:
            self.at(node)
            self.gaps.append((self.place, f"calls are followed {MAX_DEPTH} deep; `{info.qualname}` was not entered"))
            self.escape(arguments.all(), node)
            return self.opaque(function, arguments, node)
        self.at(node)
        return self.enter(
            info, function.frame, function.bound, arguments, self.site(("call", self.label(node), info.qualname))
        )

    def _generated(self, function: Fn, arguments: Arguments, node: cst.Call) -> Params | None:
        """The parameters that a generator gives, if it gives nothing else."""
        info = function.info
        nested = any(frame.info is info for frame in self.around())
        if not (info.is_generator and info.words & _OF_PARAMETERS) or nested or self.depth() >= MAX_DEPTH:
            return None
        site = self.site(("generator", self.label(node), info.qualname))
        self.yielded, before = [], self.yielded
        try:
            self.in_scratch(lambda: self.enter(info, function.frame, function.bound, arguments, site))
            given = self.collect(self.yielded)
        finally:
            self.yielded = before
        return Params(given.owners) if isinstance(given, Params) else None

    def around(self) -> Iterator[Frame]:
        """The activations that are going on, the innermost first."""
        frame: Frame | None = self.frame
        while frame is not None:
            yield frame
            frame = frame.caller

    def opaque(self, function: Fn, arguments: Arguments, node: cst.Call) -> Value:
        """A function that is not followed: its result reaches what its arguments reach, and its object."""
        parts: list[Value] = arguments.all()
        self.at(node)
        self.consume(parts)
        reach = self.reach_of(parts)
        if function.bound is not None:
            key = self.key_of(function.bound)
            if reach is not None and key is not None:
                reach = reach | {key} if function.info.name in ("forward", "__call__") else None
        text = _code(node)[:60]
        if self.no_grad:
            reach = frozenset()
        return Tensor(PLAIN, reach, base=self.fresh(self.label(node), text))

    def enter(
        self,
        info: FunctionInfo,
        lexical: int,
        bound: Value | None,
        arguments: Arguments | None,
        site: Hashable,
    ) -> Value:
        """Lower a function's body here, in a frame of its own."""
        if lexical < 0 and info.owner is not None and info.owner.outer is not None:
            around = [frame.id for frame in self.frames.values() if frame.info is info.owner.outer]
            lexical = around[-1] if around else lexical
        path = (*(self.frame.path if self.frame else ()), site)
        number = self.frame_ids.setdefault(path, len(self.frame_ids))
        frame = Frame(
            number, path, info, self.concrete(info), lexical if lexical >= 0 else None, self.frame, self.place, bound
        )
        if not self.scratch:
            self.followed.add(info)
        saved = (self.frame, self.statement, self.twin, self.place)
        self.frame = frame
        self.frames[number] = frame
        try:
            self.bind_parameters(frame, arguments)
            if info.inner and not self.scratch and not self.dead:
                self.emit(SetConstant(self.entered(frame), True))
            scope = Scope("function", frame)
            self.scopes.append(scope)
            try:
                self.suite(frame.concrete.body, frame.concrete.twins)
                if not self.dead:
                    self.flow.env[("ret", number)] = NONE
                    scope.returns.append(self.flow)
            finally:
                self.scopes.pop()
            self.twin = info.node.body[0] if info.node.body else self.twin
            self.join(scope.returns, ("return", number))
            value = self.flow.env.pop(("ret", number), NONE)
            if info.inner and not self.dead and not self.scratch:
                self.closing[number] = frame
        finally:
            self.frame, self.statement, self.twin, self.place = saved
        if not info.inner:
            for key in [k for k in self.flow.env if isinstance(k, tuple) and k[0] == "v" and k[1] == number]:
                del self.flow.env[key]
        return value

    def entered(self, frame: Frame) -> Subject:
        """Whether an activation took place."""
        return self.tag(("entered", frame.id))

    def suite(self, body: object, twins: object) -> None:
        raise NotImplementedError

    def bind_parameters(self, frame: Frame, arguments: Arguments | None) -> None:
        """Bind arguments by position, keyword and default; what is missing is unknown."""
        node = frame.info.node
        if isinstance(node, ast.Module):
            return
        spec = node.args
        names = [a.arg for a in [*spec.posonlyargs, *spec.args]]
        annotations = {a.arg: a.annotation for a in [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]}
        given = arguments or Arguments(open=True)
        positional = list(given.positional)
        if frame.self_value is not None and names:
            positional.insert(0, frame.self_value)
        bound: dict[str, Value] = {}
        for name, value in zip(names, positional):
            bound[name] = value
        keyword = dict(given.keyword)
        for name in [*names, *(a.arg for a in spec.kwonlyargs)]:
            if name in keyword:
                bound[name] = keyword.pop(name)
        defaults = dict(zip(names[len(names) - len(spec.defaults) :], spec.defaults))
        defaults.update({a.arg: d for a, d in zip(spec.kwonlyargs, spec.kw_defaults) if d is not None})
        for name in [*names, *(a.arg for a in spec.kwonlyargs)]:
            if name not in bound:
                if name in defaults and arguments is not None and not given.open:
                    bound[name] = self.default_value(defaults[name], frame)
                else:
                    bound[name] = self.parameter(frame, name, annotations.get(name))
        if spec.vararg is not None:
            bound[spec.vararg.arg] = (
                Seq(tuple(positional[len(names) :])) if not given.open else self.parameter(frame, spec.vararg.arg, None)
            )
        if spec.kwarg is not None:
            bound[spec.kwarg.arg] = (
                Map(tuple(keyword.items())) if not given.open else self.parameter(frame, spec.kwarg.arg, None)
            )
        for name, value in bound.items():
            if isinstance(value, Tensor) and not isinstance(value.unit, type(PLAIN)):
                value = self.materialize(value, name)
            self.flow.env[("v", frame.id, name)] = value

    def materialize(self, value: Tensor, name: str) -> Tensor:
        """Keep the unit that a value has now under a name: what it was made from may change before it is used."""
        slot = self.ref(("slot", self.frame.id, name, self.twin.lineno if self.twin is not None else 0), name)
        self.emit(Draft("store", (slot, value.unit)))
        return replace(value, unit=Stored(slot))

    def parameter(self, frame: Frame, name: str, annotation: ast.expr | None) -> Value:
        """An unknown argument; an annotation may say what kind of thing it is."""
        symbol = Sym(("param", frame.path, name), text=name)
        named = dotted(annotation) if annotation is not None else None
        if named:
            full = qualified(named, frame.info.module)
            if api.is_scaler(full):
                self.scaler_evidence.add(self.ref(symbol.key, name))
            elif full in api.OPTIMIZER_BASES or api.is_optimizer(full):
                self.optimizer_evidence.add(self.ref(symbol.key, name))
            cls = self.program.resolve_class(named, frame.info.module, frame.info.outer)
            if cls is not None:
                self.classes_of[symbol.key] = cls
        if self.repeats and self.frame.caller is self.repeats[-1]:
            counted = frame.info.counted_in(name)
            for way in sorted(counted):
                # Called again, it gets another number; what else an object holds may well be the same.
                self._void(reduce(lambda key, attribute: ("attr", key, attribute), way, symbol.key))
            if not counted and frame.info.passes_by(name):
                self._void(symbol.key, rises=True)
        if frame.caller is not None and frame.caller.caller is None and frame.info is frame.caller.info:
            return self._from_its_maker(frame, name) or symbol
        return symbol

    def _from_its_maker(self, frame: Frame, name: str) -> Value | None:
        """A root's collection of optimizers, where one function of the module alone makes such a collection."""
        visited: frozenset[str] | None = frame.info.__dict__.get("_visited_optimizers")
        if visited is None:
            visited = frame.info.__dict__["_visited_optimizers"] = frozenset(visited_optimizers(frame.info.node))
        if name not in visited:
            return None
        found: list[Value] = []
        for info in frame.info.module.functions.values():
            if info is frame.info or not _makes_optimizers(info):
                continue
            evidence: list[set[Any]] = [
                self.scaler_evidence,
                self.optimizer_evidence,
                self.module_evidence,
                self.framework_evidence,
            ]
            saved = [set(part) for part in evidence]
            value = self.in_scratch(lambda info=info: self.enter(info, -1, None, None, self.site(("maker", info.name))))
            if not isinstance(value, (Seq, Map)):
                for part, before in zip(evidence, saved):
                    part.intersection_update(before)
            members: list[Value] = []
            if isinstance(value, Map):
                members = [item for _, item in value.items]
            elif isinstance(value, Seq):
                members = list(value.items)
            if members and all(isinstance(m, Obj) and m.kind is Kind.OPTIMIZER for m in members):
                found.append(value)
        return found[0] if len(found) == 1 else None

    def default_value(self, node: ast.expr, frame: Frame) -> Value:
        if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float, str, type(None))):
            return Const(node.value)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            if isinstance(node.operand.value, (int, float)):
                return Const(-node.operand.value)
        if isinstance(node, (ast.Tuple, ast.List)) and not node.elts:
            return Seq(())
        if isinstance(node, (ast.Name, ast.Attribute)):
            expression = cst.parse_expression(ast.unparse(node))
            return self.evaluate(expression)
        return Sym(("param", frame.path, ast.unparse(node)))

    def follow_lambda(self, function: LambdaFn, arguments: Arguments, node: cst.Call) -> Value:
        found, number = self.lambdas[function.node]
        owner = self.frames.get(number, self.frame)
        if self.depth() >= MAX_DEPTH:
            return self.fresh(self.label(node))
        names = [p.name.value for p in found.params.params]
        saved = {name: self.flow.env.get(("v", owner.id, name)) for name in names}
        for index, name in enumerate(names):
            value = arguments.get(index, name)
            self.flow.env[("v", owner.id, name)] = value if value is not None else self.fresh((self.label(node), name))
        before, self.frame = self.frame, owner
        self.frame = before if before is owner else owner
        try:
            result = self.evaluate(found.body)
        finally:
            self.frame = before
        for name, value in saved.items():
            if value is None:
                self.flow.env.pop(("v", owner.id, name), None)
            else:
                self.flow.env[("v", owner.id, name)] = value
        return result

    # -- classes ----------------------------------------------------------------------------------------------------

    def instantiate(self, info: ClassInfo, arguments: Arguments, node: cst.Call) -> Value:
        """Make an instance: a scaler or optimizer where the class is one, else an object whose ``__init__`` is run."""
        outside = self.program.outside_bases(info)
        key: Key = ("instance", self.site((self.label(node), info.qualname)))
        overridden = {"scale", "step", "update", "unscale_"}
        mine = set().union(*(c.methods for c in self.program.mro(info)))
        if any(api.is_scaler(base) for base in outside):
            kind_is_plain = not mine & overridden
            self.at(node)
            return self.new_scaler(None, arguments, node, None if kind_is_plain else info)
        if any(api.is_optimizer_base(base) for base in outside):
            return self.new_optimizer(arguments, node, info)
        obj = Obj(key, Kind.INSTANCE, info)
        if "step" in mine:  # it may turn out to be used as an optimizer
            self.at(node)
            self.emit(Draft("new_instance", (self.ref(key),)))
        self.construct(info, obj, arguments, node)
        return obj

    def construct(self, info: ClassInfo, obj: Value, arguments: Arguments | None, node: cst.Call | None) -> None:
        """Run ``__init__`` on a new instance, or bind the fields of a dataclass."""
        init = self.program.method(info, "__init__")
        if init is not None:
            if any(frame.info is init for frame in self.around()):
                return
            if self.depth() < MAX_DEPTH and (self.relevant(init) or _gives_objects(arguments)):
                self.at(node)
                self.enter(init, -1, obj, arguments, self.site(("init", self.label(node) if node is not None else 0)))
        elif any(
            "dataclass" in (dotted(d.func if isinstance(d, ast.Call) else d) or "") for d in info.node.decorator_list
        ):
            key = self.key_of(obj)
            names = [name for cls in reversed(self.program.mro(info)) for name in cls.fields]
            for index, name in enumerate(names):
                value = (arguments or Arguments()).get(index, name)
                if value is not None:
                    self.flow.env[("a", key, name)] = value

    def class_of(self, base: Value, node: cst.BaseExpression) -> ClassInfo | None:
        """The class of the program that an object is an instance of; for unknown ones, the one that fits its use."""
        if isinstance(base, Obj):
            return base.cls
        key = self.key_of(base)
        if key is None or not isinstance(base, Sym):
            return None
        if key not in self.classes_of:
            text = _code(node.value) if isinstance(node, cst.Attribute) else ""
            self.classes_of[key] = self._fitting_class(text)
        return self.classes_of[key]

    def _fitting_class(self, text: str) -> ClassInfo | None:
        """The one class of the program, or else of the module, that has every attribute that is used on this
        expression.
        """
        used = self.attributes_used(text)
        if not used - GENERIC:
            return None
        fitting = self._fitting(used)
        if len(fitting) > 1:
            fitting = [cls for cls in fitting if cls.module is self.frame.info.module]
        return fitting[0] if len(fitting) == 1 else None

    def _fitting(self, used: frozenset[str]) -> list[ClassInfo]:
        """
        The classes of the program with all of these attributes, of which a base outside the program may have what many
        have; of a class and its bases the class.
        """
        known: dict[frozenset[str], list[ClassInfo]] = self.program.__dict__.setdefault("_fitting", {})
        if used not in known:
            fitting = [
                cls
                for cls in self.program.classes_with(used - GENERIC)
                if used <= self.program.attributes(cls) or self.program.outside_bases(cls)
            ]
            bases = {base for cls in fitting for base in self.program.mro(cls)[1:]} if len(fitting) > 1 else ()
            known[used] = [cls for cls in fitting if cls not in bases]
        return known[used]

    def attributes_used(self, text: str) -> frozenset[str]:
        """The attributes that the current function (for ``self.x``: its class) reads from an expression."""
        if not text:
            return frozenset()
        info = self.frame.info
        cache: dict[bool, dict[str, frozenset[str]]] = info.__dict__.setdefault("_attributes_used", {})
        of_class = bool(info.self_name and text.startswith(f"{info.self_name}.") and info.owner is not None)
        if of_class not in cache:
            of_methods = info.owner.methods.values() if of_class and info.owner is not None else ()
            nodes: list[ast.AST] = [method.node for method in of_methods] or [info.node]
            # For all expressions at once: a walk for each would be quadratic in what generated code has.
            table: dict[str, set[str]] = {}
            for child in (child for node in nodes for child in ast.walk(node) if isinstance(child, ast.Attribute)):
                of = child.value
                name = ast.unparse(of) if isinstance(of, ast.Subscript) else dotted(of)
                if name is not None:
                    table.setdefault(name, set()).add(child.attr)
            cache[of_class] = {name: frozenset(used) for name, used in table.items()}
        return cache[of_class].get(text.replace('"', "'"), frozenset())

    def property_value(self, method: FunctionInfo, base: Value, name: str, node: cst.BaseExpression) -> Value:
        if not self.relevant(method) or method.is_generator or self.depth() >= MAX_DEPTH:
            return Sym(("attr", self.key_of(base), name), text=self.text(node))
        if any(frame.info is method for frame in self.around()):
            return Sym(("attr", self.key_of(base), name), text=self.text(node))
        return self.enter(method, -1, base, Arguments(), self.site(("property", self.label(node), name)))

    def assigned_expression(self, node: ast.Assign | ast.AnnAssign) -> cst.BaseExpression | None:
        """What an assignment assigns, the same tree each time; None where libcst can't read it."""
        known: dict[ast.stmt, cst.BaseExpression | None]
        known = self.program.__dict__.setdefault("_assigned_expressions", {})
        if node not in known:
            assert node.value is not None
            try:
                known[node] = cst.parse_expression(ast.unparse(node.value))
            except cst.ParserSyntaxError:
                known[node] = None
        return known[node]

    def evaluate_elsewhere(self, module: ModuleIndex, node: ast.stmt) -> Value:
        """The value that a statement of a module's body assigns, without its operations."""
        assert isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None
        expression = self.assigned_expression(node)
        return NONE if expression is None else self.in_scratch(lambda: self._at_module(module, node, expression))

    def _at_module(self, module: ModuleIndex, node: ast.stmt, expression: cst.BaseExpression) -> Value:
        path: tuple[Key, ...] = (("module", module.name),)
        number = self.frame_ids.setdefault(path, len(self.frame_ids))
        saved = (self.frame, self.statement, self.twin, self.place)
        self.frame = Frame(number, path, module.body, self.concrete(module.body), None)
        self.frames[number] = self.frame
        self.statement, self.twin = expression, node
        try:
            return self._named(self.evaluate(expression), _target_text(node))
        finally:
            self.frame, self.statement, self.twin, self.place = saved

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

    def freeze(self, parameters: Value, needed: Value) -> None:
        if isinstance(needed, Const):
            self.at()
            self.emit(Draft("freeze", (self.targets(parameters), not needed.value)))

    def targets(self, value: Value | None) -> Ref:
        """A reference for a set of parameters, settled when the function's optimizers are known."""
        owners = self.owners(value)
        return self.ref(("targets", owners), "gradients")

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

    # -- methods that the protocol knows ----------------------------------------------------------------------------

    def known_method(self, base: Value, name: str, arguments: Arguments, node: cst.Call) -> Value:
        text = _code(node.func.value) if isinstance(node.func, cst.Attribute) else getattr(base, "text", "")
        if isinstance(base, Tensor) and base.of_gradients and name in ("isnan", "isinf", "isfinite"):
            return self.finite_test(node)
        match base:
            case Grads():
                return self.gradient_method(base, name, arguments, node)
            case Tensor() if not (
                isinstance(base.base, Sym) and name not in api.IDENTITY_METHODS | {"backward", "pow", "sqrt"}
            ):
                return self.tensor_method(base, name, arguments, node)
            case Params():
                if name in ("register_hook", "register_post_accumulate_grad_hook"):
                    return self.hook(base, arguments.get(0, "hook"), node)
                return self.tensor(PLAIN, (base,), node) if name in api.IDENTITY_METHODS else base
            case Groups():
                return base if name != "get" else self.item(base, arguments.get(0, "key") or NONE, node)
            case Map() | Seq() | Items():
                return self.container_method(base, name, arguments, node)
        key = self.key_of(base)
        if key is None:
            return self.unknown_call(base, arguments, node)
        self.at(node)
        if isinstance(base, Ext):
            return self.external(f"{base.name}.{name}", arguments, node)
        ref = self.ref(key, text)
        first = arguments.get(0, "optimizer")
        if name == "scale" and len(arguments.all()) == 1:
            self.emit(Draft("scale", (ref,)))
            self._not_none(base)
            return self.scaled(arguments.all()[0], ref, node)
        if name == "unscale_" and first is not None:
            self.scaler_evidence.add(ref)
            self.frame_of_scaler_call()
            self._not_none(base)
            return self._for_each(first, "unscale", ref, node)
        if name == "step":
            return self._step(base, ref, first, arguments, node)
        if name == "update":
            self.consume(arguments.all())  # A meter keeps what it is given.
            new_scale = bool(arguments.all()) and arguments.all() != [NONE]
            self.emit(Draft("maybe_update", (ref, new_scale)))
            return NONE
        if name == "get_scale" and not arguments.all():
            self.asked_for_scale.add(ref)
            return Tensor(ScaleOf(ref), frozenset())
        if name == "is_enabled" and not arguments.all():
            return Cond(Atom(self.enabled(key, text), Truthy()))
        if name == "zero_grad":
            self._not_none(base)
            self.emit(Draft("zero", (ref, self.parts_of(key))))
            return NONE
        if name == "backward":
            if not arguments.positional:
                self.emit(Draft("backward", (unit_of(base), None, ref)))
            else:
                self.framework_evidence.add(key)
                self.emit(Draft("outside_backward"))
            return NONE
        if name in ("children", "modules", "named_children", "named_modules") and not arguments.all():
            return Params(self.parts_of(key))
        if name in ("parameters", "named_parameters", "trainable_parameters", "get_parameters"):
            self.module_evidence.add(key)
            return Params(self.parts_of(key))
        if name in ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_", "clip_gradients"):
            return self._method_clip(base, name, arguments, node)
        if api.says_clip(name) and any(isinstance(a, (Params, Grads)) for a in arguments.positional[:1]):
            return self.clip(api.ClipCall("norm", (0, "parameters"), (1, "max_norm")), arguments, node)
        if name in (
            "cuda",
            "cpu",
            "to",
            "train",
            "eval",
            "half",
            "float",
            "double",
            "bfloat16",
            "compile",
            "share_memory",
            "requires_grad_",
        ):
            if name == "eval" or name == "train":
                self.module_evidence.add(key)
            elif name == "requires_grad_":
                self.freeze(Params(self.parts_of(key)), arguments.get(0, "requires_grad") or Const(True))
            return base
        if name in ("items", "values", "keys") and not arguments.all():
            return Sym(("attr", key, f"{name}()"), text=self.text(node))
        if name == "load_state_dict":
            self.emit(Draft("restore", (ref,)))
        if name in ("load_state_dict", "state_dict", "add_param_group", "register_step_pre_hook"):
            return self.fresh(self.label(node))
        if name in api.PURE_METHODS:
            keys = tuple(self.pure_key(a) for a in arguments.all())
            if None not in keys:
                if len(arguments.positional) >= 1 and isinstance(arguments.positional[0], Const) and name == "get":
                    return Sym(("attr", key, ("item", arguments.positional[0].value)), text=self.text(node))
                return Sym(("pure", name, ("sym", key, 0), keys), text=self.text(node))
        self.emit(Draft("touch", (ref,)))
        return self.unknown_call(base, arguments, node)

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

    def frame_of_scaler_call(self) -> None:
        self.frame.has_scaler_calls = True

    def _not_none(self, base: Value) -> None:
        """Calling a method proves that the object is there, and so does giving it to the scaler."""
        if isinstance(base, Tensor) and isinstance(base.base, Sym):
            base = base.base
        if isinstance(base, Sym):
            self.assume(Atom(self.subject(base), IsNone()), False)

    def scaled(self, value: Value, scaler: Ref, node: cst.Call) -> Value:
        """``scaler.scale(value)``; sequences element by element."""
        self.frame_of_scaler_call()
        if isinstance(value, Seq):
            return Seq(tuple(self.scaled(item, scaler, node) for item in value.items))
        reach = self.reach_of([value])
        base = value.base if isinstance(value, Tensor) else None
        flags = (value.of_gradients, value.of_weights) if isinstance(value, Tensor) else (False, False)
        return Tensor(Product(unit_of(value), ScaleOf(scaler)), reach, *flags, base)

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

    def _for_each(self, value: Value, draft: str, ref: Ref, node: cst.Call) -> Value:
        """Emit an operation for an optimizer, or in each world for the one that it is there."""
        if isinstance(value, Choice):
            self.each_option(value, node, lambda option: self._for_each(option, draft, ref, node))
            return NONE
        key = self.key_of(value)
        if key is not None:
            self.at(node)
            self._not_none(value)
            self.emit(Draft(draft, (ref, self.ref(key, self._argument_text(node)))))
        return NONE

    @staticmethod
    def _argument_text(node: cst.Call) -> str:
        return _code(node.args[0].value)[:40] if node.args else "?"

    def _step(self, base: Value, ref: Ref, first: Value | None, arguments: Arguments, node: cst.Call) -> Value:
        if first is None:
            closure = arguments.get(0, "closure")
            if closure is None:
                self._not_none(base)
                self.emit(Draft("plain_step", (ref,)))
            return NONE
        if isinstance(first, Fn):
            # optimizer.step(closure): evaluates the model again; its own protocol.
            self.closures.add(first.info)
            return NONE
        if isinstance(first, Choice):
            return self.each_option(first, node, lambda option: self._step(base, ref, option, arguments, node))
        key = self.key_of(first)
        if key is None:
            return NONE
        second = arguments.get(1, "closure")
        closure_given = isinstance(second, (Fn, LambdaFn)) or arguments.keyword.get("closure", NONE) != NONE
        if isinstance(second, Fn):
            self.closures.add(second.info)
        self.at(node)
        self._not_none(base)
        self._not_none(first)
        self.emit(Draft("scaler_step", (ref, self.ref(key, self._argument_text(node)), closure_given)))
        self.frame_of_scaler_call()
        return NONE

    def _method_clip(self, base: Value, name: str, arguments: Arguments, node: cst.Call) -> Value:
        """``model.clip_grad_norm_(1.0)`` (FSDP), ``optimizer.clip_grad_norm(1.0)``; frameworks unscale first."""
        key = self.key_of(base)
        first = arguments.positional[0] if arguments.positional else None
        if (
            isinstance(first, (Params, Grads))
            or "parameters" in arguments.keyword
            or (first is not None and not isinstance(first, (Const, Sym, Tensor)))
        ):
            if key in self.framework_evidence or name == "clip_gradients":
                return self.fresh(self.label(node))
            row = api.clip_call(f"torch.nn.utils.{name}") or api.CLIPS["torch.nn.utils.clip_grad_norm_"]
            self.at(node)
            self.emit(Draft("framework", (self.ref(key, "") if key is not None else None,)))
            return self.clip(row, arguments, node, framework=key)
        if name == "clip_gradients":
            return self.fresh(self.label(node))
        bound = arguments.get(0, "max_norm")
        if key is None:
            return self.fresh(self.label(node))
        kind = "value" if name == "clip_grad_value_" else "norm"
        return self.emit_clip(kind, Params(frozenset((key,))), bound, node)

    def container_method(self, base: Value, name: str, arguments: Arguments, node: cst.Call) -> Value:
        # Under a name of its own (``add = items.append``) it is not seen which name to give the changed collection to.
        owner = node.func.value if isinstance(node.func, cst.Attribute) else None
        if isinstance(base, Map):
            if name == "values":
                return Seq(tuple(value for _, value in base.items))
            if name == "keys":
                return Seq(tuple(Const(key) for key, _ in base.items))
            if name == "items":
                return Seq(tuple(Seq((Const(key), value)) for key, value in base.items))
            if name == "get" and isinstance(arguments.get(0, "key"), Const):
                wanted = arguments.positional[0]
                for key, value in base.items:
                    if isinstance(wanted, Const) and key == wanted.value:
                        return value
                return arguments.positional[1] if len(arguments.positional) > 1 else NONE
        if isinstance(base, Map) and name in ("update", "setdefault", "pop", "clear"):
            given = arguments.get(0, "other")
            changed: Value = self.fresh(self.label(node))
            if name == "update" and isinstance(given, Map) and not arguments.open:
                merged = dict(base.items) | dict(given.items) | dict(arguments.keyword)
                changed = Map(tuple(merged.items()), base.key)
            if isinstance(owner, (cst.Name, cst.Attribute)):
                self.assign(owner, changed)
            return NONE if name != "pop" else self.fresh((self.label(node), "popped"))
        if isinstance(base, Seq) and name in ("append", "extend", "add") and arguments.positional:
            added = arguments.positional[0]
            items = (*base.items, *(added.items if name == "extend" and isinstance(added, Seq) else (added,)))
            if isinstance(owner, cst.Attribute):
                self.at(node)
                self.consume([added])
            if len(items) <= 12 and isinstance(owner, (cst.Name, cst.Attribute)):
                self.assign(owner, self.collect(list(items)))
            return NONE
        return self.fresh(self.label(node))

    def number(self, value: Tensor) -> Tensor:
        """A tensor taken out of the graph of gradients: a number to look at. Of a loss, it is one to read."""
        of_loss = value.of_loss or (not value.of_gradients and value.reach != frozenset() and value.unit != PLAIN)
        return Tensor(value.unit, frozenset(), value.of_gradients, value.of_weights, value.base, of_loss)

    def consume(self, values: list[Value]) -> None:
        for value in values:
            if isinstance(value, Tensor) and (value.of_gradients or value.of_loss) and value.unit != PLAIN:
                self.emit(Draft("read", (value.unit,)))
            elif isinstance(value, Seq):
                self.consume(list(value.items))
            elif isinstance(value, Map):
                self.consume([item for _, item in value.items])
            elif isinstance(value, Choice):
                self.consume([option for option in value.options if isinstance(option, Tensor)])

    def compared(self, left: Value, right: Value, operator: cst.BaseCompOp) -> None:
        """A scaled number compared with one that is not; with 0 or None every unit is the same."""
        if not isinstance(operator, (cst.GreaterThan, cst.LessThan, cst.GreaterThanEqual, cst.LessThanEqual)):
            return
        within = isinstance(operator, (cst.LessThan, cst.LessThanEqual))
        norm, bound = (left, right) if within else (right, left)
        if (
            isinstance(norm, Tensor)
            and isinstance(norm.unit, Stored)
            and self.clip_bounds.get(norm.unit.variable) == bound
        ):
            self.at()
            self.emit(Draft("misread"))
        for one, other in ((left, right), (right, left)):
            if isinstance(one, Tensor) and (one.of_gradients or one.of_loss) and one.unit != PLAIN:
                if not (isinstance(other, Const) and not other.value):
                    self.at()
                    self.emit(Draft("compare", (Product(one.unit, Inverse(unit_of(other))),)))
                return

    def rescaled(self, by: Value) -> None:
        if isinstance(by, Tensor) and self.clip_bounds.keys() & stored_in(by.unit):
            self.at()
            self.emit(Draft("misread"))

    # -- tensors ----------------------------------------------------------------------------------------------------

    def finite_test(self, node: cst.Call) -> Sym:
        """Whether gradients, or their norm, are finite: an unknown answer that guards what follows."""
        self.finite_tests += 1
        answer = self.fresh(self.label(node), self.text(node))
        self.finite_symbols.append(answer)
        return answer

    def hook(self, params: Params, function: Value | None, node: cst.Call) -> Value:
        """A hook on gradients: where its code clamps, every backward from here on is clamped."""
        text = ""
        self.at(node)
        if isinstance(function, LambdaFn):
            text = _code(self.lambdas[function.node][0].body)
        elif isinstance(function, Fn):
            text = " ".join(function.info.calls)
            self.place = self._clamp_in(function.info) or self.place
        elif isinstance(function, Partial):
            return self.hook(params, function.function, node)
        if any(word in text for word in ("clamp", "nan_to_num", "clip")) and "norm" not in text:
            self.emit(Draft("hook", (self.targets(params),)))
        return NONE

    def _clamp_in(self, info: FunctionInfo) -> Place | None:
        """Where a hook's code clamps."""
        for statement in ast.walk(info.node):
            if isinstance(statement, (ast.Return, ast.Expr, ast.Assign)):
                names = [dotted(call.func) or "" for call in ast.walk(statement) if isinstance(call, ast.Call)]
                tails = [name.rpartition(".")[2] for name in names]
                if any(tail.startswith(("clamp", "nan_to_num", "clip")) for tail in tails):
                    return Place(Frame(-1, (), info, self.concrete(info), None), cst.Pass(), statement)
        return None

    def tensor_method(self, base: Tensor, name: str, arguments: Arguments, node: cst.Call) -> Value:
        if name in ("isnan", "isinf", "isfinite") and base.of_gradients:
            return self.finite_test(node)
        if name == "backward":
            self.at(node)
            self.emit(Draft("backward", (base.unit, base.reach, None)))
            return NONE
        if name in ("detach", "item", "tolist", "numpy", "cpu"):
            return self.number(base)
        if name in ("pow", "square"):
            return Tensor(Product(base.unit, base.unit), base.reach, base.of_gradients, base.of_weights)
        if name == "sqrt":
            return Tensor(Root(base.unit), base.reach, base.of_gradients, base.of_weights)
        if name in ("mul", "mul_", "multiply"):
            return self.arithmetic(cst.Multiply(), base, arguments.get(0, "other") or NONE, node)
        if name in ("div", "div_", "true_divide"):
            return self.arithmetic(cst.Divide(), base, arguments.get(0, "other") or NONE, node)
        if name in ("add", "add_", "sub", "sub_"):
            return self.arithmetic(cst.Add(), base, arguments.get(0, "other") or NONE, node)
        if name in ("clamp", "clamp_", "clip", "clamp_max", "clamp_min", "minimum", "maximum", "clip_"):
            if _is_floor(name, arguments):
                return base
            return Tensor(Bounded(base.unit), base.reach, base.of_gradients, base.of_weights)
        if name in ("max", "min") and arguments.positional and not isinstance(arguments.positional[0], Const):
            return Tensor(Bounded(base.unit), base.reach, base.of_gradients, base.of_weights)
        if name in api.IDENTITY_METHODS:
            return Tensor(base.unit, base.reach, base.of_gradients, base.of_weights, base.base)
        if isinstance(base.base, Sym):
            return self.unknown_call(base, arguments, node)
        return Tensor(PLAIN, base.reach, base=self.fresh(self.label(node), self.text(node)))

    def gradient_method(self, base: Grads, name: str, arguments: Arguments, node: cst.Call) -> Value:
        """A method of a gradient tensor: in-place ones edit the buffer."""
        target = self.targets(base)
        first = arguments.get(0, "other")
        self.at(node)
        if name in ("mul_", "div_", "multiply_"):
            factor = unit_of(first)
            self.edit_by_factor(target, Inverse(factor) if name == "div_" else factor, first, node)
            return base
        if name in ("clamp_", "clip_", "clamp_max_", "clamp_min_", "nan_to_num_"):
            self.emit(Draft("clip", (target, unit_of(first), "value")))
            return base
        if name in ("zero_",):
            self.clear(target, base.params)
            return base
        if name in (
            "add_",
            "sub_",
            "sign_",
            "copy_",
            "set_",
            "normal_",
            "addcmul_",
            "addcdiv_",
            "pow_",
            "square_",
            "sqrt_",
            "abs_",
            "tanh_",
        ):
            if name == "copy_" and isinstance(first, (Grads, Tensor)):
                return self.copy_gradient(base, first, node)
            added = unit_of(first) if name in ("add_", "sub_") and first is not None else None
            self.emit(Draft("edit", (target, added)))
            return base
        if name in ("mul", "multiply", "div", "true_divide") and first is not None:
            return self.arithmetic(cst.Multiply() if name.startswith("mul") else cst.Divide(), base, first, node)
        if name in ("sign", "tanh"):
            return Tensor(PLAIN, frozenset(), True, clamped="edit")
        if name in ("data", "detach", "view", "flatten", "to", "float", "contiguous", "is_contiguous", "coalesce"):
            return base
        if name in ("isnan", "isinf", "isfinite"):
            return self.finite_test(node)
        if name == "register_hook":
            return self.hook(base.params, first, node)
        if name in (
            "isnan",
            "isinf",
            "isfinite",
            "any",
            "all",
            "numel",
            "dim",
            "size",
            "detach_",
            "requires_grad_",
            "register_hook",
        ):
            return self.fresh(self.label(node))
        if name in ("clamp", "clip", "nan_to_num"):
            return Tensor(unit_of(base), frozenset(), True, clamped="value")
        if name in ("clone",):
            return self.materialize(self.tensor(unit_of(base), (base,), node), f"clone{self.label(node)}")
        return self.tensor_method(self.tensor(unit_of(base), (base,), node), name, arguments, node)

    def clear(self, target: Ref, params: Params) -> None:
        """Gradients are cleared one by one; under a test of the parameter only some of them are."""
        for around in reversed(self.enclosing):
            if around == "loop":
                break
            if ".grad" not in around and "requires_grad" not in around:
                return
        self.emit(Draft("clear", (target,)))

    def copy_gradient(self, base: Grads, value: Value, node: cst.CSTNode) -> Value:
        """``p.grad = f(p.grad)``: a factor where it is one, else whatever unit the value has."""
        target = self.targets(base)
        if isinstance(value, Tensor) and value.clamped == "add" and isinstance(value.factor, Tensor):
            self.emit(Draft("edit", (target, value.factor.unit)))
            return base
        if isinstance(value, Tensor) and value.clamped:
            self.emit(
                Draft("clip", (target, PLAIN, "value")) if value.clamped == "value" else Draft("edit", (target, None))
            )
            return base
        if isinstance(value, Tensor) and isinstance(value.factor, Tensor):
            if value.factor.unit != PLAIN:
                self.edit_by_factor(target, value.factor.unit, value.factor, node)
            return base
        factor = Product(unit_of(value), Inverse(OfGradients((target,))))
        if isinstance(value, Tensor) and value.of_gradients:
            self.edit_by_factor(target, factor, value, node)
        return base

    def edit_by_factor(self, target: Ref, factor: object, value: Value | None, node: cst.CSTNode) -> None:
        """Gradients times a number: a clip by hand where the number comes from gradients, else a change of unit."""
        if isinstance(value, (Tensor, Grads)):
            gradients = isinstance(value, Grads) or value.of_gradients
            weights = isinstance(value, Tensor) and value.of_weights
            if self.clip_bounds.keys() & stored_in(factor):  # type: ignore[arg-type]
                self.emit(Draft("misread"))
            if gradients:
                self.emit(Draft("clip", (target, factor, "adaptive" if weights else "hand")))
                return
            self.emit(Draft("multiply", (target, factor)))

    def assign_masked(self, base: Grads, target: cst.Subscript) -> None:
        if any(word in self.text(target) for word in ("finite", "isnan", "isinf")):
            self.at()
            self.emit(Draft("clip", (self.targets(base), PLAIN, "value")))

    def assign_gradient(self, base: Value, value: Value) -> None:
        """``p.grad = value``."""
        if not isinstance(base, Params):
            return
        target = self.targets(base)
        self.at()
        if value == NONE:
            self.clear(target, base)
        elif isinstance(value, Tensor):
            if value.of_gradients:
                self.copy_gradient(Grads(Params(base.owners)), value, self.statement)

    # -- functions outside the program ------------------------------------------------------------------------------

    def external(self, name: str, arguments: Arguments, node: cst.Call) -> Value:
        """A call that the API table may know."""
        tail = name.rpartition(".")[2]
        first = arguments.positional[0] if arguments.positional else None
        self.at(node)
        if api.is_scaler(name):
            return self.new_scaler(name, arguments, node)
        of_an_optimizer = any(isinstance(option, Obj) and option.kind is Kind.OPTIMIZER for option in options_of(first))
        # `from optim import Eden`: what a module of that name makes of an optimizer may be a schedule.
        if api.is_optimizer(name) and not (of_an_optimizer and name.rpartition(".")[0] == "optim"):
            return self.new_optimizer(arguments, node)
        row = api.clip_call(name)
        if row is not None:
            return self.clip(row, arguments, node)
        if name in ("typing.cast", "cast") and len(arguments.positional) == 2:
            return arguments.positional[1]
        if name in ("functools.partial", "partial") and first is not None:
            return Partial(first, tuple(arguments.positional[1:]), tuple(arguments.keyword.items()))
        if name in ("itertools.chain", "itertools.chain.from_iterable", "chain", "chain.from_iterable"):
            owners = self.owners(Seq(tuple(arguments.positional)))
            return Params(owners) if owners is not None else self.fresh(self.label(node))
        if name in ("filter", "map") and len(arguments.positional) > 1:
            return self._mapped(name, arguments, node)
        if name == "getattr" and len(arguments.positional) >= 2 and isinstance(arguments.positional[1], Const):
            return self._got(arguments.positional, node)
        if name == "setattr" and len(arguments.positional) == 3 and isinstance(arguments.positional[1], Const):
            key = self.key_of(arguments.positional[0])
            if key is not None:
                self.flow.env[("a", key, str(arguments.positional[1].value))] = arguments.positional[2]
            return NONE
        if name == "next":
            return self.fresh(self.label(node), self.text(node))
        if name == "dict":
            if not arguments.positional and not arguments.open:
                return Map(tuple(arguments.keyword.items()), ("map", self.site(self.label(node))))
            return first if isinstance(first, Map) else self.fresh(self.label(node))
        if name in ("enumerate", "zip"):
            return self.fresh(self.label(node))
        if name in api.IDENTITY or tail in (
            "DistributedOptimizer",
            "DistributedDataParallel",
            "DataParallel",
            "FullyShardedDataParallel",
            "DDP",
            "FSDP",
            "tqdm",
        ):
            return first if first is not None else Seq(())
        if name in ("torch.autograd.backward",) and first is not None:
            for item in first.items if isinstance(first, Seq) else (first,):
                self.emit(Draft("backward", (unit_of(item), self.reach_of([item]), None)))
            return NONE
        if name == "torch.autograd.grad" and (outputs := arguments.get(0, "outputs")) is not None:
            return self.each_option(
                outputs, node, lambda option: Tensor(self._unit([option]), frozenset(), True), numbers=True
            )
        if name in ("float", "int") and isinstance(first, Tensor):
            return self.number(first)
        if name in (
            "torch.isfinite",
            "torch.isnan",
            "torch.isinf",
            "math.isfinite",
            "math.isnan",
            "math.isinf",
            "numpy.isfinite",
            "numpy.isnan",
        ):
            if isinstance(first, Grads) or (isinstance(first, Tensor) and first.of_gradients):
                return self.finite_test(node)
            return self.fresh(self.label(node), self.text(node))
        if name == "id" and (key := self.key_of(first)) is not None:
            return Sym(("id", key), text=self.text(node))
        if name == "hasattr" and first is not None and self.frame.info.module.is_model:
            if arguments.positional[1:] == [Const("param_groups")]:
                return self.each_option(first, node, self._has_param_groups, numbers=True)
        if name == "isinstance" and len(arguments.positional) == 2:
            known = self._is_instance(*arguments.positional)
            if known is not None:
                return Const(known)
        if name == "bool" and first is not None:
            return (
                Cond(self.formula(self.as_test(first)))
                if isinstance(first, (Sym, Cond, Const))
                else self.fresh(self.label(node), self.text(node))
            )
        if name in ("any", "all") and isinstance(first, HasGrads):
            # Some parameter has a gradient, or none has; that all have one is never the question that matters.
            told = first.negated == (name == "all")
            return replace(first, whole=True) if told else self.fresh(self.label(node), self.text(node))
        if name in ("any", "all") and isinstance(first, Seq):
            formulas = [self.formula(self.as_test(item)) for item in first.items]
            return Cond(any_of(formulas) if name == "any" else all_of(formulas))
        if tail in ("clamp", "clip", "nan_to_num") and isinstance(first, Grads):
            if isinstance(arguments.keyword.get("out"), Grads):
                self.emit(Draft("clip", (self.targets(first), unit_of(arguments.get(1, "min")), "value")))
                return first
            return Tensor(unit_of(first), frozenset(), True, clamped="value")
        if tail in ("_foreach_mul_", "_foreach_div_") and isinstance(first, (Grads, Seq)):
            grads = first if isinstance(first, Grads) else next((g for g in first.items if isinstance(g, Grads)), None)
            by = arguments.get(1, "scalar")
            if grads is not None:
                factor = Inverse(unit_of(by)) if tail == "_foreach_div_" else unit_of(by)
                self.edit_by_factor(self.targets(grads), factor, by, node)
            return NONE
        if tail == "where" and any(isinstance(a, Grads) for a in arguments.positional[1:]):
            hides = any(word in self.text(node) for word in ("finite", "isnan", "isinf"))
            unit = unit_of(next(a for a in arguments.positional[1:] if isinstance(a, Grads)))
            return Tensor(unit, frozenset(), True, clamped="value" if hides else "")
        if tail in ("sign", "tanh", "sigmoid") and isinstance(first, Grads):
            return Tensor(PLAIN, frozenset(), True, clamped="edit")
        numeric = [a for a in arguments.all() if self._has_unit(a)]
        if numeric:
            if name in api.ROOTS:
                return self.tensor(Root(unit_of(numeric[0])), numeric, node)
            if name in api.SAME_UNIT:
                if name in ("min", "max", "torch.min", "torch.max") and len(arguments.positional) > 1:
                    bounded = self.tensor(Bounded(self._unit(numeric)), numeric, node)
                    return (
                        bounded
                        if name.endswith("min") or not self._is_small(arguments)
                        else self.tensor(self._unit(numeric), numeric, node)
                    )
                return self.tensor(self._unit(numeric), numeric, node)
            if name in api.BOUNDED:
                if name != "torch.minimum" and _is_floor(
                    "clamp", Arguments(arguments.positional[1:], arguments.keyword)
                ):
                    return self.tensor(self._unit(numeric), numeric, node)
                return self.tensor(Bounded(self._unit(numeric)), numeric, node)
        if name in api.PURE:
            keys = tuple(self.pure_key(a) for a in arguments.all())
            if None not in keys:
                return Sym(("pure", name, keys), text=self.text(node))
        if any(isinstance(a, (Params, Grads)) for a in arguments.positional[:1]) and api.says_clip(tail):
            return self.clip(api.ClipCall("norm", (0, "parameters"), (1, "max_norm")), arguments, node)
        return self.unknown_call(Ext(name), arguments, node)

    def _got(self, arguments: Sequence[Value], node: cst.Call) -> Value:
        """``getattr(object, "name", default)``; the default where the object's class is all there is and lacks it."""
        base, name = arguments[0], str(arguments[1].value)  # type: ignore[union-attr]
        if len(arguments) > 2 and isinstance(base, Obj) and base.cls is not None:
            lacks = name not in self.program.attributes(base.cls) and ("a", base.key, name) not in self.flow.env
            if lacks and not self.program.outside_bases(base.cls):
                return arguments[2]
        return self.attribute(base, name, node)

    def _has_param_groups(self, value: Value) -> Value:
        """
        The answer to ``hasattr(value, "param_groups")``, with which a model of a wrapper of anything asks for an
        optimizer. Where only the whole function tells, it is a condition that is decided when all of it is known.
        """
        value = value.base if isinstance(value, Tensor) and value.base is not None else value  # whatever a call gave
        if isinstance(value, Obj) and (value.kind is Kind.OPTIMIZER or value.cls is not None):
            known = self._is_instance(value, Ext("torch.optim.Optimizer"))
            if known is False:
                self.no_optimizers.add(self.ref(value.key))
            if known is not None:
                return Const(known)
        key = self.key_of(value)
        if not isinstance(value, (Sym, Obj)) or key is None:
            return Const(False)
        ref = self.ref(key)
        subject = Subject(("is an optimizer", ref), frozenset())
        self.in_question[subject] = ref
        return Cond(Atom(subject, Truthy()))

    def _is_instance(self, value: Value, cls: Value) -> bool | None:
        """The answer of ``isinstance`` for what the program itself makes; None where that does not tell."""
        classes = cls.items if isinstance(cls, Seq) else (cls,)
        if isinstance(value, Sym) and any(isinstance(c, Ext) and c.name in api.OPTIMIZER_BASES for c in classes):
            known = self.refs.get(value.key) in self.optimizer_evidence
            return True if known else None
        if not isinstance(value, Obj) or not all(isinstance(c, (Cls, Ext)) for c in classes):
            return None
        mine = self.program.mro(value.cls) if value.cls is not None else []
        if any(isinstance(c, Cls) and c.info in mine for c in classes):
            return True
        outside = [c.name for c in classes if isinstance(c, Ext)]
        kinds = {
            Kind.OPTIMIZER: any(name in api.OPTIMIZER_BASES for name in outside),
            Kind.SCALER: any(api.is_scaler(name) for name in outside),
        }
        if value.kind in kinds:
            return True if kinds[value.kind] else False if not outside else None
        bases = set(self.program.outside_bases(value.cls)) if value.cls is not None else set()
        return None if bases else False

    @staticmethod
    def _is_small(arguments: Arguments) -> bool:
        return any(
            isinstance(a, Const) and isinstance(a.value, float) and 0 <= a.value < 0.1 for a in arguments.positional
        )

    def _has_unit(self, value: Value) -> bool:
        match value:
            case Tensor():
                return value.of_gradients or value.of_weights or value.unit != PLAIN
            case Grads() | Params():
                return True
            case Seq(items):
                return any(self._has_unit(item) for item in items)
        return False

    def _unit(self, values: list[Value]) -> UnitExpr:
        parts: list[UnitExpr] = []
        for value in values:
            if isinstance(value, Seq):
                parts += [unit_of(item) for item in value.items]
            else:
                parts.append(unit_of(value))
        return parts[0] if len(parts) == 1 else Sum(tuple(parts))

    def _mapped(self, name: str, arguments: Arguments, node: cst.Call) -> Value:
        items = arguments.positional[1]
        if name == "filter":
            return items
        function = arguments.positional[0]
        if isinstance(items, Seq) and len(items.items) <= 8:
            one = [
                self.each_option(function, node, lambda option, item=item: self.apply(option, Arguments([item]), node))
                for item in items.items
            ]
            return Seq(tuple(one))
        return self.fresh(self.label(node))

    def unknown_call(self, function: Value, arguments: Arguments, node: cst.Call) -> Value:
        """Code outside the program: scalers and optimizers that it receives escape."""
        callee = _code(node.func)
        tail = callee.rpartition(".")[2]
        params_first = arguments.positional and isinstance(arguments.positional[0], (Params, Grads))
        if params_first and api.says_clip(tail) and len(arguments.all()) > 1:
            return self.clip(api.ClipCall("norm", (0, "parameters"), (1, "max_norm")), arguments, node)
        self.at(node)
        if tail in ("cosine_similarity", "normalize"):
            return Tensor(PLAIN, self.reach_of(arguments.all()))  # Free of any scale.
        self.consume(arguments.all())
        if any(word in tail for word in ("hist", "log", "print", "scalar")):
            shown = [a for a in arguments.all() if isinstance(a, Grads)]
            self.consume([self.tensor(unit_of(grads), (grads,), node) for grads in shown])
        if "backward" in tail and arguments.all():
            self.emit(Draft("outside_backward"))
        if not (tail[:1].isupper() or any(word in callee.lower() for word in _HARMLESS)):
            self.escape(arguments.all(), node)
        reach = self.reach_of(arguments.all())
        key = self.key_of(function)
        if isinstance(function, Sym) and key is not None:
            self.called.add(key)
        if isinstance(function, (Sym, Obj)) and reach is not None and key is not None:
            # `net.loss(x)` passes through `net`; `self.encode(x)` does not pass through all that `self` holds.
            if isinstance(key, tuple) and key[0] == "instance":
                reach = reach | {("attr", key, tail)}
            else:
                reach = reach | self.parts_of(key)
            if isinstance(node.func, cst.Attribute):
                owner = key[1] if isinstance(key, tuple) and key[0] == "attr" and isinstance(key[2], str) else None
                if owner is not None and not (isinstance(owner, tuple) and owner[0] == "instance"):
                    reach = reach | {owner}
        if self.no_grad:
            reach = frozenset()
        return Tensor(PLAIN, reach, base=self.fresh(self.label(node), _code(node)[:60]))

    def escape(self, values: Iterable[Value], node: cst.Call) -> None:
        """Code that is not read got these: nothing is known any more of the scalers and optimizers among them."""
        escaping = []
        for value in values:
            for item in value.items if isinstance(value, Seq) else (value,):
                item = self.one(item)
                if isinstance(item, (Sym, Obj)) and (key := self.key_of(item)) is not None:
                    escaping.append(self.ref(key, item.text))
        if escaping:
            self.at(node)
            self.emit(Draft("escape", (tuple(escaping),)))

    # -- clipping ---------------------------------------------------------------------------------------------------

    def clip(self, row: api.ClipCall, arguments: Arguments, node: cst.Call, framework: Key | None = None) -> Value:
        params = arguments.get(*row.params)
        bound = arguments.get(*row.bound)
        if isinstance(params, Choice):
            index, name = row.params

            def one(option: Value) -> Value:
                positional = [option if i == index else a for i, a in enumerate(arguments.positional)]
                keyword = {k: option if k == name else a for k, a in arguments.keyword.items()}
                return self.clip(row, Arguments(positional, keyword, arguments.open), node, framework)

            return self.each_option(params, node, one)
        kind = row.kind
        if arguments.get(3, "error_if_nonfinite") == Const(True) and row.kind == "norm":
            self.at(node)
            if not any(scope.kind == "try" for scope in self.scopes):
                self.emit(Draft("raise_nonfinite"))
        if row.kind == "with_norm":
            assert row.norm is not None
            norm = arguments.get(*row.norm)
            factor = Product(unit_of(bound), Inverse(unit_of(norm)))
            self.at(node)
            self.emit(Draft("clip", (self.targets(params), factor, "hand")))
            return NONE
        return self.emit_clip(kind, params, bound, node, framework)

    def emit_clip(
        self, kind: str, params: Value | None, bound: Value | None, node: cst.Call, framework: Key | None = None
    ) -> Value:
        target = self.targets(params)
        self.at(node)
        measured = (
            (bound == NONE and kind != "value")
            or (isinstance(bound, Const) and bound.value in (float("inf"),))
            or (isinstance(bound, Sym) and bound.key == ("pure", "float", (("const", "str", "inf"),)))
            or (isinstance(bound, Ext) and bound.name in ("math.inf", "torch.inf", "numpy.inf"))
        )
        limit = None if measured else unit_of(bound)
        # The norm that comes back is the one before clipping.
        slot = (
            self.ref(("slot", self.frame.id, self.site(("norm", self.label(node)))), "norm")
            if kind != "value"
            else None
        )
        each = isinstance(params, Params) and params.single and not isinstance(bound, Choice)
        self.emit(Draft("clip", (target, limit, kind, framework, slot, each)))
        if slot is None:
            return NONE
        if isinstance(bound, Const | Sym | Tensor) and not measured:
            self.clip_bounds[slot] = bound
        return Tensor(Stored(slot), frozenset(), True, base=self.fresh(("norm", self.label(node)), self.text(node)))


def _gives_objects(arguments: Arguments | None) -> bool:
    """Whether a call passes on something that the program made, for a constructor to keep."""
    return arguments is not None and any(
        isinstance(option, Obj) for value in arguments.all() for option in options_of(value)
    )


def _makes_optimizers(info: FunctionInfo) -> bool:
    """Whether a function makes optimizers and returns something, without training by itself."""
    returns = any(isinstance(node, ast.Return) and node.value is not None for node in ast.walk(info.node))
    return returns and "optim" in info.words and not info.words & {"backward", "zero_grad"} and not info.is_generator


def visited_optimizers(node: ast.AST) -> Iterator[str]:
    """The names that a function loops over and uses what it meets as optimizers."""
    for loop in ast.walk(node):
        if isinstance(loop, (ast.For, ast.AsyncFor)):
            over = loop.iter
            if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr == "values":
                over = over.func.value
            if isinstance(over, ast.Name) and uses_as_optimizers(loop):
                yield over.id


def uses_as_optimizers(loop: ast.For | ast.AsyncFor) -> bool:
    """Whether a loop's variable is used as an optimizer in its body."""
    keys = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    body = [child for statement in loop.body for child in ast.walk(statement)]

    def is_looked_up(node: ast.AST) -> bool:
        """``optimizers[key]``: another one for each round's key."""
        return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name) and node.slice.id in keys

    names = keys | {
        target.id
        for child in body
        if isinstance(child, ast.Assign) and is_looked_up(child.value)
        for target in child.targets
        if isinstance(target, ast.Name)
    }

    def is_one(node: ast.AST) -> bool:
        return (isinstance(node, ast.Name) and node.id in names) or is_looked_up(node)

    for child in body:
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute):
            method, on = child.func.attr, child.func.value
            if method in ("zero_grad", "step", "unscale_") and is_one(on):
                return True
            if method in ("unscale_", "step") and child.args and is_one(child.args[0]):
                return True
    return False


def _is_floor(name: str, arguments: Arguments) -> bool:
    """Whether a clamp only keeps a value away from zero: ``clamp(min=1e-6)``."""
    if name == "clamp_min":
        return True
    if name not in ("clamp", "clamp_", "clip"):
        return False
    low, high = arguments.get(0, "min"), arguments.get(1, "max")
    return low is not None and high is None


def _target_text(node: ast.stmt) -> str:
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return dotted(target) or "" if isinstance(target, ast.expr) else ""


def _is_mapping(value: Value) -> bool:
    """Whether a value may be a dict, or nothing."""
    return isinstance(value, Map) or (isinstance(value, Sym) and not value.offset) or value == NONE
