"""Fixes of `unscale_`: at another place, once."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ampclip_lint.fix.candidate import SAFE, UNSAFE, Candidate, proposed
from ampclip_lint.fix.places import before_steps, holds, is_clip, optimizer_loops, steps_of, under_guards, unscale_code
from ampclip_lint.fix.scene import Pair, Scene
from ampclip_lint.fix.tree import Statement, Tree
from ampclip_lint.fix.updates import update_later

# --- AMP201, 203: at another place


def unscale_later(scene: Scene) -> Iterator[Candidate | None]:
    """Move `unscale_` to where the window is complete: before the clip that precedes the step, or before the step."""
    assert scene.statement is not None
    early = scene.tree.lifted(scene.statement)
    gone = scene.tree.remove(early)
    for tree, place in before_steps(scene):
        if place is early or early in place.enclosing:
            continue
        if place.function is early.function and place.function is not None:
            code = scene.tree.written(early)
            inner = scene.tree.written(scene.statement)
            for written in (inner, code):
                if written is not None and scene.call is not None:
                    pair = Pair(scene.call.receiver, scene.call.args[0] if scene.call.args else "")
                    for guarded, certain in under_guards(scene, tree, place, written, pair):
                        edits = [gone, tree.before(place, guarded)]
                        yield proposed(_moved(scene, place), edits, SAFE if certain else UNSAFE)
        for pair in scene.pairs(tree, place)[:3]:
            for code, certain in unscale_code(scene, tree, place, pair):
                # Out of another function it is taken from whoever else calls that.
                kind = SAFE if certain and place.function is early.function else UNSAFE
                yield proposed(_moved(scene, place), [gone, tree.before(place, code)], kind)
        for code, _ in optimizer_loops(tree, scene, place):
            kind = SAFE if place.function is early.function else UNSAFE
            yield proposed(_moved(scene, place), [gone, tree.before(place, code)], kind)
    yield from _unscale_and_clip_later(scene, early)
    # Without it the step unscales by itself; but something between may need true gradients.
    yield proposed("remove this `unscale_`", [gone], UNSAFE)


def _unscale_and_clip_later(scene: Scene, early: Statement) -> Iterator[Candidate | None]:
    """Take along the clips behind it, which would meet scaled gradients where they stand."""
    block = early.block
    follow = [early]
    for statement in block.statements[early.index + 1 :]:
        if not holds(statement, is_clip):
            break
        follow.append(statement)
    if len(follow) < 2:
        return
    written = [scene.tree.written(statement) for statement in follow]
    if any(code is None for code in written):
        return
    code = [line for lines in written for line in lines or ()]
    gone = [scene.tree.remove(statement) for statement in follow]
    for tree, step in steps_of(scene):
        if step.function is early.function and not any(statement in (step, *step.enclosing) for statement in follow):
            moved = "move `unscale_` and the clip behind it before the step"
            yield proposed(moved, [*gone, tree.before(step, code)], UNSAFE)


def _moved(scene: Scene, place: Statement) -> str:
    where = "the clip" if holds(place, is_clip) else "the step"
    return f"move this `unscale_` before {where}"


# --- AMP202


def divide_once(scene: Scene) -> Iterator[Candidate | None]:
    assert scene.statement is not None
    tree, statement = scene.tree, scene.statement
    if scene.call is not None and scene.call.name == "update":
        yield from update_later(scene)
        return
    whole = tree.lifted(statement)
    if scene.call is not None and scene.call.name == "unscale_":
        # Called twice it raises; with another optimizer's name it belongs to nothing that is stepped.
        for _, call in scene.all_of("step"):
            if call.args and call.receiver == scene.call.receiver and call.args[0] != scene.call.args[0]:
                wanted = call.args[0]
                if scene.is_bound(tree, statement, wanted) and scene.call.node.args:
                    start, end = tree.place(scene.call.node.args[0].value)
                    message = f"unscale `{wanted}`, which is stepped"
                    yield proposed(message, [tree.edit(start, end, wanted)], UNSAFE)
        yield proposed("remove this `unscale_`", [tree.remove(whole)], SAFE)
        for other, call in scene.all_of("unscale_"):
            if call.statement is not statement:
                found = other.lifted(call.statement)
                yield proposed("remove the other `unscale_`", [other.remove(found)], SAFE)
        return
    # By hand and by the scaler. What stands there may be `unscale_` in other words, or one division too many; which of
    # both was meant nobody can tell.
    loops = [place for place in (statement, *statement.enclosing) if isinstance(place.node, cst.For)]
    outermost = next((place for place in reversed(loops) if _is_loop_over_gradients(tree, place)), None)
    divided = outermost or whole
    for pair in scene.pairs(tree, divided)[:3]:
        for code, _ in unscale_code(scene, tree, divided, pair):
            message = f"let `{pair.scaler}.unscale_({pair.optimizer})` divide"
            yield proposed(message, [tree.replace(divided, code)], UNSAFE)
    for code, pair in optimizer_loops(tree, scene, divided):
        message = f"let `{pair.scaler}.unscale_({pair.optimizer})` divide"
        yield proposed(message, [tree.replace(divided, code)], UNSAFE)
    yield from _instead_of_a_helper(scene, divided)
    yield proposed("remove the division by hand", [tree.remove(divided)], UNSAFE)
    for other, call in scene.all_of("unscale_"):
        found = other.lifted(call.statement)
        yield proposed("remove the `unscale_`", [other.remove(found)], UNSAFE)


def _instead_of_a_helper(scene: Scene, divided: Statement) -> Iterator[Candidate | None]:
    """Where a function does nothing but divide, its call is what stands for `unscale_`."""
    function = divided.function
    if function is None or [block.statements for block in function.blocks] != [[divided]]:
        return
    for tree, caller in scene.entering(function):
        if isinstance(caller.node, cst.Expr):
            for pair in scene.pairs(tree, caller)[:3]:
                for code, _ in unscale_code(scene, tree, caller, pair):
                    message = f"let `{pair.scaler}.unscale_({pair.optimizer})` divide"
                    yield proposed(message, [tree.replace(caller, code)], UNSAFE)


def _is_loop_over_gradients(tree: Tree, place: Statement) -> bool:
    """Whether a loop touches nothing but gradients."""
    return all(
        ".grad" in tree.text(inner.start, inner.end) or isinstance(inner.node, (cst.For, cst.If, cst.Continue))
        for block in place.blocks
        for inner in block.statements
    )


# --- AMP203


def unscale_before_step(scene: Scene) -> Iterator[Candidate | None]:
    """Move the late `unscale_`, with the clip behind it, before the step that it was meant for."""
    assert scene.statement is not None
    late = scene.tree.lifted(scene.statement)
    gone = scene.tree.remove(late)
    written = scene.tree.written(late)
    clips: list[Statement] = []
    for statement in late.block.statements[late.index + 1 :]:
        if not holds(statement, is_clip):
            break
        clips.append(statement)
    for tree, place in before_steps(scene):
        if place.function is not late.function or place.start >= late.start or written is None:
            continue
        if clips:
            codes = [scene.tree.written(clip) for clip in clips]
            if all(code is not None for code in codes):
                code = [*written, *(line for lines in codes for line in lines or ())]
                edits = [gone, *(scene.tree.remove(clip) for clip in clips), tree.before(place, code)]
                # The clip did nothing where it stood: that it was meant is likely, and not certain.
                yield proposed("move this `unscale_` and the clip behind it before the step", edits, UNSAFE)
        yield proposed(_moved(scene, place), [gone, tree.before(place, written)], SAFE)
    # It raises where it stands, and the step has unscaled already.
    yield proposed("remove this `unscale_`", [gone], SAFE)
    yield from unscale_later(scene)
