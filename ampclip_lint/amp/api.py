"""The API table: what calls outside the program mean. Data, one row a call; a new API is a row, not code."""

from __future__ import annotations

from ampclip_lint.records import dataclass

#: Constructors of gradient scalers, with the position of ``enabled`` and of ``init_scale`` among the arguments.
SCALERS: dict[str, tuple[int, int]] = {
    "torch.cuda.amp.GradScaler": (4, 0),
    "torch.cuda.amp.grad_scaler.GradScaler": (4, 0),
    "torch.amp.GradScaler": (5, 1),
    "torch.amp.grad_scaler.GradScaler": (5, 1),
    "torch.GradScaler": (5, 1),
    "torch.cpu.amp.GradScaler": (4, 0),
    "torch.cpu.amp.grad_scaler.GradScaler": (4, 0),
    "torch.npu.amp.GradScaler": (4, 0),
    "torch_npu.npu.amp.GradScaler": (4, 0),
    "torch.mlu.amp.GradScaler": (4, 0),
    "torch_xla.amp.GradScaler": (4, 0),
    "torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler": (5, 1),
}


@dataclass(frozen=True)
class ClipCall:
    """A clip function: how it limits, and which arguments are the gradients and the bound."""

    kind: str
    params: tuple[int, str]
    bound: tuple[int, str]
    norm: tuple[int, str] | None = None


NORM = ClipCall("norm", (0, "parameters"), (1, "max_norm"))
CLIPS: dict[str, ClipCall] = {
    "torch.nn.utils.clip_grad_norm_": NORM,
    "torch.nn.utils.clip_grad_norm": NORM,
    "torch.nn.utils.clip_grad.clip_grad_norm_": NORM,
    "torch.nn.utils.clip_grad.clip_grad_norm": NORM,
    "apex.contrib.clip_grad.clip_grad_norm_": NORM,
    "torch.nn.utils.clip_grad_value_": ClipCall("value", (0, "parameters"), (1, "clip_value")),
    "torch.nn.utils.clip_grad.clip_grad_value_": ClipCall("value", (0, "parameters"), (1, "clip_value")),
    "torch.nn.utils.clip_grads_with_norm_": ClipCall(
        "with_norm", (0, "parameters"), (1, "max_norm"), (2, "total_norm")
    ),
    "torch.nn.utils.clip_grad.clip_grads_with_norm_": ClipCall(
        "with_norm", (0, "parameters"), (1, "max_norm"), (2, "total_norm")
    ),
    "timm.utils.dispatch_clip_grad": ClipCall("norm", (0, "parameters"), (1, "value")),
    "timm.utils.clip_grad.dispatch_clip_grad": ClipCall("norm", (0, "parameters"), (1, "value")),
    "timm.utils.adaptive_clip_grad": ClipCall("adaptive", (0, "parameters"), (1, "clip_factor")),
    "timm.utils.agc.adaptive_clip_grad": ClipCall("adaptive", (0, "parameters"), (1, "clip_factor")),
}

#: Wrappers that return (something that stands for) their first argument.
IDENTITY = frozenset(
    {
        "torch.compile",
        "torch.nn.DataParallel",
        "torch.nn.parallel.DataParallel",
        "torch.nn.parallel.DistributedDataParallel",
        "torch.nn.parallel.distributed.DistributedDataParallel",
        "torch.nn.SyncBatchNorm.convert_sync_batchnorm",
        "torch.nn.parallel.data_parallel.DataParallel",
        "apex.parallel.DistributedDataParallel",
        "torch.distributed.fsdp.FullyShardedDataParallel",
        "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel",
        "torch.jit.script",
        "horovod.torch.DistributedOptimizer",
        "copy.copy",
        "list",
        "tuple",
        "iter",
        "sorted",
        "reversed",
        "set",
        "typing.cast",
        "tqdm.tqdm",
        "tqdm.auto.tqdm",
        "tqdm",
    }
)

#: Methods of modules that return the module.
MODULE_METHODS = frozenset(
    {
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
    }
)

#: Methods that return (something that stands for) the object they are called on.
IDENTITY_METHODS = MODULE_METHODS | frozenset(
    {
        "detach",
        "clone",
        "contiguous",
        "item",
        "mean",
        "sum",
        "max",
        "view",
        "reshape",
        "flatten",
        "squeeze",
        "unsqueeze",
        "data",
        "type",
        "abs",
        "amax",
        "numpy",
        "tolist",
        "expand_as",
        "norm",
        "all",
        "min",
        "copy",
        "median",
        "std",
        "coalesce",
        "values",
        "retain_grad",
    }
)

#: Functions of tensors whose result has the unit of their arguments.
SAME_UNIT = frozenset(
    {
        "torch.norm",
        "torch.linalg.norm",
        "torch.linalg.vector_norm",
        "torch.stack",
        "torch.cat",
        "torch.sum",
        "torch.mean",
        "torch.abs",
        "torch.max",
        "torch.nn.utils.get_total_norm",
        "torch.nn.utils.clip_grad.get_total_norm",
        "torch._foreach_norm",
        "torch.tensor",
        "torch.as_tensor",
        "torch.clone",
        "torch.concat",
        "torch.amax",
        "torch.flatten",
        "torch.nn.utils.parameters_to_vector",
        "sum",
        "abs",
        "float",
        "max",
        "min",
        "int",
        "numpy.mean",
        "numpy.linalg.norm",
        "numpy.sum",
        "numpy.array",
        "statistics.mean",
        "round",
        "torch.square_root",
        "torch.Tensor",
        "torch.min",
    }
)
ROOTS = frozenset({"torch.sqrt", "math.sqrt", "numpy.sqrt"})
BOUNDED = frozenset({"torch.clamp", "torch.clip", "torch.minimum", "torch.maximum"})

#: Pure functions whose repeated calls give the same answer.
PURE = frozenset(
    {
        "len",
        "isinstance",
        "hasattr",
        "getattr",
        "callable",
        "bool",
        "int",
        "float",
        "str",
        "torch.cuda.is_available",
        "issubclass",
    }
)
PURE_METHODS = frozenset({"get", "is_initialized", "is_available", "startswith", "endswith", "lower", "upper", "strip"})

#: Names of optimizer classes, for those that come from outside torch.optim.
OPTIMIZERS = frozenset(
    {
        "Adadelta",
        "Adagrad",
        "Adam",
        "AdamW",
        "SparseAdam",
        "Adamax",
        "ASGD",
        "LBFGS",
        "NAdam",
        "RAdam",
        "RMSprop",
        "Rprop",
        "SGD",
        "Adafactor",
        "Muon",
        "Lion",
        "FusedAdam",
        "FusedLAMB",
        "FusedSGD",
        "FusedNovoGrad",
        "Lamb",
        "LAMB",
        "AdamP",
        "AdaBelief",
        "Ranger",
        "AdaBound",
        "Novograd",
        "Adam8bit",
        "AdamW8bit",
        "Prodigy",
        "Adan",
        "DAdaptAdam",
        "DAdaptAdan",
        "Sophia",
        "RMSpropTF",
        "NvNovoGrad",
        "AdamWScheduleFree",
        "SGDW",
        "Madgrad",
        "MADGRAD",
        "CAME",
        "AdamWFp8",
        "DAdaptAdaGrad",
        "DAdaptLion",
        "PagedAdamW8bit",
        "ScheduledOptim",
    }
)
#: The class that every optimizer has for a base.
OPTIMIZER_BASES = frozenset({"torch.optim.Optimizer", "torch.optim.optimizer.Optimizer"})
_OPTIMIZER_FACTORIES = frozenset(
    {"timm.optim.create_optimizer", "timm.optim.create_optimizer_v2", "timm.optim.optim_factory.create_optimizer"}
)


def is_scaler(name: str) -> bool:
    """Whether a qualified name constructs a scaler; version-dependent imports end in the same words."""
    return name in SCALERS or name.endswith((".amp.GradScaler", ".grad_scaler.GradScaler", ".ShardedGradScaler"))


def is_optimizer_base(name: str) -> bool:
    """Whether a class that derives from this one is an optimizer: torch's own, or what a library calls so."""
    return name in OPTIMIZER_BASES or is_optimizer(name) or name.rpartition(".")[2].endswith("Optimizer")


def is_optimizer(name: str) -> bool:
    """Whether a qualified name constructs an optimizer."""
    head, _, tail = name.rpartition(".")
    if name in _OPTIMIZER_FACTORIES:
        return True
    if head in ("torch.optim", "optim") or head.startswith("torch.optim."):
        return tail[:1].isupper() and "lr_scheduler" not in head and "swa_utils" not in head and tail != "Optimizer"
    return tail in OPTIMIZERS


def clip_call(name: str) -> ClipCall | None:
    """The clip that a qualified name means.

    A callable outside the program whose name says clip is a norm clip when it gets parameters and a bound; the caller
    checks the arguments.
    """
    if name in CLIPS:
        return CLIPS[name]
    tail = name.rpartition(".")[2]
    if tail in ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_", "clip_grads_with_norm_"):
        return CLIPS.get(f"torch.nn.utils.{tail}")
    return None


def says_clip(name: str) -> bool:
    return "clip" in name.lower()


def knows(name: str) -> bool:
    """Whether a qualified name is a scaler, an optimizer, a clip or an autocast of the table."""
    return is_scaler(name) or is_optimizer(name) or clip_call(name) is not None or is_autocast(name)


def may_be_setting(name: str) -> bool:
    """Whether a name outside the program may stand for a value that is false: no module, no class, nothing known."""
    tail = name.rpartition(".")[2]
    is_class = tail[:1].isupper() and not tail.isupper()
    return "." in name and not is_class and not knows(name)


def is_autocast(name: str) -> bool:
    return name.endswith("autocast")
