"""Models of wrappers that live outside the program: what they do to scaler and gradients, as plain torch code.

The text of a model is what users write for their own wrappers in ``[tool.ampclip-lint.models]``: a module that defines
the wrapper's public names and does the same with a GradScaler as the real one. It is read, never run. Where the real
source is part of the program, that is read instead, unless it is very large; a model of the user's comes before both.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cache

from ampclip_lint.records import dataclass
from ampclip_lint.syntax.index import ClassInfo, ModuleIndex, top_level_names
from ampclip_lint.syntax.source import SourceFile

_TIMM = """
import torch
from timm.utils import dispatch_clip_grad


class NativeScaler:
    def __init__(self, device="cuda"):
        self._scaler = torch.amp.GradScaler(device)

    def __call__(self, loss, optimizer, clip_grad=None, clip_mode="norm", parameters=None, create_graph=False,
                 need_update=True):
        self._scaler.scale(loss).backward(create_graph=create_graph)
        if need_update:
            if clip_grad is not None:
                self._scaler.unscale_(optimizer)
                dispatch_clip_grad(parameters, clip_grad, mode=clip_mode)
            self._scaler.step(optimizer)
            self._scaler.update()
"""

_MMENGINE = """
import torch


class OptimWrapper:
    def __init__(self, optimizer, accumulative_counts=1, clip_grad=None):
        self.optimizer = optimizer
        self.clip_grad_kwargs = clip_grad
        self._accumulative_counts = accumulative_counts
        self._inner_count = 0

    def should_update(self):
        return self._inner_count % self._accumulative_counts == 0

    def update_params(self, loss, step_kwargs=None, zero_kwargs=None):
        self.backward(loss / self._accumulative_counts)
        if self.should_update():
            self.step()
            self.zero_grad()

    def zero_grad(self, **kwargs):
        self.optimizer.zero_grad()

    def backward(self, loss, **kwargs):
        loss.backward()
        self._inner_count += 1

    def step(self, **kwargs):
        if self.clip_grad_kwargs:
            torch.nn.utils.clip_grad_norm_(self.optimizer.param_groups[0]["params"], 1.0)
        self.optimizer.step()


class AmpOptimWrapper(OptimWrapper):
    def __init__(self, loss_scale="dynamic", dtype=None, use_fsdp=False, **kwargs):
        super().__init__(**kwargs)
        self.loss_scaler = torch.cuda.amp.GradScaler()

    def backward(self, loss, **kwargs):
        self.loss_scaler.scale(loss).backward()
        self._inner_count += 1

    def step(self, **kwargs):
        if self.clip_grad_kwargs:
            self.loss_scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.optimizer.param_groups[0]["params"], 1.0)
        self.loss_scaler.step(self.optimizer)
        self.loss_scaler.update()
"""

_ACCELERATE = """
import torch
from contextlib import nullcontext
from accelerate.unknown import is_boundary


class Prepared:
    def __init__(self, inner, accelerator):
        self.inner = inner
        self.accelerator = accelerator

    def __call__(self, *args, **kwargs):
        return self.inner(*args, **kwargs)

    def parameters(self):
        return self.inner.parameters()

    def step(self, closure=None):
        if self.accelerator.sync_gradients:
            if self.accelerator.scaler is not None and hasattr(self.inner, "param_groups"):
                self.accelerator.scaler.step(self.inner)
                self.accelerator.scaler.update()
            else:
                self.inner.step()

    def zero_grad(self, set_to_none=None):
        if self.accelerator.sync_gradients:
            self.inner.zero_grad()


class Accelerator:
    def __init__(self, device_placement=True, split_batches=False, mixed_precision=None,
                 gradient_accumulation_steps=1, **kwargs):
        self.scaler = torch.amp.GradScaler("cuda") if mixed_precision == "fp16" else None
        self.sync_gradients = True
        self.everything = []

    def prepare(self, first, *rest):
        if rest:
            return [self.prepare_one(first), *[self.prepare_one(each) for each in rest]]
        return self.prepare_one(first)

    def prepare_one(self, each):
        self.everything.append(each)
        return Prepared(each, self)

    def accumulate(self, *models):
        self.sync_gradients = is_boundary()
        return nullcontext()

    def backward(self, loss, **kwargs):
        if self.scaler is not None:
            self.scaler.scale(loss).backward()
        else:
            loss.backward()

    def unscale_gradients(self, optimizer=None):
        if self.scaler is not None:
            for each in self.everything:
                if hasattr(each, "param_groups"):
                    self.scaler.unscale_(each)

    def clip_grad_norm_(self, parameters, max_norm, norm_type=2):
        self.unscale_gradients()
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm)

    def clip_grad_value_(self, parameters, clip_value):
        self.unscale_gradients()
        torch.nn.utils.clip_grad_value_(parameters, clip_value)
"""

_FABRIC = """
import torch


class _FabricOptimizer:
    def __init__(self, optimizer, scaler):
        self.optimizer = optimizer
        self.scaler = scaler

    def step(self, closure=None):
        if self.scaler is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad()


class Fabric:
    def __init__(self, accelerator="auto", strategy="auto", devices="auto", num_nodes=1, precision=None, **kwargs):
        self.scaler = torch.amp.GradScaler("cuda") if precision == "16-mixed" else None

    def setup(self, module, *optimizers, **kwargs):
        if optimizers:
            return [module, *[_FabricOptimizer(optimizer, self.scaler) for optimizer in optimizers]]
        return module

    def setup_optimizers(self, first, *rest):
        if rest:
            return [_FabricOptimizer(optimizer, self.scaler) for optimizer in [first, *rest]]
        return _FabricOptimizer(first, self.scaler)

    def backward(self, tensor, *args, **kwargs):
        if self.scaler is not None:
            self.scaler.scale(tensor).backward()
        else:
            tensor.backward()

    def clip_gradients(self, module, optimizer, clip_val=None, max_norm=None, **kwargs):
        if self.scaler is not None:
            self.scaler.unscale_(optimizer.optimizer)
        if max_norm is not None:
            return torch.nn.utils.clip_grad_norm_(module.parameters(), max_norm)
        torch.nn.utils.clip_grad_value_(module.parameters(), clip_val)
"""

_FAIRSEQ = """
import torch


class AMPOptimizer:
    def __init__(self, cfg, params, fp32_optimizer, **kwargs):
        self.fp32_optimizer = fp32_optimizer
        self._optimizer = fp32_optimizer
        self.scaler = torch.amp.GradScaler("cuda")

    def backward(self, loss):
        self.scaler.scale(loss).backward()

    def step(self):
        self.scaler.step(self.fp32_optimizer)
        self.scaler.update()

    def clip_grad_norm(self, max_norm, aggregate_norm_fn=None):
        self.scaler.unscale_(self.fp32_optimizer)
        return torch.nn.utils.clip_grad_norm_(self.fp32_optimizer.param_groups[0]["params"], max_norm)

    def zero_grad(self):
        self.fp32_optimizer.zero_grad()
"""

#: By the dotted name of the module that has them; a module may take names from another model.
MODELS: Mapping[str, str] = {
    "timm.utils.cuda": _TIMM,
    "timm.utils": "from timm.utils.cuda import NativeScaler",
    "mmengine.optim.optimizer.optimizer_wrapper": _MMENGINE,
    "mmengine.optim": "from mmengine.optim.optimizer.optimizer_wrapper import AmpOptimWrapper, OptimWrapper",
    "accelerate.accelerator": _ACCELERATE,
    "accelerate": "from accelerate.accelerator import Accelerator",
    "lightning.fabric.fabric": _FABRIC,
    "lightning.fabric": "from lightning.fabric.fabric import Fabric",
    "lightning": "from lightning.fabric.fabric import Fabric",
    "lightning_fabric": "from lightning.fabric.fabric import Fabric",
    "fairseq.optim.amp_optimizer": _FAIRSEQ,
    "fairseq.optim": "from fairseq.optim.amp_optimizer import AMPOptimizer",
}

#: A class of more statements is followed in its own module only. Accelerate's has 1,600 (one use of it takes all that a
#: function may cost), the next smaller one, of Fabric, 375.
MAX_STATEMENTS = 1000


@dataclass
class Models:
    """The models of a run, indexed when something asks for them."""

    own: Mapping[str, str] = field(default_factory=dict)
    _indexed: dict[str, ModuleIndex] = field(default_factory=dict)

    def overriding(self, name: str) -> ModuleIndex | None:
        """The user's model of a module."""
        return self._index(name, self.own[name]) if name in self.own else None

    def standing_in(self, name: str) -> ModuleIndex | None:
        """The model of a module whose source is not part of the program."""
        return self._index(name, MODELS[name]) if name in MODELS else None

    def in_place_of(self, cls: ClassInfo) -> ClassInfo | None:
        """The model of a class whose source is there, but too large to be followed wherever it is used."""
        parts = cls.module.parts
        for start in range(len(parts)):
            name = ".".join(parts[start:])
            if name in MODELS:
                model = self._index(name, MODELS[name]).classes.get(cls.name)
                return model if model is not None and cls.statements > MAX_STATEMENTS else None
        return None

    def used_by(self, module: ModuleIndex) -> frozenset[str]:
        """The names of models that a module can mean, as far as its imports tell."""
        tops = {name.partition(".")[0] for name in (*module.imports.values(), *module.stars)}
        return frozenset(
            name
            for models in (self.own, MODELS)
            for dotted, text in models.items()
            if dotted.partition(".")[0] in tops
            for name in names_of([text])
        )

    def _index(self, name: str, text: str) -> ModuleIndex:
        found = self._indexed.get(name)
        if found is None:
            file = SourceFile(f"{name.replace('.', '/')}.py", None, text)
            found = self._indexed[name] = ModuleIndex(file, ast.parse(text), is_model=True)
        return found


def names_of(texts: Iterable[str]) -> frozenset[str]:
    """The public names that models define, or else pass on."""
    return frozenset(name for text in texts for name in _names(text))


@cache
def _names(text: str) -> frozenset[str]:
    tree = ast.parse(text)  # Every module of a program asks.
    passed_on = (alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names)
    return top_level_names(tree) or frozenset(passed_on)
