"""From concrete syntax to a graph: statements, loops, jumps and exceptions. Expressions and calls live beside it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import libcst as cst

from ampclip_lint.amp import api
from ampclip_lint.amp.builder import (
    ConstructorTooLarge,
    Dangling,
    Draft,
    Env,
    Flow,
    Frame,
    Phi,
    Scope,
    TooLarge,
    any_of,
    unit_of,
)
from ampclip_lint.amp.calls import Calls, uses_as_optimizers
from ampclip_lint.amp.units import PLAIN, Inverse, Stored
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
    Map,
    Obj,
    Params,
    Seq,
    Sym,
    Tensor,
    Value,
    options_of,
)
from ampclip_lint.flow.facts import Atom, Equals, Learn, SetConstant, Shift, Truthy
from ampclip_lint.flow.graph import Edge
from ampclip_lint.records import dataclass
from ampclip_lint.syntax.index import FunctionInfo, targets_of

#: Loops over a known collection are unrolled up to this many elements.
UNROLL = 8
#: A collection of unknown length stands for this many distinct elements.
SOME = 2


@dataclass(frozen=True)
class Filtered:
    """A list of those elements of a collection that pass a test: ``[x for x in of if …]``."""

    node: cst.GeneratorExp | cst.ListComp | cst.SetComp
    of: Value
    frame: Frame
    statement: cst.CSTNode
    twin: ast.stmt


class Lowering(Calls):
    """Lowers one root function, with everything that it calls, to one graph; if it `constructs`, also what makes the
    object of a method.
    """

    def __init__(self, program: object, *, constructs: bool = True) -> None:
        super().__init__(program)
        self.constructs = constructs
        self.loop_changes: dict[Hashable, dict[Key, list[Value]]] = {}
        self.root: FunctionInfo | None = None
        self.switches: list[tuple[str, range, range]] = []
        self.elements: list[int] = []
        self.flagged: list[Frame] = []
        self.under_finite_test = False
        self.filtered: dict[Key, Filtered] = {}

    # -- suites -----------------------------------------------------------------------------------------------------

    def suite(self, body: object, twins: object) -> None:
        """A sequence of statements; what stands behind a jump is not reached."""
        concrete = self.frame.concrete
        for node, twin in concrete.pair(body, twins):  # type: ignore[arg-type]
            if self.dead:
                return
            self.statement, self.twin = node, twin
            self.at()
            self.lower(node, twin)

    def block(self, body: cst.BaseSuite, twins: Sequence[ast.stmt]) -> None:
        saved = (self.statement, self.twin)
        self.suite(body.body, twins)
        self.statement, self.twin = saved

    def lower(self, node: cst.CSTNode, twin: ast.stmt) -> None:
        match node:
            case cst.Expr(value=expression):
                self.evaluate(expression)
            case cst.Assign():
                self.making = self._makes(node.value, self.text(node.targets[0].target))
                value = self.keep(self.evaluate(node.value), node)
                for target in node.targets:
                    self.assign(target.target, value)
            case cst.AnnAssign() if node.value is not None:
                self.assign(node.target, self.keep(self.evaluate(node.value), node))
            case cst.AugAssign():
                self._augmented(node)
            case cst.If():
                self._if(node, twin)
            case cst.For():
                self._for(node, twin)
            case cst.While():
                self._while(node, twin)
            case cst.Try() | cst.TryStar():
                self._try(node, twin)
            case cst.With():
                self._with(node, twin)
            case cst.Match():
                self._match(node, twin)
            case cst.Return():
                self.making = self._makes(node.value, "return")
                value = self.evaluate(node.value) if node.value is not None else NONE
                if not self.dead:
                    if self.frame.info is self.root:
                        self.at()
                        self.consume([value])
                    self.flow.env[("ret", self.frame.id)] = self.keep(value, node)
                    self.jump("return")
            case cst.Raise():
                if node.exc is not None:
                    self.evaluate(node.exc)
                self.at()
                self.emit(Draft("raise_nonfinite" if self.under_finite_test else "raise"))
                self.jump("raise")
            case cst.Break():
                self.jump("break")
            case cst.Continue():
                self.jump("continue")
            case cst.Assert():
                self._assert(node)
            case cst.Del():
                pass
            case cst.FunctionDef() | cst.ClassDef():
                name = node.name.value
                self.flow.env.pop(("v", self._home(name), name), None)
            case cst.Import() | cst.ImportFrom():
                self._local_import(twin)

    def _makes(self, value: cst.BaseExpression | None, target: str) -> dict[int, Key]:
        """Objects that different arms of a branch make for one name are one object: only one of them ever exists."""
        calls: list[cst.BaseExpression | None] = [value]
        while any(isinstance(call, cst.IfExp) for call in calls):
            calls = [
                part
                for call in calls
                for part in ((call.body, call.orelse) if isinstance(call, cst.IfExp) else (call,))
            ]
        key: Key = (self.frame.id, target, tuple(self.elements))
        return {self.label(call): key for call in calls if isinstance(call, cst.Call)}

    def _assert(self, node: cst.Assert) -> None:
        seen = self.finite_tests
        true, _ = self.test(node.test)
        self.flow = true
        self.at()
        if self.finite_tests > seen and not self.dead:
            self.emit(Draft("raise_nonfinite"))

    def keep(self, value: Value, node: cst.CSTNode) -> Value:
        """A value that a variable keeps: its unit is what it is now."""
        if isinstance(value, Tensor) and (value.of_gradients or not isinstance(value.unit, type(PLAIN))):
            if isinstance(value.unit, Stored) and value.unit.variable in self.clip_bounds:
                return value
            return self.materialize(value, f"line{self.twin.lineno}:{self.twin.col_offset}")
        return value

    def _local_import(self, twin: ast.stmt) -> None:
        if isinstance(twin, ast.Import):
            for alias in twin.names:
                name = alias.asname or alias.name.split(".")[0]
                self.flow.env[("v", self._home(name), name)] = self.imported(alias.name if alias.asname else name)
        elif isinstance(twin, ast.ImportFrom):
            base = self.frame.info.module._absolute(twin)
            for alias in twin.names:
                name = alias.asname or alias.name
                if name != "*":
                    self.flow.env[("v", self._home(name), name)] = self.imported(f"{base}.{alias.name}")

    def _augmented(self, node: cst.AugAssign) -> None:
        value = self.evaluate(node.value)
        target = node.target
        if isinstance(target, cst.Attribute) and target.attr.value in ("grad", "data"):
            base = self.evaluate(target)
            if isinstance(base, Grads):
                self._edit_in_place(base, node.operator, value, node)
                return
        assert isinstance(target, (cst.Name, cst.Attribute, cst.Subscript))
        old = self.evaluate(target)
        if isinstance(old, Grads):
            self._edit_in_place(old, node.operator, value, node)
            return
        if isinstance(old, Seq) and isinstance(value, Seq) and isinstance(node.operator, cst.AddAssign):
            self.assign(target, self.collect([*old.items, *value.items]))
            return
        self.assign(target, self.keep(self.arithmetic(node.operator, old, value, node), node))

    def _edit_in_place(self, base: Grads, operator: cst.CSTNode, value: Value, node: cst.CSTNode) -> Value:
        if isinstance(value, Choice):
            self.each_option(
                value, node, lambda option: self._edit_in_place(base, operator, option, node), numbers=True
            )
            return NONE
        target = self.targets(base)
        self.at()
        if isinstance(operator, (cst.MultiplyAssign, cst.DivideAssign)):
            factor = unit_of(value)
            self.edit_by_factor(
                target, Inverse(factor) if isinstance(operator, cst.DivideAssign) else factor, value, node
            )
        elif isinstance(operator, (cst.AddAssign, cst.SubtractAssign)):
            self.emit(Draft("edit", (target, unit_of(value))))
        return NONE

    # -- branches ---------------------------------------------------------------------------------------------------

    def _if(self, node: cst.If, twin: ast.stmt) -> None:
        assert isinstance(twin, ast.If)
        site = self.site("if")
        seen, outer = self.finite_tests, self.under_finite_test
        true, false = self.test(node.test)
        # A raise that also looks at the scale itself stops on a collapse, not on an ordinary overflow.
        self.under_finite_test = self.finite_tests > seen and "scale" not in self.text(node.test)
        self.enclosing.append(self.text(node.test))
        first = len(self.graph.nodes)
        self.flow = true
        if true.cur:
            self.block(node.body, twin.body)
        after_true = self.flow
        second = len(self.graph.nodes)
        self.flow = false
        if false.cur and node.orelse is not None:
            if isinstance(node.orelse, cst.If):
                saved = (self.statement, self.twin)
                self.statement, self.twin = node.orelse, twin.orelse[0]
                self._if(node.orelse, twin.orelse[0])
                self.statement, self.twin = saved
            else:
                self.block(node.orelse.body, twin.orelse)
        self.under_finite_test = outer
        self.enclosing.pop()
        self.note_switch(node.test, range(first, second), range(second, len(self.graph.nodes)))
        self.join([after_true, self.flow], site)

    def note_switch(self, test: cst.BaseExpression, yes: range, no: range) -> None:
        """Remember two-armed branches of scaled and plain calls; `link` relates those that are the same switch."""
        if not self.scratch and len(yes) and len(no):
            self.switches.append((self.text(test), yes, no))

    def _match(self, node: cst.Match, twin: ast.stmt) -> None:
        assert isinstance(twin, ast.Match)
        subject = self.evaluate(node.subject)
        site = self.site("match")
        ends: list[Flow] = []
        for case, ast_case in zip(node.cases, twin.cases):
            if self.dead:
                break
            true, false = self._pattern(case.pattern, subject, node)
            if case.guard is not None and true.cur:
                self.flow = true
                true, refused = self.test(case.guard)
                self.join([false, refused], (site, "guard", self.label(case)))
                false = self.flow
            self.flow = true
            if true.cur:
                self.block(case.body, ast_case.body)
            ends.append(self.flow)
            self.flow = false
        self.join([*ends, self.flow], site)

    def _pattern(self, pattern: cst.MatchPattern, subject: Value, node: cst.CSTNode) -> tuple[Flow, Flow]:
        match pattern:
            case cst.MatchValue(value=value):
                return self.branch_on(Cond(self._equal(subject, self.evaluate(value), node)))
            case cst.MatchSingleton(value=cst.Name(value=name)):
                constant = Const({"None": None, "True": True, "False": False}[name])
                return self.branch_on(Cond(self._equal(subject, constant, node)))
            case cst.MatchAs(pattern=None, name=name):
                if name is not None:
                    self.assign(name, subject)
                return self.fork(), Flow([], self.flow.env)
            case cst.MatchOr():
                formulas = [
                    self._equal(subject, self.evaluate(p.pattern.value), node)
                    for p in pattern.patterns
                    if isinstance(p.pattern, cst.MatchValue)
                ]
                if len(formulas) == len(pattern.patterns):
                    return self.branch_on(Cond(any_of(formulas)))
        return self.fork(), self.fork()

    # -- jumps ------------------------------------------------------------------------------------------------------

    def jump(self, kind: str) -> None:
        """Leave the suite, through every finally on the way, to where the jump goes."""
        target = {"return": "function", "break": "loop", "continue": "loop"}.get(kind)
        stack = list(self.scopes)
        while stack and not self.dead:
            scope = stack.pop()
            if scope.final is not None:
                saved = (self.scopes, self.frame, self.statement, self.twin)
                self.scopes, self.frame = stack, scope.frame
                try:
                    scope.final()
                finally:
                    self.scopes, self.frame, self.statement, self.twin = saved
            if kind == "raise" and scope.kind == "try":
                scope.raises.append(self.flow)
                break
            if scope.kind == target:
                if kind == "return":
                    scope.returns.append(self.flow)
                elif kind == "break":
                    scope.breaks.append(self.flow)
                else:
                    scope.continues.append(self.flow)
                break
        self.kill()

    # -- loops ------------------------------------------------------------------------------------------------------

    def _while(self, node: cst.While, twin: ast.stmt) -> None:
        assert isinstance(twin, ast.While)

        def head() -> tuple[Flow, Flow]:
            return self.test(node.test)

        self._loop(head, lambda: self.block(node.body, twin.body), node, twin, "while")

    def _for(self, node: cst.For, twin: ast.stmt) -> None:
        assert isinstance(twin, ast.For | ast.AsyncFor)
        iterable = self.evaluate_iterable(node.iter, node, twin)
        if isinstance(iterable, Choice):
            self._for_each_collection(iterable, node, twin)
        else:
            self._for_over(iterable, node, twin)

    def _for_each_collection(self, iterable: Choice, node: cst.For, twin: ast.stmt) -> None:
        """A loop over one of several collections: each in the worlds where it is that one."""
        start, ends = self.fork(), []
        for index, option in enumerate(iterable.options):
            if option == NONE:
                continue
            self.flow = Flow(list(start.cur), dict(start.env))
            self.assume(Atom(self.tag(iterable.key), Equals(index)), True)
            self._for_over(option, node, twin)
            ends.append(self.flow)
        self.join(ends, self.site("collections"))

    def _for_over(self, iterable: Value, node: cst.For, twin: ast.stmt) -> None:
        assert isinstance(twin, ast.For | ast.AsyncFor)
        only = self.filtered.get(iterable.key) if isinstance(iterable, Sym) else None
        elements = self._elements(iterable if only is None else only.of, node, twin)
        body: Callable[[], None] = lambda: self.block(node.body, twin.body)  # noqa: E731
        if elements is not None:
            self._unrolled(elements, node, twin, body, only)
            return
        counter = self._counter(iterable)

        def head() -> tuple[Flow, Flow]:
            return self.fork(), self.fork()

        if counter is not None:
            self._counting_loop(node, twin, counter, iterable, body)
            return

        def bound_body() -> None:
            self._bind_loop_variable(node, iterable)
            self.enclosing.append("loop")
            body()
            self.enclosing.pop()

        self._loop(head, bound_body, node, twin, "for")

    def evaluate_iterable(self, expr: cst.BaseExpression, node: cst.CSTNode, twin: ast.stmt) -> Value:
        """What a loop runs over; enumerate, zip and range keep their shape."""
        if isinstance(expr, cst.Call):
            name = expr.func.value if isinstance(expr.func, cst.Name) else ""
            if isinstance(expr.func, cst.Name) and name in (
                "enumerate",
                "zip",
                "range",
                "reversed",
                "list",
                "tuple",
                "sorted",
                "tqdm",
            ):
                known = self.name(name)
                if isinstance(known, Ext):
                    return self._shaped(name, expr, node, twin)
            if isinstance(expr.func, cst.Attribute) and expr.func.attr.value in ("tqdm", "track", "prefetch", "trange"):
                if expr.args:
                    return self.evaluate_iterable(expr.args[0].value, node, twin)
        return self.evaluate(expr)

    def _shaped(self, name: str, expr: cst.Call, node: cst.CSTNode, twin: ast.stmt) -> Value:
        positional = [arg for arg in expr.args if arg.keyword is None and not arg.star]
        parts = [self.evaluate_iterable(arg.value, node, twin) for arg in positional]
        keyword = {arg.keyword.value: self.evaluate(arg.value) for arg in expr.args if arg.keyword is not None}
        if name == "enumerate" and parts:
            start = parts[1] if len(parts) > 1 else keyword.get("start", Const(0))
            inner = parts[0]
            if isinstance(inner, Seq) and isinstance(start, Const) and isinstance(start.value, int):
                return Seq(tuple(Seq((Const(start.value + i), item)) for i, item in enumerate(inner.items)))
            return Items((start, inner), counted=True)
        if name == "zip" and parts:
            if any(isinstance(part, Seq) for part in parts):
                length = min(len(part.items) for part in parts if isinstance(part, Seq))
                if length <= UNROLL:
                    return Seq(tuple(Seq(tuple(self._nth(part, i, node) for part in parts)) for i in range(length)))
            return Items(tuple(parts))
        if name == "range":
            if parts == [Const(1)]:
                return Seq((Const(0),))
            start = parts[0] if len(parts) > 1 else Const(0)
            step = parts[2] if len(parts) > 2 else Const(1)
            return Items((start,), counted=step == Const(1))
        return parts[0] if parts else Seq(())

    def _nth(self, collection: Value, index: int, node: cst.CSTNode) -> Value:
        """An element of a collection, known or not."""
        if isinstance(collection, Seq):
            return collection.items[index]
        if isinstance(collection, Items):
            if collection.counted and len(collection.of) == 1:
                return Const(index)
            if collection.counted:
                start = collection.of[0]
                number: Value = Sym(("element", self.site("n"), index))
                if isinstance(start, Const) and isinstance(start.value, int):
                    number = Const(start.value + index)
                return Seq((number, self._nth(collection.of[1], index, node)))
            return Seq(tuple(self._nth(part, index, node) for part in collection.of))
        if isinstance(collection, Params):
            return Params(collection.owners, True)
        key = self.key_of(collection)
        if key is not None:
            text = collection.text if isinstance(collection, (Sym, Obj)) else ""
            names = self._constant_keys(text.removesuffix(".values()").removesuffix(".items()"))
            part: Hashable = ("item", names[index]) if index < len(names) else ("element", index)
            if isinstance(key, tuple) and key[0] == "attr" and key[2] == "values()":
                key = key[1]
            elif isinstance(key, tuple) and key[0] == "attr" and key[2] == "items()":
                element = Sym(("attr", key[1], part), text=f"{text}[{index}]")
                return Seq((Const(names[index]) if names else Sym(("attr", key[1], ("key", index))), element))
            if not names and not text.endswith(".values()"):
                part = ("item", index)  # What the loop meets first is the element at 0.
            return Sym(("attr", key, part), text=f"{text}[{index}]")
        return Sym(("element", self.site(self.label(node)), index))

    def _constant_keys(self, text: str) -> list[str]:
        """The constant string keys that the current function (or class) reads from a dict."""
        info = self.frame.info
        scope = info.owner.node if info.owner is not None and text.startswith(f"{info.self_name}.") else info.node
        cache = info.__dict__.setdefault("_constant_keys", {})
        if text not in cache:
            cache[text] = list(
                dict.fromkeys(
                    child.slice.value
                    for child in ast.walk(scope)
                    if isinstance(child, ast.Subscript)
                    and isinstance(child.slice, ast.Constant)
                    and isinstance(child.slice.value, str)
                    and ast.unparse(child.value) == text
                )
            )
        found: list[str] = cache[text]
        return found if text else []

    def _elements(self, iterable: Value, node: cst.For, twin: ast.stmt) -> list[Value] | None:
        """The elements to visit one by one: of a known collection, or two of an unknown one of optimizers."""
        if isinstance(iterable, Seq) and len(iterable.items) <= UNROLL:
            if len(iterable.items) == 1 or self._names_objects(node, twin) or self._interesting(iterable):
                return list(iterable.items)
            return list(iterable.items) if len(iterable.items) <= 4 else None
        if isinstance(iterable, Map) and len(iterable.items) <= UNROLL:
            return [Const(key) for key, _ in iterable.items]
        if isinstance(iterable, (Sym, Items, Obj, Tensor)) and self._names_objects(node, twin):
            if isinstance(iterable, Items) and iterable.counted and len(iterable.of) == 1:
                return None
            assert isinstance(twin, (ast.For, ast.AsyncFor))
            keys = self._constant_keys(ast.unparse(twin.iter).removesuffix(".values()").removesuffix(".items()"))
            return [self._nth(iterable, index, node) for index in range(max(SOME, min(len(keys), UNROLL)))]
        return None

    @staticmethod
    def _interesting(iterable: Seq) -> bool:
        return any(isinstance(leaf, (Obj, Params, Fn, Seq)) for leaf in iterable.items)

    def _names_objects(self, node: cst.For, twin: ast.stmt) -> bool:
        """Whether the loop's variable is used as an optimizer: in its body, or in another loop over the same thing."""
        assert isinstance(twin, (ast.For, ast.AsyncFor))
        if uses_as_optimizers(twin):
            return True
        over = [twin.iter]
        if isinstance(twin.iter, ast.Call) and isinstance(twin.iter.func, ast.Name):
            over = twin.iter.args or over
        return any(self._is_collection_of_optimizers(ast.unparse(part)) for part in over)

    def _is_collection_of_optimizers(self, text: str) -> bool:
        info = self.frame.info
        scope = info.owner.node if info.owner is not None and text.startswith(f"{info.self_name}.") else info.node
        cache = info.__dict__.setdefault("_optimizer_collections", {})
        if text not in cache:
            cache[text] = any(
                isinstance(loop, (ast.For, ast.AsyncFor))
                and ast.unparse(loop.iter) == text
                and uses_as_optimizers(loop)
                for loop in ast.walk(scope)
            )
        return bool(cache[text])

    def _unrolled(
        self,
        elements: list[Value],
        node: cst.For,
        twin: ast.stmt,
        body: Callable[[], None],
        only: Filtered | None = None,
    ) -> None:
        """Visit known elements one after the other, or those that pass a test."""
        assert isinstance(twin, (ast.For, ast.AsyncFor))
        scope = Scope("loop", self.frame)
        self.scopes.append(scope)
        real = self.frame
        try:
            for index, element in enumerate(elements):
                if self.dead:
                    break
                passed, left_out = self.fork(), None
                if only is not None:
                    passed, left_out = self._where_it_passes(only, element)
                self.flow = passed
                self.assign(node.target, element)
                # Each element is a place of its own: what it produces must not be mixed with the others'.
                path = (*real.path, self.site(("element", index)))
                number = self.frame_ids.setdefault(path, len(self.frame_ids))
                self._as_element(real, number, body)
                self.join([self.flow, left_out, *scope.continues], ("next", self.site(index)))
                scope.continues.clear()
        finally:
            self.scopes.pop()
            self.frame = real
        if not self.dead and node.orelse is not None:
            self.block(node.orelse.body, twin.orelse)
        self.join([self.flow, *scope.breaks], self.site("done"))

    def _where_it_passes(self, only: Filtered, element: Value) -> tuple[Flow, Flow]:
        """Two flows: where an element is in the list, and where the test has left it out."""
        saved = (self.frame, self.statement, self.twin, self.place)
        self.frame, self.statement, self.twin = only.frame, only.statement, only.twin
        self.assign(only.node.for_in.target, element)
        others: list[Flow] = []
        for clause in only.node.for_in.ifs:
            true, false = self.test(clause.test)
            others.append(false)
            self.flow = true
        true = self.flow
        self.join(others, self.site(("left out", self.label(only.node))))
        self.frame, self.statement, self.twin, self.place = saved
        return true, self.flow

    def _as_element(self, real: Frame, number: int, body: Callable[[], None]) -> None:
        self.elements.append(number)
        try:
            body()
        finally:
            self.elements.pop()

    def site(self, label: Hashable = "") -> tuple[Hashable, ...]:
        if self.elements:
            return (*super().site(label), tuple(self.elements))
        return super().site(label)

    def _counter(self, iterable: Value) -> Value | None:
        if isinstance(iterable, Items) and iterable.counted:
            return iterable.of[0]
        return None

    def _counting_loop(
        self, node: cst.For, twin: ast.stmt, start: Value, iterable: Value, body: Callable[[], None]
    ) -> None:
        """``for i, x in enumerate(…)`` and ``for i in range(…)``: i starts and advances by one."""
        slot: Key = ("v", -2, ("counter", self.site("counter")))
        self.flow.env[slot] = start

        def head() -> tuple[Flow, Flow]:
            return self.fork(), self.fork()

        target = node.target
        pair = isinstance(target, (cst.Tuple, cst.List)) and len(target.elements) == 2

        def counted() -> None:
            value = self.flow.env[slot]
            if isinstance(value, Choice):
                value = self.fresh("counter")
            if isinstance(iterable, Items) and len(iterable.of) == 2 and pair:
                assert isinstance(target, (cst.Tuple, cst.List))
                if isinstance(target.elements[0].value, cst.Name):
                    value = _called(value, target.elements[0].value.value)
                self.assign(target.elements[0].value, value)
                self.assign(target.elements[1].value, self._some_element(iterable.of[1], node))
            elif isinstance(iterable, Items) and len(iterable.of) == 1:
                if isinstance(target, cst.Name):
                    value = _called(value, target.value)
                self.assign(target, value)
            else:
                self.assign(target, self.fresh("pair"))

        def bound_body() -> None:
            counted()
            body()

        def advance() -> None:
            value = self.flow.env[slot]
            self.flow.env[slot] = (
                Sym(value.key, value.offset + 1, value.text) if isinstance(value, Sym) else self.fresh("advance")
            )

        def leave() -> None:
            # Behind the loop the counter is the length of what it counted.
            counted_to = self.flow.env.get(slot)
            over = self.pure_key(iterable.of[1]) if isinstance(iterable, Items) and len(iterable.of) == 2 else None
            if over is not None and start == Const(0) and isinstance(counted_to, Sym):
                length = Sym(("pure", "len", (over,)))
                self.emit(Shift(self.subject(length), self.subject(counted_to), counted_to.offset))

        self._loop(head, bound_body, node, twin, "for", advance, {slot}, leave)
        self.flow.env.pop(slot, None)

    def _some_element(self, collection: Value, node: cst.CSTNode) -> Value:
        """Any element of a collection that is not unrolled: a new one each round."""
        match collection:
            case Params(owners):
                return Params(owners, True)
            case Groups(optimizer):
                return Groups(optimizer, True)
            case Grads():
                return collection
            case Items(of):
                return Seq(tuple(self._some_element(part, node) for part in of))
            case Tensor(of_gradients=True) | Tensor(of_weights=True):
                return collection
            case Seq(items) if items and all(item == items[0] for item in items):
                return items[0]
        return self.fresh(("element", self.label(node)))

    def _bind_loop_variable(self, node: cst.For, iterable: Value) -> None:
        target = node.target
        if isinstance(iterable, Params) and isinstance(target, (cst.Tuple, cst.List)) and len(target.elements) == 2:
            self.assign(target.elements[0].value, self.fresh("name"))
            self.assign(target.elements[1].value, Params(iterable.owners, True))
            return
        if isinstance(iterable, Sym) and iterable.key in self.called:
            iterable = Params(frozenset((iterable.key,)))  # The layers of a module.
        self.assign(target, self._some_element(iterable, node))

    def _loop(
        self,
        head: Callable[[], tuple[Flow, Flow]],
        body: Callable[[], None],
        node: cst.For | cst.While | None,
        twin: ast.stmt,
        kind: str,
        advance: Callable[[], None] | None = None,
        always: Iterable[Key] = (),
        leave: Callable[[], None] | None = None,
    ) -> None:
        """A loop in general: a head where all rounds meet, the body, the way back and the way out."""
        site = self.site("loop")
        statement = self.statement

        def again() -> None:
            self.statement, self.twin = statement, twin

        changes = self.loop_changes.get(site)
        if changes is None:
            changes = self._foresee(head, body, advance, site, again, set(always))
            self.loop_changes[site] = changes
        phis: dict[Key, Phi] = {}
        for key, back in changes.items():
            value = self.value_at(self.flow, key)
            if value is not None and (back != [value] or key in always):
                phi = Phi(self, ("loop", site, key), [value, *back])
                if not isinstance(phi.own, Tensor) and phi.own is None and len(phi.options) == 1:
                    continue
                phis[key] = phi
        for key, phi in phis.items():
            phi.assign(self.flow, self.value_at(self.flow, key) or NONE)
            self.flow.env[key] = phi.value
        entry_ends = list(self.flow.cur)
        junction = self.graph.add(None, self.place)
        for source, guards, doubt in entry_ends:
            self.graph.connect(source, Edge(junction, guards, doubt))
        self.flow.cur = [(junction, (), "")]
        head_env = dict(self.flow.env)
        # A name that only the body binds is what the round before has left: the first one could not read it.
        self.flow.env.update((k, back[0]) for k, back in changes.items() if k not in head_env and not _is_piece(k))
        scope = Scope("loop", self.frame)
        self.scopes.append(scope)
        last: Env = {}
        try:
            again()
            inside, outside = head()
            self.flow = inside
            if inside.cur:
                body()
            again()
            self.join([self.flow, *scope.continues], (site, "back"))
            if not self.dead:
                if advance is not None:
                    advance()
                last = self._as_left(phis, head_env)
                for key, phi in phis.items():
                    phi.assign(self.flow, self.value_at(self.flow, key) or NONE)
                for source, guards, doubt in self.flow.cur:
                    self.graph.connect(source, Edge(junction, guards, doubt))
        finally:
            self.scopes.pop()
        # Leaving at the first look: a loop that never ran is no definite witness.
        if kind == "for":
            outside = self._after_some_rounds(outside, junction, entry_ends)
            # `last = step` in each round: behind the loop it is still the counter of the last one.
            outside.env.update((key, value) for key, value in last.items() if key in phis)
        self.flow = outside
        if leave is not None:
            leave()
        if node is not None and node.orelse is not None and not self.dead:
            assert isinstance(twin, (ast.For, ast.AsyncFor, ast.While))
            self.block(node.orelse.body, twin.orelse)
            again()
        for key, value in last.items():
            self.flow.env.setdefault(key, value)
        self.join([self.flow, *scope.breaks], (site, "out"))

    def _as_left(self, phis: dict[Key, Phi], head_env: Env) -> Env:
        """What names that the body binds are behind the loop: a counter has advanced since they were bound."""
        moved: dict[Key, int] = {}
        for key, phi in phis.items():
            back = self.flow.env.get(key)
            if isinstance(phi.own, Sym) and isinstance(back, Sym) and back.key == phi.own.key:
                moved[back.key] = back.offset
        result: Env = {}
        for key, value in self.flow.env.items():
            if isinstance(value, Sym) and value.key in moved and (key in phis or key not in head_env):
                own = phis[key].own if key in phis else None
                if not (isinstance(own, Sym) and own.key == value.key):  # Not the counter itself.
                    result[key] = Sym(value.key, value.offset - moved[value.key], value.text)
            elif key not in head_env:
                result[key] = value
        return result

    def _after_some_rounds(self, outside: Flow, junction: int, entry: list[Dangling]) -> Flow:
        """Two ways out of a for loop: behind a round, and, in doubt, without any."""
        zero = self.graph.add(None, self.place)
        for source, guards, _ in entry:
            self.graph.connect(source, Edge(zero, guards, "zero rounds"))
        # The junction's own exit is taken behind a round only: rounds come back over `rounds`.
        rounds = self.graph.add(None, self.place)
        moved: list[tuple[int, Edge]] = []
        for source in range(junction, len(self.graph.edges)):  # What lies in the loop was made after its junction.
            moved.extend((source, edge) for edge in self.graph.edges[source] if edge.target == junction)
        for source, edge in moved:
            self.graph.edges[source].remove(edge)
            self.graph.connect(source, Edge(rounds, edge.guards, edge.doubt))
        self.graph.connect(rounds, Edge(junction))
        return Flow([(rounds, (), ""), (zero, (), "")], outside.env)

    def _foresee(
        self,
        head: Callable[[], tuple[Flow, Flow]],
        body: Callable[[], None],
        advance: Callable[[], None] | None,
        site: Key,
        again: Callable[[], None],
        always: set[Key],
    ) -> dict[Key, list[Value]]:
        """Walk the body on throw-away graphs to see which names change over a round, and to what."""
        entry = dict(self.flow.env)

        def round_from(env: Env) -> Env | None:
            def walk() -> Value:
                self.flow.env = dict(env)
                scope = Scope("loop", self.frame)
                self.scopes = [Scope("function", self.frame), scope]
                again()
                inside, _ = head()
                self.flow = inside
                if inside.cur:
                    body()
                again()
                self.join([self.flow, *scope.continues], (site, "back"))
                if not self.dead and advance is not None:
                    advance()
                result.append(None if self.dead else dict(self.flow.env))
                return NONE

            result: list[Env | None] = []
            place = self.place
            self.in_scratch(walk)
            self.place = place
            again()
            return result[0] if result else None

        after = round_from(entry)
        if after is None:
            return {}
        changed = [
            key for key in after if key in always or (after[key] != entry[key] if key in entry else _is_piece(key))
        ]
        left = {
            key: value
            for key, value in after.items()
            if key not in entry and not _is_piece(key) and isinstance(value, (Sym, Obj)) and not _is_joined(value)
        }
        if not changed and not left:
            return {}
        start = {**entry, **left}
        for key in changed:
            value = self.value_at(self.flow, key)
            text = str(key[2]) if isinstance(key, tuple) and isinstance(key[2], str) else ""
            if isinstance(value, Tensor):
                start[key] = Phi(self, ("loop", site, key), [value, Tensor(PLAIN, None)]).value
            else:
                start[key] = Sym(("phi", ("loop", site, key)), text=text)
        second = round_from(start) or {}
        result: dict[Key, list[Value]] = {}
        for key in changed:
            back = second.get(key)
            if back is None:
                continue
            if back == start[key] and key not in always:
                continue
            result[key] = [back]
        result.update((key, [value]) for key, value in left.items() if second.get(key) == value)
        return result

    # -- with and try -----------------------------------------------------------------------------------------------

    def _with(self, node: cst.With, twin: ast.stmt) -> None:
        assert isinstance(twin, (ast.With, ast.AsyncWith))
        silent = 0
        for item in node.items:
            value = self._context(item.item)
            text = self.text(item.item)
            if "no_grad" in text or "inference_mode" in text:
                silent += 1
            if item.asname is not None:
                self.assign(item.asname.name, value)
        self.no_grad += silent
        self.block(node.body, twin.body)
        self.no_grad -= silent

    def _context(self, expr: cst.BaseExpression) -> Value:
        """A context manager; the flag of an autocast is presumed to be that of a scaler whose making is not seen."""
        if isinstance(expr, cst.Call):
            name = expr.func.attr.value if isinstance(expr.func, cst.Attribute) else getattr(expr.func, "value", "")
            if isinstance(name, str) and api.is_autocast(name):
                flag: Value | None = None
                for arg in expr.args:
                    value = self.evaluate(arg.value)
                    if arg.keyword is not None and arg.keyword.value == "enabled":
                        flag = value
                if flag is not None:
                    self.presume(flag)
                return NONE
        return self.evaluate(expr)

    def presume(self, flag: Value) -> None:
        value = self.as_test(flag)
        if isinstance(value, Const):
            return
        true, false = self.branch_on(value)
        for flow, holds in ((true, True), (false, False)):
            if flow.cur:
                self.flow = flow
                self.at()
                self.emit(Draft("presume_enabled", (holds,)))
        self.join([true, false], self.site("autocast"))

    def _try(self, node: cst.Try | cst.TryStar, twin: ast.stmt) -> None:
        assert isinstance(twin, ast.Try) or type(twin).__name__ == "TryStar"
        site = self.site("try")
        entry = self.fork()
        final_scope: Scope | None = None
        if node.finalbody is not None:
            finalbody, finaltwins = node.finalbody.body, twin.finalbody  # type: ignore[attr-defined]
            final_scope = Scope("final", self.frame, final=lambda: self.block(finalbody, finaltwins))
            self.scopes.append(final_scope)
        scope = Scope("try" if node.handlers else "finally", self.frame)
        self.scopes.append(scope)
        try:
            self.block(node.body, twin.body)  # type: ignore[attr-defined]
        finally:
            self.scopes.pop()
        body_end = self.flow
        if node.orelse is not None and not self.dead:
            self.block(node.orelse.body, twin.orelse)  # type: ignore[attr-defined]
            body_end = self.flow
        ends = [body_end]
        if node.handlers:
            ends += self._handlers(node, twin, scope, entry, body_end, site)
        if final_scope is not None:
            self.scopes.pop()
        self.join(ends, site)
        if node.finalbody is not None and not self.dead:
            self.block(node.finalbody.body, twin.finalbody)  # type: ignore[attr-defined]

    def _handlers(
        self, node: cst.Try | cst.TryStar, twin: ast.stmt, scope: Scope, entry: Flow, body_end: Flow, site: Key
    ) -> list[Flow]:
        env: Env = dict(entry.env)
        for key, value in body_end.env.items():
            if key not in env:
                env[key] = value
            elif env[key] != value:
                env[key] = Sym(("exception", site, key))
        implicit = scope.implicit or [(s, g, "exception") for s, g, _ in entry.cur]
        self.join([Flow(list(implicit), env), *scope.raises], (site, "raised"))
        raised = self.flow
        ends: list[Flow] = []
        handlers: Sequence[Any] = node.handlers
        for handler, ast_handler in zip(handlers, twin.handlers):  # type: ignore[attr-defined]
            self.flow = Flow(list(raised.cur), dict(raised.env))
            if handler.name is not None:
                self.assign(handler.name.name, self.fresh(("handler", self.label(handler))))
            self.block(handler.body, ast_handler.body)
            ends.append(self.flow)
        return ends

    # -- comprehensions ---------------------------------------------------------------------------------------------

    def _comprehension(self, node: cst.GeneratorExp | cst.ListComp | cst.SetComp) -> Value:
        iterable = self.evaluate_iterable(node.for_in.iter, node, self.twin)
        nested = node.for_in.inner_for_in is not None
        if isinstance(iterable, Seq) and len(iterable.items) <= UNROLL and not node.for_in.ifs and not nested:
            results: list[Value] = []
            for index, item in enumerate(iterable.items):
                self.elements.append(
                    self.frame_ids.setdefault((*self.frame.path, self.site(("c", index))), len(self.frame_ids))
                )
                self.assign(node.for_in.target, item)
                results.append(self.evaluate(node.elt))
                self.elements.pop()
            return self.collect(results)
        if isinstance(iterable, Seq) and len(iterable.items) <= 4 and nested and not node.for_in.ifs:
            results = []
            for item in iterable.items:
                self.assign(node.for_in.target, item)
                inner = node.for_in.inner_for_in
                assert inner is not None
                results.append(self._mapped_over(node, inner))
            merged = self.owners(Seq(tuple(results)))
            if merged is not None and all(isinstance(r, Params) for r in results):
                return Params(merged)
        return self._mapped_over(node, node.for_in)

    def _mapped_over(self, node: cst.GeneratorExp | cst.ListComp | cst.SetComp, clause: cst.CompFor) -> Value:
        iterable = self.evaluate_iterable(clause.iter, node, self.twin)
        target = clause.target
        if isinstance(iterable, Params) and isinstance(target, (cst.Tuple, cst.List)) and len(target.elements) == 2:
            self.assign(target.elements[0].value, self.fresh(("name", self.label(node))))
            self.assign(target.elements[1].value, Params(iterable.owners, True))
        elif isinstance(iterable, (Sym, Items)) and self._comprehends_objects(node):
            return Seq(tuple(self._one(node, self._nth(iterable, index, node), index) for index in range(SOME)))
        else:
            self.assign(target, self._some_element(iterable, node))
        if clause.inner_for_in is not None:
            return self._mapped_over(node, clause.inner_for_in)
        self.flow.cur = list(self.flow.cur)
        result = self.evaluate(node.elt)
        if isinstance(result, Params):
            return Params(result.owners)
        if isinstance(result, (Grads, HasGrads, Tensor)):
            return result
        made = self.fresh(("list", self.label(node)))
        if _picks_by_window(node):
            self._note_filtered(Filtered(node, iterable, self.frame, self.statement, self.twin), made)
        return made

    def _note_filtered(self, only: Filtered, made: Sym) -> None:
        """Remember which elements are in a list, and that one without any is false."""
        if isinstance(only.of, Seq) and len(only.of.items) <= UNROLL:
            elements = list(only.of.items)
        elif isinstance(only.of, Map) and len(only.of.items) <= UNROLL:
            elements = [Const(key) for key, _ in only.of.items]
        elif isinstance(only.of, Sym):
            elements = [self._nth(only.of, index, only.node) for index in range(SOME)]
        else:
            return
        self.filtered[made.key] = only
        some: list[Flow] = []
        for element in elements:
            passed, self.flow = self._where_it_passes(only, element)
            some.append(passed)
        none, known = self.flow, []
        truth = Atom(self.subject(made), Truthy())
        for flows, holds in ((some, True), ([none], False)):
            self.join(flows, self.site(("any", holds, self.label(only.node))))
            if not self.dead:
                self.emit(Learn(truth, holds))
            known.append(self.flow)
        self.join(known, self.site(("filtered", self.label(only.node))))

    def _one(self, node: cst.GeneratorExp | cst.ListComp | cst.SetComp, item: Value, index: int) -> Value:
        self.elements.append(
            self.frame_ids.setdefault((*self.frame.path, self.site(("c", index))), len(self.frame_ids))
        )
        self.assign(node.for_in.target, item)
        value = self.evaluate(node.elt)
        self.elements.pop()
        return value

    def _comprehends_objects(self, node: cst.GeneratorExp | cst.ListComp | cst.SetComp) -> bool:
        text = self.text(node.elt)
        return any(word in text for word in (".zero_grad(", ".step(", ".unscale_(", "unscale_"))

    def _dict_comprehension(self, node: cst.DictComp) -> Value:
        iterable = self.evaluate_iterable(node.for_in.iter, node, self.twin)
        if isinstance(iterable, Seq) and len(iterable.items) <= UNROLL and not node.for_in.ifs:
            pairs: list[tuple[Hashable, Value]] = []
            for index, item in enumerate(iterable.items):
                self.elements.append(
                    self.frame_ids.setdefault((*self.frame.path, self.site(("c", index))), len(self.frame_ids))
                )
                self.assign(node.for_in.target, item)
                key, value = self.evaluate(node.key), self.evaluate(node.value)
                self.elements.pop()
                if not isinstance(key, Const):
                    return self.fresh(self.label(node))
                pairs.append((key.value, value))
            return Map(tuple(pairs), ("map", self.site(self.label(node))))
        clause = node.for_in
        if isinstance(iterable, Params) and clause.inner_for_in is None:
            if isinstance(clause.target, (cst.Tuple, cst.List)) and len(clause.target.elements) == 2:
                self.assign(clause.target.elements[0].value, self.fresh(("name", self.label(node))))
                self.assign(clause.target.elements[1].value, Params(iterable.owners, True))
            else:
                self.assign(clause.target, Params(iterable.owners, True))
            value = self.evaluate(node.value)
            if isinstance(value, (Tensor, Grads)):
                return value
        return self.fresh(self.label(node))

    # -- roots ------------------------------------------------------------------------------------------------------

    def lower_root(self, info: FunctionInfo, endless: bool) -> None:
        """Lower a function that nothing in the program calls; `endless`: as the body of a loop without end."""
        self.root = info
        frame_path: tuple[Key, ...] = (("root", info.module.name, info.qualname),)
        number = self.frame_ids.setdefault(frame_path, len(self.frame_ids))
        self.frame = Frame(number, frame_path, info, self.concretes.function(info), None)
        self.frames[number] = self.frame
        self.twin = info.node.body[0]
        self.statement = cst.Pass()
        self.at()
        instance: Value | None = None
        if info.self_name is not None and info.owner is not None:
            if "classmethod" in info.decorators:
                instance = Cls(info.owner)
            else:
                instance = Obj(("instance", frame_path), Kind.INSTANCE, info.owner, info.self_name)
                if info.name != "__init__":
                    self._prepare_instance(info, instance)
                    self.emit(Draft("reenter"))
        lexical = self.frame.parent if self.frame.parent is not None else -1

        def once() -> None:
            self.enter(info, lexical, instance, None, "body")
            self.call_from_outside()

        if not endless:
            once()
            return
        self.repeats.append(self.frame)
        self._loop(lambda: (self.fork(), Flow([], self.flow.env)), once, None, self.twin, "while")
        self.repeats.pop()

    def _prepare_instance(self, info: FunctionInfo, instance: Value) -> None:
        """What the instance's attributes are: from ``__init__``, then from the other methods that set them."""
        assert info.owner is not None
        key = self.key_of(instance)
        if self.constructs:
            try:
                self.construct(info.owner, instance, None, None)
            except TooLarge as error:
                raise ConstructorTooLarge from error
        if self.dead:
            self.flow = Flow([(0, (), "")], self.flow.env)
        reassigned: dict[str, list[tuple[FunctionInfo, ast.stmt]]] = {}
        for cls in self.program.mro(info.owner):
            for method in cls.methods.values():
                if (method.name == "__init__" and self.constructs) or method.self_name is None:
                    continue
                for node in method.assignments:
                    for target in _attribute_targets(node, method.self_name):
                        reassigned.setdefault(target, []).append((method, node))
        for name, places in reassigned.items():
            current = self.flow.env.get(("a", key, name))
            if isinstance(current, Obj):
                continue
            found = self._attribute_set_elsewhere(instance, name, places)
            if found is not None:
                self.flow.env[("a", key, name)] = found
            elif current is not None:
                self.flow.env[("a", key, name)] = Sym(("attr", key, name), text=f"{info.self_name}.{name}")

    def _attribute_set_elsewhere(
        self, instance: Value, name: str, places: list[tuple[FunctionInfo, ast.stmt]]
    ) -> Value | None:
        """An attribute that another method makes: the scaler or optimizer that its one assignment constructs."""
        makers = [(m, n) for m, n in places if isinstance(n, ast.Assign) and isinstance(n.value, (ast.Call, ast.IfExp))]
        if len(makers) != 1:
            return None
        method, node = makers[0]
        assert isinstance(node, ast.Assign)
        expression = self.concretes.assigned(node)
        if expression is None:
            return None

        def walk() -> Value:
            path: tuple[Key, ...] = (("made", method.qualname, name),)
            number = self.frame_ids.setdefault(path, len(self.frame_ids))
            saved = (self.frame, self.statement, self.twin, self.place)
            self.frame = Frame(number, path, method, self.concretes.function(method), None, None, None, instance)
            self.frames[number] = self.frame
            self.statement, self.twin = expression, node
            try:
                if method.self_name is not None:
                    self.flow.env[("v", number, method.self_name)] = instance
                return self._named(self.evaluate(expression), f"{method.self_name}.{name}")
            finally:
                self.frame, self.statement, self.twin, self.place = saved

        try:
            value = self.in_scratch(walk)
        except RecursionError:
            return None
        return next((option for option in options_of(value) if isinstance(option, Obj) and option.cls is None), None)

    def call_from_outside(self) -> None:
        """
        Nested functions that train and that nothing has called are called from outside, again and again: a training
        step that was given to an engine. One that only clips or steps says nothing without what calls it when.
        """
        for frame in list(self.closing.values()):
            for inner in frame.info.inner.values():
                if self.dead or inner in self.followed or inner in self.closures or inner.is_generator:
                    continue
                if "backward" not in inner.words or self._is_called_by_name(inner, frame.info):
                    continue
                saved = (self.frame, self.statement, self.twin, self.place)
                self.frame, self.twin = frame, frame.info.node.body[-1]
                self.at()
                passed = self._where_not_entered(frame)

                def call(inner: FunctionInfo = inner, frame: Frame = frame) -> None:
                    self.enter(inner, frame.id, None, None, self.site(("outside", inner.name)))

                self.repeats.append(frame)
                self._loop(lambda: (self.fork(), self.fork()), call, None, self.twin, "while")
                self.repeats.pop()
                self.join([self.flow, passed], self.site(("behind", inner.name)))
                self.frame, self.statement, self.twin, self.place = saved

    def _where_not_entered(self, frame: Frame) -> Flow:
        """Go on where an activation took place; the flow where it did not, and nothing of it is there to be called."""
        flag = self.entered(frame)
        self.flags.add(flag)
        if frame not in self.flagged:
            self.flagged.append(frame)
            # At first none has: known from the very start.
            first = self.graph.add(SetConstant(flag, False))
            self.graph.edges[first] = self.graph.edges[0]
            self.graph.edges[0] = [Edge(first)]
        true, false = self.branch_on(Cond(Atom(flag, Equals(True))))
        self.flow = true
        return false

    @staticmethod
    def _is_called_by_name(inner: FunctionInfo, outer: FunctionInfo) -> bool:
        """Whether there are calls of a nested function, though nothing may lead to them."""
        return any(
            isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == inner.name
            for call in ast.walk(outer.node)
        )


def _attribute_targets(node: ast.AST, self_name: str) -> list[str]:
    return [
        target.attr
        for target in targets_of(node)
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == self_name
    ]


def _is_piece(key: Key) -> bool:
    """Whether a key is that of an attribute, and not of a name."""
    return isinstance(key, tuple) and key[0] == "a"


def _is_joined(value: Sym | Obj) -> bool:
    """Whether a value is one of several that meet, as a counter is."""
    return isinstance(value.key, tuple) and value.key[0] == "phi"


def _picks_by_window(node: cst.GeneratorExp | cst.ListComp | cst.SetComp) -> bool:
    """Whether a comprehension picks elements by where each stands in a window of its own:
    ``[x for x in … if i % n[x] == 0]``.
    """
    target, tests = node.for_in.target, node.for_in.ifs
    return (
        isinstance(target, cst.Name)
        and isinstance(node.elt, cst.Name)
        and node.elt.value == target.value
        and node.for_in.inner_for_in is None
        and any(isinstance(operator, cst.Modulo) for clause in tests for operator in _operators(clause.test))
    )


def _operators(test: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """All operators of an expression."""
    if isinstance(test, cst.BinaryOperation):
        yield test.operator
    for child in test.children:
        yield from _operators(child)


def _called(value: Value, name: str) -> Value:
    return Sym(value.key, value.offset, name) if isinstance(value, Sym) else value
