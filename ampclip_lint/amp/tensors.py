"""What is done to losses, gradients and numbers made of them: units, edits, hooks, clips."""

from __future__ import annotations

import ast

import libcst as cst

from ampclip_lint.amp import api
from ampclip_lint.amp.builder import Draft, Frame, Place, unit_of
from ampclip_lint.amp.expressions import code_of
from ampclip_lint.amp.objects import Objects
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
    Arguments,
    Choice,
    Const,
    Ext,
    Fn,
    Grads,
    Key,
    LambdaFn,
    Map,
    Params,
    Partial,
    Seq,
    Sym,
    Tensor,
    Value,
)
from ampclip_lint.syntax.index import FunctionInfo, dotted


class Tensors(Objects):
    """Evaluation of what tensors and gradients do."""

    def __init__(self, program: object) -> None:
        super().__init__(program)
        self.finite_tests = 0
        self.finite_symbols: list[Sym] = []
        #: What surrounds the current statement: "loop", or the text of an if's condition.
        self.enclosing: list[str] = []
        self.clip_bounds: dict[Ref, Value] = {}

    def unknown_call(self, function: Value, arguments: Arguments, node: cst.Call) -> Value:
        """A call of something outside that no table knows."""
        raise NotImplementedError

    # -- losses and numbers -----------------------------------------------------------------------------------------

    def scaled(self, value: Value, scaler: Ref, node: cst.Call) -> Value:
        """``scaler.scale(value)``; sequences element by element."""
        self.frame_of_scaler_call()
        if isinstance(value, Seq):
            return Seq(tuple(self.scaled(item, scaler, node) for item in value.items))
        reach = self.reach_of([value])
        base = value.base if isinstance(value, Tensor) else None
        flags = (value.of_gradients, value.of_weights) if isinstance(value, Tensor) else (False, False)
        return Tensor(Product(unit_of(value), ScaleOf(scaler)), reach, *flags, base)

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

    # -- tensors and gradients --------------------------------------------------------------------------------------

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
            text = code_of(self.lambdas[function.node][0].body)
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
                    return Place(Frame(-1, (), info, self.concretes.function(info), None), cst.Pass(), statement)
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
            if is_floor(name, arguments):
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


def is_floor(name: str, arguments: Arguments) -> bool:
    """Whether a clamp only keeps a value away from zero: ``clamp(min=1e-6)``."""
    if name == "clamp_min":
        return True
    if name not in ("clamp", "clamp_", "clip"):
        return False
    low, high = arguments.get(0, "min"), arguments.get(1, "max")
    return low is not None and high is None
