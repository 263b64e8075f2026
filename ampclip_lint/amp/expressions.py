"""Expressions: what a name, an attribute, an operator or a literal stands for, and which conditions they are."""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import libcst as cst

from ampclip_lint.amp import api
from ampclip_lint.amp.builder import (
    Builder,
    Draft,
    Flow,
    Frame,
    Place,
    all_of,
    any_of,
    negate,
    unit_of,
)
from ampclip_lint.amp.units import PLAIN, Inverse, Product, Root, ScaleOf, Sum
from ampclip_lint.amp.values import (
    NONE,
    Choice,
    Cls,
    Cond,
    Const,
    Ext,
    Fn,
    Formula,
    Grads,
    Groups,
    HasGrads,
    Key,
    Kind,
    LambdaFn,
    Map,
    Method,
    Mod,
    Obj,
    Params,
    Seq,
    StageIs,
    Super,
    Sym,
    Tensor,
    Value,
)
from ampclip_lint.flow.facts import Above, Atom, Below, Equals, Forget, IsNone, Residue, Subject, Truthy
from ampclip_lint.syntax.index import ClassInfo, FunctionInfo, Meaning, ModuleIndex, ProgramIndex, Variable

_BUILTINS = frozenset(dir(__import__("builtins")))
#: Attributes that only show another side of the same tensor or module.
_SAME = frozenset({"data", "module", "_orig_mod", "T", "real", "values", "model"} - {"model", "values"})
#: Keys made of other keys, and keys that a place of the program makes.
_DERIVED = frozenset(
    {"pure", "sym", "obj", "mod", "cond", "seq", "in", "equal", "greater", "difference", "truth", "choice", "call"}
)
_ATOMIC = frozenset(
    {
        "new",
        "phi",
        "param",
        "global",
        "tag",
        "scaler",
        "optimizer",
        "instance",
        "element",
        "const",
        "ext",
        "exception",
        "map",
    }
)


#: Methods of scalers and optimizers that programs keep under a name, or pass on, as they are.
BOUND_METHODS = frozenset({"scale", "unscale_", "step", "update", "zero_grad"})


class Expressions(Builder):
    """Evaluation of expressions to values."""

    def __init__(self, program: ProgramIndex) -> None:
        super().__init__()
        self.program = program
        self.frame: Frame = None  # type: ignore[assignment]
        self.frames: dict[int, Frame] = {}
        self.statement: cst.CSTNode = None  # type: ignore[assignment]
        self.twin: ast.stmt = None  # type: ignore[assignment]
        self.lambdas: dict[int, tuple[cst.Lambda, int]] = {}
        self.making: dict[int, Key] = {}
        self.labels: dict[int, tuple[cst.CSTNode, int]] = {}
        self.resolving: set[Key] = set()
        #: What generators give, while one is looked through.
        self.yielded: list[Value] = []

    # -- places and symbols -----------------------------------------------------------------------------------------

    def site(self, label: Hashable = "") -> tuple[Hashable, ...]:
        """A key for what this place of the program produces; the same each time that the place is walked."""
        return (self.frame.id, self.twin.lineno, self.twin.col_offset, label)

    def at(self, call: cst.Call | None = None) -> None:
        """Operations that follow stand here; those of a model where it is called."""
        if self.frame.info.module.is_model and self.frame.called_at is not None:
            self.place = self.frame.called_at
            return
        self.place = Place(self.frame, self.statement, self.twin, call)

    def fresh(self, label: Hashable, text: str = "") -> Sym:
        """The unknown value that this place produces now; what was known of its last one is void."""
        symbol = Sym(("new", self.site(label)), text=text)
        self._void(symbol.key)
        return symbol

    def _void(self, key: Key, rises: bool = False) -> None:
        if not self.dead:
            self.emit(Forget(key, rises))

    def evaluate(self, node: cst.BaseExpression) -> Value:
        """The value of an expression; its operations are appended to the graph."""
        match node:
            case cst.Name(value=name):
                return self.name(name)
            case cst.Attribute():
                return self.attribute(self.evaluate(node.value), node.attr.value, node)
            case cst.Call():
                return self.call_expression(node)
            case cst.Integer() | cst.Float():
                return Const(_literal(node.value))
            case cst.SimpleString():
                return Const(_literal(node.value))
            case cst.ConcatenatedString():
                text = node.evaluated_value
                return Const(text) if isinstance(text, (str, bytes)) else self.fresh(self.label(node))
            case cst.FormattedString():
                return self._formatted(node)
            case cst.Tuple() | cst.List() | cst.Set():
                return self._sequence(node)
            case cst.Dict():
                return self._dict(node)
            case cst.Comparison():
                return self._comparison(node)
            case cst.BooleanOperation():
                return self._boolean(node)
            case cst.UnaryOperation():
                return self._unary(node)
            case cst.BinaryOperation():
                return self.arithmetic(node.operator, self.evaluate(node.left), self.evaluate(node.right), node)
            case cst.IfExp():
                true, false = self.test(node.test)
                return self._either([(true, node.body), (false, node.orelse)], node)
            case cst.Lambda():
                self.lambdas[id(node)] = (node, self.frame.id)
                return LambdaFn(id(node), self.frame.id)
            case cst.NamedExpr():
                value = self.evaluate(node.value)
                self.assign(node.target, value)
                return value
            case cst.Subscript():
                return self._subscript(node)
            case cst.GeneratorExp() | cst.ListComp() | cst.SetComp():
                return self._comprehension(node)
            case cst.DictComp():
                return self._dict_comprehension(node)
            case cst.Await():
                return self.evaluate(node.expression)
            case cst.Yield():
                given = node.value.item if isinstance(node.value, cst.From) else node.value
                if given is not None:
                    self.yielded.append(self.evaluate(given))
                return self.fresh(self.label(node))
        return self.fresh(self.label(node))

    def _formatted(self, node: cst.FormattedString) -> Value:
        """An f-string: a constant where all its parts are."""
        text: list[str] | None = []
        for part in node.parts:
            if isinstance(part, cst.FormattedStringText):
                text = None if text is None else [*text, part.value]
                continue
            assert isinstance(part, cst.FormattedStringExpression)
            value = self.evaluate(part.expression)
            self.consume([value])
            plain = isinstance(value, Const) and isinstance(value.value, str) and part.format_spec is None
            text = [*text, str(value.value)] if text is not None and plain else None  # type: ignore[union-attr]
        return Const("".join(text)) if text is not None and "\\" not in "".join(text) else self.fresh(self.label(node))

    def label(self, node: cst.CSTNode) -> int:
        """Tells places of one statement apart; the same for every walk of the same syntax, in every run."""
        known = self.labels.get(id(node))
        if known is None:
            # The node is kept, so that its id stays its own.
            known = self.labels[id(node)] = (node, len(self.labels))
        return known[1]

    def _either(self, arms: Iterable[tuple[Flow, cst.BaseExpression]], node: cst.CSTNode) -> Value:
        """The value of a conditional expression."""
        return self.merge_values([(flow, lambda arm=arm: self.evaluate(arm)) for flow, arm in arms], self.label(node))

    def merge_values(self, arms: Iterable[tuple[Flow, object]], label: Hashable) -> Value:
        """Evaluate each arm in its flow, then go on where they meet, with the value that each brings."""
        slot: Key = ("v", -1, ("temporary", self.site(label)))
        ends: list[Flow] = []
        for flow, arm in arms:
            if not flow.cur:
                continue
            self.flow = flow
            value = arm()  # type: ignore[operator]
            if self.dead:
                continue
            self.flow.env[slot] = value
            ends.append(self.flow)
        self.join(ends, ("value", self.site(label)))
        return self.flow.env.pop(slot, NONE)

    # -- names ------------------------------------------------------------------------------------------------------

    def name(self, name: str) -> Value:
        """What a name stands for: locals, enclosing functions, the module, imports, builtins."""
        frame: Frame | None = self.frame
        while frame is not None:
            found = self.flow.env.get(("v", frame.id, name))
            if isinstance(found, Choice):
                if len(found.options) == 1:
                    self.assume(Atom(self.tag(found.key), Equals(0)), True)
                    return found.options[0]
                for how in sorted(self.left_open.get(found.key, ())):
                    self.assume(Atom(self.tag(found.key), Equals(how)), False)  # else Python would raise here
            if found is not None:
                return found
            info: FunctionInfo | None = frame.info
            if info is not None and name in info.inner:
                return Fn(info.inner[name], frame.id)
            if info is not None and name in info.inner_classes:
                return Cls(info.inner_classes[name])
            frame = self.frames.get(frame.parent) if frame.parent is not None else None
        return self.global_name(name, self.frame.info.module)

    def global_name(self, name: str, module: ModuleIndex) -> Value:
        if name in ("True", "False", "None"):
            return Const({"True": True, "False": False, "None": None}[name])
        key: Key = ("v", module.name, name)
        found = self.flow.env.get(key)
        if found is not None:
            return found
        meaning = self.program.meaning(name, module)
        if isinstance(meaning, Variable) and meaning.module is module and self.frame.info is module.body:
            meaning = None  # The body itself has not come to where it is assigned.
        if meaning is not None:
            return self._meant(meaning)
        if name in _BUILTINS:
            return Ext(name)
        for source in module.stars:
            if api.knows(f"{source}.{name}"):
                return Ext(f"{source}.{name}")
        return Sym(("global", module.name, name), text=name)

    def imported(self, name: str) -> Value:
        """What a dotted name stands for in the module at hand."""
        return self._meant(self.program.resolve(name, self.frame.info.module))

    def _meant(self, meaning: Meaning) -> Value:
        match meaning:
            case FunctionInfo():
                return Fn(meaning, -1)
            case ClassInfo():
                return Cls(meaning)
            case Variable(module, name):
                key: Key = ("v", module.name, name)
                return self.flow.env.get(key) or self._global_variable(name, module, key)
        return Ext(meaning)

    def _global_variable(self, name: str, module: ModuleIndex, key: Key) -> Value:
        """A variable of the module, read in a function: its one assignment tells what it is."""
        symbol = Sym(("global", module.name, name), text=name)
        places = module.assigned[name]
        if len(places) != 1 or key in self.resolving:
            return symbol
        node = places[0]
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            return symbol
        self.resolving.add(key)
        try:
            value = self.evaluate_elsewhere(module, node)
        finally:
            self.resolving.discard(key)
        number = isinstance(value, Const) and _number(value.value)
        return value if number or isinstance(value, (Obj, Params, Seq, Map, Fn, Cls, Ext)) else symbol

    def evaluate_elsewhere(self, module: ModuleIndex, node: ast.stmt) -> Value:
        raise NotImplementedError

    # -- attributes and items ---------------------------------------------------------------------------------------

    def attribute(self, base: Value, name: str, node: cst.BaseExpression) -> Value:
        """``base.name`` as a value."""
        match base:
            case Ext(qualname):
                return self.imported(f"{qualname}.{name}")
            case Choice():
                useful = [option for option in base.options if option != NONE]
                if len(useful) == 1:
                    return self.attribute(useful[0], name, node)
                key = ("choice", base.key) if name == "_per_optimizer_states" else base.key
                return Sym(("attr", key, name), text=self.text(node))
            case Params() if name == "grad":
                return Grads(Params(base.owners))
            case Params() if name in _SAME:
                return base
            case Grads() | Tensor() if name in _SAME:
                return base
            case Tensor() if name in ("grad",):
                return Sym(("attr", base.base if base.base is not None else base, name), text=self.text(node))
            case Super(cls, of):
                method = self._super_method(cls, of, name)
                return Fn(method, -1, of) if method else Method(of, name)
            case Cls(info):
                method = self.program.method(info, name)
                if method is not None:
                    bound = base if "classmethod" in method.decorators else None
                    return Fn(method, -1, bound)
                return Sym(("attr", ("class", info.qualname, info.module.name), name), text=self.text(node))
        key = self.key_of(base)
        if key is None:
            return Method(base, name)
        found = self.flow.env.get(("a", key, name))
        if found is not None:
            return found
        if name in _SAME:
            return base
        if isinstance(base, Obj) and base.kind is not Kind.INSTANCE and base.cls is None and name in BOUND_METHODS:
            return Method(base, name)
        if name == "grad" and isinstance(base, Sym) and isinstance(key, tuple) and key[-1] in ("weight", "bias"):
            return Grads(Params(frozenset((key,)), True))
        if name == "_scale":
            return Tensor(ScaleOf(self.ref(key, self.text(node).rpartition(".")[0])), frozenset())
        if name == "param_groups":
            return Groups(key)
        fitting = self.class_of(base, node)
        if fitting is not None:
            method = self.program.method(fitting, name)
            if method is not None:
                if "property" in method.decorators or "cached_property" in "".join(method.decorators):
                    return self.property_value(method, base, name, node)
                return Fn(method, -1, base)
        return Sym(("attr", key, name), text=self.text(node))

    def property_value(self, method: FunctionInfo, base: Value, name: str, node: cst.BaseExpression) -> Value:
        raise NotImplementedError

    def class_of(self, base: Value, node: cst.BaseExpression) -> ClassInfo | None:
        raise NotImplementedError

    def call_expression(self, node: cst.Call) -> Value:
        raise NotImplementedError

    def _super_method(self, cls: ClassInfo, of: Value, name: str) -> FunctionInfo | None:
        """The method that ``super().name`` in a method of `cls` means for `of`, an instance of it or of one below."""
        below = of.cls if isinstance(of, Obj) and of.cls is not None else of.info if isinstance(of, Cls) else cls
        order = self.program.mro(below)
        behind = order[order.index(cls) + 1 :] if cls in order else self.program.mro(cls)[1:]
        for current in behind:
            if name in current.methods:
                return current.methods[name]
        return None

    @staticmethod
    def key_of(value: Value | None) -> Key | None:
        """The identity of an object or symbol."""
        match value:
            case Sym(key, 0) | Obj(key):
                return key
            case Tensor(base=Sym(key)):
                return key
            case Ext(name):
                return ("ext", name)
        return None

    def _subscript(self, node: cst.Subscript) -> Value:
        base = self.evaluate(node.value)
        element = node.slice[0].slice
        if len(node.slice) == 1 and isinstance(element, cst.Slice):
            bounds = (element.lower, element.upper, element.step)
            slice_ = _slice_of(base, [NONE if bound is None else self.evaluate(bound) for bound in bounds])
            if slice_ is not None:
                return slice_
        if len(node.slice) != 1 or not isinstance(element, cst.Index):
            for part in node.slice:
                if isinstance(part.slice, cst.Index):
                    self.evaluate(part.slice.value)
            return base if isinstance(base, (Tensor, Grads, Params)) else self.fresh(self.label(node))
        index = self.evaluate(element.value)
        return self.item(base, index, node)

    def item(self, base: Value, index: Value, node: cst.BaseExpression) -> Value:
        """``base[index]`` as a value."""
        match base, index:
            case Seq(items), Const(int() as number) if -len(items) <= number < len(items):
                return items[number]
            case Map(items), Const(name):
                for key, value in items:
                    if key == name:
                        return value
            case Groups(optimizer), Const("params"):
                return Params(frozenset((("optimizer", optimizer),)))
            case Groups(optimizer), _:
                return Groups(optimizer, True)
            case (Tensor(base=Sym() as table), _) if _is_number(base):
                # Nothing that gradients flow through: as likely a table with a number for each key.
                part = index.value if isinstance(index, Const) else self.key_of(index)
                element = Sym(("attr", table.key, ("item", part)), text=self.text(node))
                return base if part is None else replace(base, base=element)
            case (Tensor() | Grads(), _):
                return base
            case (Params(), _):
                return Params(base.owners, True)
            case (Choice(), _):
                useful = [option for option in base.options if isinstance(option, (Seq, Map, Sym, Obj))]
                if len(useful) == 1:
                    return self.item(useful[0], index, node)
                if isinstance(index, Const) and isinstance(index.value, int) and _sequences(base):
                    return chosen(base, [_item_of(option, index.value) for option in base.options])
        key = (
            base.key
            if isinstance(base, Map)
            else ("choice", base.key)
            if isinstance(base, Choice)
            else self.key_of(base)
        )
        if key is not None:
            part = index.value if isinstance(index, Const) else self.key_of(index)
            if part is None:
                return self.fresh(self.label(node), self.text(node))
            found = self.flow.env.get(("a", key, ("item", part)))
            return found if found is not None else Sym(("attr", key, ("item", part)), text=self.text(node))
        return self.fresh(self.label(node), self.text(node))

    # -- literals ---------------------------------------------------------------------------------------------------

    def _sequence(self, node: cst.Tuple | cst.List | cst.Set) -> Value:
        items: list[Value] = []
        for element in node.elements:
            value = self.evaluate(element.value)
            if isinstance(element, cst.StarredElement):
                if isinstance(value, Seq):
                    items.extend(value.items)
                    continue
                if isinstance(value, (Params, Grads)):
                    items.append(value)
                    continue
                return self.fresh(self.label(node))
            items.append(value)
        return self.collect(items)

    @staticmethod
    def collect(items: list[Value]) -> Value:
        """A sequence; one of nothing but parameter iterators stands for all their parameters."""
        if items and all(isinstance(item, Params) for item in items):
            if len(items) == 1:
                return items[0]
            return Params(frozenset().union(*(item.owners for item in items if isinstance(item, Params))))
        return Seq(tuple(items))

    def _dict(self, node: cst.Dict) -> Value:
        items: list[tuple[Hashable, Value]] = []
        others: list[Value] = []
        for element in node.elements:
            value = self.evaluate(element.value)
            if isinstance(element, cst.StarredDictElement):
                if isinstance(value, Map):
                    items.extend(value.items)
                else:
                    others.append(value)
                continue
            assert isinstance(element, cst.DictElement)
            key = self.evaluate(element.key)
            if isinstance(key, Const):
                items = [pair for pair in items if pair[0] != key.value] + [(key.value, value)]
            else:
                others.append(value)
        if others:
            # Not all of its keys are known, but what flows into it is.
            everything = self.tensor(PLAIN, [*others, *(value for _, value in items)], node)
            return Tensor(PLAIN, everything.reach, base=self.fresh(self.label(node)))
        return Map(tuple(items), ("map", self.site(self.label(node))))

    def _comprehension(self, node: cst.GeneratorExp | cst.ListComp | cst.SetComp) -> Value:
        return self.fresh(self.label(node))

    def _dict_comprehension(self, node: cst.DictComp) -> Value:
        return self.fresh(self.label(node))

    # -- operators --------------------------------------------------------------------------------------------------

    def arithmetic(self, operator: cst.CSTNode, left: Value, right: Value, node: cst.CSTNode) -> Value:
        """A binary operation: units multiply, counters shift, constants fold."""
        times = isinstance(operator, (cst.Multiply, cst.MultiplyAssign))
        over = isinstance(operator, (cst.Divide, cst.DivideAssign))
        plus = isinstance(operator, (cst.Add, cst.AddAssign))
        minus = isinstance(operator, (cst.Subtract, cst.SubtractAssign))
        if isinstance(operator, (cst.Modulo, cst.ModuloAssign)):
            return self._modulo(left, right, node)
        if isinstance(left, Tensor) and isinstance(left.base, Sym) and _is_number(left) and (plus or minus):
            left = left.base if isinstance(right, Const) else left
        match left, right:
            case Const(a), Const(b) if _number(a) and _number(b):
                folded = _fold(operator, a, b)
                if folded is not None:
                    return Const(folded)
            case Sym(key, offset, text), Const(int() as number) if plus or minus:
                if not isinstance(number, bool) and abs(offset) < 64:
                    return Sym(key, offset + (number if plus else -number), text)
            case Const(int() as number), Sym(key, offset, text) if plus and not isinstance(number, bool):
                return Sym(key, offset + number, text)
            case (Params() | Seq(), Params() | Seq()) if plus:
                parts = [p for v in (left, right) for p in (v.items if isinstance(v, Seq) else (v,))]
                return self.collect(parts)
        power = isinstance(operator, cst.Power)
        if isinstance(left, (Tensor, Grads)) or isinstance(right, (Tensor, Grads)):
            a, b = unit_of(left), unit_of(right)
            if times or over:
                if isinstance(left, Grads):
                    self.rescaled(right)
                product = self.tensor(Product(a, Inverse(b) if over else b), (left, right), node)
                return replace(product, factor=self._factor(left, right, over))
            if power and right == Const(2):
                unit = Product(a, a)
            elif power and right == Const(0.5):
                unit = Root(a)  # type: ignore[assignment]
            elif power:
                unit = Product(a, a)
            else:
                unit = Sum((a, b))  # type: ignore[assignment]
                if isinstance(left, Grads) or isinstance(right, Grads):
                    added = Tensor(b if isinstance(left, Grads) else a, frozenset())
                    return replace(self.tensor(unit, (left, right), node), clamped="add", factor=added)
            return self.tensor(unit, (left, right), node)
        key_left, key_right = self.pure_key(left), self.pure_key(right)
        if key_left is not None and key_right is not None:
            return Sym(("pure", type(operator).__name__, key_left, key_right), text=self.text(node))
        return self.fresh(self.label(node), self.text(node))

    def _factor(self, left: Value, right: Value, over: bool) -> Value | None:
        """What gradients are multiplied with in ``p.grad * x``, ``p.grad / x`` and longer products."""
        if isinstance(right, Grads) and not over:
            left, right = right, left
        if isinstance(left, Grads):
            inverse = Tensor(Inverse(unit_of(right)), frozenset(), *_origin(right))
            return inverse if over else Tensor(unit_of(right), frozenset(), *_origin(right))
        if isinstance(left, Tensor) and left.factor is not None:
            assert isinstance(left.factor, Tensor)
            other = Inverse(unit_of(right)) if over else unit_of(right)
            mine, its = _origin(left.factor), _origin(right)
            return Tensor(Product(left.factor.unit, other), frozenset(), mine[0] or its[0], mine[1] or its[1])
        return None

    def tensor(self, unit: object, parts: Iterable[Value], node: cst.CSTNode | None) -> Tensor:
        """A number computed from others: it reaches what they reach, and remembers where it came from."""
        reach: frozenset[Key] | None = frozenset()
        of_gradients = of_weights = of_loss = False
        for part in parts:
            if isinstance(part, Grads):
                of_gradients = True
            elif isinstance(part, Params):
                of_weights = True
            elif isinstance(part, Tensor):
                of_gradients |= part.of_gradients
                of_weights |= part.of_weights
                of_loss |= part.of_loss
                reach = None if reach is None or part.reach is None else reach | part.reach
            elif isinstance(part, (Seq, Choice)):
                inner = self.tensor(PLAIN, part.items if isinstance(part, Seq) else part.options, None)
                of_gradients |= inner.of_gradients
                of_weights |= inner.of_weights
                of_loss |= inner.of_loss
                reach = None if reach is None or inner.reach is None else reach | inner.reach
            elif isinstance(part, Sym) and reach is not None:
                reach = reach | {part.key}
        return Tensor(unit, reach, of_gradients, of_weights, None, of_loss)  # type: ignore[arg-type]

    def _modulo(self, left: Value, right: Value, node: cst.CSTNode) -> Value:
        match left, right:
            case Const(int() as a), Const(int() as b) if b:
                return Const(a % b)
            case Sym(), Const(int() as number) if number > 0:
                return Mod(left, number)
            case (Const(int()), Sym()):
                return self.fresh(self.label(node), self.text(node))
            case Sym(), _:
                key = self.pure_key(right)
                if key is not None:
                    return Mod(left, Subject(("value", key), self.mentions(key), self._value_text(right)))
        return self.fresh(self.label(node), self.text(node))

    @staticmethod
    def _value_text(value: Value) -> str:
        return value.text if isinstance(value, Sym) else ""

    def _unary(self, node: cst.UnaryOperation) -> Value:
        if isinstance(node.operator, cst.Not):
            value = self.evaluate(node.expression)
            return Cond(negate(self.formula(self.as_test(value))))
        value = self.evaluate(node.expression)
        if isinstance(value, Const) and isinstance(node.operator, cst.Minus) and _number(value.value):
            return Const(-value.value)  # type: ignore[operator]
        if isinstance(value, (Tensor, Grads)):
            return self.tensor(unit_of(value), (value,), node)
        return self.fresh(self.label(node), self.text(node))

    def as_test(self, value: Value) -> Value:
        """The value as a condition: a counter's remainder is true where it is not zero."""
        if isinstance(value, Mod):
            return Cond(negate(self._residue(value, 0)))
        return value

    def _residue(self, value: Mod, number: int) -> Formula:
        modulus = value.modulus
        shifted = number - value.of.offset
        if isinstance(modulus, int):
            shifted %= modulus
            if modulus == 1:
                return True
        elif number < 0:
            return False
        return Atom(self.subject(value.of), Residue(modulus, shifted))

    def _boolean(self, node: cst.BooleanOperation) -> Value:
        if not _has_call(node.right):
            left = self.evaluate(node.left)
            if isinstance(left, (Sym, Cond, Const, Mod, Obj, Choice)):
                right = self.evaluate(node.right)
                keeps = isinstance(right, (Obj, Fn, Cls, Params, Seq, Map)) or isinstance(left, Obj)
                if not keeps:
                    parts = [self.formula(self.as_test(left)), self.formula(self.as_test(right))]
                    return Cond(all_of(parts) if isinstance(node.operator, cst.And) else any_of(parts))
                if isinstance(left, Const):
                    take_right = bool(left.value) == isinstance(node.operator, cst.And)
                    return right if take_right else left
                if isinstance(node.operator, cst.Or):
                    return left if isinstance(left, Obj) else right
                return right
        true, false = self.test(node)
        return self.merge_values([(true, lambda: Const(True)), (false, lambda: Const(False))], self.label(node))

    def test(self, node: cst.BaseExpression) -> tuple[Flow, Flow]:
        """Two flows out of a condition, with short circuits: where it is true, and where it is false."""
        match node:
            case cst.UnaryOperation(operator=cst.Not()):
                true, false = self.test(node.expression)
                return false, true
            case cst.BooleanOperation():
                conjunction = isinstance(node.operator, cst.And)
                true, false = self.test(node.left)
                go_on, done = (true, false) if conjunction else (false, true)
                self.flow = go_on
                if go_on.cur:
                    second_true, second_false = self.test(node.right)
                else:
                    second_true, second_false = Flow([], go_on.env), Flow([], go_on.env)
                rest, others = (second_true, second_false) if conjunction else (second_false, second_true)
                self.join([done, others], ("test", self.site(self.label(node))))
                met = self.flow
                return (rest, met) if conjunction else (met, rest)
        return self.branch_on(self.as_test(self.evaluate(node)))

    def _comparison(self, node: cst.Comparison) -> Value:
        left = self.evaluate(node.left)
        if isinstance(left, Sym) and (pair := _stage_of(left.key)) is not None and len(node.comparisons) == 1:
            (only,) = node.comparisons
            stage = self.evaluate(only.comparator)
            name = stage.name.rpartition("OptState.")[2] if isinstance(stage, Ext) else ""
            if name in ("READY", "UNSCALED", "STEPPED"):
                return StageIs(*pair, name, isinstance(only.operator, (cst.IsNot, cst.NotEqual)))
        if isinstance(left, Grads) and len(node.comparisons) == 1:
            (only,) = node.comparisons
            if isinstance(only.operator, (cst.Is, cst.IsNot)) and self.evaluate(only.comparator) == NONE:
                return HasGrads(left.params, negated=isinstance(only.operator, cst.Is))
        formulas: list[Formula] = []
        for target in node.comparisons:
            right = self.evaluate(target.comparator)
            self.compared(left, right, target.operator)
            formulas.append(self._compare(target.operator, left, right, node))
            left = right
        return Cond(all_of(formulas))

    def _compare(self, operator: cst.BaseCompOp, left: Value, right: Value, node: cst.CSTNode) -> Formula:
        """One comparison as a formula; what cannot be expressed is one unknown truth value of this place."""
        match operator:
            case cst.Is() | cst.Equal():
                return self._equal(left, right, node)
            case cst.IsNot() | cst.NotEqual():
                return negate(self._equal(left, right, node))
            case cst.In() | cst.NotIn():
                if isinstance(right, Seq) and all(isinstance(item, Const) for item in right.items):
                    found = any_of(self._equal(left, item, node) for item in right.items)
                else:
                    found = self._opaque(("in", self.pure_key(left), self.pure_key(right)), node)
                return found if isinstance(operator, cst.In) else negate(found)
            case cst.GreaterThan():
                return self._greater(left, right, node)
            case cst.LessThan():
                return self._greater(right, left, node)
            case cst.GreaterThanEqual():
                return negate(self._greater(right, left, node, "<"))
            case cst.LessThanEqual():
                return negate(self._greater(left, right, node, ">"))
        return self._opaque(None, node)

    def _equal(self, left: Value, right: Value, node: cst.CSTNode) -> Formula:
        if isinstance(left, Const) and not isinstance(right, Const):
            left, right = right, left
        if isinstance(left, Ext) and api.may_be_setting(left.name):
            left = Sym(("ext", left.name), text=left.name)
        match left, right:
            case Const(a), Const(b):
                return bool(a == b)
            case (Choice(key, options), _):
                return any_of(
                    all_of([Atom(self.tag(key), Equals(index)), self._equal(option, right, node)])
                    for index, option in enumerate(options)
                )
            case Mod(), Const(int() as number):
                return self._residue(left, number)
            case Mod(), Sym() | Mod():
                # `i % n == n - 1`
                modulus = left.modulus
                if isinstance(modulus, Subject) and isinstance(right, Sym):
                    base = Sym(right.key, 0, right.text)
                    if ("value", self.pure_key(base)) == modulus.key and right.offset < 0:
                        return Atom(self.subject(left.of), Residue(modulus, right.offset - left.of.offset))
                return self._opaque(None, node)
            case Sym(), Const(None):
                return Atom(self.subject(left), IsNone())
            case Sym(_, offset), Const(bool() as flag):
                truth = Atom(self.subject(left), Truthy())
                return truth if flag else negate(truth)
            case Sym(_, offset), Const(int() as number):
                return Atom(self.subject(left), Equals(number - offset))
            case Sym(_, 0), Const(value):
                return Atom(self.subject(left), Equals(value))
            case Cond(formula), Const(bool() as flag):
                return formula if flag else negate(formula)
            case (Obj() | Fn() | Cls() | Seq() | Map() | Tensor() | Params() | Grads(), Const(None)):
                if isinstance(left, Tensor) and isinstance(left.base, Sym):
                    return Atom(self.subject(left.base), IsNone())
                return False
            case Sym(), Sym():
                a, b = Sym(left.key, 0, left.text), Sym(right.key, 0, right.text)
                if left.key == right.key:
                    return left.offset == right.offset
                return Atom(self._difference(a, b), Equals(right.offset - left.offset))
        return self._opaque(("equal", self.pure_key(left), self.pure_key(right)), node)

    def _greater(self, left: Value, right: Value, node: cst.CSTNode, sign: str = "") -> Formula:
        """Whether `left` is greater; `sign` is what the source would write for it, where it writes the contrary."""
        match left, right:
            case Const(a), Const(b) if _number(a) and _number(b):
                return bool(a > b)  # type: ignore[operator]
            case Sym(_, offset), Const(value) if _number(value):
                return Atom(self.subject(left), Above(value - offset))  # type: ignore[operator]
            case Const(value), Sym(_, offset) if _number(value):
                return Atom(self.subject(right), Below(value - offset))  # type: ignore[operator]
            case Sym(), Sym():
                if left.key == right.key:
                    return left.offset > right.offset
                swap = repr(left.key) > repr(right.key)
                subject = self._difference(Sym(left.key, 0, left.text), Sym(right.key, 0, right.text))
                bound = right.offset - left.offset
                return Atom(subject, Below(-bound)) if swap else Atom(subject, Above(bound))
            case (Choice(key, options), _):
                return any_of(
                    all_of([Atom(self.tag(key), Equals(index)), self._greater(option, right, node, sign)])
                    for index, option in enumerate(options)
                    if option != NONE
                )
            case (_, Choice(key, options)):
                return any_of(
                    all_of([Atom(self.tag(key), Equals(index)), self._greater(left, option, node, sign)])
                    for index, option in enumerate(options)
                    if option != NONE
                )
            case Mod(), Const(0):
                return negate(self._residue(left, 0))
        text = self.text(node)
        if sign and isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
            text = f"{self.text(node.left)} {sign} {self.text(node.comparisons[0].comparator)}"
        return self._opaque(("greater", self.pure_key(left), self.pure_key(right)), node, text)

    def _difference(self, left: Sym, right: Sym) -> Subject:
        """The subject ``left - right``, with one spelling for both orders."""
        first, second = sorted((left, right), key=lambda sym: repr(sym.key))
        text = f"{first.text} - {second.text}" if " - " not in second.text else f"{first.text} - ({second.text})"
        mentions = self.mentions(first.key) | self.mentions(second.key)
        return Subject(("difference", first.key, second.key), mentions, text, first.key, second.key)

    def _opaque(self, key: Hashable, node: cst.CSTNode, text: str = "") -> Formula:
        """A truth value that nothing is known of; pure expressions give the same one each time."""
        text = text or self.text(node)
        if isinstance(key, tuple) and None not in key:
            return Atom(Subject(("truth", key), self.mentions(key), text), Truthy())
        symbol = self.fresh(("truth", self.label(node)), text)
        return Atom(self.subject(symbol), Truthy())

    # -- pure keys --------------------------------------------------------------------------------------------------

    def pure_key(self, value: Value | None) -> Hashable:
        """A key that two evaluations of the same pure expression share; ``None`` where the value is not pure."""
        match value:
            case Const(constant):
                return ("const", type(constant).__name__, constant)
            case Sym(key, offset):
                return ("sym", key, offset)
            case Obj(key):
                return ("obj", key)
            case Mod(of, modulus):
                return ("mod", self.pure_key(of), modulus)
            case Cond(formula):
                return ("cond", formula)
            case Seq(items):
                keys = tuple(map(self.pure_key, items))
                return None if None in keys else ("seq", keys)
            case Tensor(base=Sym(key)):
                return ("sym", key, 0)
            case Ext(name):
                return ("ext", name)
            case Choice(key):
                return ("choice", key)
        return None

    def mentions(self, key: Hashable) -> frozenset[Hashable]:
        """The symbols that a key rests on. Only derived keys (attributes, pure expressions) look into their parts."""
        if isinstance(key, Subject):
            return key.mentions
        if isinstance(key, Atom):
            return key.subject.mentions
        if not isinstance(key, tuple) or not key:
            return frozenset()
        if key[0] == "attr":
            return frozenset((key,)) | self.mentions(key[1])
        if key[0] in _DERIVED:
            return frozenset((key,)).union(*(self.mentions(part) for part in key[1:]))
        if key[0] in _ATOMIC:
            return frozenset((key,))
        return frozenset().union(*(self.mentions(part) for part in key))

    def subject(self, sym: Sym) -> Subject:  # type: ignore[override]
        return Subject(("value", ("sym", sym.key, 0)), self.mentions(sym.key), sym.text, sym.key)

    def text(self, node: cst.CSTNode) -> str:
        """An expression as the source writes it."""
        text = code_of(node)
        return text if len(text) <= 60 else text[:57] + "..."

    # -- assignment -------------------------------------------------------------------------------------------------

    def assign(self, target: cst.CSTNode, value: Value) -> None:
        """Bind a target: names, attributes, items, and tuples of them."""
        match target:
            case cst.Name(value=name):
                self._put(("v", self._home(name), name), self._named(value, name))
            case cst.Attribute():
                base = self.evaluate(target.value)
                if target.attr.value == "grad":
                    self.assign_gradient(base, value)
                    return
                if isinstance(base, Grads):
                    self.assign_gradient(base.params, value)
                    return
                if isinstance(base, Params) and target.attr.value == "requires_grad":
                    self.freeze(base, value)
                    return
                key = self.key_of(self.one(base))
                if key is not None:
                    self.hold(key, value)
                    self._put(("a", key, target.attr.value), self._named(value, self.text(target)))
            case cst.Subscript():
                base = self.evaluate(target.value)
                index = target.slice[0].slice
                if isinstance(base, Grads):
                    self.assign_masked(base, target)
                elif len(target.slice) == 1 and isinstance(index, cst.Index):
                    self._assign_item(target, base, self.evaluate(index.value), value)
            case cst.Tuple() | cst.List():
                self._unpack([element.value for element in target.elements], value, target)
            case cst.StarredElement():
                self.assign(target.value, self.fresh(self.label(target)))

    def _put(self, slot: Key, value: Value) -> None:
        """Fill a slot. An optimizer that gives its only place to another one applies nothing any more."""
        old = self.flow.env.get(slot)
        self.flow.env[slot] = value
        gone = set(made_optimizers(old)) - set(made_optimizers(value)) if old is not None and old is not value else ()
        if gone and any(made_optimizers(value)):
            for held, other in self.flow.env.items():
                assert isinstance(held, tuple)
                if held[0] != "v" or self.is_active(held[1]):
                    gone.difference_update(made_optimizers(other))
            for key in sorted(gone, key=repr):
                self.emit(Draft("retire", (self.ref(key),)))

    def is_active(self, frame: int | str) -> bool:
        """Whether the names of an activation can still be read: it goes on, or functions that it defines may."""
        raise NotImplementedError

    def assign_masked(self, base: Grads, target: cst.Subscript) -> None:
        """``p.grad[mask] = …``."""
        raise NotImplementedError

    def consume(self, values: list[Value]) -> None:
        """Numbers made from gradients or scaled losses leave the program's own computation here."""

    def compared(self, left: Value, right: Value, operator: cst.BaseCompOp) -> None:
        """Two values are compared."""

    def rescaled(self, by: Value) -> None:
        """Gradients are multiplied with, or divided by, a number."""

    def hold(self, owner: Key, value: Value) -> None:
        """Note that an object holds another one in an attribute."""

    def freeze(self, parameters: Value, needed: Value) -> None:
        """Parameters need gradients from here on, or none."""
        raise NotImplementedError

    def assign_gradient(self, base: Value, value: Value) -> None:
        raise NotImplementedError

    def _home(self, name: str) -> Hashable:
        """The frame that a plain assignment to a name binds it in."""
        node = self.frame.info.node
        if isinstance(node, ast.Module):
            return self.frame.info.module.name
        if name in _declared(self.frame.info, ast.Global):
            return self.frame.info.module.name
        if name in _declared(self.frame.info, ast.Nonlocal):
            frame = self.frames.get(self.frame.parent) if self.frame.parent is not None else None
            while frame is not None:
                if ("v", frame.id, name) in self.flow.env:
                    return frame.id
                frame = self.frames.get(frame.parent) if frame.parent is not None else None
        return self.frame.id

    @staticmethod
    def _named(value: Value, name: str) -> Value:
        """Messages call an object by the name that the program gives to it first."""
        if isinstance(value, Obj) and not value.text:
            return Obj(value.key, value.kind, value.cls, name)
        return value

    def _assign_item(self, target: cst.Subscript, base: Value, index: Value, value: Value) -> None:
        if isinstance(base, Map) and isinstance(index, Const):
            items = (*(pair for pair in base.items if pair[0] != index.value), (index.value, value))
            if isinstance(target.value, (cst.Name, cst.Attribute)):
                self.assign(target.value, Map(items, base.key))
            return
        key = self.key_of(base)
        if key is not None and isinstance(index, Const):
            self.flow.env[("a", key, ("item", index.value))] = self._named(value, self.text(target))

    def _unpack(self, targets: list[cst.BaseExpression], value: Value, node: cst.CSTNode) -> None:
        items = self.unpacked(value, len(targets))
        for index, target in enumerate(targets):
            if items is not None:
                self.assign(target, items[index])
            elif isinstance(value, Choice):
                self.assign(target, self.fresh((self.label(node), index), code_of(target)))
            elif isinstance(value, Tensor):
                self.assign(
                    target,
                    Tensor(
                        value.unit,
                        value.reach,
                        value.of_gradients,
                        value.of_weights,
                        self.fresh((self.label(node), index), code_of(target)),
                    ),
                )
            elif (key := self.key_of(value)) is not None:
                self.assign(target, Sym(("attr", key, ("item", index)), text=code_of(target)))
            else:
                self.assign(target, self.fresh((self.label(node), index), code_of(target)))

    @staticmethod
    def unpacked(value: Value, count: int) -> list[Value] | None:
        if isinstance(value, Seq) and len(value.items) == count:
            return list(value.items)
        if isinstance(value, Choice):
            options = [
                option.items for option in value.options if isinstance(option, Seq) and len(option.items) == count
            ]
            if len(options) == len(value.options):
                # Each name is one of several things, and all of them are of the same option.
                columns = list(zip(*options))
                return [c[0] if all(i == c[0] for i in c) else Choice(value.key, tuple(c)) for c in columns]
        return None

    @staticmethod
    def one(value: Value) -> Value:
        """A choice between an object and nothing is the object wherever it is used."""
        if isinstance(value, Choice):
            useful = [option for option in value.options if not isinstance(option, Const)]
            if len(useful) == 1:
                return useful[0]
        return value


def _origin(value: Value) -> tuple[bool, bool]:
    """Whether a number comes from gradients, and whether from weights."""
    if isinstance(value, Tensor):
        return value.of_gradients, value.of_weights
    return isinstance(value, Grads), isinstance(value, Params)


def _declared(info: FunctionInfo, kind: type[ast.Global] | type[ast.Nonlocal]) -> frozenset[str]:
    cache = info.__dict__.setdefault("_declared", {})
    if kind not in cache:
        cache[kind] = frozenset(name for node in ast.walk(info.node) if isinstance(node, kind) for name in node.names)
    found: frozenset[str] = cache[kind]
    return found


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _fold(operator: cst.CSTNode, a: Hashable, b: Hashable) -> float | int | None:
    assert isinstance(a, (int, float)) and isinstance(b, (int, float))
    try:
        match operator:
            case cst.Add() | cst.AddAssign():
                return a + b
            case cst.Subtract() | cst.SubtractAssign():
                return a - b
            case cst.Multiply() | cst.MultiplyAssign():
                return a * b
            case cst.Divide() | cst.DivideAssign():
                return a / b
            case cst.FloorDivide():
                return a // b
            case cst.Power() if abs(a) <= 1024 and abs(b) <= 64:
                result = a**b
                return result if isinstance(result, (int, float)) else None
    except (ArithmeticError, ValueError):
        return None
    return None


_CODE: dict[int, tuple[cst.CSTNode, str]] = {}


def code_of(node: cst.CSTNode) -> str:
    """The text of an expression on one line; short and dotted ones without the printer."""
    match node:
        case cst.Name(value=name):
            return name
        case cst.Attribute():
            return f"{code_of(node.value)}.{node.attr.value}"
    known = _CODE.get(id(node))
    if known is not None and known[0] is node:
        return known[1]
    text = " ".join(cst.Module([]).code_for_node(node).split())
    if len(_CODE) > 4096:
        _CODE.clear()
    _CODE[id(node)] = (node, text)
    return text


def _has_call(node: cst.CSTNode) -> bool:
    if isinstance(node, (cst.Call, cst.NamedExpr, cst.Await, cst.Yield)):
        return True
    return any(_has_call(child) for child in node.children if isinstance(child, cst.BaseExpression)) or (
        isinstance(node, cst.Comparison) and any(_has_call(target.comparator) for target in node.comparisons)
    )


@lru_cache(maxsize=4096)
def _literal(code: str) -> Any:
    """The value of a number or a string as the source writes it; libcst compiles it each time that it is asked."""
    return ast.literal_eval(code)


def _is_number(value: Tensor) -> bool:
    """Whether nothing is known of an unknown result but that it carries no scale and comes from no module."""
    return value == Tensor(PLAIN, frozenset(), base=value.base)


def made_optimizers(value: Value) -> Iterator[Key]:
    """The optimizers of the program's making that a value is or holds."""
    match value:
        case Obj(key, Kind.OPTIMIZER):
            yield key
        case Seq(items) | Choice(_, items):
            for item in items:
                yield from made_optimizers(item)
        case Map(pairs):
            for _, item in pairs:
                yield from made_optimizers(item)


def _sequences(choice: Choice) -> bool:
    """Whether a choice is one between sequences, or none at all."""
    return all(isinstance(option, Seq) or option == NONE for option in choice.options)


def chosen(by: Choice, values: Sequence[Value]) -> Value:
    """A value for each option of a choice, as a choice between them."""
    others = [value for value in values if value != NONE]
    if others and all(value == others[0] for value in others):
        return others[0]
    return Choice(by.key, tuple(values))


def _item_of(value: Value, index: int) -> Value:
    """``value[index]``; nothing where a sequence is too short for it, since the program ends there."""
    return value.items[index] if isinstance(value, Seq) and -len(value.items) <= index < len(value.items) else NONE


def _slice_of(base: Value, bounds: Sequence[Value]) -> Value | None:
    """``base[start:stop:step]`` of sequences, with constant bounds."""
    numbers: list[int | None] = []
    for bound in bounds:
        if not isinstance(bound, Const) or not (bound.value is None or type(bound.value) is int):
            return None
        numbers.append(bound.value)
    if numbers[2] == 0:
        return None
    part = slice(*numbers)
    if isinstance(base, Seq):
        return Seq(base.items[part])
    if isinstance(base, Choice) and _sequences(base):
        return chosen(base, [Seq(option.items[part]) if isinstance(option, Seq) else NONE for option in base.options])
    return None


def _stage_of(key: Key) -> tuple[Key, Key] | None:
    """The scaler and the optimizer whose stage ``scaler._per_optimizer_states[id(optimizer)]["stage"]`` is."""
    match key:
        case (
            "attr",
            ("attr", ("attr", scaler, "_per_optimizer_states"), ("item", ("id", optimizer))),
            ("item", "stage"),
        ):
            return scaler, optimizer
    return None
