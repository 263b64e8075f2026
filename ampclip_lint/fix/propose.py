"""What might put a finding right: for each code the candidates for an edit, in the order in which they are tried.

A candidate is a guess that a person would make from the text. Whether it is right is decided by analysing the program
with it, so a proposer may guess, but it writes only what can stand at that place, and it says what a person has to look
at: a candidate is *safe* if only the wrong call changes, and *unsafe* if it decides something that the text leaves open
(which steps happen, which of two readings was meant).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

import libcst as cst

from ampclip_lint.diagnostics import Applicability, Edit
from ampclip_lint.fix.candidate import Candidate
from ampclip_lint.fix.scene import Pair, Scene, common_block, member
from ampclip_lint.fix.tree import Block, Call, Statement, Tree

SAFE, UNSAFE = Applicability.SAFE, Applicability.UNSAFE

Proposer = Callable[[Scene], Iterator[Candidate | None]]


def candidates(scene: Scene) -> Iterator[Candidate]:
    """The candidates for a finding, the best first, none twice."""
    seen: set[tuple[Edit, ...]] = set()
    propose = TABLE.get(scene.diagnostic.code)
    if propose is None or scene.statement is None:
        return
    for candidate in propose(scene):
        if candidate is not None and candidate.edits not in seen:
            seen.add(candidate.edits)
            yield candidate


def _candidate(message: str, edits: Iterable[Edit | None], applicability: Applicability) -> Candidate | None:
    """A candidate; None where one of its edits can't be made, or two of them would meet."""
    made = tuple(edits)
    if any(edit is None for edit in made):
        return None
    whole = tuple(sorted((edit for edit in made if edit is not None), key=lambda edit: edit.span))
    for left, right in pairwise(whole):
        if left.span.filename == right.span.filename and left.span.end > right.span.start:
            return None
    return Candidate(message, whole, applicability)


# --- places


def _unscale_code(scene: Scene, tree: Tree, place: Statement, pair: Pair) -> Iterator[tuple[list[str], bool]]:
    """`unscale_` for a place, under the conditions that the scaled backward has and the place has not; and whether it
    is sure to run where it must.
    """
    call = f"{pair.scaler}.unscale_({pair.optimizer})"
    yield from _guarded(scene, tree, place, [call], pair)


def _guarded(
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


def _outward(statement: Statement) -> Iterator[Statement]:
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


def _optimizer_loops(tree: Tree, scene: Scene, place: Statement) -> Iterator[tuple[list[str], Pair]]:
    """`unscale_` for all optimizers of a loop."""
    for scaler in scene.scalers:
        for optimizer in scene.optimizers:
            head = _over_elements(tree, scene, Pair(scaler, optimizer))
            if head is not None and head.endswith(":") and scene.is_bound(tree, place, scaler):
                iterated = head.rpartition(" in ")[2].rstrip(":")
                if scene.is_bound(tree, place, iterated):
                    yield [head, f"{tree.step}{scaler}.unscale_({optimizer})"], Pair(scaler, optimizer)


def _is_clip(statement: Statement) -> bool:
    return any("clip" in call.name for call in statement.calls)


def _holds(statement: Statement, test: Callable[[Statement], bool]) -> bool:
    return test(statement) or any(_holds(inner, test) for block in statement.blocks for inner in block.statements)


def _steps(scene: Scene) -> list[tuple[Tree, Statement]]:
    """The statements that step, with the loop around them that does nothing else."""
    found = [
        (tree, tree.lifted(call.statement))
        for tree, call in scene.all_of("step")
        if call.args and call.receiver in scene.scalers
    ]
    return list({id(statement): (tree, statement) for tree, statement in found}.values())


def _before_steps(scene: Scene) -> Iterator[tuple[Tree, Statement]]:
    """Where gradients are complete and nothing was done to them: before the clip that precedes a step, or the step."""
    for tree, step in _steps(scene):
        for outer in _outward(step):
            block = outer.block
            for statement in block.statements[: outer.index]:
                if _holds(statement, _is_clip):
                    yield tree, statement
                    if not _is_clip(statement):
                        yield tree, _first_clip(statement)
        yield tree, step
        for caller_tree, caller in scene.entering(step.function):
            for outer in _outward(caller):
                for statement in outer.block.statements[: outer.index]:
                    if _holds(statement, _is_clip):
                        yield caller_tree, statement
            yield caller_tree, caller


def _first_clip(statement: Statement) -> Statement:
    inner = (found for block in statement.blocks for found in block.statements if _holds(found, _is_clip))
    found = next(inner)
    return found if _is_clip(found) else _first_clip(found)


# --- AMP101, 102, 105, 106, 501: unscale before the call


def _unscale_first(scene: Scene) -> Iterator[Candidate | None]:
    """Move the `unscale_` that comes too late before the call, or insert one, where nothing follows that unscales."""
    assert scene.statement is not None
    places = [(scene.tree, place) for place in _outward(scene.statement)]
    places += _since_backward(scene)
    places += [(tree, place) for tree, caller in scene.entering(scene.statement.function) for place in _outward(caller)]
    sure: list[Candidate | None] = []
    unsure: list[Candidate | None] = []
    for tree, place in places:
        for pair in scene.pairs(tree, place)[:4]:
            what = f"insert `{pair.scaler}.unscale_({pair.optimizer})` before {_what(scene)}"
            for code, certain in _unscale_code(scene, tree, place, pair):
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
                    (kept if here else unsure).append(_candidate(moved, [insert, other.remove(late)], kind))
                kept.append(_candidate(what, [insert], SAFE if certain else UNSAFE))
        for code, pair in _optimizer_loops(tree, scene, place):
            what = f"insert a loop with `{pair.scaler}.unscale_({pair.optimizer})` before {_what(scene)}"
            insert = tree.before(place, code)
            for other, call in scene.all_of("unscale_", pair=pair):
                if call.statement.function is place.function and call.statement.start > place.start:
                    late = other.lifted(call.statement)
                    sure.append(_candidate(what, [insert, other.remove(late)], SAFE))
            sure.append(_candidate(what, [insert], SAFE))
            single = [
                other.remove(other.lifted(call.statement))
                for other, call in scene.all_of("unscale_")
                if call.statement.function is place.function and call.statement.start < place.start
            ]
            sure.append(_candidate(what, [insert, *single], SAFE))
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
    for place in _outward(scene.statement):
        pairs = [pair for pair in scene.pairs(scene.tree, place) if pair.optimizer in scene.named]
        scalers = {pair.scaler for pair in pairs}
        if len(pairs) > 1 and len(scalers) == 1:
            code = [f"{pair.scaler}.unscale_({pair.optimizer})" for pair in pairs]
            yield _candidate(f"unscale before {_what(scene)}", [scene.tree.before(place, code)], SAFE)


def _what(scene: Scene) -> str:
    return {"AMP501": "the read", "AMP105": "the edit"}.get(scene.diagnostic.code, "the clip")


# --- AMP201, 203: unscale at another place


def _unscale_later(scene: Scene) -> Iterator[Candidate | None]:
    """Move `unscale_` to where the window is complete: before the clip that precedes the step, or before the step."""
    assert scene.statement is not None
    early = scene.tree.lifted(scene.statement)
    gone = scene.tree.remove(early)
    for tree, place in _before_steps(scene):
        if place is early or early in place.enclosing:
            continue
        if place.function is early.function and place.function is not None:
            code = scene.tree.written(early)
            inner = scene.tree.written(scene.statement)
            for written in (inner, code):
                if written is not None and scene.call is not None:
                    pair = Pair(scene.call.receiver, scene.call.args[0] if scene.call.args else "")
                    for guarded, certain in _guarded(scene, tree, place, written, pair):
                        edits = [gone, tree.before(place, guarded)]
                        yield _candidate(_moved(scene, place), edits, SAFE if certain else UNSAFE)
        for pair in scene.pairs(tree, place)[:3]:
            for code, certain in _unscale_code(scene, tree, place, pair):
                # Out of another function it is taken from whoever else calls that.
                kind = SAFE if certain and place.function is early.function else UNSAFE
                yield _candidate(_moved(scene, place), [gone, tree.before(place, code)], kind)
        for code, _ in _optimizer_loops(tree, scene, place):
            kind = SAFE if place.function is early.function else UNSAFE
            yield _candidate(_moved(scene, place), [gone, tree.before(place, code)], kind)
    yield from _unscale_and_clip_later(scene, early)
    # Without it the step unscales by itself; but something between may need true gradients.
    yield _candidate("remove this `unscale_`", [gone], UNSAFE)


def _unscale_and_clip_later(scene: Scene, early: Statement) -> Iterator[Candidate | None]:
    """Take along the clips behind it, which would meet scaled gradients where they stand."""
    block = early.block
    follow = [early]
    for statement in block.statements[early.index + 1 :]:
        if not _holds(statement, _is_clip):
            break
        follow.append(statement)
    if len(follow) < 2:
        return
    written = [scene.tree.written(statement) for statement in follow]
    if any(code is None for code in written):
        return
    code = [line for lines in written for line in lines or ()]
    gone = [scene.tree.remove(statement) for statement in follow]
    for tree, step in _steps(scene):
        if step.function is early.function and not any(statement in (step, *step.enclosing) for statement in follow):
            moved = "move `unscale_` and the clip behind it before the step"
            yield _candidate(moved, [*gone, tree.before(step, code)], UNSAFE)


def _moved(scene: Scene, place: Statement) -> str:
    where = "the clip" if _holds(place, _is_clip) else "the step"
    return f"move this `unscale_` before {where}"


# --- AMP202


def _divide_once(scene: Scene) -> Iterator[Candidate | None]:
    assert scene.statement is not None
    tree, statement = scene.tree, scene.statement
    if scene.call is not None and scene.call.name == "update":
        yield from _update_later(scene)
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
                    yield _candidate(message, [tree.edit(start, end, wanted)], UNSAFE)
        yield _candidate("remove this `unscale_`", [tree.remove(whole)], SAFE)
        for other, call in scene.all_of("unscale_"):
            if call.statement is not statement:
                found = other.lifted(call.statement)
                yield _candidate("remove the other `unscale_`", [other.remove(found)], SAFE)
        return
    # By hand and by the scaler. What stands there may be `unscale_` in other words, or one division too many; which of
    # both was meant nobody can tell.
    loops = [place for place in (statement, *statement.enclosing) if isinstance(place.node, cst.For)]
    outermost = next((place for place in reversed(loops) if _is_loop_over_gradients(tree, place)), None)
    divided = outermost or whole
    for pair in scene.pairs(tree, divided)[:3]:
        for code, _ in _unscale_code(scene, tree, divided, pair):
            message = f"let `{pair.scaler}.unscale_({pair.optimizer})` divide"
            yield _candidate(message, [tree.replace(divided, code)], UNSAFE)
    for code, pair in _optimizer_loops(tree, scene, divided):
        message = f"let `{pair.scaler}.unscale_({pair.optimizer})` divide"
        yield _candidate(message, [tree.replace(divided, code)], UNSAFE)
    yield from _instead_of_a_helper(scene, divided)
    yield _candidate("remove the division by hand", [tree.remove(divided)], UNSAFE)
    for other, call in scene.all_of("unscale_"):
        found = other.lifted(call.statement)
        yield _candidate("remove the `unscale_`", [other.remove(found)], UNSAFE)


def _instead_of_a_helper(scene: Scene, divided: Statement) -> Iterator[Candidate | None]:
    """Where a function does nothing but divide, its call is what stands for `unscale_`."""
    function = divided.function
    if function is None or [block.statements for block in function.blocks] != [[divided]]:
        return
    for tree, caller in scene.entering(function):
        if isinstance(caller.node, cst.Expr):
            for pair in scene.pairs(tree, caller)[:3]:
                for code, _ in _unscale_code(scene, tree, caller, pair):
                    message = f"let `{pair.scaler}.unscale_({pair.optimizer})` divide"
                    yield _candidate(message, [tree.replace(caller, code)], UNSAFE)


def _is_loop_over_gradients(tree: Tree, place: Statement) -> bool:
    """Whether a loop touches nothing but gradients."""
    return all(
        ".grad" in tree.text(inner.start, inner.end) or isinstance(inner.node, (cst.For, cst.If, cst.Continue))
        for block in place.blocks
        for inner in block.statements
    )


# --- AMP203


def _unscale_before_step(scene: Scene) -> Iterator[Candidate | None]:
    """Move the late `unscale_`, with the clip behind it, before the step that it was meant for."""
    assert scene.statement is not None
    late = scene.tree.lifted(scene.statement)
    gone = scene.tree.remove(late)
    written = scene.tree.written(late)
    clips: list[Statement] = []
    for statement in late.block.statements[late.index + 1 :]:
        if not _holds(statement, _is_clip):
            break
        clips.append(statement)
    for tree, place in _before_steps(scene):
        if place.function is not late.function or place.start >= late.start or written is None:
            continue
        if clips:
            codes = [scene.tree.written(clip) for clip in clips]
            if all(code is not None for code in codes):
                code = [*written, *(line for lines in codes for line in lines or ())]
                edits = [gone, *(scene.tree.remove(clip) for clip in clips), tree.before(place, code)]
                # The clip did nothing where it stood: that it was meant is likely, and not certain.
                yield _candidate("move this `unscale_` and the clip behind it before the step", edits, UNSAFE)
        yield _candidate(_moved(scene, place), [gone, tree.before(place, written)], SAFE)
    # It raises where it stands, and the step has unscaled already.
    yield _candidate("remove this `unscale_`", [gone], SAFE)
    yield from _unscale_later(scene)


# --- AMP103, 107, 109: clip at another place


def _clip_before_step(scene: Scene) -> Iterator[Candidate | None]:
    """Move the clip to where it has an effect: it had none, or another one, so that training changes."""
    assert scene.statement is not None
    clip = scene.tree.lifted(scene.statement)
    gone = scene.tree.remove(clip)
    code = scene.tree.written(clip)
    for tree, step in _steps(scene):
        if code is None or step.function is not clip.function or clip in step.enclosing:
            continue
        yield _candidate("move the clip before the step", [gone, tree.before(step, code)], UNSAFE)
        for pair in scene.pairs(tree, step)[:3]:
            unscale = f"{pair.scaler}.unscale_({pair.optimizer})"
            message = f"move the clip before the step, behind `{unscale}`"
            yield _candidate(message, [gone, tree.before(step, [unscale, *code])], UNSAFE)
            for other, call in scene.all_of("unscale_", pair=pair):
                late = other.lifted(call.statement)
                if late.function is step.function and late is not clip:
                    edits = [gone, other.remove(late), tree.before(step, [unscale, *code])]
                    yield _candidate(message, edits, UNSAFE)
        for loop, pair in _optimizer_loops(tree, scene, step):
            message = f"move the clip before the step, behind `{pair.scaler}.unscale_({pair.optimizer})`"
            yield _candidate(message, [gone, tree.before(step, [*loop, *code])], UNSAFE)
    others = [call for _, call in scene.calls if "clip" in call.name and call.statement is not scene.statement]
    if scene.diagnostic.code != "AMP109" or any(call.statement.function is clip.function for call in others):
        yield _candidate("remove the clip", [gone], UNSAFE)  # ... which does nothing, or is done again.


# --- AMP104


def _same_unit(scene: Scene) -> Iterator[Candidate | None]:
    """Take the scale out of the threshold; that the gradients should carry it instead is the other reading."""
    assert scene.statement is not None
    for tree, call in scene.calls:
        if call.name != "get_scale":
            continue
        product = _product_with(call)
        if product is not None:
            start, end = tree.place(product)
            other = product.left if product.right is call.node else product.right
            yield _candidate("take the scale out of the threshold", [tree.edit(start, end, tree.code(other))], UNSAFE)


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


# --- AMP301, 302: step by the scaler


def _step_by_scaler(scene: Scene) -> Iterator[Candidate | None]:
    """Let the scaler step: it unscales, looks for an overflow, and then calls `optimizer.step()`."""
    assert scene.statement is not None
    tree, call = scene.tree, scene.call
    if call is None or call.name != "step" or call.args:
        return  # a closure can't be handed on
    for scaler in scene.scalers[:3]:
        if not scene.is_bound(tree, call.statement, scaler):
            continue
        step = f"{scaler}.step({call.receiver})"
        message = f"replace `{call.receiver}.step()` by `{step}`"
        update = f"{scaler}.update()"
        added = f"{message} and add `{update}`"
        scaled = [found for _, found in scene.all_of("scale") if found.receiver == scaler]
        scaled = [found for found in scaled if found.statement.function is call.statement.function]
        guards = [scene.missing_guards(call.statement, found) for found in scaled]
        if not scaled or any(guard == [] for guard in guards):
            replaced = tree.edit(call.start, call.end, step)
            yield _candidate(message, [replaced], SAFE)
            whole = tree.lifted(call.statement)
            for place in (call.statement, whole):
                yield _candidate(added, [replaced, tree.after(place, [update])], SAFE)
            continue
        statement = call.statement
        if not call.is_statement or statement.shares_line:
            continue
        for guard in guards:
            if guard:
                test = " and ".join(guard)
                plain = f"{tree.step}{call.receiver}.step()"
                for inner, text in (([step], message), ([step, update], added)):
                    code = [f"if {test}:", *(f"{tree.step}{line}" for line in inner), "else:", plain]
                    content = f"\n{tree.indent(statement)}".join(code)
                    yield _candidate(text, [tree.edit(statement.start, statement.end, content)], SAFE)
                break


# --- AMP303, 304


def _scale_backward(scene: Scene) -> Iterator[Candidate | None]:
    """Scale the loss of the plain backward."""
    assert scene.statement is not None
    plain = [(tree, call) for tree, call in scene.all_of("backward") if ".scale(" not in tree.code(call.node)]
    first = [found for found in plain if scene.call is not None and found[1].node is scene.call.node]
    on_path = {id(statement) for _, statement in scene.trace}
    first += [found for found in plain if id(found[1].statement) in on_path and found not in first]
    for tree, call in first:
        for scaler in scene.scalers[:2]:
            if not scene.is_bound(tree, call.statement, scaler):
                continue
            scaled = _scaled(tree, call, scaler)
            if scaled is None:
                continue
            edit, message = scaled, f"scale the loss: `{scaled.content}`"
            # In an arm beside one that scales, or for when that fails, the plain backward may be meant, and the step be
            # what is wrong.
            other = call.statement.block.other
            beside = other is not None and any(
                found.receiver == scaler and member(other, found.statement) in other.statements
                for _, found in scene.all_of("scale")
                if _is_in(found.statement, other)
            )
            handled = any(isinstance(owner.node, cst.Try) for owner in call.statement.enclosing)
            kind = UNSAFE if beside or handled else SAFE
            for other_tree, dropped in scene.all_of("scale"):
                if dropped.is_statement and dropped.receiver == scaler:
                    gone = other_tree.remove(dropped.statement)
                    yield _candidate(message, [edit, gone], kind)
            yield _candidate(message, [edit], kind)


def _scaled(tree: Tree, call: Call, scaler: str) -> Edit | None:
    """Put the loss of a backward into `scaler.scale(...)`."""
    if call.receiver in ("torch.autograd", "autograd"):
        if not call.node.args or call.node.args[0].keyword is not None:
            return None
        start, end = tree.place(call.node.args[0].value)
        return tree.edit(start, end, f"{scaler}.scale({tree.code(call.node.args[0].value)})")
    if not isinstance(call.node.func, cst.Attribute):
        return None
    receiver = call.node.func.value
    if not receiver.lpar:
        start, end = tree.place(receiver)
        return tree.edit(start, end, f"{scaler}.scale({tree.code(receiver)})")
    loss = tree.code(receiver.with_changes(lpar=(), rpar=()))
    return tree.edit(call.start, tree.place(call.node.func.dot)[0], f"{scaler}.scale({loss})")


def _is_in(statement: Statement, block: Block) -> bool:
    return any(arm is block for arm in statement.arms)


def _one_scaler(scene: Scene) -> Iterator[Candidate | None]:
    """Let the scaler that scaled also unscale and step; which of both was meant the text leaves open."""
    assert scene.statement is not None
    for wanted in scene.scalers:
        for wrong in scene.scalers:
            if wrong == wanted:
                continue
            wrongly = [(tree, call) for tree, call in scene.all_of("unscale_", "step") if call.receiver == wrong]
            named = [found for found in wrongly if found[1].args[:1] and found[1].args[0] in scene.named]
            alone = [found for found in wrongly if scene.call is not None and found[1].node is scene.call.node]
            for chosen in (alone, named, wrongly):
                usable = [found for found in chosen if scene.is_bound(found[0], found[1].statement, wanted)]
                if usable and len(usable) == len(chosen):
                    edits = [_receiver(tree, call, wanted) for tree, call in usable]
                    yield _candidate(f"use `{wanted}`, which scaled these gradients", edits, UNSAFE)
    on_path = {id(statement) for _, statement in scene.trace}
    for wanted in scene.scalers:
        for tree, call in scene.all_of("scale"):
            bound = id(call.statement) in on_path and scene.is_bound(tree, call.statement, wanted)
            if bound and call.receiver != wanted:
                yield _candidate(f"scale with `{wanted}`", [_receiver(tree, call, wanted)], UNSAFE)


def _receiver(tree: Tree, call: Call, name: str) -> Edit:
    assert isinstance(call.node.func, cst.Attribute)
    start, end = tree.place(call.node.func.value)
    return tree.edit(start, end, name)


# --- AMP305, 306, 308: which steps happen


def _step_once(scene: Scene) -> Iterator[Candidate | None]:
    """Remove one of the two steps: which one decides what is applied, so a person has to look."""
    assert scene.statement is not None
    whole = scene.tree.lifted(scene.statement)
    if scene.call is not None:
        name = f"{scene.call.receiver}.{scene.call.name}({', '.join(scene.call.args)})"
        yield _candidate(f"remove `{name}`", [scene.tree.remove(whole)], UNSAFE)
    for tree, call in scene.all_of("step"):
        if not call.args and call.receiver in scene.optimizers and call.is_statement:
            yield _candidate(f"remove `{call.receiver}.step()`", [tree.remove(tree.lifted(call.statement))], UNSAFE)


def _clear_later(scene: Scene) -> Iterator[Candidate | None]:
    """Move the `zero_grad()` that comes before the step: behind it, or before the backward."""
    assert scene.statement is not None
    on_path = [id(statement) for _, statement in scene.trace]
    for tree, call in scene.all_of("zero_grad"):
        if id(call.statement) not in on_path or not _throws_gradients_away(scene, call.statement):
            continue
        clear = tree.lifted(call.statement)
        code = tree.written(clear)
        if code is None:
            continue
        gone = tree.remove(clear)
        for other, backward in scene.all_of("backward"):
            for place in _outward(backward.statement):
                if place.function is clear.function and clear not in (place, *place.enclosing):
                    message = f"move `{call.receiver}.zero_grad()` before the backward"
                    yield _candidate(message, [gone, other.before(place, code)], UNSAFE)
        for other, step in _steps(scene):
            if step.function is clear.function and clear not in step.enclosing:
                message = f"move `{call.receiver}.zero_grad()` behind the step"
                yield _candidate(message, [gone, other.after(step, code)], UNSAFE)


def _throws_gradients_away(scene: Scene, clear: Statement) -> bool:
    """Whether a backward stands before the clearing; without one, what is missing is the backward."""
    assert scene.statement is not None
    if clear.function is scene.statement.function and clear.start > scene.statement.start:
        return False  # It belongs to the next round.
    made = [call for _, call in scene.all_of("backward") if call.statement.function is clear.function]
    if not made:
        return clear.function is scene.statement.function
    return any(call.statement.start < clear.start and scene.missing_guards(clear, call) == [] for call in made)


def _clear_first(scene: Scene) -> Iterator[Candidate | None]:
    """Clear before the backward; that gradients should pile up over steps is the other reading."""
    assert scene.statement is not None
    for place in _outward(scene.statement):
        for optimizer in scene.optimizers[:3]:
            if scene.is_bound(scene.tree, place, optimizer):
                code = f"{optimizer}.zero_grad()"
                insert = scene.tree.before(place, [code])
                yield _candidate(f"insert `{code}` before the backward", [insert], UNSAFE)


# --- AMP401, 402, 403, 405: update at another place


def _update_later(scene: Scene) -> Iterator[Candidate | None]:
    """Move `update()` behind the last step of its window; or leave it to the one that is there."""
    assert scene.statement is not None
    call = scene.call
    if call is None or call.name != "update":
        return
    tree, statement = scene.tree, scene.statement
    early = tree.lifted(statement)
    gone = tree.remove(early)
    # With a new scale it is another call, and where that one belongs nobody can tell.
    kind = UNSAFE if call.args else SAFE
    others = [found for _, found in scene.all_of("update") if found.node is not call.node]
    if any(found.receiver == call.receiver for found in others):
        yield _candidate("remove this `update()`, as there is another one", [gone], kind)
    code = tree.written(statement)
    if code is None:
        return
    message = "move this `update()` behind the last step"
    for _, step in reversed(_steps(scene)):
        for place in _outward(step):
            if place.function is statement.function and place is not statement:
                yield _candidate(message, tree.move_behind(early, place, code), kind)
    for place in statement.enclosing if scene.diagnostic.code != "AMP405" else ():
        yield _candidate(message, tree.move_behind(early, place, code), kind)
    for _, step in reversed(_steps(scene)):
        for entered, caller in scene.entering(step.function):
            if caller is not statement and scene.is_bound(entered, caller, call.receiver):
                here = kind if caller.function is statement.function else UNSAFE
                for place in _outward(caller):
                    yield _candidate(message, [gone, entered.after(place, code)], here)
    for entered, caller in scene.entering(statement.function):
        names = [scaler for scaler in scene.scalers if scene.is_bound(entered, caller, scaler)]
        for place in _outward(caller):
            for name in names[:2]:
                last = [found for found in place.block.statements if _calls_same(found, caller)][-1:]
                for behind in (place, *last):
                    yield _candidate(message, [gone, entered.after(behind, [f"{name}.update()"])], UNSAFE)


def _calls_same(statement: Statement, caller: Statement) -> bool:
    return bool({call.name for call in statement.calls} & {call.name for call in caller.calls})


def _update_always(scene: Scene) -> Iterator[Candidate | None]:
    """Let every way through the round come past an `update()`."""
    assert scene.statement is not None
    updates = [(tree, call) for tree, call in scene.all_of("update") if not call.args]
    named = [scaler for scaler in scene.scalers if scaler in scene.named] or scene.scalers
    # One that only some rounds come to, taken out of its condition.
    for tree, call in updates:
        statement = call.statement
        code = tree.written(statement)
        for other, step in reversed(_steps(scene)):
            if step.function is statement.function and code is not None:
                message = "move `update()` to where every step comes past it"
                for owner in statement.enclosing:
                    if isinstance(owner.node, cst.If) and step.start < statement.start:
                        yield _candidate(message, tree.move_behind(statement, owner, code), SAFE)
                edits = [tree.remove(statement), other.after(step, code)]
                yield _candidate(message, edits, SAFE)
    for tree, step in _steps(scene):
        for scaler in named[:2]:
            if scene.is_bound(tree, step, scaler):
                message = f"insert `{scaler}.update()` behind the step"
                for place in _outward(step):
                    yield _candidate(message, [tree.after(place, [f"{scaler}.update()"])], SAFE)
    exits = [
        (tree, statement)
        for tree, function in scene.functions
        for statement in tree.within(function)
        if isinstance(statement.node, (cst.Continue, cst.Return, cst.Break))
    ]
    inserts = []
    for tree, leave in exits:
        for scaler in named[:1]:
            if scene.is_bound(tree, leave, scaler):
                insert = tree.before(leave, [f"{scaler}.update()"])
                inserts.append(insert)
                yield _candidate(f"insert `{scaler}.update()` where the step is skipped", [insert], SAFE)
    if len(inserts) > 1:
        yield _candidate(f"insert `{named[0]}.update()` where the step is skipped", inserts, SAFE)


# --- AMP108


def _clip_together(scene: Scene) -> Iterator[Candidate | None]:
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
    yield _candidate("clip them together", [scene.tree.replace(loop, [whole])], UNSAFE)


# --- AMP404, 503


def _make_once(scene: Scene) -> Iterator[Candidate | None]:
    """Make the scaler before the loop; what else the loop should begin anew is not known."""
    assert scene.statement is not None
    code = scene.tree.written(scene.statement)
    for place in scene.statement.enclosing:
        if code is not None:
            edits = [scene.tree.remove(scene.statement), scene.tree.before(place, code)]
            yield _candidate("make the scaler before the loop", edits, UNSAFE)


def _let_overflow_pass(scene: Scene) -> Iterator[Candidate | None]:
    """Take `error_if_nonfinite=True` out: somebody asked for it."""
    assert scene.statement is not None
    for call in scene.statement.calls:
        args = call.node.args
        for index, argument in enumerate(args):
            if argument.keyword is not None and argument.keyword.value == "error_if_nonfinite" and index:
                start = scene.tree.place(args[index - 1].value)[1]
                end = scene.tree.place(argument.value)[1]
                message = "remove `error_if_nonfinite=True`, so that the scaler skips the step"
                yield _candidate(message, [scene.tree.edit(start, end, "")], UNSAFE)


#: The candidates for each code; for the codes that are not here there are none.
TABLE: dict[str, Proposer] = {
    "AMP101": _unscale_first,
    "AMP102": _unscale_first,
    "AMP103": _clip_before_step,
    "AMP104": _same_unit,
    "AMP105": _unscale_first,
    "AMP106": _unscale_first,
    "AMP107": _clip_before_step,
    "AMP108": _clip_together,
    "AMP109": _clip_before_step,
    "AMP201": _unscale_later,
    "AMP202": _divide_once,
    "AMP203": _unscale_before_step,
    "AMP301": _step_by_scaler,
    "AMP302": _step_by_scaler,
    "AMP303": _scale_backward,
    "AMP304": _one_scaler,
    "AMP305": _step_once,
    "AMP306": _clear_later,
    "AMP308": _clear_first,
    "AMP401": _update_later,
    "AMP402": _update_later,
    "AMP403": _update_always,
    "AMP404": _make_once,
    "AMP405": _update_later,
    "AMP501": _unscale_first,
    "AMP503": _let_overflow_pass,
}
