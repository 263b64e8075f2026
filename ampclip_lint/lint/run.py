"""The run: files to one program, program to violations, violations to diagnostics. Knows no output format."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING

from ampclip_lint.diagnostics import Confidence, Diagnostic, Span
from ampclip_lint.lint.config import Configs, Selection, Settings, selected_codes
from ampclip_lint.lint.gather import gather
from ampclip_lint.lint.registry import load_rules
from ampclip_lint.lint.rule import Rule, UnusedSuppression, Violation
from ampclip_lint.lint.suppress import NONE, Suppression, Suppressions, hint, suppressions
from ampclip_lint.syntax.source import FileProblem, SourceFile

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import ProgramAnalysis


#: File and qualified name.
Function = tuple[str, str]


@dataclass(frozen=True)
class Program:
    """The files of a run, which can be analysed again with other texts in some of them."""

    rules: Mapping[str, Rule]
    sources: Mapping[str, SourceFile]
    given: frozenset[str]
    """The files that the paths stand for; the others are only imported."""
    models: Mapping[str, str]
    reach: Mapping[Function, frozenset[Function]]
    """For each function that was read for its own sake, those that were read as part of it, and itself."""
    codes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The codes that are shown for each file."""
    pedantic: bool = False
    """Whether what is only possible is shown."""

    def findings(
        self, changed: Mapping[str, SourceFile], roots: Collection[Function] | None = None
    ) -> list[Diagnostic] | None:
        """
        What the rules say with the `changed` texts: of all of the program, or of some of its functions, which are read
        with the files that these came past.

        All rules speak, of what is possible too. None where something crashes.
        """
        files = set(self.sources)
        if roots is not None:
            files = {name for root in roots for name, _ in self.reach.get(root, (root,))} | changed.keys()
        texts = {name: changed.get(name, source) for name, source in self.sources.items() if name in files}
        codes = frozenset(self.rules)
        judge = _Judge(self.rules, codes, texts, pedantic=True, guarded=True, given=self.given, models=self.models)
        judge.roots = roots
        judge.run(list(texts.values()))
        found = judge.report(lambda _name: codes)
        return None if any(problem.internal for problem in judge.problems) else found


@dataclass(frozen=True)
class RunResult:
    """All that a report needs."""

    diagnostics: tuple[Diagnostic, ...] = ()
    problems: tuple[FileProblem, ...] = ()
    """Files or parts of files that were left out, and why."""
    missing: tuple[str, ...] = ()
    """Arguments that name nothing."""
    sources: Mapping[str, SourceFile] = field(default_factory=dict)
    """The analysed files by name."""
    commented: Mapping[str, SourceFile] = field(default_factory=dict)
    """The files by name that were read for their suppression comments alone."""
    files: int = 0
    """How many files the paths stand for."""
    imported: int = 0
    """How many of the analysed files are there only because others import them."""
    suppressed: int = 0
    incomplete: int = 0
    """Functions that were analysed incompletely, whether or not that rule is selected."""
    failed: bool = False
    """Whether a finding reaches the threshold of its file."""
    program: Program | None = None
    """What was analysed, for those who want to know what other texts would change."""

    @property
    def sources_of_all(self) -> dict[str, SourceFile]:
        """Every file that a finding may stand in, by name."""
        return {**self.sources, **self.commented}

    def source(self, name: str) -> SourceFile | None:
        """The file of a finding."""
        return self.sources.get(name) or self.commented.get(name)


def lint_source(
    text: str,
    filename: str = "<source>",
    *,
    select: Iterable[str] | None = None,
    pedantic: bool = False,
    rules: Mapping[str, Rule] | None = None,
) -> list[Diagnostic]:
    """The findings in one text, by the default or the selected rules. Reads no configuration; lets crashes through."""
    rules = load_rules() if rules is None else rules
    codes = selected_codes(rules, (Selection(None if select is None else tuple(select)),))
    source = SourceFile(filename, None, text.replace("\r\n", "\n").replace("\r", "\n"))
    judge = _Judge(rules, codes, {filename: source}, pedantic)
    judge.run([source])
    return judge.report(lambda _name: codes)


def lint_paths(
    paths: Sequence[str | PathLike[str]],
    settings: Settings | None = None,
    *,
    rules: Mapping[str, Rule] | None = None,
    stdin: bytes | None = None,
) -> RunResult:
    """Lint files and folders as one program. Only a `ToolError` (nothing sensible can be done) is raised."""
    rules = load_rules() if rules is None else rules
    settings = settings or Settings()
    configs = Configs(settings, rules)
    selected_codes(rules, (settings.selection,))  # a mistake on the command line is one even where no file is found
    judged = frozenset(code for code, rule in rules.items() if rule.scope == "suppression")
    files = gather(
        paths,
        configs,
        stdin=stdin,
        may_suppress=hint(rules),
        judges=lambda place: bool(judged & configs.codes(place)),
    )
    codes_of = {
        name: frozenset() if name not in files.given and configs.is_excluded(place) else configs.codes(place)
        for name, place in files.places.items()
    }
    codes: frozenset[str] = frozenset().union(*codes_of.values())
    sources = {**files.sources, **files.commented}
    judge = _Judge(rules, codes, sources, settings.pedantic, guarded=True, given=files.given, models=files.models)
    if files.sources:
        judge.run(list(files.sources.values()))
    diagnostics = judge.report(lambda name: codes_of.get(name, frozenset()))
    return RunResult(
        diagnostics=tuple(diagnostics),
        problems=(*files.problems, *judge.problems),
        missing=files.found.missing,
        sources=files.sources,
        commented=files.commented,
        files=len(files.found.files),
        imported=len(files.sources.keys() - files.given),
        suppressed=judge.suppressed,
        incomplete=judge.incomplete,
        failed=any(
            not rules[found.code].advisory and configs.fails(files.places[found.span.filename], found.severity)
            for found in diagnostics
        ),
        program=Program(rules, sources, files.given, files.models, judge.reach, codes_of, settings.pedantic),
    )


class _Judge:
    """Runs the rules over a program and keeps what they say, until `report` filters and sorts it.

    `given`: the files whose functions are read for their own sake; others only for what these call.
    Where it is `guarded`, a crash costs only the file or the rule that it comes from, and is reported.
    """

    def __init__(
        self,
        rules: Mapping[str, Rule],
        codes: frozenset[str],
        sources: Mapping[str, SourceFile],
        pedantic: bool,
        *,
        guarded: bool = False,
        given: Collection[str] | None = None,
        models: Mapping[str, str] | None = None,
    ) -> None:
        self.given = given
        self.models = models
        self.known = rules
        self.rules = [rule for code, rule in rules.items() if code in codes]
        self.sources = sources
        self.pedantic = pedantic
        self.guarded = guarded
        self.problems: list[FileProblem] = []
        self.incomplete = 0
        self.suppressed = 0
        self._violations: list[tuple[Rule, Violation]] = []
        self._comments: dict[str, Suppressions] = {}
        self._used: set[Suppression] = set()
        self._unsure_files: set[str] = set()
        """Files that were analysed in part: what silences nothing today may silence what was not found."""
        self._unsure_rules: set[str] = set()
        self.roots: Collection[Function] | None = None
        self.reach: dict[Function, frozenset[Function]] = {}

    def run(self, files: Sequence[SourceFile]) -> None:
        """Analyse `files` as one program and ask every rule about it."""
        from ampclip_lint.amp.analysis import analyse_program

        try:
            program = analyse_program(files, entries=self.given, models=self.models, roots=self.roots)
        except Exception as error:
            if not self.guarded:
                raise
            self._unsure_files.update(self.sources)  # calls from file to file are not followed any more
            if len(files) == 1:
                self._crash(files[0].name, "analysis", error)
            else:
                self._crash("the program", "analysis, so that files are read one by one", error)
                for file in files:
                    self.run([file])
            return
        self._ask(program)

    def _check(self, rule: Rule, subject: object, where: str) -> None:
        try:
            self._violations.extend([(rule, violation) for violation in rule.check(subject)])
        except Exception as error:
            if not self.guarded:
                raise
            self._unsure_rules.add(rule.code)
            self._crash(where, f"rule {rule.code}", error)

    def _crash(self, where: str, what: str, error: Exception) -> None:
        reason = f"internal error in {what}: {type(error).__name__}: {error}"
        self.problems.append(FileProblem(where, reason, internal=True))

    def _ask(self, program: ProgramAnalysis) -> None:
        for function in program.functions:
            own = (function.span.filename, function.name)
            followed = {(info.module.file.name, info.qualname.replace(".<locals>", "")) for info in function.followed}
            self.reach[own] = frozenset((own, *followed))
        incomplete = [function for function in program.functions if function.gaps]
        self.incomplete += len(incomplete)
        self._unsure_files.update(function.span.filename for function in incomplete)
        self._unsure_files.update(error.span.filename for error in program.syntax_errors)
        for rule in self.rules:
            if rule.scope == "program":
                self._check(rule, program, "the program")
            elif rule.scope == "function":
                for function in program.functions:
                    self._check(rule, function, self._where(function.span))

    def report(self, codes_of: Callable[[str], frozenset[str]]) -> list[Diagnostic]:
        """What is left after settings, suppressions and doubles, in the one order."""
        result = self._left(codes_of)
        for rule in self.rules:
            if rule.scope == "suppression":
                for name in self.sources:
                    if rule.code in codes_of(name) and (self.given is None or name in self.given):
                        for unused in self._unused(name, codes_of(name)):
                            self._check(rule, unused, self._where(unused.span))
        result += self._left(codes_of)
        for name in sorted(self._comments):
            self.problems.extend(self._comments[name].malformed)
        return sorted(result, key=lambda diagnostic: diagnostic.sort_key)

    def _left(self, codes_of: Callable[[str], frozenset[str]]) -> list[Diagnostic]:
        """The findings since the last call, without what is not wanted."""
        kept: dict[tuple[str, Span], Diagnostic] = {}
        for rule, violation in self._violations:
            span = violation.span
            if rule.code not in codes_of(span.filename):
                continue
            if violation.confidence is Confidence.POSSIBLE and not self.pedantic:
                self._silencing(rule.code, span)  # a comment that only a pedantic run needs is not idle
                continue
            diagnostic = self._diagnostic(rule, violation)
            key = (rule.code, replace(span, function=""))
            other = kept.get(key)
            # The same place may be reached in several contexts; one that surely shows the fault speaks for all.
            if other is None or (other.confidence, diagnostic.confidence) == (Confidence.POSSIBLE, Confidence.DEFINITE):
                kept[key] = diagnostic
        self._violations.clear()
        left = [found for (code, span), found in kept.items() if not self._silencing(code, span)]
        self.suppressed += len(kept) - len(left)
        return left

    def _silencing(self, code: str, span: Span) -> list[Suppression]:
        """The comments that silence such a finding; they are used from now on."""
        found = self._comments_of(span.filename).of(code, span)
        self._used.update(found)
        return found

    def _comments_of(self, name: str) -> Suppressions:
        if name not in self._comments:
            source = self.sources.get(name)
            self._comments[name] = NONE if source is None else suppressions(source)
        return self._comments[name]

    def _unused(self, name: str, codes: frozenset[str]) -> Iterator[UnusedSuppression]:
        """What the comments of a file name in vain, as far as this run can tell."""
        for entry in self._comments_of(name).entries:
            rule = self.known.get(entry.code)
            if rule is None:
                judged = not entry.shared
            else:
                # A comment that silences this very judgement says that it is needed in some runs and not in others.
                judged = (
                    rule.scope != "suppression"
                    and entry.code in codes
                    and entry not in self._used
                    and entry.code not in self._unsure_rules
                    and name not in self._unsure_files
                )
            if judged:
                yield UnusedSuppression(entry.span, entry.code, rule is not None, entry.whole_file)

    def _where(self, span: Span) -> str:
        return f"{span.filename}:{self.sources[span.filename].where(span.start.row)}"

    def _shown(self, span: Span) -> Span:
        source = self.sources.get(span.filename)
        return source.shown(span) if source else span

    def _diagnostic(self, rule: Rule, violation: Violation) -> Diagnostic:
        source = self.sources.get(violation.span.filename)
        return Diagnostic(
            code=rule.code,
            name=rule.name,
            severity=rule.severity,
            confidence=violation.confidence,
            message=violation.message,
            span=self._shown(violation.span),
            effect=violation.effect,
            trace=tuple(replace(step, span=self._shown(step.span)) for step in violation.trace),
            url=rule.url,
            line_text=source.line(violation.span.start.row) if source else "",
        )
