"""Functions outside the program: what the API table knows of them, and what nobody knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import libcst as cst

from ampclip_lint.amp import api
from ampclip_lint.amp.builder import Draft, all_of, any_of, unit_of
from ampclip_lint.amp.expressions import code_of
from ampclip_lint.amp.methods import Methods
from ampclip_lint.amp.tensors import is_floor
from ampclip_lint.amp.units import PLAIN, Bounded, Inverse, Ref, Root
from ampclip_lint.amp.values import (
    NONE,
    Arguments,
    Cls,
    Cond,
    Const,
    Ext,
    Grads,
    HasGrads,
    Key,
    Kind,
    Map,
    Obj,
    Params,
    Partial,
    Seq,
    Sym,
    Tensor,
    Value,
    options_of,
)
from ampclip_lint.flow.facts import Atom, Subject, Truthy

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


class Outside(Methods):
    """Evaluation of calls that leave the program."""

    def __init__(self, program: object) -> None:
        super().__init__(program)
        #: What a model asks whether it is an optimizer: what it does to it then proves nothing.
        self.in_question: dict[Subject, Ref] = {}
        #: What is none, by its class, even where a model has it step in worlds that do not exist.
        self.no_optimizers: set[Ref] = set()
        #: What a call outside the program was given, by the symbol of what it gives: the keys of objects and modules.
        self.given_to: dict[Key, frozenset[Key]] = {}
        self.no_grad = 0
        self.called: set[Key] = set()

    def apply(self, function: Value, arguments: Arguments, node: cst.Call) -> Value:
        """A call of a value."""
        raise NotImplementedError

    # -- what the API table knows -----------------------------------------------------------------------------------

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
                if name != "torch.minimum" and is_floor(
                    "clamp", Arguments(arguments.positional[1:], arguments.keyword)
                ):
                    return self.tensor(self._unit(numeric), numeric, node)
                return self.tensor(Bounded(self._unit(numeric)), numeric, node)
        if name in api.PURE:
            keys = tuple(self.pure_key(a) for a in arguments.all())
            if None not in keys:
                return Sym(("pure", name, keys), text=self.text(node))
        if any(isinstance(a, (Params, Grads)) for a in arguments.positional[:1]) and api.says_clip(tail):
            return self.clip(api.NORM, arguments, node)
        return self.unknown_call(Ext(name), arguments, node)

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

    # -- questions about objects ------------------------------------------------------------------------------------

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

    # -- what nobody knows ------------------------------------------------------------------------------------------

    def unknown_call(self, function: Value, arguments: Arguments, node: cst.Call) -> Value:
        """Code outside the program: scalers and optimizers that it receives escape."""
        callee = code_of(node.func)
        tail = callee.rpartition(".")[2]
        params_first = arguments.positional and isinstance(arguments.positional[0], (Params, Grads))
        if params_first and api.says_clip(tail) and len(arguments.all()) > 1:
            return self.clip(api.NORM, arguments, node)
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
        result = self.fresh(self.label(node), code_of(node)[:60])
        owners = (a.owners if isinstance(a, Params) else {self.key_of(a)} for a in arguments.all())
        self.given_to[result.key] = frozenset(key for keys in owners for key in keys or () if key is not None)
        return Tensor(PLAIN, reach, base=result)

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
