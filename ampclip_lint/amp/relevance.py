"""Which functions of a program are worth following: those that take part in the protocol, or call what does."""

from __future__ import annotations

import ast

from ampclip_lint.amp.callgraph import Callees
from ampclip_lint.syntax.index import FunctionInfo, ModuleIndex, ProgramIndex, Variable, dotted

#: Words of what is done to losses, gradients, optimizers and scalers.
_WORDS = frozenset(
    {
        "backward",
        "unscale_",
        "zero_grad",
        "step",
        "update",
        "scale",
        "get_scale",
        "grad",
        "GradScaler",
        "param_groups",
        "clip_grad_norm_",
        "clip_grad_value_",
        "clip_grad_norm",
        "clip_grads_with_norm_",
        "parameters",
        "optim",
        "ShardedGradScaler",
        "is_enabled",
    }
)
#: Those that are names of much else, too: they count where something may be called by them.
_COMMON = frozenset({"backward", "scale", "step", "update"})


class Relevance:
    """Which functions of a program take part in the protocol, by themselves or by what they call."""

    def __init__(self, program: ProgramIndex) -> None:
        self._program = program
        self._called_by = program.shared(Callees).called_by
        self._known: dict[FunctionInfo, bool] = {}

    def holds(self, info: FunctionInfo) -> bool:
        """Whether following a function may matter."""
        if info not in self._known:
            self._find_out(info)
        return self._known[info]

    def _find_out(self, info: FunctionInfo) -> None:
        callers: dict[FunctionInfo, list[FunctionInfo]] = {info: []}
        unknown = [info]
        taking_part: list[FunctionInfo] = []
        for current in unknown:
            if self._known.get(current, False) or self._speaks(current):
                taking_part.append(current)
                continue
            for callee in self._called_by(current) if current not in self._known else ():
                if callee not in callers:
                    callers[callee] = []
                    unknown.append(callee)
                callers[callee].append(current)
        self._known.update((one, False) for one in unknown if one not in self._known)
        for current in taking_part:
            self._known[current] = True
            taking_part.extend(caller for caller in callers[current] if not self._known[caller])

    def _speaks(self, info: FunctionInfo) -> bool:
        """Whether a function takes part in the protocol by its own words."""
        words = info.words & _WORDS
        if words & _COMMON:
            words -= _COMMON - info.called_or_passed
        if "update" in words and info.updates_no_scaler:
            words -= {"update"}
        return bool(
            words or any("clip" in word for word in info.calls) or info.calls_what_it_got or self._dispatches(info)
        )

    def _dispatches(self, info: FunctionInfo) -> bool:
        """Whether it calls what it got from a collection, other than from a table of functions outside the program."""
        return bool(info.dispatches) and not all(self._is_outside(table, info.module) for table in info.dispatches)

    def _is_outside(self, table: str, module: ModuleIndex) -> bool:
        meaning = self._program.meaning(table, module)
        if not isinstance(meaning, Variable):
            return False
        made = [getattr(node, "value", None) for node in meaning.module.assigned[meaning.name]]
        return all(isinstance(value, ast.Dict) and self._holds_foreign(value, meaning.module) for value in made)

    def _holds_foreign(self, table: ast.Dict, module: ModuleIndex) -> bool:
        names = [dotted(value) for value in table.values]
        return all(name is not None and self._program.is_foreign(name.partition(".")[0], module) for name in names)
