"""What the analysis of a function knows, as text: line by line (``trace``) or as a graph (``graph``)."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from ampclip_lint.amp.analysis import FunctionAnalysis, GradScalerDomain, analyse_program
from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.link import Linked, PresumeEnabled
from ampclip_lint.amp.machine import State
from ampclip_lint.amp.narrate import Names, describe, describe_error, names_of, outcome, tested, touched
from ampclip_lint.amp.ops import OPERATIONS, Backward, NewScaler, Op, Scale, Store, Update
from ampclip_lint.amp.units import Ref
from ampclip_lint.diagnostics import Confidence, Span
from ampclip_lint.flow.facts import Atom, Equals, Facts, Forget, Learn, Residue, SetConstant, Shift, Subject, Truthy
from ampclip_lint.flow.graph import Edge, Graph, Guard, Node
from ampclip_lint.flow.solver import Exploration, World, solve
from ampclip_lint.records import dataclass
from ampclip_lint.syntax.source import SourceFile

_WIDEST = 60
"""Characters of a source line."""
_BETWEEN = "   "
"""Stands between units of which each is another possibility."""
_NARROWEST = 12
"""Characters of a column, however narrow the terminal is."""
_WORLDS = 20_000
"""Worlds of the exploration that keeps all facts; past it the engine's own has to do."""
_RAISES = "raises"

Lines = Iterator[str]


def trace_text(
    files: Sequence[SourceFile],
    function: str | None,
    models: Mapping[str, str] | None = None,
    *,
    width: int | None = None,
) -> str:
    """
    The lines that touch gradients: what they do, and the unit of each optimizer's gradients after them.

    The first file's functions are told; the others are there for what it imports from them. `width` is that of the
    terminal, if it is one: columns that are too wide for it go on below.
    """
    sources = {file.name: file for file in files}

    def lines(analysis: FunctionAnalysis, linked: Linked) -> Lines:
        return _Trace(analysis, linked, sources, width).lines()

    return _report(files, function, lines, "", models)


def graph_text(
    files: Sequence[SourceFile], function: str, models: Mapping[str, str] | None = None, *, dot: bool = False
) -> str:
    """The control-flow graph of a function with the states in it."""
    sources = {file.name: file for file in files}

    def lines(analysis: FunctionAnalysis, linked: Linked) -> Lines:
        picture = _Picture(analysis, linked, sources)
        return picture.dot() if dot else picture.lines()

    return _report(files, function, lines, "// " if dot else "", models)


def _report(
    files: Sequence[SourceFile],
    function: str | None,
    tell: Callable[[FunctionAnalysis, Linked], Lines],
    comment: str,
    models: Mapping[str, str] | None,
) -> str:
    program = analyse_program(files, function, {file.name for file in files[:1]}, models)
    sources = {file.name: file for file in files}
    parts: list[str] = []
    for problem in program.syntax_errors:
        place = _where(problem.span, sources)
        parts.append(f"{comment}{place}: not valid Python: {problem.message}")
    for analysis in program.functions:
        followed = analysis.linked is not None and analysis.linked.optimizers
        if function is None and not followed and not analysis.gaps:
            continue
        head = [f"{comment}{line}" for line in _head(analysis, sources)]
        body = [] if analysis.linked is None else list(tell(analysis, analysis.linked))
        parts.append("\n".join([*head, *body]))
    if not parts:
        where = ", ".join(file.name for file in files[:1])
        what = f"function `{function}`" if function is not None else "function in which scaled gradients are followed"
        parts.append(f"{comment}{where}: no {what}")
    return "\n\n".join(parts) + "\n"


def _where(span: Span, sources: Mapping[str, SourceFile]) -> str:
    return f"{span.filename}:{sources[span.filename].where(span.start.row)}"


def _head(analysis: FunctionAnalysis, sources: Mapping[str, SourceFile]) -> Lines:
    """Name, place, objects, and what stands in the way of believing the rest."""
    linked = analysis.linked
    title = f"{analysis.name} ({_where(analysis.span, sources)})"
    if linked is None:
        yield title + ("" if analysis.gaps else ": no scaler here, nor in what it calls: nothing to show")
    else:
        assert analysis.domain is not None
        names = names_of(analysis.domain)
        objects = [f"{word}{names.quoted(ref)}" for word, ref in _objects(linked)]
        yield f"{title}: {', '.join(objects)}"
        if not linked.optimizers:
            yield "  no optimizer is known here, so no gradients are followed"
    for gap in analysis.gaps:
        yield f"  incompletely analysed: {gap.message} ({_where(gap.span, sources)})"


def _objects(linked: Linked) -> Iterator[tuple[str, Ref]]:
    for kind, refs in (("scaler", linked.scalers), ("optimizer", linked.optimizers)):
        for index, ref in enumerate(refs):
            yield ("" if index else f"{kind} " if len(refs) == 1 else f"{kind}s "), ref


# -- Worlds with all their facts --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _AskAll:
    """The last node: it asks for every fact, so that none is dropped on the way."""

    asks: tuple[Subject, ...]


class _Remembering(GradScalerDomain):
    """The domain on a graph with one more node, where paths end."""

    def transfer(self, node: Node, state: State, facts: Facts) -> Iterator[tuple[State, tuple[tuple[Atom, bool], ...]]]:
        if not isinstance(node.op, _AskAll):
            yield from super().transfer(node, state, facts)


def _atoms(linked: Linked, names: Names) -> list[Atom]:
    """What the source tests, in the order of the graph, then whether scalers are enabled."""
    graph, found = linked.graph, dict[Atom, None]()
    for node in graph.nodes:
        for edge in graph.edges[node.index]:
            for guard in edge.guards:
                if tested(guard, graph, node.index) and names.atom(guard.atom, True) is not None:
                    found[guard.atom] = None
    enabled = [atom for atom in linked.enabled.values() if atom not in found]
    return [*(atom for atom in found if atom not in linked.enabled.values()), *enabled]


def _explore(analysis: FunctionAnalysis, linked: Linked, atoms: Sequence[Atom]) -> Exploration[State]:
    """The fixpoint again, with every readable fact kept as long as it holds: what tells worlds apart for a reader."""
    found = analysis.exploration
    assert found is not None
    last = len(linked.graph.nodes)
    moduli = [a.predicate.modulus for a in atoms if isinstance(a.predicate, Residue)]
    asks = (*(atom.subject for atom in atoms), *(m for m in moduli if isinstance(m, Subject)))
    graph = Graph(
        [*linked.graph.nodes, Node(last, _AskAll(asks))],
        [*([*out, Edge(last)] for out in linked.graph.edges), []],
    )
    domain = _Remembering(linked)
    full = solve(graph, [domain.entry()], domain, worlds_in_all=_WORLDS)
    return found if full.exhausted or full.joined - {last} else full


def _conditions(classes: Sequence[Sequence[Facts]], atoms: Sequence[Atom], names: Names) -> list[str]:
    """For each class of worlds, what tells it from the others, as source; "" where nothing does."""
    result: list[str] = []
    exact: list[bool] = []
    for index, mine in enumerate(classes):
        rest = [facts for other, facts_of in enumerate(classes) if other != index for facts in facts_of]
        shared = [
            (atom, holds)
            for atom in atoms
            for holds in (True, False)
            if all(facts.value(atom) is holds for facts in mine)
        ]
        chosen: list[str] = []
        while rest and shared:
            best, left = min(
                (
                    (literal, [facts for facts in rest if facts.value(literal[0]) in (literal[1], None)])
                    for literal in shared
                ),
                key=lambda pair: len(pair[1]),
            )
            if len(left) == len(rest):
                break
            rest = left
            shared.remove(best)
            chosen.append(names.atom(*best) or "")
        exact.append(not rest)
        result.append(("only if " if rest and chosen else "") + " and ".join(chosen))
    vague = [index for index, is_exact in enumerate(exact) if not is_exact]
    if len(vague) == 1 and len(classes) > 1:
        result[vague[0]] = "otherwise"
    return result


# -- trace ------------------------------------------------------------------------------------------------------------


@dataclass
class _Row:
    """One operation of the source, whatever number of nodes it has in the graph, with the worlds behind it."""

    span: Span
    op: Op
    texts: dict[str, None] = field(default_factory=dict)
    inert_texts: dict[str, None] = field(default_factory=dict)
    errors: dict[str, None] = field(default_factory=dict)
    worlds: list[tuple[Facts, State | None]] = field(default_factory=list)
    faults: dict[FaultKind, bool] = field(default_factory=dict)
    """Whether each kind that was found here is certain."""


class _Trace:
    def __init__(
        self, analysis: FunctionAnalysis, linked: Linked, sources: Mapping[str, SourceFile], terminal: int | None
    ) -> None:
        assert analysis.domain is not None
        self.terminal = terminal
        self.analysis = analysis
        self.linked = linked
        self.sources = sources
        self.domain = analysis.domain
        self.names = names_of(self.domain)
        self.atoms = _atoms(linked, self.names)
        self.exploration = _explore(analysis, linked, self.atoms)
        self.faults = self._find_faults()

    def lines(self) -> Lines:
        rows = self._rows()
        if not rows:
            yield "  nothing that touches gradients is reached"
            return
        home = self.analysis.info.module.file.name
        inside = [row for row in rows if row.span.filename == home and row.span.function == self.analysis.span.function]
        helpers: dict[tuple[str, str], list[_Row]] = {}
        for row in rows:
            if row not in inside:
                helpers.setdefault((row.span.filename, row.span.function), []).append(row)
        yield from self._table(inside, rows, "")
        for (filename, function), part in helpers.items():
            yield f"  in {function or filename}:"
            yield from self._table(part, rows, f"{filename}:")
        words = " ".join(unit for row in rows for unit in self._units_of(row))
        for word, meaning in (("_old", "the S before an update()"), ("mixed", "S of different times in one sum")):
            if word in words:
                yield f"  ({'S_old' if word == '_old' else word}: {meaning})"

    def _rows(self) -> list[_Row]:
        rows: dict[tuple[object, ...], _Row] = {}
        for node in self.linked.graph.nodes:
            op: Op = node.op
            place = node.place
            visits = self.exploration.at(node.index)
            if place is None or not visits or not isinstance(op, OPERATIONS) or isinstance(op, Store):
                continue
            span = place.span
            scaler = op.scaler if isinstance(op, (NewScaler, Scale, Update)) else None
            key = (span.filename, span.start, type(op), touched(op), scaler)
            row = rows.setdefault(key, _Row(span, op))
            for visit in visits:
                self._visit(row, node, visit.world)
            for kind, certain in self.faults.get(node.index, {}).items():
                row.faults[kind] = row.faults.get(kind, False) or certain
        backwards = {(row.span.filename, row.span.start.row) for row in rows.values() if isinstance(row.op, Backward)}
        shown = [
            row
            for row in rows.values()
            if (row.texts or row.errors or row.inert_texts)
            and not (isinstance(row.op, Scale) and (row.span.filename, row.span.start.row) in backwards)
        ]
        return sorted(shown, key=lambda row: (row.span.filename, row.span.start.row))

    def _visit(self, row: _Row, node: Node, world: World[State]) -> None:
        disabled = self.domain.disabled(world.facts)
        out = outcome(node.op, world.state, disabled, node.index)
        text = describe(node.op, world.state, disabled, self.names)
        if out.error is not None:
            row.errors[describe_error(node.op, out.error, self.names)] = None
        elif text is not None:
            (row.inert_texts if disabled else row.texts)[text] = None
        step = self.domain.protocol.advance(node.op, node.index, world.state, disabled)
        # At a fault the engine goes on as if it were corrected; what really happens is what the machine says.
        real = step.marks or step.state is None or node.index in self.faults
        row.worlds.append((world.facts, None if out.error is not None else out.state if real else step.state))

    def _find_faults(self) -> dict[int, dict[FaultKind, bool]]:
        """The kinds of faults at each node, and whether each is certain."""
        found: dict[int, dict[FaultKind, bool]] = {}
        for site in self.analysis.sites(OPERATIONS):
            for kind in FaultKind:
                fault = next(site.faults(kind), None)
                if fault is not None:
                    found.setdefault(site.node.index, {})[kind] = fault.confidence is Confidence.DEFINITE
        return found

    def _table(self, rows: Sequence[_Row], all_rows: Sequence[_Row], prefix: str) -> Lines:
        """The rows in columns; that of the source is as wide as in the other tables."""
        labels = [f"{prefix}{self.sources[row.span.filename].where(row.span.start.row)}" for row in rows]
        margin = max(map(len, labels), default=0)
        source_width, text_width, units_width = self._widths(
            max(len(self._source(row)) for row in all_rows),
            [self._text(row) for row in rows],
            [units for row in rows for units in self._units(row)],
            margin,
        )
        previous: tuple[str, int] | None = None
        for row, label in zip(rows, labels):
            place = (row.span.filename, row.span.start.row)
            source = _cut(self._source(row), source_width) if place != previous else ""
            label = label if place != previous else ""
            previous = place
            texts = _wrapped(self._text(row), text_width)
            units = [line for part in self._units(row) for line in _alternatives(part, units_width)]
            for index in range(max(len(texts), len(units))):
                text, unit = (column[index] if index < len(column) else "" for column in (texts, units))
                yield f"  {label:>{margin}} | {source:<{source_width}}  {text:<{text_width}}  {unit}".rstrip()
                label = source = ""
            for kind, certain in row.faults.items():
                yield f"  {'':>{margin}} ! {kind.value}{'' if certain else ' (possibly)'}"

    def _widths(self, source: int, texts: Sequence[str], units: Sequence[str], margin: int) -> tuple[int, int, int]:
        """Of the three columns: what they need, or what the terminal has for them, but names stay whole."""
        text, unit = (max(map(len, column), default=0) for column in (texts, units))
        if self.terminal is None:
            return source, text, unit
        room = self.terminal - margin - len("   |     ")
        if source + text + unit <= room:
            return source, text, unit
        text_least, unit_least = (
            max((len(word) for cell in column for word in cell.split()), default=0) for column in (texts, units)
        )
        unit = min(unit, max(room // 3, room - source - text, unit_least))
        text = min(text, max((room - unit) // 2, room - unit - source, text_least))
        return min(source, max(room - unit - text, _NARROWEST)), text, unit

    def _text(self, row: _Row) -> str:
        return " / ".join(row.texts or row.errors or row.inert_texts)

    def _source(self, row: _Row) -> str:
        source = self.sources.get(row.span.filename)
        text = source.line(row.span.start.row).strip().replace("\t", " ") if source is not None else ""
        return _cut(text, _WIDEST)

    def _units_of(self, row: _Row, optimizers: Iterable[Ref] | None = None) -> dict[str, list[Facts]]:
        """The distinct units behind an operation, each with the facts of its worlds."""
        classes: dict[str, list[Facts]] = {}
        for optimizer in self.linked.optimizers if optimizers is None else optimizers:
            for facts, state in row.worlds:
                text = _RAISES if state is None else self.names.buffer(state.buffer(optimizer))
                classes.setdefault(text, []).append(facts)
        return dict(sorted(classes.items(), key=lambda item: ("S" not in item[0], item[0])))

    def _units(self, row: _Row) -> list[str]:
        """One line for all optimizers where that says it, else one for each."""
        parts: list[str] = []
        several = False
        for optimizer in self.linked.optimizers:
            name, classes = self.names[optimizer], self._units_of(row, (optimizer,))
            conditions = _conditions(list(classes.values()), self.atoms, self.names) if len(classes) > 1 else [""]
            if not any(conditions):
                parts.append(f"{name}: {' or '.join(classes)}")
                continue
            several = True
            parts.append(
                _BETWEEN.join(
                    f"{name}: {text}" + (f"  [{condition}]" if condition else "")
                    for text, condition in zip(classes, conditions)
                )
            )
        return (parts if several else [_BETWEEN.join(parts)]) or [""]


# -- graph ------------------------------------------------------------------------------------------------------------


class _Picture:
    def __init__(self, analysis: FunctionAnalysis, linked: Linked, sources: Mapping[str, SourceFile]) -> None:
        assert analysis.domain is not None and analysis.exploration is not None
        self.sources = sources
        self.graph = linked.graph
        self.linked = linked
        self.exploration = analysis.exploration
        self.names = names_of(analysis.domain)
        self.domain = analysis.domain
        self.choices: dict[Subject, str] = {}

    def lines(self) -> Lines:
        margin = len(str(len(self.graph.nodes))) + 4
        worlds = self.exploration.worlds
        yield f"  {_count(len(self.graph.nodes), 'node')}, {_count(worlds, 'world')}"
        for node in self.graph.nodes:
            yield f"{node.index:>{margin - 2}}  {self._place(node)}{self._op(node)}"
            yield f"{'':>{margin}}  {self._states(node)}"
            for edge in self.graph.edges[node.index]:
                guards = " and ".join(self._guard(guard, node.index) for guard in edge.guards)
                condition = f"  if {guards}" if guards else ""
                doubt = f"  (in doubt: {edge.doubt})" if edge.doubt else ""
                yield f"{'':>{margin}}  -> {edge.target}{condition}{doubt}"

    def dot(self) -> Lines:
        shown = Graph(list(self.graph.nodes))
        for out in self.graph.edges:
            shown.edges.append([Edge(edge.target, tuple(map(self._shown, edge.guards)), edge.doubt) for edge in out])
        text = shown.to_dot(lambda node: f"{node.index}  {self._place(node)}{self._op(node)}\n{self._states(node)}")
        yield from text.split("\n")

    def _shown(self, guard: Guard) -> Guard:
        """A guard that prints as a user would write it."""
        text = self._guard(guard, None)
        return Guard(Atom(Subject(text, frozenset(), text), Truthy()), True)

    def _guard(self, guard: Guard, node: int | None) -> str:
        text = self.names.atom(guard.atom, guard.holds)
        if text is None:
            predicate = guard.atom.predicate
            value = predicate.value if isinstance(predicate, Equals) else "so"
            return f"{self._subject(guard.atom.subject)} is {'' if guard.holds else 'not '}{value}"
        proven = node is not None and not tested(guard, self.graph, node)
        return f"{text} (proven by the call)" if proven else text

    def _place(self, node: Node) -> str:
        return f"{_where(node.place.span, self.sources)}  " if node.place is not None else ""

    def _states(self, node: Node) -> str:
        visits = self.exploration.at(node.index)
        if not visits:
            return "no world gets here"
        parts = []
        for optimizer in self.linked.optimizers:
            units = dict.fromkeys(self.names.buffer(visit.world.state.buffer(optimizer)) for visit in visits)
            parts.append(f"{self.names[optimizer]}: {' or '.join(units)}")
        doubtful = all(visit.world.doubt for visit in visits)
        joined = ", joined" if node.index in self.exploration.joined else ""
        return f"{_count(len(visits), 'world')}{' in doubt' if doubtful else ''}{joined}; {'   '.join(parts)}"

    def _op(self, node: Node) -> str:
        """The operation in words, as it is in the first world that reaches it."""
        match node.op:
            case None:
                if node.index == 0:
                    return "entry"
                return "branch" if len(self.graph.edges[node.index]) > 1 else "junction"
            case PresumeEnabled(_, holds):
                return f"the scaler is presumed {'enabled' if holds else 'disabled'}, like this autocast"
            case Store():
                return "a value is kept with its unit"
            case Learn(atom, holds):
                text = self.names.where(atom, holds) or f"{self._subject(atom.subject)} is known"
                return f"from here on: {text.removeprefix('where ')}"
            case Forget(symbol):
                return f"{self._symbol(symbol)} gets a new value"
            case SetConstant(target, value):
                return f"{self._subject(target)} = {value!r}"
            case Shift(target, source, offset):
                change = f" {'+' if offset > 0 else '-'} {abs(offset)}" if offset else ""
                return f"{self._subject(target)} = {self._subject(source)}{change}"
        visits = self.exploration.at(node.index)
        state, facts = (visits[0].world.state, visits[0].world.facts) if visits else (State(), Facts())
        words = describe(node.op, state, self.domain.disabled(facts), self.names)
        return words or f"{type(node.op).__name__} of nothing that is followed"

    def _subject(self, subject: Subject) -> str:
        """As the source writes it; what has no name there gets a number."""
        text = self.names.subject(subject)
        if text is not None:
            return f"`{text}`"
        choice = isinstance(subject.key, tuple) and subject.key[0] == "tag"
        return self.choices.setdefault(subject, f"{'choice' if choice else 'counter'} {len(self.choices) + 1}")

    def _symbol(self, symbol: object) -> str:
        texts = {atom.subject.text for atom in self.graph.atoms() if symbol in atom.subject.mentions} - {""}
        return f"`{texts.pop()}`" if len(texts) == 1 else "something"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _alternatives(units: str, width: int) -> list[str]:
    """Where not all of them fit into one line, each begins a new one."""
    return [
        line for part in ([units] if len(units) <= width else units.split(_BETWEEN)) for line in _wrapped(part, width)
    ]


def _wrapped(text: str, width: int) -> list[str]:
    """`text` in lines of that width, if no word is wider."""
    if len(text) <= width:
        return [text]
    return textwrap.wrap(text, max(width, 1), break_long_words=False, break_on_hyphens=False)
