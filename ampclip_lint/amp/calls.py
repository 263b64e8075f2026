"""Calls: which function of the program one means, followed in place, and what makes its objects."""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterator
from functools import reduce
from typing import Any

import libcst as cst

from ampclip_lint.amp import api
from ampclip_lint.amp.builder import Draft, Frame, Scope
from ampclip_lint.amp.expressions import BOUND_METHODS, chosen, code_of
from ampclip_lint.amp.outside import Outside
from ampclip_lint.amp.relevance import Relevance
from ampclip_lint.amp.units import PLAIN
from ampclip_lint.amp.values import (
    NONE,
    Arguments,
    Choice,
    Cls,
    Const,
    Ext,
    Fn,
    Grads,
    Groups,
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
    Super,
    Sym,
    Tensor,
    Value,
    options_of,
)
from ampclip_lint.flow.facts import SetConstant, Subject
from ampclip_lint.syntax.index import ClassInfo, FunctionInfo, ModuleIndex, ProgramIndex, dotted, qualified

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


class _Fitting:
    """Which classes of a program an object may be of, by the attributes that are used."""

    def __init__(self, program: ProgramIndex) -> None:
        self._program = program
        self._known: dict[frozenset[str], list[ClassInfo]] = {}

    def classes(self, used: frozenset[str]) -> list[ClassInfo]:
        """
        Those with all of these attributes, of which a base outside the program may have what many have; of a class and
        its bases the class.
        """
        if used not in self._known:
            program = self._program
            fitting = [
                cls
                for cls in program.classes_with(used - GENERIC)
                if used <= program.attributes(cls) or program.outside_bases(cls)
            ]
            bases = {base for cls in fitting for base in program.mro(cls)[1:]} if len(fitting) > 1 else ()
            self._known[used] = [cls for cls in fitting if cls not in bases]
        return self._known[used]


class Calls(Outside):
    """Evaluation of calls."""

    def __init__(self, program: object) -> None:
        super().__init__(program)
        self.frame_ids: dict[Hashable, int] = {}
        self.classes_of: dict[Key, ClassInfo | None] = {}
        self.followed: set[FunctionInfo] = set()
        self.gaps: list[tuple[object, str]] = []
        #: Activations that call a function of the program again and again, as its callers would.
        self.repeats: list[Frame] = []
        #: Activations of functions that have nested ones.
        self.closing: dict[int, Frame] = {}

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
        text = code_of(node)[:60]
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
            number,
            path,
            info,
            self.concretes.function(info),
            lexical if lexical >= 0 else None,
            self.frame,
            self.place,
            bound,
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
            text = code_of(node.value) if isinstance(node, cst.Attribute) else ""
            self.classes_of[key] = self._fitting_class(text)
        return self.classes_of[key]

    def _fitting_class(self, text: str) -> ClassInfo | None:
        """The one class of the program, or else of the module, that has every attribute that is used on this
        expression.
        """
        used = self.attributes_used(text)
        if not used - GENERIC:
            return None
        fitting = self.program.shared(_Fitting).classes(used)
        if len(fitting) > 1:
            fitting = [cls for cls in fitting if cls.module is self.frame.info.module]
        return fitting[0] if len(fitting) == 1 else None

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

    def evaluate_elsewhere(self, module: ModuleIndex, node: ast.stmt) -> Value:
        """The value that a statement of a module's body assigns, without its operations."""
        assert isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None
        expression = self.concretes.assigned(node)
        return NONE if expression is None else self.in_scratch(lambda: self._at_module(module, node, expression))

    def _at_module(self, module: ModuleIndex, node: ast.stmt, expression: cst.BaseExpression) -> Value:
        path: tuple[Key, ...] = (("module", module.name),)
        number = self.frame_ids.setdefault(path, len(self.frame_ids))
        saved = (self.frame, self.statement, self.twin, self.place)
        self.frame = Frame(number, path, module.body, self.concretes.function(module.body), None)
        self.frames[number] = self.frame
        self.statement, self.twin = expression, node
        try:
            return self._named(self.evaluate(expression), _target_text(node))
        finally:
            self.frame, self.statement, self.twin, self.place = saved


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


def _target_text(node: ast.stmt) -> str:
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return dotted(target) or "" if isinstance(target, ast.expr) else ""


def _is_mapping(value: Value) -> bool:
    """Whether a value may be a dict, or nothing."""
    return isinstance(value, Map) or (isinstance(value, Sym) and not value.offset) or value == NONE
