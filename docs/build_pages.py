"""Write the generated parts of the README and of `docs/`, `docs/automaton.svg` and the schema of the configuration.

A page is written by hand but for the blocks between `<!-- generated: NAME -->` and `<!-- end -->`, and for what the
commands in it answer (see sessions.py). The automaton is what the engine's own machine does on every state that it can
reach; nothing of it is drawn by hand. With `--check`, nothing is written, and stale files are named instead.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "rules"), str(ROOT / "docs")]

from ampclip_lint.amp.builder import Builder  # noqa: E402
from ampclip_lint.amp.calls import MAX_DEPTH  # noqa: E402
from ampclip_lint.amp.explain import trace_text  # noqa: E402
from ampclip_lint.amp.machine import (  # noqa: E402
    Buffer,
    Pair,
    ScalerState,
    Stage,
    State,
    run,
    wrong_when_applied,
)
from ampclip_lint.amp.ops import (  # noqa: E402
    Backward,
    Clip,
    NewScaler,
    Op,
    OptimizerStep,
    Scale,
    ScalerStep,
    Unscale,
    Update,
    ZeroGrad,
)
from ampclip_lint.amp.units import (  # noqa: E402
    NO_UNITS,
    ONE,
    PLAIN,
    Product,
    Ref,
    ScaleOf,
    Units,
    scale_of,
    units_text,
)
from ampclip_lint.amp.worked import G1, G2, G, M, Vector, clip, norm, plus, times  # noqa: E402
from ampclip_lint.flow.solver import WORLDS_APART, WORLDS_IN_ALL, WORLDS_PER_NODE  # noqa: E402
from ampclip_lint.lint.audit import Audit, audit_paths  # noqa: E402
from ampclip_lint.lint.config import OPTIONS, Kind, Settings  # noqa: E402
from ampclip_lint.lint.registry import validate  # noqa: E402
from ampclip_lint.lint.run import RunResult, lint_source  # noqa: E402
from ampclip_lint.report import sarif  # noqa: E402
from ampclip_lint.report.audit_text import render  # noqa: E402
from ampclip_lint.report.drawing import plot, standalone, timeline  # noqa: E402
from ampclip_lint.report.settings import schema_lines  # noqa: E402
from ampclip_lint.syntax.concrete import MAX_NESTING, MAX_SIZE  # noqa: E402
from ampclip_lint.syntax.source import SourceFile  # noqa: E402
from ampclip_lint.testing import parse_expectations, read_programs  # noqa: E402
from ampclip_rules import RULES  # noqa: E402
from sessions import BLOCK, answered  # noqa: E402

SCALER, OPTIMIZER, OTHER = Ref(0, "scaler"), Ref(1, "optimizer"), Ref(2, "other")

# --- the automaton ---------------------------------------------------------------------------------------------------

#: The calls of the protocol.
CALLS: Mapping[str, tuple[Op, ...]] = {
    "scaler.scale(loss).backward()": (Scale(SCALER), Backward(ScaleOf(SCALER), (OPTIMIZER, OTHER))),
    "loss.backward()": (Backward(PLAIN, (OPTIMIZER, OTHER)),),
    "scaler.unscale_(optimizer)": (Unscale(SCALER, OPTIMIZER),),
    "scaler.step(optimizer)": (ScalerStep(SCALER, OPTIMIZER),),
    "scaler.update()": (Update(SCALER),),
    "optimizer.step()": (OptimizerStep(OPTIMIZER),),
    "optimizer.zero_grad()": (ZeroGrad((OPTIMIZER,)),),
}
#: What else happens: update() asks for the check of any optimizer.
OTHERS: Mapping[str, tuple[Op, ...]] = {"scaler.unscale_(other)": (Unscale(SCALER, OTHER),)}
NEW = "NEW"
PLACES = (NEW, *(stage.name for stage in (Stage.READY, Stage.UNSCALED, Stage.STEPPED)))

#: What may decide how a call ends, beside the stage; the text says when it does not hold.
FEATURES: Mapping[str, Callable[[State], bool]] = {
    "the optimizer has no gradients": lambda state: bool(state.buffer(OPTIMIZER).units),
    "unscale_ found no gradients": lambda state: state.pair(SCALER, OPTIMIZER).recorded,
    "no optimizer was checked since the last update": lambda state: state.scaler(SCALER).checked,
}


@dataclass(frozen=True)
class Transition:
    """How a call ends at a place: where the pair is then, or torch's error; `word` is a shortest way to see it."""

    place: str
    call: str
    target: str | None
    error: str | None
    word: tuple[str, ...]
    condition: str = ""


def place_of(state: State) -> str:
    """The stage of the pair; NEW as long as the scaler has scaled nothing."""
    return state.pair(SCALER, OPTIMIZER).stage.name if state.scaler(SCALER).scaled else NEW


def perform(call: str, state: State) -> tuple[State, str | None]:
    """The state behind a call, and torch's error text where it raises."""
    for op in (*CALLS.get(call, ()), *OTHERS.get(call, ())):
        outcome = run(op, state)
        if outcome.error is not None:
            return state, outcome.error
        state = outcome.state
    return state, None


def without_units(state: State) -> State:
    """A state in which a buffer holds something or nothing: the scaler asks for gradients, never for their unit."""
    for optimizer, held in state.buffers.items():
        state = state.with_buffer(optimizer, Buffer(frozenset({ONE}) if held.units else NO_UNITS))
    return state


def reachable() -> dict[State, tuple[str, ...]]:
    """Every state that calls lead to from a new scaler, with a shortest word of calls that does."""
    start = run(NewScaler(SCALER), State()).state
    words: dict[State, tuple[str, ...]] = {start: ()}
    pending = deque([start])
    while pending:
        state = pending.popleft()
        for call in (*CALLS, *OTHERS):
            after, error = perform(call, state)
            after = without_units(after)
            if error is None and after not in words:
                words[after] = (*words[state], call)
                pending.append(after)
    return words


def automaton() -> list[Transition]:
    """The states taken together by their stage, with what decides where one stage does not say how a call ends."""
    ends: dict[tuple[str, str], dict[tuple[str | None, str | None], list[State]]] = {}
    words = reachable()
    for state in words:
        for call in CALLS:
            after, error = perform(call, state)
            end = (None if error else place_of(after), error)
            ends.setdefault((place_of(state), call), {}).setdefault(end, []).append(state)
    found: list[Transition] = []
    for place in PLACES:
        for call in CALLS:
            outcomes = ends[place, call]
            deciding = decided_by(list(outcomes.values())) if len(outcomes) > 1 else None
            for (target, error), states in sorted(outcomes.items(), key=lambda item: item[0][1] or ""):
                shortest = min((words[state] for state in states), key=len)
                condition = "" if deciding is None or FEATURES[deciding](states[0]) else deciding
                found.append(Transition(place, call, target, error, (*shortest, call), condition))
    return found


def decided_by(groups: list[list[State]]) -> str:
    """The one feature that tells the groups of states apart."""
    for text, feature in FEATURES.items():
        answers = [{feature(state) for state in states} for states in groups]
        if len(answers) == 2 and all(len(answer) == 1 for answer in answers) and answers[0] != answers[1]:
            return text
    raise SystemExit("the automaton has an outcome that no known feature explains")


def automaton_table(transitions: list[Transition]) -> Iterator[str]:
    yield "| call | " + " | ".join(PLACES) + " |"
    yield "| --- |" + " --- |" * len(PLACES)
    for call in CALLS:
        cells = []
        for place in PLACES:
            parts = []
            for t in transitions:
                if (t.place, t.call) == (place, call):
                    end = "–" if t.target == place else f"→ {t.target}" if t.target else f"raises `{_shorten(t.error)}`"
                    parts.append(f"{end}{f' if {t.condition}' if t.condition else ''}")
            cells.append("; ".join(parts))
        if any(cells):
            yield f"| `{call}` | {' | '.join(cells)} |"


def _shorten(error: str | None) -> str:
    """The first sentence of an error."""
    return (error or "").split(".  ")[0].rstrip(".")


_STYLE = """\
  <style>
    text { font: 13px ui-sans-serif, system-ui, sans-serif; fill: #57606a; }
    .stage { font-weight: 600; fill: #24292f; text-anchor: middle; }
    .call { font-family: ui-monospace, monospace; text-anchor: middle; }
    .raises { font-size: 12px; }
    rect { fill: #f6f8fa; stroke: #8c959f; }
    path { fill: none; stroke: #8c959f; stroke-width: 1.5; }
    marker path { fill: #8c959f; stroke: none; }
    @media (prefers-color-scheme: dark) {
      text { fill: #9198a1; }
      .stage { fill: #f0f6fc; }
      rect { fill: #151b23; stroke: #656c76; }
    }
  </style>"""
_MARGIN, _PITCH, _WIDE, _HIGH, _TOP = 10, 250, 130, 44, 66
_LINE, _LETTERS = 17, 34


def automaton_svg(transitions: list[Transition]) -> str:
    """The picture: stages in a row, ways forward on and above it, ways back below, errors under each stage."""
    arrows: dict[tuple[int, int], list[str]] = {}
    for t in transitions:
        if t.target is not None and t.target != t.place:
            calls = arrows.setdefault((PLACES.index(t.place), PLACES.index(t.target)), [])
            calls.append(_short_call(t.call))
    deepest = max((source - target for source, target in arrows), default=0)
    below = _TOP + _HIGH + (46 * deepest + 24 if deepest > 0 else 24)
    columns = [_errors(place, transitions) for place in PLACES]
    height = below + _LINE * max(map(len, columns)) + 16
    width = 2 * _MARGIN + _PITCH * len(PLACES) - 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
        "  <title>The stages of a scaler and an optimizer, the calls between them, and the calls that raise</title>",
        "  <!-- Generated by docs/build_pages.py from ampclip_lint.amp.machine. -->",
        _STYLE,
        '  <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 8 4 0 8z"/></marker></defs>',
    ]
    for (source, target), calls in sorted(arrows.items()):
        lines += _arrow(source, target, " or ".join(calls))
    for index, place in enumerate(PLACES):
        x = _left(index)
        lines.append(f'  <rect x="{x}" y="{_TOP}" width="{_WIDE}" height="{_HIGH}" rx="6"/>')
        lines.append(f'  <text class="stage" x="{x + _WIDE // 2}" y="{_TOP + _HIGH // 2 + 5}">{place}</text>')
        for row, text in enumerate(columns[index]):
            y = below + _LINE * (row + 1)
            lines.append(f'  <text class="raises" x="{x}" y="{y}">{escape(text)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _left(index: int) -> int:
    return _MARGIN + _PITCH * index


def _short_call(call: str) -> str:
    """``scaler.unscale_(optimizer)`` as ``unscale_``."""
    return "scale" if ".scale(" in call else call.partition("(")[0].removeprefix("scaler.")


def _arrow(source: int, target: int, label: str) -> Iterator[str]:
    middle = [_left(index) + _WIDE // 2 for index in (source, target)]
    tip = 'marker-end="url(#tip)"'
    if target == source + 1:
        x1, x2, y = _left(source) + _WIDE, _left(target), _TOP + _HIGH // 2
        yield f'  <path d="M{x1} {y}H{x2 - 2}" {tip}/>'
        yield f'  <text class="call" x="{(x1 + x2) // 2}" y="{y - 8}">{escape(label)}</text>'
        return
    over = target > source
    edge = _TOP if over else _TOP + _HIGH
    # Arrows of one kind end beside each other: the longer one further from the middle.
    shift = 12 * (abs(target - source) - 1)
    start, end = middle[0] + (20 if over else -20), middle[1] + (-20 if over else 20 - shift * 2)
    bow = edge + (-46 if over else 46) * (abs(target - source) - (1 if over else 0))
    yield f'  <path d="M{start} {edge}C{start} {bow} {end} {bow} {end} {edge + (-2 if over else 2)}" {tip}/>'
    y = edge + (bow - edge) * 3 // 4 - 7
    yield f'  <text class="call" x="{(start + end) // 2}" y="{y}">{escape(label)}</text>'


def _errors(place: str, transitions: list[Transition]) -> list[str]:
    """The calls that raise at a place, broken into lines."""
    lines = []
    for t in transitions:
        if t.place == place and t.error is not None:
            text = f"{_short_call(t.call)}{f' if {t.condition}' if t.condition else ''}"
            lines += _wrapped(text)
    return ["raises:", *lines] if lines else []


def _wrapped(text: str) -> list[str]:
    lines = ["· "]
    for word in text.split():
        if len(lines[-1]) + len(word) > _LETTERS:
            lines.append("\u00a0\u00a0")
        lines[-1] += word + " "
    return [line.rstrip() for line in lines]


# --- units -----------------------------------------------------------------------------------------------------------


def unit_table() -> Iterator[str]:
    """What the calls do to the unit of the gradients, for the four buffers that one window can hold."""
    scale = scale_of(SCALER)
    before: list[Units] = [NO_UNITS, frozenset({ONE}), frozenset({scale}), frozenset({ONE, scale})]
    rows: Mapping[str, Op] = {
        "loss.backward()": CALLS["loss.backward()"][0],
        "scaler.scale(loss).backward()": CALLS["scaler.scale(loss).backward()"][1],
        "scaler.unscale_(optimizer)": Unscale(SCALER, OPTIMIZER),
        "clip_grad_norm_(parameters, M)": Clip((OPTIMIZER,)),
        "clip_grad_norm_(parameters, M * scaler.get_scale())": Clip((OPTIMIZER,), Product(PLAIN, ScaleOf(SCALER))),
        "scaler.step(optimizer)": ScalerStep(SCALER, OPTIMIZER),
        "optimizer.step()": OptimizerStep(OPTIMIZER),
        "scaler.update()": Update(SCALER),
        "optimizer.zero_grad()": ZeroGrad((OPTIMIZER,)),
    }
    yield "| call | " + " | ".join(_unit(units) for units in before) + " |"
    yield "| --- |" + " --- |" * len(before)
    for text, op in rows.items():
        cells = []
        for units in before:
            state = State().with_buffer(OPTIMIZER, Buffer(units)).with_pair(SCALER, OPTIMIZER, Pair())
            outcome = run(op, state.with_scaler(SCALER, ScalerState(checked=True)))
            held = outcome.state.buffer(OPTIMIZER)
            cell = "raises" if outcome.error else _unit(held.units)
            if isinstance(op, (ScalerStep, OptimizerStep)) and held.applied:
                cell += " applied: " + ("**wrong**" if wrong_when_applied(held) else "right")
            elif isinstance(op, Clip) and units:
                cell += ", clipped: " + ("**wrong**" if held.bent else "right")
            cells.append(cell)
        yield f"| `{text}` | {' | '.join(cells)} |"


def _unit(units: Units) -> str:
    return units_text(units).replace("S^-1", "1/S").replace("S_old", "S′")


# --- the worked example ----------------------------------------------------------------------------------------------

#: Orders of calls, and the gradient that they apply at a scale.
ORDERS: Mapping[str, Callable[[float], Vector]] = {
    "backward, `unscale_`, clip, `scaler.step`": lambda s: clip(times(1 / s, times(s, G)), M),
    "backward, clip with M·S, `scaler.step`": lambda s: times(1 / s, clip(times(s, G), M * s)),
    "backward, clip, `scaler.step`": lambda s: times(1 / s, clip(times(s, G), M)),
    "backward, `unscale_`, clip with M·S, `scaler.step`": lambda s: clip(times(1 / s, times(s, G)), M * s),
    "backward, `optimizer.step`": lambda s: times(s, G),
    "backward, divide by S, clip, `scaler.step`": lambda s: times(1 / s, clip(times(1 / s, times(s, G)), M)),
    "backward g1, backward g2, `scaler.step`": lambda s: times(1 / s, plus(times(s, G1), times(s, G2))),
    "backward g1, `unscale_`, backward g2, `scaler.step`": lambda s: plus(G1, times(s, G2)),
}


def number(value: float) -> str:
    return f"{value:.4g}"


def vector(g: Vector) -> str:
    return f"({', '.join(map(number, g))})"


def steps_table() -> Iterator[str]:
    """Both orders at S = 8, call by call."""
    s = 8.0
    scaled = times(s, G)
    right = [("backward", scaled, "S"), ("`unscale_`", times(1 / s, scaled), "1")]
    right += [("clip", clip(right[-1][1], M), "1"), ("`scaler.step` applies", clip(right[-1][1], M), "1")]
    clipped = clip(scaled, M)
    wrong = [("backward", scaled, "S"), ("clip", clipped, "S"), ("`scaler.step` divides", times(1 / s, clipped), "1")]
    wrong.append(("… and applies", wrong[-1][1], "1"))
    yield "| right | gradient | norm | unit | wrong | gradient | norm | unit |"
    yield "| --- |" + " --- |" * 7
    for pair in zip(right, wrong):
        yield "| " + " | ".join(f"{call} | {vector(g)} | {number(norm(g))} | {unit}" for call, g, unit in pair) + " |"


def orders_table() -> Iterator[str]:
    """What is applied at several scales, and whether it depends on them."""
    scales = (1.0, 8.0, 64.0)
    yield "| order of calls | " + " | ".join(f"S = {scale:g}" for scale in scales) + " | |"
    yield "| --- |" + " --- |" * (len(scales) + 1)
    for text, applied in ORDERS.items():
        found = [applied(scale) for scale in scales]
        same = all(math.isclose(a, b, rel_tol=1e-9) for g in found for a, b in zip(g, found[0]))
        cells = " | ".join(f"{vector(g)}, norm {number(norm(g))}" for g in found)
        yield f"| {text} | {cells} | {'right' if same else '**wrong**'} |"


# --- worlds ----------------------------------------------------------------------------------------------------------

GUARDED = """\
from torch.nn.utils import clip_grad_norm_


def train(model, loader, optimizer, scaler, loss_fn, use_amp):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = loss_fn(model(inputs), targets)
        if use_amp:
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
        else:
            loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        if use_amp:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
"""


def guarded() -> Iterator[str]:
    """A right program that a path-insensitive analysis would flag, with its trace."""
    yield f"```python\n{GUARDED}```\n"
    trace = trace_text([SourceFile("train.py", None, GUARDED)], None)
    yield "```text\n$ ampclip-lint trace train.py\n" + trace.rstrip("\n") + "\n```"


# --- the audit -------------------------------------------------------------------------------------------------------

AUDITED = """\
import torch
from torch.nn.utils import clip_grad_norm_


class Trainer:
    def __init__(self, model, lr, use_amp):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.scaler = torch.amp.GradScaler("cuda", enabled=use_amp)

    def fit(self, loader, loss_fn, accumulate):
        for i, (inputs, targets) in enumerate(loader):
            loss = loss_fn(self.model(inputs), targets) / accumulate
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.optimizer)
            if (i + 1) % accumulate == 0:
                clip_grad_norm_(self.model.parameters(), 1.0)
                self.scaler.step(self.optimizer)
                self.scaler.update()
                self.optimizer.zero_grad()


def finetune(model, optimizer, scaler, loader, loss_fn):
    for inputs, targets in loader:
        optimizer.zero_grad()
        scaler.scale(loss_fn(model(inputs), targets)).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()


def apply_gradients(optimizer, scaler):
    scaler.step(optimizer)
    scaler.update()
"""


def audited() -> Audit:
    settings = Settings(isolated=True, stdin_filename="train.py")
    return audit_paths(["-"], settings, rules=validate(RULES), stdin=AUDITED.encode())


def audit_report() -> Iterator[str]:
    """A program with a loop of each kind, and what the audit says of it."""
    yield f"```python\n{AUDITED}```\n"
    yield "```text\n$ ampclip-lint audit train.py"
    for line in render(audited(), 100):
        yield "".join(text for text, _ in line)
    yield "```"


def audit_pictures() -> dict[str, str]:
    """The pictures that the page has of that program's finding."""
    (finding,) = audited().findings
    assert finding.history is not None and finding.curve is not None
    return {
        "docs/audit-timeline.svg": standalone(timeline(finding.history, "timeline")),
        "docs/audit-numbers.svg": standalone(plot(finding.curve, "numbers")),
    }


# --- limits ----------------------------------------------------------------------------------------------------------


def budgets() -> Iterator[str]:
    """The budgets that end or blur an analysis, as the engine has them."""
    yield "| budget | past it |\n| --- | --- |"
    yield f"| {MAX_DEPTH} calls inside each other | the next one is not entered |"
    yield f"| {MAX_SIZE:,} nodes of syntax in a function, {MAX_NESTING:,} inside each other | it is not read |"
    yield f"| {Builder.MAX_NODES:,} operations in a function and what it calls | only what it calls is, by itself |"
    yield "| as many in what makes the object of a method | the object is as if it were given |"
    yield f"| {WORLDS_APART:,} worlds in one function | it is done again with the two limits below |"
    yield f"| {WORLDS_PER_NODE} worlds at one point | worlds lose their facts and are joined |"
    yield f"| {WORLDS_IN_ALL:,} worlds in one function | the rest of its paths is not followed |"


def known(folder: Path = ROOT / "fixtures") -> Iterator[str]:
    """The programs of the fixtures that are judged wrongly, by rule and direction, with the reasons in them."""
    rules = {rule.name.replace("-", "_"): rule for rule in RULES}
    order = {stem: rule.code for stem, rule in rules.items()}
    found = False
    for path in sorted(folder.glob("*.py"), key=lambda path: order.get(path.stem, path.stem)):
        text = path.read_text(encoding="utf-8")
        programs = read_programs(text, path.name)
        rule = rules.get(path.stem)
        title = f"[{rule.code} {rule.name}](rules/{rule.name}.md)" if rule else path.stem
        for prefix, direction in (("fp_ok_", "reported, but right"), ("fn_bad_", "wrong, but not reported")):
            chosen = [program for program in programs if program.name.startswith(prefix)]
            if not chosen:
                continue
            found = True
            yield f"### {title}: {direction}\n"
            for program in chosen:
                codes = sorted({e.code for e in parse_expectations(text, path.name) if program.holds(e.row)})
                also = f" ({', '.join(codes)})" if codes and (rule is None or codes != [rule.code]) else ""
                reason = " ".join(program.reasons)
                yield f"- `{program.name}`{also} in [fixtures/{path.name}](../fixtures/{path.name}): {reason}"
            yield ""
    for prefix, direction in (("fp_ok_", "reported, but right"), ("fn_bad_", "wrong, but not reported")):
        programs_of_several = sorted((folder / "programs").glob(f"{prefix}*/train.py"))
        if not programs_of_several:
            continue
        found = True
        yield f"### Programs of several files: {direction}\n"
        for path in programs_of_several:
            yield known_folder(path.parent)
        yield ""
    if not found:
        yield "At present there is none."


_KNOWN = re.compile(r"# known: (\S.*)")


def known_folder(folder: Path) -> str:
    """The entry of one program of several files: what is expected of it anywhere, and the reasons anywhere in it."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py"))}
    codes = sorted({found.code for path, text in texts.items() for found in parse_expectations(text, path.name)})
    also = f" ({', '.join(codes)})" if codes else ""
    place = f"fixtures/programs/{folder.name}"
    reason = " ".join(reason for text in texts.values() for reason in _KNOWN.findall(text))
    return f"- `{folder.name}`{also} in [{place}](../{place}): {reason}"


# --- configuration and output ----------------------------------------------------------------------------------------

_TYPES: Mapping[Kind, str] = {
    "codes": "rules",
    "codes by pattern": "a table of patterns to rules",
    "patterns": "patterns",
    "threshold": "`error`, `warning`, `info` or `never`",
    "path": "a path",
    "models": "a table of module names to Python text, or to the path of a file that has it",
}


def keys() -> Iterator[str]:
    """The keys of the configuration, from the parser's table."""
    yield "| key | value | default | |\n| --- | --- | --- | --- |"
    for option in OPTIONS:
        default = "" if option.default in (None, [], {}) else f"`{json.dumps(option.default)}`"
        if option.key == "exclude":
            default = "folders such as `.git`, `.venv`, `site-packages` and `build`"
        yield f"| `{option.key}` | {_TYPES[option.kind]} | {default} | {option.doc} |"


def schema_text() -> str:
    return "".join(f"{text}\n" for ((text, _),) in schema_lines(validate(RULES)))


def sarif_result() -> Iterator[str]:
    """What SARIF makes of the example of docs/output.md; the rules' pages around it would fill this one."""
    text = (ROOT / "docs" / "output.md").read_text(encoding="utf-8")
    (program,) = (match["body"] for match in BLOCK.finditer(text) if match["file"] == "train.py")
    log = "\n".join(text for ((text, _),) in sarif.render(RunResult(tuple(lint_source(program, "train.py")))))
    shown = json.dumps(json.loads(log)["runs"][0]["results"][0], indent=2)
    # An object of plain values stands on one line.
    shown = re.sub(r"\{\s+([^{}\[\]]*?)\s+\}", lambda match: "{" + re.sub(r",\n\s+", ", ", match[1]) + "}", shown)
    yield f"```json\n{shown}\n```"


# --- pages -----------------------------------------------------------------------------------------------------------

_BLOCK = re.compile(r"(^<!-- generated: (?P<name>[a-z-]+) -->\n)(.*?)(^<!-- end -->$)", re.MULTILINE | re.DOTALL)


def filled(text: str, blocks: Mapping[str, Callable[[], Iterable[str]]]) -> str:
    """A page with fresh generated blocks."""

    def block(match: re.Match[str]) -> str:
        if match["name"] not in blocks:
            raise SystemExit(f"nothing generates the block `{match['name']}`")
        return f"{match[1]}\n{chr(10).join(blocks[match['name']]()).strip()}\n\n{match[4]}"

    return _BLOCK.sub(block, text)


def pages() -> dict[str, str]:
    """Path from the root to content, for everything that is generated here."""
    transitions = automaton()
    blocks: dict[str, dict[str, Callable[[], Iterable[str]]]] = {
        "README.md": {},
        "docs/api.md": {},
        "docs/ci.md": {},
        "docs/contributing-a-rule.md": {},
        "docs/configuration.md": {"keys": keys},
        "docs/how-it-works.md": {
            "steps": steps_table,
            "orders": orders_table,
            "units": unit_table,
            "automaton": lambda: automaton_table(transitions),
            "guarded": guarded,
        },
        "docs/limitations.md": {"budgets": budgets, "known": known},
        "docs/audit.md": {"audit": audit_report},
        "docs/editors.md": {},
        "docs/fixing.md": {},
        "docs/output.md": {"sarif": sarif_result},
        "docs/quickstart.md": {},
        "docs/suppressing.md": {},
    }
    found = {"docs/automaton.svg": automaton_svg(transitions), **audit_pictures()}
    # In the package for who installs it, beside the pages for who reads them.
    found |= dict.fromkeys(("ampclip_lint/ampclip-lint.schema.json", "docs/ampclip-lint.schema.json"), schema_text())
    for name, of_page in blocks.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        lost = set(of_page) - {match["name"] for match in _BLOCK.finditer(text)}
        if lost:
            raise SystemExit(f"{name} has lost its block {', '.join(sorted(lost))}")
        found[name] = answered(filled(text, of_page))
    return found


def stale(root: Path, wanted: Mapping[str, str]) -> list[str]:
    """The files that are missing or different."""
    return sorted(
        name
        for name, text in wanted.items()
        if not (root / name).is_file() or (root / name).read_text(encoding="utf-8") != text
    )


def main(arguments: list[str]) -> int:
    """Write the files, or check them."""
    if arguments not in ([], ["--check"]):
        print("usage: python docs/build_pages.py [--check]", file=sys.stderr)
        return 2
    wanted = pages()
    names = stale(ROOT, wanted)
    for name in names:
        if arguments:
            print(f"{name} is stale; run `python docs/build_pages.py`", file=sys.stderr)
        else:
            (ROOT / name).write_text(wanted[name], encoding="utf-8", newline="\n")
            print(f"wrote {name}")
    return 1 if names and arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
