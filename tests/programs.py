"""Complete training programs by chance, as Python source.

A program is drawn in three stages, all by one `random.Random` (or hypothesis's, which then can shrink it):

1. a correct loop is composed as a tree of `Line` and `Block`: optimizers, losses, accumulation, flags, clips;
2. up to three mistakes are made in the tree: lines of the protocol swapped, dropped, doubled, moved, replaced;
3. the text is refactored without a change of its meaning: runs of statements become functions, nested functions or
   methods, and the program becomes a class.

Judges nothing itself: see program_verdicts.py.
"""

from __future__ import annotations

import ast
import builtins
import copy
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

# --- the tree of a program -------------------------------------------------------------------------------------------

#: Roles of lines that belong to the protocol, and that mistakes are made with.
PROTOCOL = frozenset({"zero", "backward", "unscale", "clip", "step", "update"})


@dataclass(eq=False)
class Line:
    """One simple statement; `role` says which part of the protocol it plays."""

    role: str
    text: str


@dataclass(eq=False)
class Block:
    """A compound statement, with the body of its `else:` if it has one."""

    role: str
    head: str
    body: list[Item]
    orelse: list[Item] = field(default_factory=list)


Item = Line | Block


def render(items: Sequence[Item], indent: str = "") -> Iterator[str]:
    """The lines of source text."""
    for item in items:
        if isinstance(item, Line):
            yield indent + item.text
            continue
        yield indent + item.head
        yield from render(item.body or [Line("other", "pass")], indent + "    ")
        if item.orelse:
            yield indent + "else:"
            yield from render(item.orelse, indent + "    ")


def places(items: list[Item], inside: tuple[Block, ...] = ()) -> Iterator[tuple[list[Item], int, tuple[Block, ...]]]:
    """Every item of a tree: the list that holds it, its index there, and the blocks around it."""
    for index, item in enumerate(items):
        yield items, index, inside
        if isinstance(item, Block):
            yield from places(item.body, (*inside, item))
            yield from places(item.orelse, (*inside, item))


# --- a correct program -----------------------------------------------------------------------------------------------

#: Literals that no other text of a program contains, so that the judge can vary them.
MAX_NORM = "0.5"
MAX_VALUE = "0.02"

PARAMETERS = (
    "net", "net_a", "net_b", "nets", "loader", "opt", "opt_a", "opt_b", "opts", "optims", "scaler", "crit", "accum",
    "use_amp", "skip",
)  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """A model and its optimizer, as the program names them, and the loss that is its own."""

    net: str
    opt: str
    loss: str


ONE = (Pair("net", "opt", "loss"),)
TWO = (Pair("net_a", "opt_a", "loss_a"), Pair("net_b", "opt_b", "loss_b"))
THREE = (*TWO, Pair("net", "opt", "loss_c"))


def chance(rng: Random, probability: float) -> bool:
    """True with a probability; the simpler answer, to hypothesis, is False."""
    return rng.randrange(1000) >= 1000 * (1 - probability)


class Composer:
    """Draws one correct program."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.preamble: list[Line] = []
        self.amp = rng.choice(("always", "always", "always", "enabled", "branch", "branch", "none"))
        self.scaler = "scaler"
        self.pairs = rng.choice((ONE, ONE, ONE, TWO, TWO, THREE))
        self.window = rng.choice(("1", "1", "accum", "accum", "2", "3"))
        self.loops = len(self.pairs) == 2 and chance(rng, 0.35)
        self.division = self.window != "1" and chance(rng, 0.7)
        self.clip = rng.choice(
            ("none", "norm", "norm", "norm", "norm", "value", "threshold", "joint", "measure", "total")
        )
        if self.clip in ("threshold",) and self.amp in ("branch", "none"):
            self.clip = "norm"
        self.autocast = chance(rng, 0.25)
        self.inverted = chance(rng, 0.3)
        self.rebound = chance(rng, 0.15)
        self.ifexp = chance(rng, 0.4)
        self.split_tail = chance(rng, 0.4)
        self.names_norm = chance(rng, 0.2)

    # -- words of the protocol

    @property
    def flag(self) -> str:
        return "use_amp" if self.amp == "branch" else "scaler is not None"

    def switch(self, amp: list[Item], plain: list[Item]) -> list[Item]:
        """The scaled arm, and a full-precision arm if the program has one."""
        if self.amp not in ("branch", "none"):
            return amp
        if not amp and not plain:
            return []
        if self.inverted and plain:
            no = "not use_amp" if self.amp == "branch" else "scaler is None"
            return [Block("flag", f"if {no}:", plain, amp)]
        return [Block("flag", f"if {self.flag}:", amp, plain)]

    def backward(self, loss: str) -> list[Item]:
        if self.ifexp and self.amp in ("branch", "none"):
            return [Line("backward", f"(scaler.scale({loss}) if {self.flag} else {loss}).backward()")]
        if self.rebound and loss.isidentifier():
            scaled: list[Item] = [
                Line("other", f"scaled = scaler.scale({loss})"),
                Line("backward", "scaled.backward()"),
            ]
        else:
            scaled = [Line("backward", f"scaler.scale({loss}).backward()")]
        return self.switch(scaled, [Line("backward", f"{loss}.backward()")])

    def clips(self, params: str, net: str = "") -> list[Item]:
        """The clip of one set of parameters, and what measures it."""
        head = "norm = " if self.names_norm else ""
        if self.clip == "value":
            return [Line("clip", f"torch.nn.utils.clip_grad_value_({params}, {MAX_VALUE})")]
        if self.clip == "measure":
            return [Line("clip", f'norm = torch.nn.utils.clip_grad_norm_({params}, float("inf"))')]
        if self.clip == "threshold":
            return [Line("clip", f"{head}torch.nn.utils.clip_grad_norm_({params}, {MAX_NORM} * scaler.get_scale())")]
        if self.clip == "total":
            return [
                Line("clip", f"norm = torch.nn.utils.get_total_norm([p.grad for p in {params}])"),
                Line("clip", f"torch.nn.utils.clip_grads_with_norm_({params}, {MAX_NORM}, norm)"),
            ]
        if net and chance(self.rng, 0.1):
            return [Line("clip", f"{net}.clip_grad_norm_({MAX_NORM})")]
        return [Line("clip", f"{head}torch.nn.utils.clip_grad_norm_({params}, {MAX_NORM})")]

    def tail(self, pairs: Sequence[Pair], update: bool = True) -> list[Item]:
        """From the gradients to the step: unscale, clip, step, update."""
        rng = self.rng
        unscales: list[Item] = [Line("unscale", f"scaler.unscale_({p.opt})") for p in pairs]
        steps: list[Item] = [Line("step", f"scaler.step({p.opt})") for p in pairs]
        plain_steps: list[Item] = [Line("step", f"{p.opt}.step()") for p in pairs]
        updates: list[Item] = [Line("update", "scaler.update()")] if update else []
        if self.clip == "none":
            if chance(rng, 0.7):
                unscales = []
            clips: list[Item] = []
        elif self.clip == "threshold":
            unscales = []
            clips = [line for p in pairs for line in self.clips(f"{p.net}.parameters()", p.net)]
        elif self.clip == "joint" and len(pairs) > 1:
            if chance(rng, 0.5):
                joint = " + ".join(f"list({p.net}.parameters())" for p in pairs)
            else:
                joint = "[" + ", ".join(f"*{p.net}.parameters()" for p in pairs) + "]"
            clips = self.clips(joint)
        else:
            each = [self.clips(f"{p.net}.parameters()", p.net) for p in pairs]
            if chance(rng, 0.5):  # unscale_ and clip beside each other
                joined = [line for u, c in zip(unscales, each) for line in (u, *c)]
                plain = [line for c in copy.deepcopy(each) for line in c] + plain_steps
                return self.switch([*joined, *steps, *updates], plain)
            clips = [line for c in each for line in c]
        if self.split_tail:
            shared = clips
            return [*self.switch(unscales, []), *shared, *self.switch([*steps, *updates], plain_steps)]
        return self.switch([*unscales, *clips, *steps, *updates], [*copy.deepcopy(clips), *plain_steps])

    def loop_tail(self) -> list[Item]:
        """The same over a list or dict of optimizers."""
        rng = self.rng
        each = self.each
        unscales: list[Item] = [Block("each", f"for opt in {each}:", [Line("unscale", "scaler.unscale_(opt)")])]
        steps: list[Item] = [Block("each", f"for opt in {each}:", [Line("step", "scaler.step(opt)")])]
        plain: list[Item] = [Block("each", f"for opt in {each}:", [Line("step", "opt.step()")])]
        update: list[Item] = [Line("update", "scaler.update()")]
        clip = self.clips("net.parameters()", "net")
        if self.clip == "none":
            return self.switch([*steps, *update], plain)
        if self.clip == "threshold":
            return [Block("each", f"for net in {self.nets}:", clip), *steps, *update]
        if self.clip != "joint" and self.zips and chance(rng, 0.6):
            body: list[Item] = [Line("unscale", "scaler.unscale_(opt)"), *clip]
            head = f"for net, opt in zip({self.nets}, {each}):"
            plain_body: list[Item] = [*copy.deepcopy(clip), Line("step", "opt.step()")]
            if chance(rng, 0.5):
                body.append(Line("step", "scaler.step(opt)"))
                return self.switch([Block("each", head, body), *update], [Block("each", head, plain_body)])
            return self.switch([Block("each", head, body), *steps, *update], [Block("each", head, plain_body)])
        if self.clip == "joint":
            clips = self.clips(f"[p for net in {self.nets} for p in net.parameters()]")
        else:
            clips = [Block("each", f"for net in {self.nets}:", clip)]
        return self.switch([*unscales, *clips, *steps, *update], [*copy.deepcopy(clips), *plain])

    def zero(self, pairs: Sequence[Pair]) -> list[Item]:
        if self.loops:
            return [Block("each", f"for opt in {self.each}:", [Line("zero", "opt.zero_grad()")])]
        how = self.rng.choice(("", "", "", "set_to_none=True"))
        return [Line("zero", f"{p.opt}.zero_grad({how})") for p in pairs]

    # -- forward and backward of one batch

    def batch(self) -> list[Item]:
        part = f" / {self.window}" if self.division else ""
        rng = self.rng
        pairs = self.pairs
        if self.loops:
            if chance(rng, 0.5):
                return [
                    Line("forward", f"loss = sum(crit(net(xb), yb) for net in {self.nets}){part}"),
                    *self.backward("loss"),
                ]
            return [
                Block(
                    "each",
                    f"for net in {self.nets}:",
                    [Line("forward", f"loss = crit(net(xb), yb){part}"), *self.backward("loss")],
                )
            ]
        if len(pairs) == 1:
            if chance(rng, 0.3) and part:
                forward: list[Item] = [
                    Line("forward", "loss = crit(net(xb), yb)"),
                    Line("forward", f"loss = loss{part}"),
                ]
            else:
                forward = [Line("forward", f"loss = crit(net(xb), yb){part}")]
            return [*self.context(forward), *self.backward("loss")]
        kind = rng.choice(("joint", "separate", "separate", "chain")) if len(pairs) == 2 else "separate"
        if kind == "joint":
            both = " + ".join(f"crit({p.net}(xb), yb)" for p in pairs)
            text = f"({both}){part}" if part else both
            return [*self.context([Line("forward", f"loss = {text}")]), *self.backward("loss")]
        if kind == "chain":
            chain = f"loss = crit({pairs[1].net}({pairs[0].net}(xb)), yb){part}"
            return [*self.context([Line("forward", chain)]), *self.backward("loss")]
        forwards: list[list[Item]] = [[Line("forward", f"{p.loss} = crit({p.net}(xb), yb){part}")] for p in pairs]
        backwards = [self.backward(p.loss) for p in pairs]
        if chance(rng, 0.5):
            return [x for f, b in zip(forwards, backwards) for x in (*self.context(f), *b)]
        return [*self.context([x for f in forwards for x in f]), *(x for b in backwards for x in b)]

    def context(self, forward: list[Item]) -> list[Item]:
        if not self.autocast:
            return forward
        enabled = {"enabled": ", enabled=use_amp", "branch": ", enabled=use_amp"}.get(self.amp, "")
        return [Block("with", f'with torch.autocast("cuda"{enabled}):', forward)]

    # -- the whole

    def build(self) -> list[Item]:
        rng = self.rng
        construct = chance(rng, (0.7 if len(self.pairs) > 1 else 0.4))
        self.zips = True
        self.nets, self.each = "nets", "opts"
        if self.loops:
            form = rng.choice(("fixtures", "list", "comprehension", "dict", "tuple"))
            if form == "list":
                self.construct(self.pairs)
                self.preamble.append(Line("other", "opts = [opt_a, opt_b]"))
                self.preamble.append(Line("other", "nets = [net_a, net_b]"))
            elif form == "comprehension":
                build = "torch.optim.SGD(net.parameters(), lr=0.01)"
                self.preamble.append(Line("other", "nets = [net_a, net_b]"))
                self.preamble.append(Line("other", f"opts = [{build} for net in nets]"))
            elif form == "dict":
                self.construct(self.pairs)
                self.preamble.append(Line("other", 'opts = {"a": opt_a, "b": opt_b}'))
                self.preamble.append(Line("other", 'nets = {"a": net_a, "b": net_b}'))
                self.nets, self.each = "nets.values()", "opts.values()"
            elif form == "tuple":
                self.construct(self.pairs)
                self.nets, self.each = "(net_a, net_b)", "(opt_a, opt_b)"
        elif construct:
            self.construct(self.pairs)
        self.make_scaler()
        body = self.cycles() if not self.loops and len(self.pairs) == 2 and chance(rng, 0.25) else self.loop()
        if chance(rng, 0.15):
            body = [Block("loop", "for epoch in range(2):", body)]
        return body

    def construct(self, pairs: Sequence[Pair]) -> None:
        for p in pairs:
            self.preamble.append(Line("other", f"{p.opt} = torch.optim.SGD({p.net}.parameters(), lr=0.01)"))

    def make_scaler(self) -> None:
        made = self.rng.choice(('torch.amp.GradScaler("cuda")', "torch.cuda.amp.GradScaler()"))
        if self.amp == "enabled":
            made = self.rng.choice(
                ('torch.amp.GradScaler("cuda", enabled=use_amp)', "torch.cuda.amp.GradScaler(enabled=use_amp)")
            )
            self.preamble.append(Line("other", f"scaler = {made}"))
        elif self.amp == "none" and chance(self.rng, 0.5):
            self.preamble.append(Line("other", f"scaler = {made} if use_amp else None"))
        elif self.amp in ("always", "branch") and chance(self.rng, 0.5):
            self.preamble.append(Line("other", f"scaler = {made}"))

    def cycles(self) -> list[Item]:
        """Each optimizer has its own backward, step and (perhaps) update; as in a GAN, or independent."""
        self.window, self.division, self.autocast = "1", False, False
        a, b = self.pairs
        if chance(self.rng, 0.5):
            losses = ("crit(net_a(xb), yb)", "crit(net_b(xb), yb)")
        else:  # b is the discriminator; its gradients of the generator's loss are cleared before its own
            losses = ("crit(net_b(net_a(xb)), yb)", "crit(net_b(net_a(xb).detach()), yb)")
        own_update = chance(self.rng, 0.6)
        body: list[Item] = []
        order = list(zip((a, b), losses))
        if chance(self.rng, 0.5):
            order.reverse()
        for number, (p, loss) in enumerate(order):
            body += [
                Line("zero", f"{p.opt}.zero_grad()"),
                Line("forward", f"{p.loss} = {loss}"),
                *self.backward(p.loss),
                *self.tail([p], update=own_update or number == 1),
            ]
        return [Block("loop", "for xb, yb in loader:", body)]

    def loop(self) -> list[Item]:
        """One optimizer cycle, or several in step, with or without accumulation."""
        rng = self.rng
        n = self.window
        batch = self.batch()
        tail = self.loop_tail() if self.loops else self.tail(self.pairs)
        zero = self.zero(self.pairs)
        if n == "1":
            head = rng.choice(("for xb, yb in loader:", "for i, (xb, yb) in enumerate(loader):"))
            where = rng.choice(("start", "start", "before", "end"))
            if where == "start":
                return [Block("loop", head, [*zero, *batch, *tail])]
            if where == "end":
                return [Block("loop", head, [*batch, *tail, *zero])]
            cut = next(k for k, item in enumerate(batch) if not _is_forward(item))
            if self.loops or cut == 0 or any(_is_forward(item) for item in batch[cut:]):
                cut = 0
            return [Block("loop", head, [*batch[:cut], *zero, *batch[cut:], *tail])]
        style = rng.choice(("modulo", "modulo", "modulo", "start1", "flag", "continue", "inner", "counter", "running"))
        if style == "inner":
            head = f"for xb, yb in loader[start:start + {n}]:"
            return [
                Block("loop", f"for start in range(0, len(loader), {n}):", [*zero, Block("loop", head, batch), *tail])
            ]
        guarded = [*tail, *zero]
        first: list[Item] = copy.deepcopy(zero)
        if style == "counter":
            reached = rng.choice((f"count == {n}", f"count >= {n}"))
            body = [
                *batch,
                Line("other", "count += 1"),
                Block("boundary", f"if {reached}:", [*guarded, Line("other", "count = 0")]),
            ]
            flush = [
                Block("boundary", rng.choice(("if count:", "if count > 0:", "if count != 0:")), copy.deepcopy(guarded))
            ]
            loop = [Block("loop", "for xb, yb in loader:", body)]
            start: list[Item] = [Line("other", "count = 0")]
            return [*start, *first, *loop, *(flush if chance(rng, 0.4) else [])]
        if style == "running":
            body = [Line("other", "count += 1"), *batch, Block("boundary", f"if count % {n} == 0:", guarded)]
            return [Line("other", "count = 0"), *first, Block("loop", "for xb, yb in loader:", body)]
        begin = ", start=1" if style == "start1" else ""
        head = f"for i, (xb, yb) in enumerate(loader{begin}):"
        if style == "start1":
            test, no = f"i % {n} == 0", f"i % {n} != 0"
        else:
            test, no = rng.choice(
                (
                    (f"(i + 1) % {n} == 0", f"(i + 1) % {n} != 0"),
                    (f"(i + 1) % {n} == 0", f"(i + 1) % {n}"),
                    (f"i % {n} == {n} - 1", f"i % {n} != {n} - 1"),
                    (f"not (i + 1) % {n}", f"(i + 1) % {n}"),
                )
            )
        if style == "continue":
            body = [*batch, Block("skip", f"if {no}:", [Line("other", "continue")]), *guarded]
            return [*first, Block("loop", head, body)]
        if style == "modulo" and chance(rng, 0.25):  # cleared at the beginning of a window
            opening = "(i - 1)" if style == "start1" else "i"
            body = [
                Block("boundary", f"if {opening} % {n} == 0:", zero),
                *batch,
                Block("boundary", f"if {test}:", tail),
            ]
            return [Block("loop", head, body)]
        last = "i == len(loader)" if style == "start1" else "i + 1 == len(loader)"
        ending = rng.choice(("", "", "last", "flush"))
        if ending == "last":
            test = f"{test} or {last}"
        if style == "flag":
            body = [*batch, Line("other", f"boundary = {test}"), Block("boundary", "if boundary:", guarded)]
            if chance(rng, 0.5):
                body = [body[-2], *body[:-2], body[-1]]
        else:
            body = [*batch, Block("boundary", f"if {test}:", guarded)]
        flush = [Block("boundary", f"if {no}:", copy.deepcopy(guarded))] if ending == "flush" else []
        return [*first, Block("loop", head, body), *flush]


def _is_forward(item: Item) -> bool:
    return item.role in ("forward", "with")


# --- mistakes --------------------------------------------------------------------------------------------------------

Tree = list[Item]
Mistake = Callable[[Tree, Random, Composer], bool]


def _lines(tree: Tree, *roles: str) -> list[tuple[Tree, int, tuple[Block, ...], Line]]:
    return [
        (holder, index, inside, item)
        for holder, index, inside in places(tree)
        if isinstance(item := holder[index], Line) and (item.role in roles if roles else item.role in PROTOCOL)
    ]


def _involves_protocol(item: Item) -> bool:
    if isinstance(item, Line):
        return item.role in PROTOCOL
    return any(map(_involves_protocol, (*item.body, *item.orelse)))


def swap(tree: Tree, rng: Random, _: Composer) -> bool:
    """Two neighbours change places."""
    pairs = [
        (holder, index)
        for holder, index, _ in places(tree)
        if index + 1 < len(holder) and all(map(_involves_protocol, holder[index : index + 2]))
    ]
    if not pairs:
        return False
    holder, index = rng.choice(pairs)
    holder[index], holder[index + 1] = holder[index + 1], holder[index]
    return True


def drop(tree: Tree, rng: Random, _: Composer) -> bool:
    """A line is forgotten. The only zero_grad of an optimizer stays: see `LIMITS`."""
    lines = _lines(tree)
    texts = [line.text for *_, line in lines if line.role == "zero"]
    lines = [one for one in lines if one[3].role != "zero" or texts.count(one[3].text) > 1]
    if not lines:
        return False
    holder, index, _, _ = rng.choice(lines)
    del holder[index]
    return True


def double(tree: Tree, rng: Random, _: Composer) -> bool:
    """A line stands twice, at once or further down."""
    lines = _lines(tree, "unscale", "clip", "step", "update", "zero")
    if not lines:
        return False
    holder, index, _, line = rng.choice(lines)
    where = index + 1 if chance(rng, 0.5) else rng.randint(index + 1, len(holder))
    holder.insert(where, copy.copy(line))
    return True


def move_out(tree: Tree, rng: Random, _: Composer) -> bool:
    """A line leaves its block, to stand before or behind it."""
    lines = [one for one in _lines(tree) if one[2]]
    if not lines:
        return False
    holder, index, inside, line = rng.choice(lines)
    outer = inside[-2].body if len(inside) > 1 else tree
    if inside[-1] not in outer:
        outer = inside[-2].orelse
    where = outer.index(inside[-1]) + (chance(rng, 0.5))
    del holder[index]
    outer.insert(where, line)
    return True


def move_in(tree: Tree, rng: Random, _: Composer) -> bool:
    """A line enters a block that stands beside it."""
    options = [
        (holder, index, line, block)
        for holder, index, _, line in _lines(tree)
        for block in holder
        if isinstance(block, Block) and block.role in ("boundary", "loop", "flag", "each")
    ]
    if not options:
        return False
    holder, index, line, block = rng.choice(options)
    del holder[index]
    block.body.insert(rng.choice((0, len(block.body))), line)
    return True


def move(tree: Tree, rng: Random, _: Composer) -> bool:
    """A line moves to another place of its block."""
    lines = [one for one in _lines(tree, "unscale", "clip", "step", "update", "zero") if len(one[0]) > 2]
    if not lines:
        return False
    holder, index, _, line = rng.choice(lines)
    del holder[index]
    holder.insert(rng.randint(0, len(holder)), line)
    return True


def plain_backward(tree: Tree, rng: Random, _: Composer) -> bool:
    """scale() is forgotten, or its result is, or it is called twice."""
    lines = [one for one in _lines(tree, "backward") if re.match(r"scaler\.scale\((.+)\)\.backward\(\)$", one[3].text)]
    if not lines:
        return False
    holder, index, _, line = rng.choice(lines)
    loss = line.text[len("scaler.scale(") : -len(").backward()")]
    bare = loss if re.fullmatch(r"[\w.]+(\(.*\))?", loss) else f"({loss})"
    kind = rng.choice(("plain", "plain", "lost", "twice"))
    if kind == "lost":
        holder.insert(index, Line("other", f"scaler.scale({loss})"))
    text = f"scaler.scale(scaler.scale({loss})).backward()" if kind == "twice" else f"{bare}.backward()"
    holder[index + (kind == "lost")] = Line("backward", text)
    return True


def plain_step(tree: Tree, rng: Random, _: Composer) -> bool:
    """optimizer.step() in place of scaler.step(optimizer)."""
    lines = [one for one in _lines(tree, "step") if one[3].text.startswith("scaler.step(")]
    if not lines:
        return False
    holder, index, _, line = rng.choice(lines)
    holder[index] = Line("step", line.text[len("scaler.step(") : -1] + ".step()")
    return True


def _near(tree: Tree, rng: Random) -> tuple[Tree, int, str] | None:
    """A place in a scaled arm beside an unscale_, clip or step, and a model whose gradients are there."""
    found: list[tuple[Tree, int, str]] = []
    for holder, index, _, line in _lines(tree, "unscale", "step", "clip"):
        if match := re.fullmatch(r"scaler\.(?:unscale_|step)\(opt(\w*)\)", line.text):
            net = "net" + match[1]
            around = "\n".join(render(tree))
            if f"{net}(" in around or f"{net}.parameters" in around:
                found.append((holder, index, net))
    return rng.choice(found) if found else None


def value_clip(tree: Tree, rng: Random, _: Composer) -> bool:
    """A value clip where nobody asked for it."""
    place = _near(tree, rng)
    if place is None:
        return False
    holder, index, net = place
    if chance(rng, 0.7):
        new: Item = Line("clip", f"torch.nn.utils.clip_grad_value_({net}.parameters(), {MAX_VALUE})")
    else:
        clamp = Line("clip", f"p.grad.clamp_(-{MAX_VALUE}, {MAX_VALUE})")
        new = Block("each", f"for p in {net}.parameters():", [clamp])
    holder.insert(index + rng.randint(0, 1), new)
    return True


def norm_clip(tree: Tree, rng: Random, _: Composer) -> bool:
    """A norm clip more, beside an unscale_ or step."""
    place = _near(tree, rng)
    if place is None:
        return False
    holder, index, net = place
    holder.insert(
        index + rng.randint(0, 1), Line("clip", f"torch.nn.utils.clip_grad_norm_({net}.parameters(), {MAX_NORM})")
    )
    return True


def division(tree: Tree, rng: Random, _: Composer) -> bool:
    """Gradients are divided by S by hand."""
    place = _near(tree, rng)
    if place is None:
        return False
    holder, index, net = place
    how = rng.choice(
        ("p.grad /= scaler.get_scale()", "p.grad.div_(scaler.get_scale())", "p.grad.mul_(1.0 / scaler.get_scale())")
    )
    guarded: Item = Line("other", how)
    if chance(rng, 0.5):
        guarded = Block("other", "if p.grad is not None:", [guarded])
    new = Block("each", f"for p in {net}.parameters():", [guarded])
    if chance(rng, 0.5) and isinstance(line := holder[index], Line) and line.role == "unscale":
        holder[index] = new  # in place of unscale_: right only before a plain step
    else:
        holder.insert(index + rng.randint(0, 1), new)
    return True


def threshold(tree: Tree, rng: Random, _: Composer) -> bool:
    """The threshold gets S, or loses it."""
    lines = [one for one in _lines(tree, "clip") if MAX_NORM in one[3].text and "scaler" in "\n".join(render(tree))]
    if not lines:
        return False
    holder, index, _, line = rng.choice(lines)
    scaled = f"{MAX_NORM} * scaler.get_scale()"
    if scaled in line.text:
        holder[index] = Line("clip", line.text.replace(scaled, MAX_NORM))
    else:
        holder[index] = Line("clip", line.text.replace(MAX_NORM, scaled))
    return True


def wrong_scaler(tree: Tree, rng: Random, composer: Composer) -> bool:
    """One call goes to another scaler."""
    if any("other" in line.text for line in composer.preamble):
        return False
    lines = [one for one in _lines(tree, "backward", "unscale", "step", "update") if one[3].text.startswith("scaler.")]
    if not lines:
        return False
    enabled = ", enabled=use_amp" if composer.amp == "enabled" else ""
    composer.preamble.append(Line("other", f'other = torch.amp.GradScaler("cuda"{enabled})'))
    holder, index, _, line = rng.choice(lines)
    holder[index] = Line(line.role, line.text.replace("scaler.", "other.", 1))
    return True


def wrong_optimizer(tree: Tree, rng: Random, composer: Composer) -> bool:
    """A call names another optimizer or model."""
    if composer.loops or len(composer.pairs) < 2:
        return False
    lines = _lines(tree, "unscale", "step", "clip", "zero")
    if not lines:
        return False
    holder, index, _, line = rng.choice(lines)
    here, there = rng.sample(composer.pairs, 2)
    text = line.text
    for ours, theirs in ((here.opt, there.opt), (here.net, there.net)):
        text = re.sub(rf"\b{ours}\b", theirs, text)
    if text == line.text:
        return False
    holder[index] = Line(line.role, text)
    return True


def early_continue(tree: Tree, rng: Random, _: Composer) -> bool:
    """Some batches are left out, after a part of what is to be done."""
    options = [
        (holder, index + 1)
        for holder, index, inside in places(tree)
        if _involves_protocol(holder[index])
        and index + 1 < len(holder)
        and [b.role for b in inside if b.role != "flag"][-1:] in (["loop"], ["boundary"])
        and "for" in "".join(b.head for b in inside)
        and any("enumerate" in b.head for b in inside)
    ]
    if not options:
        return False
    holder, index = rng.choice(options)
    holder.insert(index, Block("skip", "if i in skip:", [Line("other", "continue")]))
    return True


MISTAKES: tuple[Mistake, ...] = (
    swap, swap, swap, drop, drop, drop, double, double, move_out, move_out, move_in, move, plain_backward,
    plain_backward, plain_step, plain_step, value_clip, norm_clip, division, division, threshold, wrong_scaler,
    wrong_optimizer, wrong_optimizer, early_continue, early_continue,
)  # fmt: skip


# --- refactorings ----------------------------------------------------------------------------------------------------

_GLOBALS = frozenset(dir(builtins)) | {"torch", "self"}


def names_read(nodes: Sequence[ast.AST]) -> list[str]:
    found = [
        node.id
        for top in nodes
        for node in ast.walk(top)
        if isinstance(node, ast.Name) and (isinstance(node.ctx, ast.Load) or _augmented(top, node))
    ]
    return list(dict.fromkeys(found))


def _augmented(top: ast.AST, name: ast.Name) -> bool:
    return any(isinstance(node, ast.AugAssign) and node.target is name for node in ast.walk(top))


def names_bound(nodes: Sequence[ast.AST]) -> list[str]:
    found = [
        node.id
        for top in nodes
        for node in ast.walk(top)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    return list(dict.fromkeys(found))


def _local_to_comprehensions(nodes: Sequence[ast.AST]) -> set[str]:
    inside: set[str] = set()
    for top in nodes:
        for node in ast.walk(top):
            if isinstance(node, ast.comprehension):
                inside |= set(names_bound([node.target]))
    return inside


def _bodies(statements: list[ast.stmt], in_loop: bool = False) -> Iterator[tuple[list[ast.stmt], bool, bool]]:
    """Lists of statements, whether they stand in a loop, and whether they are the whole body of a loop."""
    for statement in statements:
        looping = isinstance(statement, (ast.For, ast.While))
        for name in ("body", "orelse"):
            inner = getattr(statement, name, None)
            if inner:
                yield inner, in_loop or looping, looping and name == "body"
                yield from _bodies(inner, in_loop or looping)


class _Returns(ast.NodeTransformer):
    """`continue` of the loop whose body becomes a function."""

    def visit_Continue(self, node: ast.Continue) -> ast.AST:
        return ast.Return(None)

    def visit_For(self, node: ast.For) -> ast.AST:
        return node

    visit_While = visit_For


def _leaves(statements: Sequence[ast.stmt]) -> bool:
    """Whether control can leave a run of statements by `continue` of a loop around it."""
    return any(
        isinstance(node, (ast.Continue, ast.Break))
        for top in statements
        if not isinstance(top, (ast.For, ast.While))
        for node in ast.walk(top)
    )


class Rename(ast.NodeTransformer):
    def __init__(self, names: dict[str, ast.expr]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id not in self.names:
            return node
        new = copy.deepcopy(self.names[node.id])
        if isinstance(new, (ast.Name, ast.Attribute)):
            new.ctx = node.ctx
        return new


_OTHER_NAMES = {
    "net": "model", "opt": "optimizer", "scaler": "grad_scaler", "crit": "criterion", "net_a": "first",
    "net_b": "second", "opt_a": "optimizer", "loss": "value", "xb": "inputs", "yb": "targets", "accum": "every",
    "opts": "optimizers", "nets": "models",
}  # fmt: skip


class Refactoring:
    """Turns runs of statements of a function's body into functions, without a change of meaning."""

    def __init__(self, rng: Random, body: list[ast.stmt], fixed: set[str], attributes: set[str]) -> None:
        self.rng = rng
        self.body = body
        self.fixed = fixed  # bound once, before everything else
        self.attributes = attributes  # reached through self
        self.functions: list[ast.stmt] = []
        self.nested: list[ast.stmt] = []
        self.methods: list[ast.stmt] = []

    def outline(self) -> bool:
        rng = self.rng
        runs = []
        for holder, in_loop, whole in _bodies(self.body):
            if not in_loop:
                continue
            if whole and chance(rng, 0.4):
                runs.append((holder, 0, len(holder), True))
            start = rng.randrange(len(holder))
            stop = rng.randint(start + 1, len(holder))
            if not _leaves(holder[start:stop]):
                runs.append((holder, start, stop, False))
        rng.shuffle(runs)
        return any(self._outline(*run) for run in runs)

    def _outline(self, holder: list[ast.stmt], start: int, stop: int, whole: bool) -> bool:
        rng = self.rng
        run = holder[start:stop]
        text = "\n".join(ast.unparse(ast.fix_missing_locations(s)) for s in run)
        if "scaler" not in text and ".step(" not in text and "backward" not in text and "clip" not in text:
            return False
        hidden = _local_to_comprehensions(run)
        stores = [name for name in names_bound(run) if name not in hidden]
        loads = [name for name in names_read(run) if name not in hidden and name not in _GLOBALS]
        marker = {id(node) for top in run for node in ast.walk(top)}
        others = [
            node for top in self.body for node in ast.walk(top) if id(node) not in marker and isinstance(node, ast.Name)
        ]
        wanted = [name for name in stores if any(n.id == name and isinstance(n.ctx, ast.Load) for n in others)]
        if any(n.id in stores and isinstance(n.ctx, ast.Store) for n in others):
            # A name that is bound on both sides: only a counter, read and returned, is safe.
            if not all(name in wanted and _counts(run, name) for name in stores if _bound(others, name)):
                return False
        helpers = {f.name for f in self.functions + self.nested if isinstance(f, ast.FunctionDef)}
        if len(wanted) > 1 or (whole and wanted):
            return False
        if any(not _assigned_surely(run, name) and not _counts(run, name) for name in wanted):
            return False
        needed = [n for n in loads if n not in helpers and (n not in stores or _counts(run, n) or _bound(others, n))]
        needed = [n for n in needed if n not in self.attributes]
        if self.attributes:
            style = "method"
        else:
            style = rng.choice(("function", "function", "nested"))
        if style == "function" and any(isinstance(f, ast.FunctionDef) and f.name in loads for f in self.nested):
            return False
        body = [copy.deepcopy(s) for s in run]
        if whole:
            body = [_Returns().visit(s) for s in body]
        parameters = list(needed)
        if style == "nested":
            parameters = [n for n in needed if n not in self.fixed or chance(rng, 0.2)]
        name = rng.choice(("train_step", "finish", "apply_gradients", "one_batch", "do_it")) + str(
            len(self.functions) + len(self.nested) + len(self.methods)
        )
        names = {p: p for p in parameters}
        if style == "function" and chance(rng, 0.4):
            new = [_OTHER_NAMES.get(p, p) for p in parameters]
            if len(set(new)) == len(new) and not set(new) & (set(stores) | set(loads)):
                names = dict(zip(parameters, new))
                renamed = {old: ast.Name(fresh, ast.Load()) for old, fresh in names.items() if old != fresh}
                body = [Rename(renamed).visit(s) for s in body]
        returned = ast.Name(wanted[0], ast.Load()) if wanted else None
        if returned is not None:
            returned = ast.Name(names.get(wanted[0], wanted[0]), ast.Load())
            body.append(ast.Return(returned))
        arguments = [ast.arg(names[p]) for p in parameters]
        if style == "method":
            arguments.insert(0, ast.arg("self"))
        function = ast.FunctionDef(
            name=name,
            args=ast.arguments(posonlyargs=[], args=arguments, kwonlyargs=[], kw_defaults=[], defaults=[]),
            body=body,
            decorator_list=[],
            type_params=[],
        )
        callee: ast.expr = ast.Name(name, ast.Load())
        if style == "method":
            callee = ast.Attribute(ast.Name("self", ast.Load()), name, ast.Load())
        call = ast.Call(callee, [ast.Name(p, ast.Load()) for p in parameters], [])
        if wanted:
            holder[start:stop] = [ast.Assign([ast.Name(wanted[0], ast.Store())], call)]
        else:
            holder[start:stop] = [ast.Expr(call)]
        {"function": self.functions, "nested": self.nested, "method": self.methods}[style].append(function)
        if style == "nested":
            self.fixed = self.fixed | {name}
        return True


def _bound(names: Sequence[ast.Name], name: str) -> bool:
    return any(n.id == name and isinstance(n.ctx, ast.Store) for n in names)


def _counts(run: Sequence[ast.stmt], name: str) -> bool:
    return any(
        isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name for node in run
    )


def _assigned_surely(run: Sequence[ast.stmt], name: str) -> bool:
    return any(isinstance(s, ast.Assign) and name in names_bound([s]) for s in run)


# --- the program -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Generated:
    """A program, the function to call, and the mistakes that were made in it."""

    source: str
    mistakes: tuple[str, ...] = ()

    @property
    def parameters(self) -> list[str]:
        function = next(
            n for n in ast.parse(self.source).body if isinstance(n, ast.FunctionDef) and n.name == "program"
        )
        return [a.arg for a in function.args.args]


def generate(rng: Random, mistakes: int | None = None) -> Generated:
    """Draw a program; without `mistakes`, zero to three of them."""
    composer = Composer(rng)
    tree = composer.build()
    count = rng.choice((0, 1, 1, 1, 1, 2, 2, 3)) if mistakes is None else mistakes
    made: list[str] = []
    for _ in range(count):
        for _ in range(5):
            mistake = rng.choice(MISTAKES)
            if mistake(tree, rng, composer):
                made.append(mistake.__name__)
                break
    return Generated(_refactored(composer.preamble, tree, rng), tuple(made))


def _refactored(preamble: Sequence[Item], tree: Sequence[Item], rng: Random) -> str:
    first = ast.parse("\n".join(render(preamble))).body
    body = ast.parse("\n".join(render(tree))).body
    bound = set(names_bound([*first, *body])) | _local_to_comprehensions([*first, *body])
    free = [n for n in names_read([*first, *body]) if n not in _GLOBALS and n in PARAMETERS]
    made_first = set(names_bound(first)) - _local_to_comprehensions(first)
    parameters = [n for n in PARAMETERS if n in free and n not in bound]
    style = rng.choice(("flat", "flat", "helpers", "helpers", "class", "class", "call"))
    functions: list[ast.stmt] = []
    text = "import torch\n"
    if style == "class":
        rebound = set(names_bound(body))
        attributes = {n for n in (*parameters, *made_first) if n not in rebound and n != "loader"}
        if chance(rng, 0.3):
            attributes -= {"crit", "accum", "use_amp", "skip"}
        passed = [n for n in parameters if n not in attributes]
        to_self = {n: ast.Attribute(ast.Name("self", ast.Load()), n, ast.Load()) for n in attributes}
        refactoring = Refactoring(rng, body, set(parameters) | made_first, attributes)
        for _ in range(rng.choice((0, 1, 1, 2, 3))):
            refactoring.outline()
        kept = [n for n in parameters if n in attributes or n in names_read(first)]
        stored: list[ast.stmt] = [ast.parse(f"self.{n} = {n}").body[0] for n in parameters if n in attributes]
        init = [*stored, *(Rename(to_self).visit(s) for s in first)]
        methods: list[ast.stmt] = [_function("__init__", ["self", *kept], init)]
        inner = [Rename(to_self).visit(s) for s in [*refactoring.nested, *refactoring.body]]
        fit = _function("fit", ["self", *passed], inner)
        others = [Rename(to_self).visit(m) for m in refactoring.methods]
        methods += [fit, *others]
        functions.append(
            ast.ClassDef("Trainer", bases=[], keywords=[], body=methods, decorator_list=[], type_params=[])
        )
        main = ast.parse(f"trainer = Trainer({', '.join(kept)})\ntrainer.fit({', '.join(passed)})").body
        if chance(rng, 0.3):
            main = ast.parse(f"Trainer({', '.join(kept)}).fit({', '.join(passed)})").body
        functions.append(_function("program", parameters, main))
    else:
        if style != "flat":
            refactoring = Refactoring(rng, body, set(parameters) | made_first, set())
            for _ in range(rng.choice((1, 1, 2, 3)) if style == "helpers" else rng.choice((0, 0, 1))):
                refactoring.outline()
            functions += refactoring.functions
            body = [*first, *refactoring.nested, *refactoring.body]
        else:
            body = [*first, *body]
        if style == "call":  # a constant is chosen where the function is called
            constants = {"use_amp": rng.choice(("True", "True", "False")), "accum": rng.choice(("2", "3"))}
            used = {n: v for n, v in constants.items() if n in parameters}
            functions.append(_function("train", parameters, body))
            passed_text = ", ".join(f"{n}={used[n]}" if n in used else n for n in _keywords_last(parameters, used))
            outer = [n for n in parameters if n not in used]
            functions.append(_function("program", outer, ast.parse(f"train({passed_text})").body))
        else:
            functions.append(_function("program", parameters, body))
    for function in functions:
        text += "\n\n" + ast.unparse(ast.fix_missing_locations(function)) + "\n"
    return text


def _keywords_last(parameters: Sequence[str], used: dict[str, str]) -> list[str]:
    """Arguments by position as long as nothing before them is given by keyword, then all by keyword."""
    out: list[str] = []
    for name in parameters:
        by_keyword = any(n in used for n in parameters[: parameters.index(name)])
        out.append(name if name in used else f"{name}={name}" if by_keyword else name)
    return out


def _function(name: str, parameters: Sequence[str], body: list[ast.stmt]) -> ast.FunctionDef:
    arguments = ast.arguments(
        posonlyargs=[], args=[ast.arg(p) for p in parameters], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    return ast.FunctionDef(
        name=name, args=arguments, body=body or ast.parse("pass").body, decorator_list=[], type_params=[]
    )
