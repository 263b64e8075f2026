"""Fixes of clips: unscale first, clip elsewhere, another threshold."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ampclip_lint.fix.candidate import SAFE, UNSAFE, Candidate, proposed
from ampclip_lint.fix.places import optimizer_loops, outward, steps_of, unscale_code
from ampclip_lint.fix.scene import Scene, common_block, member
from ampclip_lint.fix.tree import Call, Statement, Tree

# --- AMP101, 102, 105, 106, 501: unscale before the call


def unscale_first(scene: Scene) -> Iterator[Candidate | None]:
    """Move the `unscale_` that comes too late before the call, or insert one, where nothing follows that unscales."""
    assert scene.statement is not None
    places = [(scene.tree, place) for place in outward(scene.statement)]
    places += _since_backward(scene)
    places += [(tree, place) for tree, caller in scene.entering(scene.statement.function) for place in outward(caller)]
    sure: list[Candidate | None] = []
    unsure: list[Candidate | None] = []
    for tree, place in places:
        for pair in scene.pairs(tree, place)[:4]:
            what = f"insert `{pair.scaler}.unscale_({pair.optimizer})` before {_what(scene)}"
            for code, certain in unscale_code(scene, tree, place, pair):
                insert = tree.before(place, code)
                kept = sure if certain else unsure
                for other, call in scene.all_of("unscale_"):
                    late = other.lifted(call.statement)
                    here = late.function is place.function
                    if here and call.args[:1] != (pair.optimizer,):
                        continue
                    # Out of another function it is taken from whoever else calls that.
                    moved = f"move `{pair.scaler}.unscale_({pair.optimizer})` before {_what(scene)}"
                    kind = SAFE if certain and here else UNSAFE
                    (kept if here else unsure).append(proposed(moved, [insert, other.remove(late)], kind))
                kept.append(proposed(what, [insert], SAFE if certain else UNSAFE))
        for code, pair in optimizer_loops(tree, scene, place):
            what = f"insert a loop with `{pair.scaler}.unscale_({pair.optimizer})` before {_what(scene)}"
            insert = tree.before(place, code)
            for other, call in scene.all_of("unscale_", pair=pair):
                if call.statement.function is place.function and call.statement.start > place.start:
                    late = other.lifted(call.statement)
                    sure.append(proposed(what, [insert, other.remove(late)], SAFE))
            sure.append(proposed(what, [insert], SAFE))
            single = [
                other.remove(other.lifted(call.statement))
                for other, call in scene.all_of("unscale_")
                if call.statement.function is place.function and call.statement.start < place.start
            ]
            sure.append(proposed(what, [insert, *single], SAFE))
    yield from sure
    yield from unsure
    yield from _unscale_all(scene)


def _since_backward(scene: Scene) -> Iterator[tuple[Tree, Statement]]:
    """The statements between the call and the last backward on its path, the nearest first: what is read or clipped
    may have been made there.
    """
    assert scene.statement is not None
    made = [found for _, found in scene.trace if any(call.name == "backward" for call in found.calls)]
    block = common_block(scene.statement, made[-1]) if made else None
    if block is not None:
        first, last = member(block, made[-1]).index, member(block, scene.statement).index
        yield from ((scene.tree, statement) for statement in reversed(block.statements[first + 1 : last]))


def _unscale_all(scene: Scene) -> Iterator[Candidate | None]:
    """Two optimizers that are clipped together are unscaled together."""
    assert scene.statement is not None
    for place in outward(scene.statement):
        pairs = [pair for pair in scene.pairs(scene.tree, place) if pair.optimizer in scene.named]
        scalers = {pair.scaler for pair in pairs}
        if len(pairs) > 1 and len(scalers) == 1:
            code = [f"{pair.scaler}.unscale_({pair.optimizer})" for pair in pairs]
            yield proposed(f"unscale before {_what(scene)}", [scene.tree.before(place, code)], SAFE)


def _what(scene: Scene) -> str:
    return {"AMP501": "the read", "AMP105": "the edit"}.get(scene.diagnostic.code, "the clip")


# --- AMP103, 107, 109: clip at another place


def clip_before_step(scene: Scene) -> Iterator[Candidate | None]:
    """Move the clip to where it has an effect: it had none, or another one, so that training changes."""
    assert scene.statement is not None
    clip = scene.tree.lifted(scene.statement)
    gone = scene.tree.remove(clip)
    code = scene.tree.written(clip)
    for tree, step in steps_of(scene):
        if code is None or step.function is not clip.function or clip in step.enclosing:
            continue
        yield proposed("move the clip before the step", [gone, tree.before(step, code)], UNSAFE)
        for pair in scene.pairs(tree, step)[:3]:
            unscale = f"{pair.scaler}.unscale_({pair.optimizer})"
            message = f"move the clip before the step, behind `{unscale}`"
            yield proposed(message, [gone, tree.before(step, [unscale, *code])], UNSAFE)
            for other, call in scene.all_of("unscale_", pair=pair):
                late = other.lifted(call.statement)
                if late.function is step.function and late is not clip:
                    edits = [gone, other.remove(late), tree.before(step, [unscale, *code])]
                    yield proposed(message, edits, UNSAFE)
        for loop, pair in optimizer_loops(tree, scene, step):
            message = f"move the clip before the step, behind `{pair.scaler}.unscale_({pair.optimizer})`"
            yield proposed(message, [gone, tree.before(step, [*loop, *code])], UNSAFE)
    others = [call for _, call in scene.calls if "clip" in call.name and call.statement is not scene.statement]
    if scene.diagnostic.code != "AMP109" or any(call.statement.function is clip.function for call in others):
        yield proposed("remove the clip", [gone], UNSAFE)  # ... which does nothing, or is done again.


# --- AMP104


def same_unit(scene: Scene) -> Iterator[Candidate | None]:
    """Take the scale out of the threshold; that the gradients should carry it instead is the other reading."""
    assert scene.statement is not None
    for tree, call in scene.calls:
        if call.name != "get_scale":
            continue
        product = _product_with(call)
        if product is not None:
            start, end = tree.place(product)
            other = product.left if product.right is call.node else product.right
            yield proposed("take the scale out of the threshold", [tree.edit(start, end, tree.code(other))], UNSAFE)


def _product_with(call: Call) -> cst.BinaryOperation | None:
    """The product or quotient that a call is a factor of."""
    found: list[cst.BinaryOperation] = []

    class Finder(cst.CSTVisitor):
        def visit_BinaryOperation(self, node: cst.BinaryOperation) -> None:
            factor = node.right is call.node or (node.left is call.node and isinstance(node.operator, cst.Multiply))
            if factor and isinstance(node.operator, (cst.Multiply, cst.Divide)):
                found.append(node)

    call.statement.node.visit(Finder())
    return found[0] if found else None


# --- AMP108


def clip_together(scene: Scene) -> Iterator[Candidate | None]:
    """Clip what the loop goes through as one; a bound for each may be meant."""
    assert scene.statement is not None
    call = scene.call
    loop = next((owner for owner in scene.statement.enclosing if isinstance(owner.node, cst.For)), None)
    if call is None or not call.is_statement or loop is None or scene.tree.lifted(call.statement) is not loop:
        return
    assert isinstance(loop.node, cst.For)
    target, iterated = scene.tree.code(loop.node.target), scene.tree.code(loop.node.iter)
    if call.statement.block.owner is not loop or not call.args:
        return  # some are left out, or there are loops in the loop
    tensors = iterated if call.args[0] == target else f"[{call.args[0]} for {target} in {iterated}]"
    if call.args[0].endswith("parameters()"):
        tensors = f"[p for {target} in {iterated} for p in {call.args[0]}]"
    start, end = scene.tree.place(call.node.args[0].value)
    whole = scene.tree.text(call.start, start) + tensors + scene.tree.text(end, call.end)
    yield proposed("clip them together", [scene.tree.replace(loop, [whole])], UNSAFE)


# --- AMP503


def let_overflow_pass(scene: Scene) -> Iterator[Candidate | None]:
    """Take `error_if_nonfinite=True` out: somebody asked for it."""
    assert scene.statement is not None
    for call in scene.statement.calls:
        args = call.node.args
        for index, argument in enumerate(args):
            if argument.keyword is not None and argument.keyword.value == "error_if_nonfinite" and index:
                start = scene.tree.place(args[index - 1].value)[1]
                end = scene.tree.place(argument.value)[1]
                message = "remove `error_if_nonfinite=True`, so that the scaler skips the step"
                yield proposed(message, [scene.tree.edit(start, end, "")], UNSAFE)
