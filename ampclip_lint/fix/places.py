"""Where a fix may put something: the code that unscales, the places before steps and behind backwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

from ampclip_lint.fix.scene import Pair, Scene
from ampclip_lint.fix.tree import Statement, Tree


def unscale_code(scene: Scene, tree: Tree, place: Statement, pair: Pair) -> Iterator[tuple[list[str], bool]]:
    """`unscale_` for a place, under the conditions that the scaled backward has and the place has not; and whether it
    is sure to run where it must.
    """
    call = f"{pair.scaler}.unscale_({pair.optimizer})"
    yield from under_guards(scene, tree, place, [call], pair)


def under_guards(
    scene: Scene, tree: Tree, place: Statement, code: list[str], pair: Pair
) -> Iterator[tuple[list[str], bool]]:
    own = [call for _, call in scene.all_of("scale") if call.receiver == pair.scaler]
    own += [call for _, call in scene.all_of("step", pair=pair)]
    here = [call for call in own if call.statement.function is place.function]
    guards = [scene.missing_guards(place, call) for call in here]
    if not here or any(guard == [] for guard in guards):
        yield code, True
        return
    for guard in guards:
        if guard is not None:
            test = " and ".join(f"({item})" if " or " in item and len(guard) > 1 else item for item in guard)
            yield [f"if {test}:", *(f"{tree.step}{line}" for line in code)], True
    # Where no such condition helps, the bare call may still be right: but it also runs where nothing was scaled.
    yield code, False


def outward(statement: Statement) -> Iterator[Statement]:
    """A statement, then what it stands in, to the end of its function."""
    yield statement
    yield from statement.enclosing


def _over_elements(tree: Tree, scene: Scene, pair: Pair) -> str | None:
    """The head of the loop in which the source goes through the optimizers, where the optimizer is its target."""
    for other, call in scene.all_of("step", "unscale_", "zero_grad"):
        if pair.optimizer in (*call.args[:1], call.receiver):
            for owner in call.statement.enclosing:
                if isinstance(owner.node, cst.For) and pair.optimizer in other.code(owner.node.target):
                    return other.lines[owner.start.row - 1][owner.start.column - 1 :].partition("#")[0].rstrip()
    return None


def optimizer_loops(tree: Tree, scene: Scene, place: Statement) -> Iterator[tuple[list[str], Pair]]:
    """`unscale_` for all optimizers of a loop."""
    for scaler in scene.scalers:
        for optimizer in scene.optimizers:
            head = _over_elements(tree, scene, Pair(scaler, optimizer))
            if head is not None and head.endswith(":") and scene.is_bound(tree, place, scaler):
                iterated = head.rpartition(" in ")[2].rstrip(":")
                if scene.is_bound(tree, place, iterated):
                    yield [head, f"{tree.step}{scaler}.unscale_({optimizer})"], Pair(scaler, optimizer)


def is_clip(statement: Statement) -> bool:
    return any("clip" in call.name for call in statement.calls)


def holds(statement: Statement, test: Callable[[Statement], bool]) -> bool:
    return test(statement) or any(holds(inner, test) for block in statement.blocks for inner in block.statements)


def steps_of(scene: Scene) -> list[tuple[Tree, Statement]]:
    """The statements that step, with the loop around them that does nothing else."""
    found = [
        (tree, tree.lifted(call.statement))
        for tree, call in scene.all_of("step")
        if call.args and call.receiver in scene.scalers
    ]
    return list({id(statement): (tree, statement) for tree, statement in found}.values())


def before_steps(scene: Scene) -> Iterator[tuple[Tree, Statement]]:
    """Where gradients are complete and nothing was done to them: before the clip that precedes a step, or the step."""
    for tree, step in steps_of(scene):
        for outer in outward(step):
            block = outer.block
            for statement in block.statements[: outer.index]:
                if holds(statement, is_clip):
                    yield tree, statement
                    if not is_clip(statement):
                        yield tree, _first_clip(statement)
        yield tree, step
        for caller_tree, caller in scene.entering(step.function):
            for outer in outward(caller):
                for statement in outer.block.statements[: outer.index]:
                    if holds(statement, is_clip):
                        yield caller_tree, statement
            yield caller_tree, caller


def _first_clip(statement: Statement) -> Statement:
    inner = (found for block in statement.blocks for found in block.statements if holds(found, is_clip))
    found = next(inner)
    return found if is_clip(found) else _first_clip(found)
