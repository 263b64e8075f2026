"""The methods that the protocol knows, of scalers, optimizers, modules and collections of them."""

from __future__ import annotations

import libcst as cst

from ampclip_lint.amp import api
from ampclip_lint.amp.builder import Draft, unit_of
from ampclip_lint.amp.expressions import code_of
from ampclip_lint.amp.tensors import Tensors
from ampclip_lint.amp.units import PLAIN, Ref, ScaleOf
from ampclip_lint.amp.values import (
    NONE,
    Arguments,
    Choice,
    Cond,
    Const,
    Ext,
    Fn,
    Grads,
    Groups,
    Items,
    Key,
    LambdaFn,
    Map,
    Params,
    Seq,
    Sym,
    Tensor,
    Value,
)
from ampclip_lint.flow.facts import Atom, Truthy
from ampclip_lint.syntax.index import FunctionInfo


class Methods(Tensors):
    """Evaluation of the protocol's own methods."""

    def __init__(self, program: object) -> None:
        super().__init__(program)
        self.asked_for_scale: set[Ref] = set()
        self.module_evidence: set[Key] = set()
        self.framework_evidence: set[Key] = set()
        self.closures: set[FunctionInfo] = set()

    def external(self, name: str, arguments: Arguments, node: cst.Call) -> Value:
        """A call of a function outside the program."""
        raise NotImplementedError

    def known_method(self, base: Value, name: str, arguments: Arguments, node: cst.Call) -> Value:
        text = code_of(node.func.value) if isinstance(node.func, cst.Attribute) else getattr(base, "text", "")
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
            return self.clip(api.NORM, arguments, node)
        if name in api.MODULE_METHODS:
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
        return code_of(node.args[0].value)[:40] if node.args else "?"

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
