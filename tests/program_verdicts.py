"""Two verdicts on a random program, torch's and the engine's, and what they may differ in.

torch's verdict is that of `ampclip_lint.testing.judge`, for several values of the program's arguments: a program is
wrong if it is wrong for any choice of them. The engine's verdict is whether it finds a definite fault of a kind that
torch can show. test_random_programs.py and benchmarks/random_programs.py compare the two.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

from ampclip_lint import testing
from ampclip_lint.amp.analysis import analyse_program
from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.syntax.source import SourceFile
from programs import MAX_NORM, MAX_VALUE, Generated, Rename, names_bound, names_read

# --- verdicts --------------------------------------------------------------------------------------------------------

#: Faults that change an applied gradient or raise, so that torch shows them.
SHOWN = frozenset(
    {
        FaultKind.CLIP_SCALED,
        FaultKind.CLIP_PARTIAL,
        FaultKind.CLIP_THRESHOLD_UNIT,
        FaultKind.EDIT_SCALED,
        FaultKind.OVERFLOW_HIDDEN,
        FaultKind.UNSCALE_MID_ACCUMULATION,
        FaultKind.DOUBLE_UNSCALE,
        FaultKind.UNSCALE_AFTER_STEP,
        FaultKind.STEP_ON_SCALED,
        FaultKind.BACKWARD_PLAIN,
        FaultKind.SCALER_MISMATCH,
        FaultKind.DOUBLE_STEP,
        FaultKind.STEP_WITHOUT_GRADIENTS,
        FaultKind.CLOSURE,
        FaultKind.ZERO_GRAD_MISSING,
        FaultKind.UPDATE_MID_ACCUMULATION,
        FaultKind.UPDATE_BETWEEN_STEPS,
        FaultKind.UPDATE_MISSING,
        FaultKind.UPDATE_WITHOUT_CHECK,
    }
)

#: In their place for a second look: true gradients are below them, scaled ones above. Where a clip always bites, it can
#: hide what is wrong with the gradients that it is given.
LOOSE = {MAX_NORM: "300.0", MAX_VALUE: "100.0"}

Choice = dict[str, Any]


class Unjudged(Exception):
    """A program that fails without any loss scaling says nothing about loss scaling."""


@dataclass(frozen=True)
class TorchVerdict:
    """What torch says: `right`, `wrong` (depends on S) or `raises`, and for which choice of the arguments."""

    word: str
    choice: Choice
    detail: str = ""
    steps: int = 0
    only_plain_steps: bool = False


@dataclass(frozen=True)
class EngineVerdict:
    """The definite faults that torch can show, by line; all others; and what was not analysed."""

    faults: frozenset[tuple[int, FaultKind]]
    others: frozenset[tuple[int, FaultKind]]
    gaps: tuple[str, ...]

    @property
    def kinds(self) -> frozenset[FaultKind]:
        return frozenset(kind for _, kind in self.faults)

    @property
    def doubtful(self) -> frozenset[FaultKind]:
        """The kinds that torch can show of which the engine is not sure."""
        return frozenset(kind for _, kind in self.others) & SHOWN


def function_of(source: str) -> Callable[..., object]:
    """The function to call."""
    namespace: dict[str, Any] = {"__name__": "generated"}
    exec(compile(source, "<program>", "exec"), namespace)
    return namespace["program"]  # type: ignore[no-any-return]


def choices(parameters: Sequence[str], everything: bool = False) -> list[Choice]:
    """
    Values for what a program's callers choose: a program is wrong if any of them shows it.

    `everything`: also those that only few programs need, such as a last window all of whose batches are skipped.
    """
    accums = (2, 1, 3) if "accum" in parameters else (None,)
    flags = (True, False) if "use_amp" in parameters or "scaler" in parameters else (True,)
    skips: tuple[Any, ...] = ({1}, {0, 3}, {2, 5}) if "skip" in parameters else (None,)
    lengths = (6, 5)
    if everything:
        lengths = (6, 5, 4)
        skips += ({4},) if "skip" in parameters else ()
    return [
        {"accum": accum, "use_amp": flag, "skip": skip, "batches": batches}
        for flag in flags
        for skip in (skips if flag else skips[:1])
        for accum in accums
        for batches in (lengths if everything or (flag and accum != 1) else (6,))
    ]


def filled(choice: Choice, parameters: Sequence[str], source: str) -> dict[str, Callable[[testing.Kit], object]]:
    """The `fill` of a choice."""
    fill: dict[str, Callable[[testing.Kit], object]] = {
        "loader": lambda kit: kit.loader[: choice["batches"]],
        "accum": lambda kit: choice["accum"],
        "use_amp": lambda kit: choice["use_amp"],
        "skip": lambda kit: choice["skip"],
    }
    if "scaler" in parameters and not choice["use_amp"] and choice.get("switches"):
        fill["scaler"] = _disabled_scaler
    if "scaler" in parameters and not choice["use_amp"]:
        if re.search(r"scaler is (not )?None", source):
            fill["scaler"] = lambda kit: None
        elif "enabled=use_amp" in source or "enabled=self.use_amp" in source:  # autocast's flag is the scaler's
            fill["scaler"] = _disabled_scaler
    return fill


def _disabled_scaler(kit: testing.Kit) -> Any:
    return importlib.import_module("torch").amp.GradScaler(kit.device, enabled=False)


def _used_scaler(kit: testing.Kit) -> Any:
    """A scaler in the middle of somebody else's window: that one has stepped, and will not update before us."""
    torch = importlib.import_module("torch")
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    kit.scaler.scale(weight.sum()).backward()
    kit.scaler.step(optimizer)
    kit.optimizer_of_the_other = optimizer  # type: ignore[attr-defined]  # ids must stay unique
    return kit.scaler


_OPTIMIZERS = ("opt", "opt_a", "opt_b")


def _used_optimizer(name: str, kit: testing.Kit) -> Any:
    """An optimizer with scaled gradients that no step has applied yet."""
    optimizer = getattr(kit, name)
    kit.scaler.scale(sum(p.sum() for group in optimizer.param_groups for p in group["params"])).backward()
    return optimizer


def torch_verdict(
    program: Generated,
    everything: bool = False,
    used_scaler: bool = False,
    used_optimizers: bool = False,
    among: Callable[[Choice], Choice | None] = lambda choice: choice,
) -> TorchVerdict:
    """
    Run a program on torch, with one choice of its arguments after the other until one shows that it is wrong.

    `everything`: all choices also with loose clips. `used_scaler`: an argument `scaler` has scaled and checked before;
    `used_optimizers`: those that are arguments hold scaled gradients.
    `among`: what to make of a choice, None to leave it out.
    """
    parameters = program.parameters
    wide = [kept for choice in choices(parameters, everything) if (kept := among(choice)) is not None]
    if "use_amp" not in parameters and not re.search(r"scaler is (not )?None", program.source):
        wide = [choice for choice in wide if choice["use_amp"] or choice.get("switches")]
    loose = program.source
    for literal, other in LOOSE.items():
        loose = re.sub(rf"\b{re.escape(literal)}\b", other, loose)
    steps = scaled_steps = 0
    scales = False
    looks = [("tight", program.source, wide)]
    if loose != program.source:
        looks.append(("loose", loose, wide if everything else wide[:2]))
    for clips, source, some in looks:
        function = function_of(source)
        for choice in some:
            fill = filled(choice, parameters, source)
            if used_scaler:
                fill.setdefault("scaler", _used_scaler)
            if used_optimizers:
                fill |= {name: partial(_used_optimizer, name) for name in parameters if name in _OPTIMIZERS}
            try:
                verdict = testing.judge(function, fill=fill)
            except testing.ProgramError as error:
                raise Unjudged(str(error)) from error
            steps += verdict.steps
            scaled_steps += verdict.steps if verdict.scaled else 0
            scales |= verdict.scaled
            shown = {name: value for name, value in choice.items() if name in parameters} | {
                "batches": choice["batches"],
                "clips": clips,
            }
            if verdict.error is not None:
                return TorchVerdict("raises", shown, str(verdict.error))
            if not verdict.invariant:
                row = max(verdict.rows, key=lambda row: row.difference or 0.0)
                return TorchVerdict("wrong", shown, f"S={row.scale}: {row.intended} -> {row.applied}")
    return TorchVerdict("right", {}, steps=steps, only_plain_steps=scales and not scaled_steps)


def shown_otherwise(program: Generated, kinds: frozenset[FaultKind]) -> bool:
    """Whether torch shows faults that leave the units right: an empty step, a step twice, a hidden overflow."""
    parameters = program.parameters
    function = function_of(program.source)
    left = set(kinds)
    if not left:
        return False
    for choice in choices(parameters):
        fill = filled(choice, parameters, program.source)
        record = testing._run(function, testing._Setting("cpu", 8), fill)
        if any(all(g is None or not g.count_nonzero() for g in gradients) for _, gradients in record.steps):
            left.discard(FaultKind.STEP_WITHOUT_GRADIENTS)
        if record.reapplied:
            left.discard(FaultKind.DOUBLE_STEP)
        if FaultKind.OVERFLOW_HIDDEN in left and testing.judge_overflow(function, fill=fill).hidden:
            left.discard(FaultKind.OVERFLOW_HIDDEN)
        if not left:
            return True
    return False


def engine_verdict(source: str) -> EngineVerdict:
    """What the engine finds."""
    definite: set[tuple[int, FaultKind]] = set()
    others: set[tuple[int, FaultKind]] = set()
    analysis = analyse_program([SourceFile("program.py", None, source)])
    for function in analysis.functions:
        for site in function.sites(object):
            for mark, visit in site._found:
                sure = mark.kind in SHOWN and not visit.world.doubt
                (definite if sure else others).add((site.span.start.row, mark.kind))
    gaps = tuple(gap.message for function in analysis.functions for gap in function.gaps)
    return EngineVerdict(frozenset(definite), frozenset(others - definite), gaps)


@dataclass(frozen=True)
class Comparison:
    """Both verdicts on one program. `problem`: empty, `missed` or `false alarm`; `limit`: the documented one it is."""

    program: Generated
    torch: TorchVerdict
    engine: EngineVerdict
    problem: str
    limit: str = ""


def compare(program: Generated) -> Comparison:
    """Judge a program twice. Raises `Unjudged`."""
    torch = torch_verdict(program)
    engine = engine_verdict(program.source)
    if torch.word == "right" and not torch.steps:
        raise Unjudged("nothing is applied")
    if torch.word == "right" and engine.faults:
        torch = torch_verdict(program, everything=True)
    wrong = torch.word != "right"
    problem = ""
    if wrong and not engine.faults:
        problem = "missed"
    elif not wrong and engine.faults and not any(shown_otherwise(program, k) for k in (engine.kinds, engine.doubtful)):
        problem = "false alarm"
    found = Comparison(program, torch, engine, problem)
    limit = next((name for name, applies in LIMITS.items() if applies(found)), "") if problem else ""
    return dataclasses.replace(found, limit=limit)


def _too_loose_beside_a_right_one(found: Comparison) -> bool:
    right = re.search(rf"clip_grad\w*_\(.*\b{re.escape(MAX_NORM)}[,)]", found.program.source)
    return found.problem == "false alarm" and found.engine.kinds == {FaultKind.CLIP_THRESHOLD_UNIT} and bool(right)


def _unknown_owners(found: Comparison) -> bool:
    given = (
        {"net", "net_a", "net_b", "nets"} & set(found.program.parameters),
        {"opt", "opt_a", "opt_b", "opts"} & set(found.program.parameters),
    )
    several = len(given[1]) > 1 or "opts" in given[1]
    return found.problem == "missed" and several and "SGD(" not in found.program.source


def _scaled_before_update(found: Comparison) -> bool:
    """Whether autograd finds that the scale, which a scaled loss was multiplied with, has been updated since."""
    return (
        found.problem == "missed" and "modified by an inplace operation: [torch.FloatTensor []]" in found.torch.detail
    )


def _left_in_its_variable(found: Comparison) -> bool:
    """Whether what is flagged uses the variable of a loop over a list that is an argument, behind that loop."""
    if found.problem != "false alarm" or not {"nets", "opts"} & set(found.program.parameters):
        return False
    loops = [node for node in ast.walk(ast.parse(found.program.source)) if isinstance(node, ast.For)]

    def uses_what_is_left(row: int) -> bool:
        read = set(re.findall(r"\w+", found.program.source.splitlines()[row - 1]))
        left, bound = set(), set()
        for loop in loops:
            names = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
            (bound if loop.lineno <= row <= (loop.end_lineno or 0) else left).update(names)
        return bool(read & (left - bound))

    return all(uses_what_is_left(row) for row, _ in found.engine.faults)


def _sole_owner(found: Comparison) -> bool:
    """Whether several optimizers are arguments, and only one of them is ever unscaled or stepped."""
    given = {"opt", "opt_a", "opt_b"} & set(found.program.parameters)
    used = {
        name
        for name in given
        if re.search(rf"(step|unscale_)\((self\.)?{name}\)|\b{name}\.step\(", found.program.source)
    }
    return found.problem == "false alarm" and len(given) > 1 and len(used) == 1


def _skipped_clearing(found: Comparison) -> bool:
    skips = "early_continue" in found.program.mistakes and re.search(r" in (self\.)?skip\b", found.program.source)
    return found.problem == "missed" and found.torch.word == "wrong" and bool(skips)


def _dead(found: Comparison) -> bool:
    """Whether no scaled gradient is applied, or what the flagged calls do to gradients changes no applied one."""
    idle = {
        FaultKind.CLIP_SCALED,
        FaultKind.CLIP_PARTIAL,
        FaultKind.CLIP_THRESHOLD_UNIT,
        FaultKind.EDIT_SCALED,
        FaultKind.OVERFLOW_HIDDEN,
        FaultKind.DOUBLE_UNSCALE,
        FaultKind.SCALER_MISMATCH,
        FaultKind.UNSCALE_MID_ACCUMULATION,
        FaultKind.BACKWARD_PLAIN,
    }
    left = {(row, kind) for row, kind in found.engine.faults if kind in idle}
    if found.problem != "false alarm":
        return False
    if found.torch.only_plain_steps:
        return True
    if not left:
        return False
    tree = ast.parse(found.program.source)
    for node in ast.walk(tree):
        for name in ("body", "orelse"):
            if isinstance(inner := getattr(node, name, None), list):
                rows = {row for row, _ in left}
                inner[:] = [_emptied(s) if getattr(s, "lineno", 0) in rows else s for s in inner]
    without = Generated(ast.unparse(ast.fix_missing_locations(tree)))
    rest = found.engine.kinds - idle
    return _same_effect(found.program, without) and (not rest or shown_otherwise(found.program, rest))


def _emptied(statement: ast.stmt) -> ast.stmt:
    """A clip that does nothing; an unscale_ or a backward that ruins the gradients: nobody may notice either."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "backward":
        loss = ast.BinOp(call.func.value, ast.Mult(), ast.Constant(7.0))
        return ast.Expr(ast.Call(ast.Attribute(loss, "backward", ast.Load()), call.args, call.keywords))
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "unscale_":
        spoiled = "[p.grad.fill_(7.0) for group in [].param_groups for p in group['params'] if p.grad is not None]"
        (spoil,) = ast.parse(spoiled).body
        spoil.value.generators[0].iter.value = call.args[0]  # type: ignore[attr-defined]
        return ast.If(ast.Constant(True), [statement, spoil], [])
    if isinstance(statement, ast.Expr):
        return ast.Pass()
    if isinstance(statement, ast.Assign):
        return ast.Assign(statement.targets, ast.Constant(None))
    return statement


def _same_effect(one: Generated, other: Generated) -> bool:
    """Whether the same is applied in every run that scales: what carries no scale is not what was reported."""
    for choice in choices(one.parameters):
        records = [
            testing._run(
                function_of(each.source), testing._Setting("cpu", 8), filled(choice, one.parameters, one.source)
            )
            for each in (one, other)
        ]
        if records[0].scaled and not testing._same_steps(*records, 1e-6):
            return False
    return True


def _another_entry(found: Comparison) -> bool:
    """Whether it fails only because the scaler that it is given is fresh, or the optimizers hold nothing yet."""
    if found.problem != "missed" or found.torch.word != "raises" or "scaler" not in found.program.parameters:
        return False
    verdicts = (torch_verdict(found.program, used_scaler=True, used_optimizers=held) for held in (False, True))
    return any(verdict.word == "right" for verdict in verdicts)


def _switched_off(found: Comparison) -> bool:
    """Whether it fails only where a flag keeps the scaler from scaling and the scaler itself is not disabled."""
    constant = "use_amp=False" in found.program.source
    if found.problem != "missed" or not (constant or found.torch.choice.get("use_amp") is False):
        return False
    switches = {"switches": True, "use_amp": False} if constant else {"switches": True}
    return torch_verdict(found.program, among=lambda choice: choice | switches).word == "right"


def _only_called_without(found: Comparison) -> bool:
    """Whether it goes wrong as soon as the program no longer calls it with mixed precision switched off."""
    constant = "use_amp=False"
    if found.problem != "false alarm" or constant not in found.program.source:
        return False
    switched_on = Generated(found.program.source.replace(constant, "use_amp=True"), found.program.mistakes)
    return not compare(switched_on).problem


def _window_of_one(found: Comparison) -> bool:
    """Whether it fails only where an argument makes each window one batch."""
    if found.problem != "missed" or found.torch.choice.get("accum") != 1:
        return False
    return torch_verdict(found.program, among=lambda choice: choice if choice["accum"] != 1 else None).word == "right"


def _scaled_twice(found: Comparison) -> bool:
    """Whether a loss scaled twice meets as many divisions."""
    twice = re.search(r"scaler\.scale\((self\.)?scaler\.scale\(", found.program.source)
    return found.problem == "false alarm" and bool(twice) and FaultKind.SCALER_MISMATCH in found.engine.kinds


def _no_training(found: Comparison) -> bool:
    """Whether the program has no backward."""
    return found.problem == "missed" and ".backward(" not in found.program.source


def _only_updated(found: Comparison) -> bool:
    """Whether nothing that is done to the argument `scaler` says that it is one."""
    used = re.search(r"scaler\.(scale|unscale_|get_scale|is_enabled)\b", found.program.source)
    both = all(re.search(rf"scaler\.{word}\(", found.program.source) for word in ("step", "update"))
    return found.problem == "missed" and "scaler" in found.program.parameters and not used and not both


def _never_cleared(found: Comparison) -> bool:
    """Whether an optimizer steps that the program never clears."""
    if found.problem != "missed" or found.torch.word != "wrong":
        return False
    optimizers = importlib.import_module("torch.optim")
    cleared: set[int] = set()
    stepped: set[int] = set()
    alive: list[Any] = []
    real = optimizers.Optimizer.zero_grad

    def zero_grad(self: Any, *args: Any, **kwargs: Any) -> None:
        cleared.add(id(self))
        real(self, *args, **kwargs)

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        alive.append(optimizer)
        stepped.add(id(optimizer))

    hook = importlib.import_module("torch.optim.optimizer").register_optimizer_step_post_hook(after)
    program = found.program
    with mock.patch.object(optimizers.Optimizer, "zero_grad", zero_grad):
        for choice in choices(program.parameters):
            fill = filled(choice, program.parameters, program.source)
            testing._run(function_of(program.source), testing._Setting("cpu", 8), fill)
    hook.remove()
    return bool(stepped - cleared)


#: What the two verdicts may differ in, by name: each is told in docs/limitations.md.
LIMITS: dict[str, Callable[[Comparison], bool]] = {
    "a scaler and optimizers that are arguments may have been used before": _another_entry,
    "an argument that switches the scaled branch off is taken to disable the scaler too": _switched_off,
    "an accumulation count that is an argument is taken to be greater than 1": _window_of_one,
    "what a program only calls with mixed precision switched off is judged as if it were on": _only_called_without,
    "the only optimizer that is stepped is taken to own all parameters, whatever others are arguments": _sole_owner,
    "which element of a list that is an argument a loop has left in its variable is not known": _left_in_its_variable,
    "a loss that is scaled twice is reported, even where its gradients are divided twice": _scaled_twice,
    "a function without a backward may get its gradients from elsewhere": _no_training,
    "an argument that is only updated, or only stepped, is not known to be a scaler": _only_updated,
    "a loss that was scaled before an update and goes back behind it raises in autograd": _scaled_before_update,
    "gradients that the program nowhere clears may be cleared elsewhere": _never_cleared,
    "what is done to gradients that are never applied has no effect": _dead,
    "a threshold × S on true gradients beside a clip with the right one changes nothing": _too_loose_beside_a_right_one,
    "whether gradients are cleared hangs on a condition that nothing else shows the value of": _skipped_clearing,
    "several optimizers are arguments, and nothing in the text says whose parameters they own": _unknown_owners,
}


# --- shrinking -------------------------------------------------------------------------------------------------------


def shrink(found: Comparison, limit: int = 400) -> Comparison:
    """A smaller program with the same disagreement: without some statements, with functions put in place."""
    tries = 0
    progress = True
    while progress:
        progress = False
        for source in _smaller(found.program.source):
            tries += 1
            if tries > limit:
                return found
            try:
                candidate = compare(Generated(source, found.program.mistakes))
            except Exception:  # not every part of a program is one
                continue
            if candidate.problem == found.problem and not candidate.limit and _alike(candidate, found):
                found = candidate
                progress = True
                break
    return found


def _alike(one: Comparison, other: Comparison) -> bool:
    """Whether two programs disagree for the same reason, as far as one can tell, and the first still trains."""
    source = one.program.source
    stepped = set(re.findall(r"step\((?:self\.)?(\w+)\)|(\w+)\.step\(\)", source))
    cleared = {name for names in stepped for name in names if name and f"{name}.zero_grad(" in source}
    return (
        one.torch.word == other.torch.word
        and one.engine.kinds <= other.engine.kinds
        and re.sub(r"S=.*", "", one.torch.detail) == re.sub(r"S=.*", "", other.torch.detail)
        and (one.torch.word != "right" or one.torch.steps > 0)
        and cleared == {name for names in stepped for name in names if name}
        and source.count("def fit") == source.count(".fit(")
        and source.count("def train(") == len(re.findall(r"^    train\(", source, re.MULTILINE))
        and ".backward()" in source
        and source.count("other") != 1
        and ("scaler.scale" in source) == ("scaler.scale" in other.program.source)
    )


def _smaller(source: str) -> Iterator[str]:
    """Each program with one statement, or one shell of a block, less; the largest cuts first."""
    spots = _spots(ast.parse(source))
    yield from _without_class(source)
    yield from _inlined(source)
    order = sorted(range(len(spots)), key=lambda k: -spots[k][3])
    for k in order:
        for shell in (False, True):
            fresh = ast.parse(source)
            node, name, i, _ = _spots(fresh)[k]
            inner = getattr(node, name)
            statement = inner[i]
            if isinstance(statement, (ast.FunctionDef, ast.ClassDef, ast.Import)):
                if shell or isinstance(statement, ast.Import):
                    continue
                inner[i : i + 1] = []
            elif shell:
                if not isinstance(statement, (ast.If, ast.For, ast.With)):
                    continue
                if isinstance(statement, ast.For) and set(names_bound([statement.target])) & set(
                    names_read(statement.body)
                ):
                    continue
                inner[i : i + 1] = statement.body
            else:
                inner[i : i + 1] = []
            if not inner and name == "body":
                inner.append(ast.Pass())
            yield _tidy(fresh)


def _spots(tree: ast.Module) -> list[tuple[ast.AST, str, int, int]]:
    return [
        (node, name, i, sum(1 for _ in ast.walk(inner[i])))
        for node in ast.walk(tree)
        for name in ("body", "orelse")
        if isinstance(inner := getattr(node, name, None), list)
        for i in range(len(inner))
    ]


def _inlined(source: str) -> Iterator[str]:
    """Each call of a function of the program that stands alone as a statement, replaced by the function's body."""
    functions = {
        node.name: node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name != "program" and not node.name.startswith("__")
    }
    for k in range(len(_spots(ast.parse(source)))):
        fresh = ast.parse(source)
        node, name, i, _ = _spots(fresh)[k]
        inner = getattr(node, name)
        call = inner[i].value if isinstance(inner[i], ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, (ast.Name, ast.Attribute)):
            continue
        callee = functions.get(call.func.id if isinstance(call.func, ast.Name) else call.func.attr)
        if callee is None or callee.name == "fit" or any(isinstance(n, ast.Return) for n in ast.walk(callee)):
            continue
        parameters = [a.arg for a in callee.args.args if a.arg != "self"]
        values = dict(zip(parameters, call.args)) | {k.arg: k.value for k in call.keywords if k.arg}
        inner[i : i + 1] = [Rename(values).visit(copy.deepcopy(s)) for s in callee.body]
        yield _tidy(fresh)


def _without_class(source: str) -> Iterator[str]:
    """The program without its class, once the class has no methods but two."""
    tree = ast.parse(source)
    trainer = next((node for node in tree.body if isinstance(node, ast.ClassDef)), None)
    program = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "program"), None)
    if trainer is None or program is None or len(trainer.body) != 2:
        return
    init, fit = (node for node in trainer.body if isinstance(node, ast.FunctionDef))
    body = [node for node in init.body if not re.fullmatch(r"self\.(\w+) = \1|pass", ast.unparse(node))]
    program.body = [_NoSelf().visit(node) for node in [*body, *fit.body]]
    tree.body.remove(trainer)
    yield _tidy(tree)


class _NoSelf(ast.NodeTransformer):
    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return ast.Name(node.attr, node.ctx)
        return self.generic_visit(node)


def _tidy(tree: ast.Module) -> str:
    """Without functions that nothing calls and parameters of `program` that nothing uses."""
    text = ast.unparse(tree)
    tree.body = [
        s
        for s in tree.body
        if not isinstance(s, (ast.FunctionDef, ast.ClassDef))
        or s.name == "program"
        or len(re.findall(rf"\b{s.name}\b", text)) > 1
    ]
    for s in tree.body:
        if isinstance(s, ast.ClassDef):
            s.body = [
                m for m in s.body if not isinstance(m, ast.FunctionDef) or m.name == "__init__" or f".{m.name}(" in text
            ]
        if isinstance(s, ast.FunctionDef) and s.name == "program":
            used = {n.id for n in ast.walk(s) if isinstance(n, ast.Name)}
            s.args.args = [a for a in s.args.args if a.arg in used]
    return "\n\n\n".join(ast.unparse(ast.fix_missing_locations(s)) for s in tree.body) + "\n"
