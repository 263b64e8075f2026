"""The run: files to one program, program to violations, violations to diagnostics. Knows no output format."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ampclip_lint.diagnostics import Confidence, Diagnostic, Span
from ampclip_lint.lint import recall
from ampclip_lint.lint.result import RunResult as RunResult
from ampclip_lint.records import dataclass
from ampclip_lint.syntax.reading import FileProblem

# A result that the cache holds needs neither rules nor engine: what does is imported where it is used.
if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import ProgramAnalysis
    from ampclip_lint.lint.baseline import Entry, Outcome
    from ampclip_lint.lint.cache import Cache
    from ampclip_lint.lint.config import Configs, Settings
    from ampclip_lint.lint.gather import Gathered
    from ampclip_lint.lint.rule import Rule, UnusedSuppression, Violation
    from ampclip_lint.lint.suppress import Suppression, Suppressions
    from ampclip_lint.syntax.source import SourceFile

#: A run over so many files is kept even where none of them matters.
_WORTH_KEEPING = 64

#: The analysis of so many functions is kept until the run ends.
_WORTH_HOLDING = 16

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
    analysis: ProgramAnalysis | None = None
    """What was found out about these texts, all of them, where that is not much to keep."""

    def findings(
        self, changed: Mapping[str, SourceFile], roots: Collection[Function] | None = None, *, told: bool = True
    ) -> tuple[list[Diagnostic] | None, int]:
        """
        What the rules say with the `changed` texts: of all of the program, or of some of its functions, which are read
        with the files that these came past.

        All rules speak, of what is possible too, and unless it is to be `told`, not of the paths that lead to it. None
        where something crashes. The number says how much was to be done: that of the worlds that were told apart, and a
        whole budget of them for each function that was too much.
        """
        files = set(self.sources)
        if roots is not None:
            files = {name for root in roots for name, _ in self.reach.get(root, (root,))} | changed.keys()
        texts = {name: changed.get(name, source) for name, source in self.sources.items() if name in files}
        codes = frozenset(self.rules)
        judge = _Judge(self.rules, codes, texts, pedantic=True, guarded=True, given=self.given, models=self.models)
        judge.roots = roots
        judge.tells = told
        whole = texts == self.sources and (roots is None or self.reach.keys() <= set(roots))
        if self.analysis is not None and whole:
            judge.ask(self.analysis)
        else:
            judge.run(list(texts.values()))
        found = judge.report(lambda _name: codes)
        return (None if any(problem.internal for problem in judge.problems) else found), judge.worlds


def lint_source(
    text: str,
    filename: str = "<source>",
    *,
    select: Iterable[str] | None = None,
    pedantic: bool = False,
    rules: Mapping[str, Rule] | None = None,
) -> list[Diagnostic]:
    """
    The findings in one text, by the default rules or the selected ones. Reads no configuration and no other file.

    Raises:
        ToolError: where `select` names no rule, or there are none.
        Exception: whatever a rule or the analysis raises.
    """
    from ampclip_lint.lint.config import Selection, selected_codes
    from ampclip_lint.lint.registry import load_rules
    from ampclip_lint.syntax.source import SourceFile

    rules = load_rules() if rules is None else rules
    codes = selected_codes(rules, (Selection(None if select is None else tuple(select)),))
    source = SourceFile(filename, None, text.replace("\r\n", "\n").replace("\r", "\n"))
    judge = _Judge(rules, codes, {filename: source}, pedantic)
    judge.run([source])
    return judge.report(lambda _name: codes)


def lint_paths(
    paths: str | PathLike[str] | Sequence[str | PathLike[str]],
    settings: Settings | None = None,
    *,
    rules: Mapping[str, Rule] | None = None,
    stdin: bytes | None = None,
    observe: Callable[[ProgramAnalysis], None] | None = None,
    progress: Callable[[str], None] = lambda _text: None,
    jobs: int = 0,
    cache: Cache | None = None,
    prefiltered: bool = True,
    finish: Callable[[RunResult], RunResult] | None = None,
) -> RunResult:
    """
    Lint files and folders as one program.

    `stdin` is what the path ``-`` stands for. `observe` gets every analysis that the rules are asked about,
    `progress` is told what the run is at. `jobs`: how many processes work, 0 for one on each processor; not
    `prefiltered`, every file is analysed. What `cache` holds of the same question is not looked for again. `finish`
    adds to the findings what takes another look at the program, before they are kept; a result from the cache cannot
    be looked at so.

    Raises:
        ToolError: where nothing sensible can be done: a configuration or baseline that can't be used, an unknown code,
            no rules. Whatever is wrong with a single file is among the problems of the result.
    """
    paths = [paths] if isinstance(paths, (str, PathLike)) else paths
    if rules is not None or stdin is not None or observe is not None:
        cache = None  # neither has a name that a later run could ask for
    asked = [[os.fspath(path) for path in paths], repr(settings), prefiltered, finish is not None]
    entry = None if cache is None else cache.unchanged(asked)
    known = None if entry is None else recall.attempt(lambda: _recalled(entry))
    if isinstance(known, RunResult):
        return known
    from ampclip_lint.lint.config import Configs, Settings, selected_codes
    from ampclip_lint.lint.gather import gather
    from ampclip_lint.lint.registry import load_rules, rule_folders
    from ampclip_lint.lint.suppress import hint

    began = time.time()
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
        jobs=jobs,
        prefiltered=prefiltered,
    )
    codes_of = {
        name: frozenset() if name not in files.given and configs.is_excluded(place) else configs.codes(place)
        for name, place in files.places.items()
    }
    if configs.any_baseline:
        cache = None  # it is held against what this very run could judge
    codes: frozenset[str] = frozenset().union(*codes_of.values())
    judge = _Judge(
        rules,
        codes,
        {**files.sources, **files.commented},
        settings.pedantic,
        guarded=True,
        given=files.given,
        models=files.models,
    )
    judge.observe = observe
    judge.jobs = jobs
    deciding = None if cache is None or not files.sources else _deciding(judge, files, codes_of, finish is not None)
    found = None if cache is None or deciding is None else _known(cache, deciding)
    fresh = found is None
    if found is None:
        found = _judged(judge, files, codes_of, progress)
    diagnostics: Sequence[Diagnostic] = found.diagnostics
    baselines: list[Outcome] = []
    if configs.any_baseline:  # a look at every file, for the few projects that have one
        baselines, diagnostics = _held(diagnostics, paths, configs, files, judge)
    result = RunResult(
        diagnostics=tuple(diagnostics),
        problems=(*files.problems, *found.problems),
        missing=files.found.missing,
        sources=files.sources,
        commented=files.commented,
        files=len(files.found.files),
        imported=len(files.sources.keys() - files.given),
        suppressed=found.suppressed,
        incomplete=found.incomplete,
        failed=any(
            not rules[found.code].advisory and configs.fails(files.places[found.span.filename], found.severity)
            for found in diagnostics
        ),
        baselines=tuple(baselines),
        codes=tuple(code for code in rules if code in codes),
        registry=rules,
        program=Program(
            rules, judge.sources, files.given, files.models, judge.reach, codes_of, settings.pedantic, judge.analysis
        ),
    )
    if fresh and finish is not None:
        result = finish(result)
    # What failed may not fail again.
    if fresh and cache is not None and deciding is not None and not any(p.internal for p in found.problems):
        cache.learn(deciding, replace(found, diagnostics=result.diagnostics).plain())
    # A run that read little is as quick as a look at what it read. A model may come from a file of its own.
    if cache is not None and not files.models and (result.sources or result.files >= _WORTH_KEEPING):
        from ampclip_lint.lint.cache import own_files

        watched = (*files.watched, *configs.watched, *own_files(rule_folders(rules)))
        cache.remember(asked, watched, _plain(result), began)
    return result


def _deciding(judge: _Judge, files: Gathered, codes_of: Mapping[str, frozenset[str]], finished: bool) -> str:
    """All that the findings depend on, in short."""
    from importlib.metadata import version

    from ampclip_lint.lint.cache import digest, digest_of_contents, own_files
    from ampclip_lint.lint.registry import rule_folders

    return digest(
        [
            digest_of_contents(own_files(rule_folders(judge.known), elsewhere=False)),
            version("libcst"),
            judge.pedantic,
            finished,
            sorted(files.models.items()),
            [(name, digest([source.text]), sorted(codes_of[name])) for name, source in judge.sources.items()],
            sorted(files.given & judge.sources.keys()),
            list(files.sources),
        ]
    )


def _known(cache: Cache, deciding: str) -> _Findings | None:
    """The findings in the same texts, from the cache."""
    entry = cache.known(deciding)
    known = None if entry is None else recall.attempt(lambda: _Findings.recalled(entry))
    return known if isinstance(known, _Findings) else None


def _judged(
    judge: _Judge, files: Gathered, codes_of: Mapping[str, frozenset[str]], progress: Callable[[str], None]
) -> _Findings:
    """The findings in the files."""
    if files.sources:
        progress(f"analysing {len(files.sources)} file{'' if len(files.sources) == 1 else 's'}")
        judge.run(list(files.sources.values()))
    diagnostics = judge.report(lambda name: codes_of.get(name, frozenset()))
    return _Findings(tuple(diagnostics), tuple(judge.problems), judge.suppressed, judge.incomplete)


@dataclass(frozen=True)
class _Findings:
    """What the rules say of a program, before the settings decide what follows from it."""

    diagnostics: tuple[Diagnostic, ...]
    problems: tuple[FileProblem, ...]
    suppressed: int
    incomplete: int

    def plain(self) -> dict[str, Any]:
        return {
            "diagnostics": recall.plain_findings(self.diagnostics),
            "problems": self.problems,
            "suppressed": self.suppressed,
            "incomplete": self.incomplete,
        }

    @classmethod
    def recalled(cls, entry: Mapping[str, Any]) -> _Findings:
        return cls(
            recall.findings(entry["diagnostics"]),
            recall.problems(entry["problems"]),
            entry["suppressed"],
            entry["incomplete"],
        )


def _plain(result: RunResult) -> dict[str, Any]:
    return {
        "diagnostics": recall.plain_findings(result.diagnostics),
        "problems": result.problems,
        "missing": result.missing,
        "sources": recall.places(result.sources),
        "commented": recall.places(result.commented),
        "numbers": [result.files, result.imported, result.suppressed, result.incomplete],
        "failed": result.failed,
        "codes": result.codes,
    }


def _recalled(entry: Mapping[str, Any]) -> RunResult:
    files, imported, suppressed, incomplete = entry["numbers"]
    return RunResult(
        recall.findings(entry["diagnostics"]),
        recall.problems(entry["problems"]),
        tuple(entry["missing"]),
        recall.Sources(entry["sources"]),
        recall.Sources(entry["commented"]),
        files,
        imported,
        suppressed,
        incomplete,
        entry["failed"],
        codes=tuple(entry["codes"]),
    )


def _held(
    diagnostics: Sequence[Diagnostic],
    paths: Sequence[str | PathLike[str]],
    configs: Configs,
    files: Gathered,
    judge: _Judge,
) -> tuple[list[Outcome], list[Diagnostic]]:
    """Each finding held against the baseline of its file: what came of the baselines, and what none covers."""
    from ampclip_lint.lint import baseline
    from ampclip_lint.lint.gather import place_of

    given = {os.path.abspath(place_of(file)): file.name for file in files.found.files}
    folders = [os.path.join(os.path.abspath(path), "") for path in paths if os.path.isdir(path)]
    unread = {problem.filename for problem in files.problems}

    def judged(entry: Entry, path: Path) -> bool:
        """Whether this run would have met what the entry stands for, if it still were there."""
        place = os.path.abspath(path.parent / entry.path)
        if place in given:
            known = given[place] not in unread and not judge.unsure(given[place], entry.code)
        else:
            known = not os.path.exists(place) and place.startswith(tuple(folders))
        shown = configs.settings.pedantic or entry.confidence == Confidence.DEFINITE.value
        return known and shown and entry.code in configs.codes(Path(place))

    by_baseline: dict[Path, list[Diagnostic]] = {}
    for place in (configs.settings.baseline, *map(configs.baseline, map(Path, given))):
        if place is not None:
            by_baseline.setdefault(place, [])  # is read also where nothing is held against it
    left: list[Diagnostic] = []
    for found in diagnostics:
        place = configs.baseline(files.places[found.span.filename])
        (left if place is None else by_baseline.setdefault(place, [])).append(found)
    outcomes = []
    for path, mine in by_baseline.items():
        entries = {} if configs.settings.renew_baseline and not path.exists() else baseline.read(path)
        known = [(baseline.entry_of(found, files.places[found.span.filename], path), found) for found in mine]
        outcome, uncovered = baseline.hold(path, entries, known, partial(judged, path=path))
        outcomes.append(outcome)
        left += uncovered
    return outcomes, sorted(left, key=lambda diagnostic: diagnostic.sort_key)


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
        self.observe: Callable[[ProgramAnalysis], None] | None = None
        self.problems: list[FileProblem] = []
        self.incomplete = 0
        self.worlds = 0
        self.suppressed = 0
        self._violations: list[tuple[Rule, Violation]] = []
        self._comments: dict[str, Suppressions] = {}
        self._used: set[Suppression] = set()
        self._unsure_files: set[str] = set()
        """Files that were analysed in part: what silences nothing today may silence what was not found."""
        self._unsure_rules: set[str] = set()
        self.roots: Collection[Function] | None = None
        self.tells = True
        self.jobs = 1
        """How many processes may analyse, if somebody has said so."""
        self.analysis: ProgramAnalysis | None = None
        self.reach: dict[Function, frozenset[Function]] = {}

    def run(self, files: Sequence[SourceFile]) -> None:
        """Analyse `files` as one program and ask every rule about it."""
        from ampclip_lint.amp.analysis import analyse_program

        try:
            jobs = self._processes()
            program = analyse_program(files, entries=self.given, models=self.models, roots=self.roots, jobs=jobs)
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
        held = len(program.functions) <= _WORTH_HOLDING and not any(f.elsewhere for f in program.functions)
        if len(files) == len(self.sources) and held:
            self.analysis = program
        self.ask(program)
        if self.observe is not None:
            self.observe(program)

    def _processes(self) -> int:
        """How many processes analyse: only this one where somebody wants to look into functions without a fault."""
        from ampclip_lint.lint.registry import only_ask_for_faults

        # What others do ahead may turn out not to have been needed: that is for the user to want.
        alone = self.jobs < 2 or self.observe is not None or not only_ask_for_faults(self.rules)
        return 1 if alone else self.jobs

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

    def ask(self, program: ProgramAnalysis) -> None:
        """Ask every rule about an analysis."""
        for function in program.functions:
            function.tells = self.tells
            own = (function.span.filename, function.name)
            followed = {(info.module.file.name, info.qualname.replace(".<locals>", "")) for info in function.followed}
            self.reach[own] = frozenset((own, *followed))
        incomplete = [function for function in program.functions if function.gaps]
        self.incomplete += len(incomplete)
        self.worlds += sum(function.worlds for function in program.functions)
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
        from ampclip_lint.lint.suppress import NONE, suppressions

        if name not in self._comments:
            source = self.sources.get(name)
            counts = source is not None and self._may_hold_comments(source.text.encode(errors="replace"))
            self._comments[name] = suppressions(source) if counts and source is not None else NONE
        return self._comments[name]

    @cached_property
    def _may_hold_comments(self) -> Callable[[bytes], bool]:
        from ampclip_lint.lint.suppress import hint

        return hint(self.known)

    def _unused(self, name: str, codes: frozenset[str]) -> Iterator[UnusedSuppression]:
        """What the comments of a file name in vain, as far as this run can tell."""
        from ampclip_lint.lint.rule import UnusedSuppression

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
                    and not self.unsure(name, entry.code)
                )
            if judged:
                yield UnusedSuppression(entry.span, entry.code, rule is not None, entry.whole_file)

    def unsure(self, name: str, code: str) -> bool:
        """Whether a finding of that kind in that file may have been missed, because of a budget or a crash."""
        return name in self._unsure_files or code in self._unsure_rules

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
