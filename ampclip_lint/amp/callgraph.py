"""Who may call whom, by bare names: where the analysis starts, and where it goes on if a root is too large."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Collection, Iterator
from io import TextIOBase

from ampclip_lint.syntax.index import ClassInfo, FunctionInfo, ModuleIndex, ProgramIndex

#: A function that mentions one of these takes part in loss scaling.
SEEDS = frozenset({"unscale_", "GradScaler", "get_scale", "ShardedGradScaler"})


def _is_public(name: str) -> bool:
    return not name.startswith("_")


#: Methods that modules of torch, loggers, files and models of other libraries have too, and those of Python's own
#: types: called on something whose class is not known, they are those of a class only where the caller speaks of it.
_COMMON = frozenset(
    [
        "add",
        "apply",
        "build",
        "clear",
        "close",
        "copy",
        "critical",
        "debug",
        "error",
        "eval",
        "evaluate",
        "exception",
        "fit",
        "flush",
        "forward",
        "info",
        "init",
        "insert",
        "load",
        "load_state_dict",
        "log",
        "next",
        "open",
        "predict",
        "process",
        "put",
        "read",
        "remove",
        "reset",
        "restore",
        "run",
        "save",
        "send",
        "set",
        "setup",
        "start",
        "stop",
        "to",
        "train",
        "warn",
        "warning",
        "write",
    ]
).union(*(filter(_is_public, dir(kind)) for kind in (str, bytes, list, dict, set, float, TextIOBase)))


def every_function(program: ProgramIndex) -> Iterator[FunctionInfo]:
    """All functions of a program, the bodies of its modules included."""
    for module in program.modules:
        yield module.body
        yield from module.everything


def speaks_of_scaling(info: FunctionInfo) -> bool:
    """Whether a function takes part in loss scaling by its own words."""
    if info not in info.module.holding("cale"):
        return False  # The four letters are in all of the words that count, and not in most functions.
    words = info.words
    if words & SEEDS:
        return True
    scales = "scale" in words and "scale" in info.called_or_passed and words & {"backward", "scaler"}
    if scales or ({"scaler", "step"} <= words and "step" in info.called_or_passed):
        return True
    called_on = (receiver for name in ("scale", "step", "update") for receiver in info.callers_of.get(name, ()))
    return any(receiver.endswith("scaler") for receiver in called_on)


def handles_gradients(info: FunctionInfo) -> bool:
    """Whether a function does something to gradients by its own words, rather than only call what does."""
    return bool(info.words & {"backward", "zero_grad", "clip_grad_norm_", "clip_grad_value_"})


class Callees:
    """What each function of a program may call, as far as names tell."""

    def __init__(self, program: ProgramIndex) -> None:
        self._program = program
        self._known: dict[FunctionInfo, tuple[FunctionInfo, ...]] = {}
        self._named: dict[tuple[FunctionInfo, str], tuple[FunctionInfo, ...]] = {}
        self._callers: dict[FunctionInfo, tuple[FunctionInfo, ...]] = {}

    def called_by(self, info: FunctionInfo) -> tuple[FunctionInfo, ...]:
        """What a function may call."""
        known = self._known.get(info)
        if known is None:
            found = (callee for name in info.callers_of for callee in self._called_as(name, info))
            known = self._known[info] = tuple(found)
        return known

    def callers(self, callee: FunctionInfo) -> tuple[FunctionInfo, ...]:
        """The functions that may call one, in the order of the program. Only those are read that mention its name."""
        known = self._callers.get(callee)
        if known is None:
            names = [callee.name]
            if callee.owner is not None and callee in callee.owner.entries:
                names.append(callee.owner.name)
            names = [name for name in names if callee in self._program.named(name)]
            known = self._callers[callee] = tuple(
                info
                for module in self._program.modules
                if names and self._program.may_meet(module, callee.module)
                for info in dict.fromkeys(info for name in names for info in module.mentioning(name))
                if any(name in info.callers_of and callee in self._called_as(name, info) for name in names)
            )
        return known

    def _called_as(self, name: str, info: FunctionInfo) -> tuple[FunctionInfo, ...]:
        """What a function may call by one name."""
        known = self._named.get((info, name))
        if known is None:
            known = self._named[info, name] = tuple(self._look_up(name, info))
        return known

    def _look_up(self, name: str, info: FunctionInfo) -> Iterator[FunctionInfo]:
        candidates = self._program.named(name)
        receivers = info.callers_of[name]
        if not candidates or all(self._program.is_foreign(receiver, info.module) for receiver in receivers):
            return
        own = info.owner is not None and receivers == {info.self_name} and _is_method(info.owner, name)
        foreign = (name in _COMMON or _is_special(name)) and "" not in receivers
        bare = name in info.called_bare
        # ``parse(text)`` is no call of a method, unless that has been put under a name here.
        alone = receivers == {""} and self._is_bound_outside(name, info.module)
        for callee in candidates:
            if bare and callee.needs_arguments:
                continue  # ``net.train()`` is no call of ``train(self, data)``.
            if not self._program.may_meet(info.module, callee.module):
                continue
            if callee.owner is not None and info.module is not callee.module and self._program.model_of(callee.owner):
                continue  # The model is what is called.
            if callee.owner is not None and callee.name == name:
                if alone:
                    continue
                if own and info.owner is not None and not self._program.are_related(info.owner, callee.owner):
                    continue
                if foreign and not own and not self._program.mentions_family(info.module, callee.owner):
                    continue
            elif own or not self._is_in_sight(callee, name, receivers, info.module):
                continue
            yield callee

    @staticmethod
    def _is_bound_outside(name: str, module: ModuleIndex) -> bool:
        """Whether a bare name means something at the top level of a module, or to Python itself."""
        return name in module.imports or name in module.functions or name in module.classes or hasattr(builtins, name)

    def _is_in_sight(self, callee: FunctionInfo, name: str, receivers: Collection[str], module: ModuleIndex) -> bool:
        """Whether a module's code can mean a function or class by its bare name, or as something of what it imports."""
        if "" in receivers and (callee.module is module or module.stars or self._imports(callee, name, module)):
            return True
        imported = (module.imports[receiver] for receiver in receivers if receiver in module.imports)
        return any(dotted.startswith(".") or set(dotted.split(".")) & set(callee.module.parts) for dotted in imported)

    def _imports(self, callee: FunctionInfo, name: str, module: ModuleIndex) -> bool:
        """Whether what a module imports under a name is a function, or the class that has it as its method."""
        if name not in module.imports:
            return False
        meaning = self._program.resolve(module.imports[name], module)
        if isinstance(meaning, (FunctionInfo, ClassInfo)):
            return meaning in (callee, callee.owner)
        head = module.imports[name].partition(".")[0]
        return not head or head in callee.module.parts


class CallGraph:
    """The functions that lead to loss scaling, with their callers among each other."""

    def __init__(self, program: ProgramIndex, takes_part: Callable[[FunctionInfo], bool] = speaks_of_scaling) -> None:
        self.takes_part = takes_part
        self.everything = list(every_function(program))
        self._order = {info: index for index, info in enumerate(self.everything)}
        callees = program.shared(Callees)
        self._called_by, self._callers = callees.called_by, callees.callers
        leading = {info for info in self.everything if takes_part(info)}
        pending = list(leading)
        while pending:
            for caller in self._callers(pending.pop()):
                if caller not in leading and not isinstance(caller.node, ast.Module):
                    leading.add(caller)
                    pending.append(caller)
        self._leading = {info for info in leading if not isinstance(info.node, ast.Module) or _trains(info)}

    def roots(self) -> list[FunctionInfo]:
        """Functions that lead to loss scaling and that no other such function calls."""
        return [
            info
            for info in self.everything
            if info in self._leading
            and info.outer is None
            and not any(caller in self._leading and caller is not info for caller in self._callers(info))
        ]

    def below(self, info: FunctionInfo) -> list[FunctionInfo]:
        """The functions that lead to loss scaling and that `info` may call."""
        called = {other for other in self._called_by(info) if other in self._leading and other.outer is None}
        return sorted(called, key=self._order.__getitem__)

    def above(self, info: FunctionInfo, read: Collection[FunctionInfo]) -> list[FunctionInfo]:
        """
        The functions of a module that lead to one of it and that nothing has read: those that no other of them calls,
        or that only what they lead to themselves seems to call, the farthest first.
        """
        found = [info]
        outermost: list[FunctionInfo] = []
        for current in found:
            fresh = [
                caller
                for caller in self._callers(current)
                if caller.module is info.module and caller in self._leading and caller.outer is None
                if caller not in read and caller not in found and not isinstance(caller.node, ast.Module)
            ]
            if not fresh:
                outermost.append(current)
            found.extend(dict.fromkeys(fresh))
        return outermost[::-1]


def _is_special(name: str) -> bool:
    """Whether it is a method that objects of any class may have, as `__setstate__`."""
    return name.startswith("__") and name.endswith("__")


def _is_method(owner: ClassInfo, name: str) -> bool:
    """Whether ``self.name`` is a method as far as the class itself tells, and not something that was put there."""
    return name in owner.methods or name not in owner.attributes


def _trains(body: FunctionInfo) -> bool:
    """Whether a module's body trains by itself; else its functions are the roots."""
    return bool(body.words & {"backward", "unscale_"}) and "step" in body.words
