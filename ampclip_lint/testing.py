"""Two judges for small training programs: what the linter must say of them, and what torch does with them.

For authors of rule packs, and for tests of your own training code. Nothing here imports torch before a program is run.

**A file of programs.** Each top-level function named `bad_…`, `ok_…`, `fp_ok_…` or `fn_bad_…` is one small training
program. The classes and helpers that it drives stand before it and belong to it alone. Its name is its verdict:

* `bad_`     wrong, and the linter says so;
* `ok_`      right, and the linter is silent;
* `fp_ok_`   right, but flagged today (a comment in the program says why);
* `fn_bad_`  wrong, but missed today (a comment in the program says why).

**Comments.** `# expect: AMP101` (or `# expect: AMP101, AMP102`) names the findings of its line; alone on its line it
speaks of the next line of code. `# raises: RuntimeError: text` says that torch itself stops the program, with that
type of error and that text in its message.

**The static judge**, `check_expectations`, compares the (line, code) pairs that the linter reports with those that are
expected, exactly, both ways.

**The dynamic judge**, `judge`, asks the question that the linter's unit rules decide: *does any applied gradient depend
on the loss scale S?* The program is run with S = 1, 8, 64 and with an S that changes at every `update()`, on the same
seeds and the same data, and the gradients that the optimizers apply are compared. Powers of two scale floating-point
numbers exactly, so a right program gives the same numbers. No twin that is known to be right is needed.
`judge_overflow` lets one gradient overflow and asks whether it was applied, or hidden from the scaler.

**Arguments** of a program are filled by name, as pytest fills fixtures, from `ARGUMENTS`; those with a default keep it:

    def bad_plain_loop(net, loader, opt, scaler, crit):
        for xb, yb in loader:
            opt.zero_grad()
            scaler.scale(crit(net(xb), yb)).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # expect: AMP101
            scaler.step(opt)
            scaler.update()

    verdict = judge(bad_plain_loop)
    assert not verdict.invariant
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import importlib.util
import inspect
import io
import math
import random
import re
import sys
import tokenize
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol
from unittest import mock

__all__ = [
    "ARGUMENTS",
    "Expectation",
    "ExpectationError",
    "Kit",
    "Mismatch",
    "OverflowVerdict",
    "Program",
    "ProgramError",
    "Raised",
    "Row",
    "Verdict",
    "check_expectations",
    "judge",
    "judge_overflow",
    "load_module",
    "parse_expectations",
    "read_programs",
]


class ExpectationError(ValueError):
    """A comment that means to be an expectation and cannot be read as one."""


class ProgramError(Exception):
    """A program that cannot be judged: its arguments are unknown, or it fails without any loss scaling."""


# --- the static judge ------------------------------------------------------------------------------------------------

_MENTIONS_EXPECT = re.compile(r"\bexpect\s*:", re.IGNORECASE)
_MENTIONS_RAISES = re.compile(r"#\s*raises\s*:", re.IGNORECASE)
_EXPECT = re.compile(r"#\s*expect: *([A-Z]+[0-9]+(?: *, *[A-Z]+[0-9]+)*)\s*$")
_RAISES = re.compile(r"#\s*raises: *([A-Za-z_][A-Za-z_0-9.]*)(?:: *(\S.*?))?\s*$")
_NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


@dataclass(frozen=True, order=True)
class Expectation:
    """One finding that a comment asks for, on the line (counted from 1) that the comment speaks of."""

    row: int
    code: str


@dataclass(frozen=True, order=True)
class Mismatch:
    """One difference between what is expected and what is reported; `problem` is `missing` or `unexpected`."""

    filename: str
    row: int
    code: str
    problem: str

    def __str__(self) -> str:
        return f"{self.filename}:{self.row}: {self.problem} {self.code}"


class _Position(Protocol):
    @property
    def row(self) -> int: ...


class _Span(Protocol):
    @property
    def start(self) -> _Position: ...


class Finding(Protocol):
    """What the static judge reads of a finding; `ampclip_lint.diagnostics.Diagnostic` is one."""

    @property
    def code(self) -> str: ...

    @property
    def span(self) -> _Span: ...


Lint = Callable[[str, str], Iterable[Finding]]


def _tokens(source: str, filename: str) -> list[tokenize.TokenInfo]:
    try:
        return list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, SyntaxError) as error:
        raise ExpectationError(f"{filename}: cannot be read as Python: {error}") from error


def _comments(source: str, filename: str) -> Iterator[tuple[str, int, int | None]]:
    """Each comment with its own line and the line of code that it speaks of."""
    tokens = _tokens(source, filename)
    code_rows = sorted({token.start[0] for token in tokens if token.type not in _NOT_CODE})
    for token in tokens:
        if token.type == tokenize.COMMENT:
            row = token.start[0]
            alone = not token.line[: token.start[1]].strip()
            yield token.string, row, next((r for r in code_rows if r > row), None) if alone else row


def parse_expectations(source: str, filename: str = "<text>") -> list[Expectation]:
    """
    Read the `# expect: CODE` comments of a text, sorted by line and code.

    Comments are found with `tokenize`, so the same words in a string mean nothing. A comment that mentions `expect`
    and a colon but does not parse is an `ExpectationError`: a typing mistake must not turn an expectation off.

    >>> parse_expectations("clip(p)  # expect: AMP101, AMP102")
    [Expectation(row=1, code='AMP101'), Expectation(row=1, code='AMP102')]
    """
    found: set[Expectation] = set()
    for comment, row, target in _comments(source, filename):
        if not _MENTIONS_EXPECT.search(comment):
            continue
        match = _EXPECT.search(comment)
        if match is None or len(_MENTIONS_EXPECT.findall(comment)) != 1:
            raise ExpectationError(f"{filename}:{row}: cannot read {comment!r}; write '# expect: AMP101, AMP102'")
        if target is None:
            raise ExpectationError(f"{filename}:{row}: {comment!r} speaks of the next line of code, and there is none")
        found.update(Expectation(target, code.strip()) for code in match[1].split(","))
    return sorted(found)


def _lint(source: str, filename: str) -> Iterable[Finding]:
    # Late, because the linter itself must not be needed to read programs or to run them.
    return importlib.import_module("ampclip_lint.lint.run").lint_source(source, filename)  # type: ignore[no-any-return]


def check_expectations(source: str, filename: str = "<text>", *, lint: Lint | None = None) -> list[Mismatch]:
    """
    Compare the expectations of a text with what the linter reports: an empty list means that they agree exactly.

    `lint` takes the text and its file name and returns findings; without it the linter runs with all its rules.
    """
    expected = {(e.row, e.code) for e in parse_expectations(source, filename)}
    reported = {(finding.span.start.row, finding.code) for finding in (lint or _lint)(source, filename)}
    missing = {Mismatch(filename, row, code, "missing") for row, code in expected - reported}
    unexpected = {Mismatch(filename, row, code, "unexpected") for row, code in reported - expected}
    return sorted(missing | unexpected)


# --- files of programs -----------------------------------------------------------------------------------------------

_KINDS = ("bad_", "ok_", "fp_ok_", "fn_bad_")


@dataclass(frozen=True)
class Program:
    """
    One program of a file: the lines from the end of the program before it to its own end.

    `reasons` are its comments (without `#`), `expect` and `raises` aside. `raises` is the documented error: its type,
    and a part of its text, which may be empty.
    """

    name: str
    first_row: int
    last_row: int
    reasons: tuple[str, ...] = ()
    raises: tuple[str, str] | None = None

    @property
    def is_wrong(self) -> bool:
        """Whether torch shows that it is wrong, as its name says."""
        return self.name.startswith(("bad_", "fn_bad_"))

    @property
    def is_flagged(self) -> bool:
        """Whether the linter reports something in it, as its name says."""
        return self.name.startswith(("bad_", "fp_ok_"))

    def holds(self, row: int) -> bool:
        """Whether a line belongs to this program."""
        return self.first_row <= row <= self.last_row


def read_programs(source: str, filename: str = "<text>") -> list[Program]:
    """The programs of a text, in order. Nothing is executed."""
    comments = list(_comments(source, filename))
    programs: list[Program] = []
    end = 0
    for node in ast.parse(source, filename).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith(_KINDS):
            rows = range(end + 1, (node.end_lineno or node.lineno) + 1)
            reasons: list[str] = []
            raises: tuple[str, str] | None = None
            for comment, row, _ in comments:
                if row not in rows or _MENTIONS_EXPECT.search(comment):
                    continue
                if not _MENTIONS_RAISES.match(comment):
                    reasons.append(comment.lstrip("# "))
                elif match := _RAISES.match(comment):
                    raises = (match[1], match[2] or "")
                else:
                    raise ExpectationError(f"{filename}:{row}: cannot read {comment!r}; write '# raises: Type: text'")
            end = rows[-1]
            programs.append(Program(node.name, rows[0], end, tuple(reasons), raises))
    return programs


def load_module(path: Path) -> ModuleType:
    """Import a file of programs by its path, under a name that nothing else uses."""
    name = f"_ampclip_programs_{path.stem}_{abs(hash(path.resolve())):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ProgramError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look a class's module up there
    spec.loader.exec_module(module)
    return module


# --- the arguments of a program --------------------------------------------------------------------------------------

ARGUMENTS: Mapping[str, str] = {
    "net": "Sequential(Linear(2, 3), Linear(3, 2)), with FSDP's method clip_grad_norm_(max_norm)",
    "net_a": "Sequential(Linear(2, 3), Linear(3, 2)); net_b(net_a(x)) works too",
    "net_b": "Sequential(Linear(2, 3), Linear(3, 2)), other weights",
    "nets": "[net_a, net_b]",
    "loader": "list of six batches (xb, yb)",
    "xb": "the inputs of the first batch, 4 × 2",
    "yb": "its targets, 4 × 2",
    "opt": "SGD(net.parameters(), lr=1e-2)",
    "opt_a": "SGD(net_a.parameters(), lr=1e-2)",
    "opt_b": "SGD(net_b.parameters(), lr=1e-2)",
    "opts": "[opt_a, opt_b]",
    "optims": '{"g": opt_a, "d": opt_b}',
    "scaler": "torch.amp.GradScaler(device)",
    "crit": "a smooth loss (outputs, targets); gradient norms lie well above 1, also after division by six",
    "writer": "an empty list",
    "sched": "an object with step()",
    "device": "the judged device, a string",
}
"""The names that a program's parameters may have, and what they are filled with."""


def _torch() -> Any:
    """Torch, untyped, so that this module can be checked and imported where there is none."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ProgramError("running a program needs torch (pip install torch)") from error


class _Scheduler:
    """Stands for a learning-rate scheduler; counts its steps."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self) -> None:
        self.steps += 1


class Kit:
    """The arguments of one run, built when they are asked for; each value depends on its own seed alone."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device

    def _net(self, seed: int) -> Any:
        torch = _torch()

        class Net(torch.nn.Sequential):  # type: ignore[misc, name-defined]
            def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Any:
                return torch.nn.utils.clip_grad_norm_(self.parameters(), max_norm, norm_type)

        torch.manual_seed(seed)
        return Net(torch.nn.Linear(2, 3), torch.nn.Linear(3, 2)).to(self.device)

    def _sgd(self, net: Any) -> Any:
        return _torch().optim.SGD(net.parameters(), lr=1e-2)

    @functools.cached_property
    def net(self) -> Any:
        return self._net(1)

    @functools.cached_property
    def net_a(self) -> Any:
        return self._net(2)

    @functools.cached_property
    def net_b(self) -> Any:
        return self._net(3)

    @functools.cached_property
    def nets(self) -> Any:
        return [self.net_a, self.net_b]

    @functools.cached_property
    def loader(self) -> Any:
        torch = _torch()
        numbers = torch.Generator().manual_seed(4)
        xs = [torch.randn(4, 2, generator=numbers) + 0.5 for _ in range(6)]
        ys = [12 * torch.randn(4, 2, generator=numbers) + 8 for _ in range(6)]
        return [(x.to(self.device), y.to(self.device)) for x, y in zip(xs, ys)]

    @functools.cached_property
    def xb(self) -> Any:
        return self.loader[0][0]

    @functools.cached_property
    def yb(self) -> Any:
        return self.loader[0][1]

    @functools.cached_property
    def opt(self) -> Any:
        return self._sgd(self.net)

    @functools.cached_property
    def opt_a(self) -> Any:
        return self._sgd(self.net_a)

    @functools.cached_property
    def opt_b(self) -> Any:
        return self._sgd(self.net_b)

    @functools.cached_property
    def opts(self) -> Any:
        return [self.opt_a, self.opt_b]

    @functools.cached_property
    def optims(self) -> Any:
        return {"g": self.opt_a, "d": self.opt_b}

    @functools.cached_property
    def scaler(self) -> Any:
        return _torch().amp.GradScaler(self.device)

    @functools.cached_property
    def crit(self) -> Any:
        # Grows like 40·|error|: the gradient is large, and bounded however far the outputs are off.
        return lambda outputs, targets: 40 * (1 + (outputs - targets) ** 2).sqrt().mean()

    @functools.cached_property
    def writer(self) -> Any:
        return []

    @functools.cached_property
    def sched(self) -> Any:
        return _Scheduler()


Fill = Mapping[str, Callable[[Kit], object]]


def _arguments(function: Callable[..., object], kit: Kit, fill: Fill) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name in fill:
            values[name] = fill[name](kit)
        elif parameter.default is not inspect.Parameter.empty:
            continue
        elif name in ARGUMENTS:
            values[name] = getattr(kit, name)
        else:
            raise ProgramError(f"nothing fills the parameter {name!r}; known: {', '.join(ARGUMENTS)}")
    return values


# --- the dynamic judge -----------------------------------------------------------------------------------------------

# Several scalers of one program get different scales, so that a gradient divided by the wrong one shows.
_SCALER_OFFSETS = (0, 2, 1)
# log2 of S, relative to its start, after the n-th update() of the run with a changing scale; no two neighbours agree.
_CHANGES = (0, 2, -1, 3, 1, -2, 4)
_CONSTANT_SCALES = (1, 8, 64)
_CHANGING = "changing"


@dataclass(frozen=True)
class Raised:
    """An error that stopped a program: the name of its type, and its text."""

    type: str
    text: str

    def __str__(self) -> str:
        return f"{self.type}: {self.text}"


@dataclass(frozen=True)
class Row:
    """
    What one scale does to a program, told by the first step that departs from the intended one (else the first).

    `intended` is the norm of the gradient that the program applies there with the scaler disabled, `applied` the norm
    with this scale, `ratio` their quotient. `difference` is the norm of the difference of the two gradients over the
    larger of the two norms, because a wrong gradient can have the right norm. None where there was no such step.
    """

    scale: str
    intended: float | None
    applied: float | None
    ratio: float | None
    difference: float | None
    error: Raised | None = None


@dataclass(frozen=True)
class Verdict:
    """
    What torch says of a program.

    `invariant`: it ran to its end at every scale, and the optimizers applied the same gradients. `error`: the first
    error at any scale. `clip_active`: without any scaling something changed gradients after their backward, so that
    invariance proves something. `clip_midway`: it changed gradients that another backward then added to. `steps`:
    steps applied at S = 1. `scaled`: a scaler was really used.
    """

    name: str
    device: str
    invariant: bool
    error: Raised | None
    rows: tuple[Row, ...]
    clip_active: bool
    clip_midway: bool
    steps: int
    scaled: bool


@dataclass(frozen=True)
class OverflowVerdict:
    """
    What becomes of a program when one gradient overflows.

    `applied`: a gradient that is not finite was applied. `hidden`: the gradient that overflowed was applied after
    something had made it finite, where the scaler would have skipped the step. `skipped`: a step was left out.
    `backed_off`: the scale fell. The last two are true if they hold for every gradient that was made to overflow.
    """

    name: str
    device: str
    applied: bool
    hidden: bool
    skipped: bool
    backed_off: bool
    error: Raised | None


@dataclass
class _Setting:
    """How one run is done."""

    device: str
    scale: float | None  # None: scalers are disabled
    changing: bool = False
    autocast: bool = False
    poison: tuple[int, int, float] | None = None  # optimizer, number of the backward that reaches it, value


@dataclass
class _Record:
    """What one run did."""

    setting: _Setting
    steps: list[tuple[int, list[Any]]] = field(default_factory=list)  # (optimizer by first appearance, gradients)
    error: Raised | None = None
    edited: bool = False
    edited_midway: bool = False
    scalers: list[Any] = field(default_factory=list)
    updates: dict[int, int] = field(default_factory=dict)
    reached: dict[int, int] = field(default_factory=dict)  # optimizer, in order of creation: backwards that reached it
    hidden: bool = False
    reapplied: bool = False  # a step took gradients that an earlier one had applied and no backward has added to

    @property
    def scaled(self) -> bool:
        return any(getattr(scaler, "_scale", None) is not None for scaler in self.scalers)


def _judged_scalers(stack: contextlib.ExitStack, record: _Record) -> None:
    """
    Give every GradScaler that the program builds, whatever it imports the class as, the judged device and S.

    Methods of the base class are replaced, not names: aliases, old names, subclasses and `isinstance` keep their sense.
    `enabled=` keeps its meaning; an explicit `init_scale=1` stays 1 until an update() changes it.
    """
    setting = record.setting
    real = _torch().amp.GradScaler
    real_init, real_update = real.__init__, real.update

    @functools.wraps(real_init)
    def init(self: Any, device: str = "cuda", init_scale: float = 2.0**16, *args: Any, **kwargs: Any) -> None:
        options = dict(zip(("growth_factor", "backoff_factor", "growth_interval", "enabled"), args)) | kwargs
        options["growth_interval"] = 10**9  # growth is not left to chance: one run is there for a changing S
        options["enabled"] = bool(options.get("enabled", True)) and setting.scale is not None
        scale = setting.scale or 1.0
        if scale > 1:
            scale *= 2.0 ** _SCALER_OFFSETS[len(record.scalers) % len(_SCALER_OFFSETS)]
        real_init(self, setting.device, 1.0 if init_scale == 1 else scale, **options)
        self._judged_base = 1.0 if init_scale == 1 else scale
        record.scalers.append(self)

    @functools.wraps(real_update)
    def update(self: Any, new_scale: Any = None) -> None:
        real_update(self, new_scale)
        if setting.changing and new_scale is None and getattr(self, "_scale", None) is not None:
            count = record.updates[id(self)] = record.updates.get(id(self), 0) + 1
            self._scale.fill_(self._judged_base * 2.0 ** _CHANGES[count % len(_CHANGES)])

    stack.enter_context(mock.patch.object(real, "__init__", init))
    stack.enter_context(mock.patch.object(real, "update", update))


def _judged_autocast(stack: contextlib.ExitStack, setting: _Setting) -> None:
    """Turn autocast off, or, where half precision is what is judged, to fp16 on the judged device."""
    torch = _torch()
    autocast = torch.amp.autocast_mode.autocast
    real_init = autocast.__init__

    @functools.wraps(real_init)
    def init(self: Any, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: Any = None) -> None:
        real_init(self, setting.device, torch.float16, enabled and setting.autocast, cache_enabled)

    stack.enter_context(mock.patch.object(autocast, "__init__", init))


def _record_steps(stack: contextlib.ExitStack, record: _Record) -> None:
    """
    Record what every optimizer really applies.

    Gradients are read when step() has ended: by then pre-step hooks, a step() that clips, and fused kernels (which
    divide by S themselves) have had their say. Of an optimizer that calls another one only the inner step counts.
    """
    optimizers = importlib.import_module("torch.optim.optimizer")
    order: dict[int, int] = {}
    alive: list[Any] = []  # ids must stay unique
    frames: list[tuple[Any, list[Any]]] = []
    delegated: set[int] = set()

    def gradients(optimizer: Any) -> list[Any]:
        params = [p for group in optimizer.param_groups for p in group["params"]]
        return [None if p.grad is None else p.grad.detach().clone() for p in params]

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        delegated.update(range(len(frames)))
        frames.append((optimizer, gradients(optimizer)))

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        while frames and frames[-1][0] is not optimizer:  # left over by a step that raised
            frames.pop()
        if not frames:
            return
        _, held = frames.pop()
        if len(frames) in delegated:
            delegated.discard(len(frames))
            return
        if float(getattr(optimizer, "found_inf", None) or 0):  # a fused kernel that skipped
            return
        applied = [old if new is None else new for old, new in zip(held, gradients(optimizer))]
        alive.append(optimizer)
        record.steps.append((order.setdefault(id(optimizer), len(order)), applied))

    stack.callback(optimizers.register_optimizer_step_pre_hook(before).remove)
    stack.callback(optimizers.register_optimizer_step_post_hook(after).remove)


def _watch_buffers(stack: contextlib.ExitStack, record: _Record) -> None:
    """
    Notice edits of the gradients of every optimizer's parameters, however they are spelled, and inject the overflow.

    An edit is a buffer that is not, at the next accumulation or at the step, what the last accumulation left.
    """
    torch = _torch()
    optimizers = importlib.import_module("torch.optim.optimizer")
    watched: set[Any] = set()
    owners: list[Any] = []
    left: dict[Any, Any] = {}
    tainted: set[Any] = set()
    applied: set[Any] = set()
    poison = record.setting.poison

    def is_clear(p: Any) -> bool:
        return p.grad is None or not bool(p.grad.detach().count_nonzero())

    def look(p: Any, midway: bool) -> None:
        if p in left and p.grad is not None and not torch.equal(left[p], p.grad.detach()):
            record.edited = True
            record.edited_midway |= midway

    def on_contribution(p: Any, owner: int, is_first: bool, grad: Any) -> Any:
        if is_clear(p):
            left.pop(p, None)
            tainted.discard(p)
        look(p, midway=True)
        if not is_first:
            return None
        record.reached[owner] = record.reached.get(owner, 0) + 1
        if poison is None or poison[:2] != (owner, record.reached[owner]):
            return None
        tainted.add(p)
        grad = grad.clone()
        grad.view(-1)[0] = poison[2]
        return grad

    def on_accumulated(p: Any) -> None:
        left[p] = p.grad.detach().clone()
        applied.discard(p)

    def on_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        held = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        taken = [p for p in held if not is_clear(p)]
        record.reapplied |= bool(taken) and applied.issuperset(taken)
        applied.update(taken)
        for p in held:
            if not is_clear(p):
                look(p, midway=False)
            if p in tainted and not float(getattr(optimizer, "found_inf", None) or 0):
                record.hidden |= bool(torch.isfinite(p.grad).all())
                tainted.discard(p)

    real_add = optimizers.Optimizer.add_param_group

    @functools.wraps(real_add)
    def add_param_group(self: Any, param_group: Any) -> None:
        real_add(self, param_group)
        if not any(self is owner for owner in owners):
            owners.append(self)
        number = next(i for i, owner in enumerate(owners) if owner is self)
        is_first = len(self.param_groups) == 1
        for p in self.param_groups[-1]["params"]:
            if p.requires_grad and p.is_leaf and p not in watched:
                watched.add(p)
                stack.callback(p.register_hook(functools.partial(on_contribution, p, number, is_first)).remove)
                stack.callback(p.register_post_accumulate_grad_hook(on_accumulated).remove)
                is_first = False

    stack.enter_context(mock.patch.object(optimizers.Optimizer, "add_param_group", add_param_group))
    stack.callback(optimizers.register_optimizer_step_post_hook(on_step).remove)


def _run(function: Callable[..., object], setting: _Setting, fill: Fill) -> _Record:
    """Run a program once under a setting."""
    torch = _torch()
    record = _Record(setting)
    devices = list(range(torch.cuda.device_count())) if setting.device.startswith("cuda") else []
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=devices))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # deprecated names and missing CUDA are not what is judged
        stack.callback(random.setstate, random.getstate())
        _judged_scalers(stack, record)
        _judged_autocast(stack, setting)
        _record_steps(stack, record)
        _watch_buffers(stack, record)
        arguments = _arguments(function, Kit(setting.device), fill)
        torch.manual_seed(0)
        random.seed(0)
        try:
            function(**arguments)
        except Exception as error:  # whatever the program does, the verdict tells
            record.error = Raised(type(error).__name__, str(error))
    return record


def _norm(gradients: Iterable[Any]) -> float:
    return math.sqrt(sum(float(g.double().norm()) ** 2 for g in gradients if g is not None))


def _difference(ours: list[Any], theirs: list[Any]) -> float:
    """The norm of the difference of two gradients, over the larger of their norms; infinite if they do not compare."""
    if [g is None for g in ours] != [g is None for g in theirs]:
        return math.inf
    size = max(_norm(ours), _norm(theirs))
    gap = _norm(a.double() - b.double() for a, b in zip(ours, theirs) if a is not None)
    if math.isfinite(size) and math.isfinite(gap):
        return gap / size if size else 0.0
    return math.inf


def _same_steps(ours: _Record, theirs: _Record, tolerance: float) -> bool:
    return [index for index, _ in ours.steps] == [index for index, _ in theirs.steps] and all(
        _difference(a, b) <= tolerance for (_, a), (_, b) in zip(ours.steps, theirs.steps)
    )


def _row(scale: str, intended: _Record, applied: _Record, tolerance: float) -> Row:
    pairs = [
        (_difference(a, b), _norm(a), _norm(b))
        for (i, a), (j, b) in zip(intended.steps, applied.steps)
        if i == j and len(a) == len(b)
    ]
    if not pairs:
        first = _norm(intended.steps[0][1]) if intended.steps else None
        return Row(scale, first, None, None, None, applied.error)
    difference, wanted, got = next((pair for pair in pairs if pair[0] > tolerance), pairs[0])
    return Row(scale, wanted, got, got / wanted if wanted else None, difference, applied.error)


def judge(
    function: Callable[..., object],
    *,
    device: str = "cpu",
    autocast: bool = False,
    tolerance: float | None = None,
    fill: Fill | None = None,
) -> Verdict:
    """
    Run a program at several loss scales and say whether what it applies depends on them.

    `device` is where it runs: every GradScaler that it builds is put there. `autocast` lets its autocast blocks really
    compute in fp16 (else they are turned off and all is fp32). `tolerance` bounds the relative difference of two
    gradients that count as equal: 1e-4, because clip_grad_norm_ adds 1e-6 to the norm, and 2e-2 under autocast.
    `fill` adds arguments, or replaces some of `ARGUMENTS`: name to a function of the `Kit`.

    Raises `ProgramError` if the program fails with its scaler disabled: then it is broken in another way.
    """
    limit = tolerance if tolerance is not None else (2e-2 if autocast else 1e-4)
    name = getattr(function, "__name__", repr(function))

    def run(scale: float | None, changing: bool = False) -> _Record:
        return _run(function, _Setting(device, scale, changing, autocast), fill or {})

    intended = run(None)
    if intended.error is not None:
        raise ProgramError(f"{name} fails with its scaler disabled: {intended.error}")
    runs = {str(scale): run(scale) for scale in _CONSTANT_SCALES} | {_CHANGING: run(8, changing=True)}
    reference = runs["1"]
    error = next((record.error for record in runs.values() if record.error is not None), None)
    return Verdict(
        name=name,
        device=device,
        invariant=error is None and all(_same_steps(reference, record, limit) for record in runs.values()),
        error=error,
        rows=tuple(_row(scale, intended, record, limit) for scale, record in runs.items()),
        clip_active=intended.edited,
        clip_midway=intended.edited_midway,
        steps=len(reference.steps),
        scaled=runs["8"].scaled,
    )


def judge_overflow(
    function: Callable[..., object],
    *,
    device: str = "cpu",
    value: float = math.inf,
    at: int | None = None,
    fill: Fill | None = None,
) -> OverflowVerdict:
    """
    Let one gradient of a program overflow, and say what becomes of it.

    One element of a gradient becomes `value` (infinite, or NaN) in the backward number `at` that reaches an optimizer's
    parameters, for each optimizer. Without `at` every backward has its turn, each in a run of its own.
    """
    name = getattr(function, "__name__", repr(function))

    def run(poison: tuple[int, int, float] | None) -> _Record:
        return _run(function, _Setting(device, 8, poison=poison), fill or {})

    plain = run(None)
    numbers = [(owner, n) for owner, last in plain.reached.items() for n in range(1, last + 1) if at in (None, n)]
    if not numbers:
        raise ProgramError(f"{name} makes no gradient that could overflow")
    runs = [run((owner, n, value)) for owner, n in numbers]

    def is_finite(record: _Record) -> bool:
        return all(math.isfinite(_norm(gradients)) for _, gradients in record.steps)

    def fell(record: _Record) -> bool:
        return any(scaler.is_enabled() and scaler.get_scale() < scaler._judged_base for scaler in record.scalers)

    return OverflowVerdict(
        name=name,
        device=device,
        applied=not all(is_finite(record) for record in runs),
        hidden=any(record.hidden for record in runs),
        skipped=all(len(record.steps) < len(plain.steps) for record in runs),
        backed_off=all(fell(record) for record in runs),
        error=next((record.error for record in [plain, *runs] if record.error is not None), None),
    )
