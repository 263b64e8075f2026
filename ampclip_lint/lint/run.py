"""The run: files to one program, program to violations, violations to diagnostics. Knows no output format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from ampclip_lint.diagnostics import Confidence, Diagnostic
from ampclip_lint.lint.config import Configs, Selection, Settings, selected_codes
from ampclip_lint.lint.registry import load_rules
from ampclip_lint.lint.rule import Rule, Violation
from ampclip_lint.lint.suppress import NONE, Suppressions, suppressions
from ampclip_lint.syntax import prefilter
from ampclip_lint.syntax.discover import Discovery, Found, discover
from ampclip_lint.syntax.source import FileProblem, SourceFile, decode, read_bytes

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import ProgramAnalysis


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
    files: int = 0
    suppressed: int = 0
    incomplete: int = 0
    """Functions that were analysed incompletely, whether or not that rule is selected."""
    failed: bool = False
    """Whether a finding reaches the threshold of its file."""


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
    found = find_files(paths, configs)
    problems = list(found.problems)
    raw: list[tuple[Found, bytes]] = []
    for file in found.files:
        configs.of_file(_place(file))  # a broken configuration ends the run, also when the file turns out not to matter
        data = (stdin or b"") if file.path is None else read_bytes(file.name, file.path)
        if isinstance(data, FileProblem):
            problems.append(data)
            continue
        if not data.isascii() or b"\0" in data:
            decoded = decode(file.name, file.path, data)
            if isinstance(decoded, FileProblem):
                problems.append(decoded)
                continue
        if prefilter.is_candidate(file.name, data):
            raw.append((file, data))

    sources: dict[str, SourceFile] = {}
    places: dict[str, Path] = {}
    for index in prefilter.select([(file.name, data) for file, data in raw]):
        file, data = raw[index]
        decoded = decode(file.name, file.path, data)
        if isinstance(decoded, FileProblem):  # ascii bytes under an unknown coding comment
            problems.append(decoded)
        else:
            sources[file.name] = decoded
            places[file.name] = _place(file)

    codes_of = {name: configs.codes(place) for name, place in places.items()}
    judge = _Judge(rules, frozenset().union(*codes_of.values()), sources, settings.pedantic)
    if sources:
        judge.run_guarded(list(sources.values()))
    diagnostics = judge.report(lambda name: codes_of.get(name, frozenset()))
    return RunResult(
        diagnostics=tuple(diagnostics),
        problems=tuple(problems + judge.problems),
        missing=found.missing,
        sources=sources,
        files=len(found.files),
        suppressed=judge.suppressed,
        incomplete=judge.incomplete,
        failed=any(
            not rules[found.code].advisory and configs.fails(places[found.span.filename], found.severity)
            for found in diagnostics
        ),
    )


def find_files(paths: Iterable[str | PathLike[str]], configs: Configs) -> Discovery:
    """The files that `paths` stand for under these configurations."""
    return discover(
        paths,
        excludes=configs.excludes,
        respect_gitignore=configs.settings.respect_gitignore,
        stdin_filename=configs.settings.stdin_filename,
    )


def _place(file: Found) -> Path:
    """Where a file stands for the purposes of configuration; standard input where its given name says."""
    return Path(file.name) if file.path is None else file.path


class _Judge:
    """Runs the rules over a program and keeps what they say, until `report` filters and sorts it."""

    def __init__(
        self, rules: Mapping[str, Rule], codes: frozenset[str], sources: Mapping[str, SourceFile], pedantic: bool
    ) -> None:
        self.rules = [rule for code, rule in rules.items() if code in codes]
        self.sources = sources
        self.pedantic = pedantic
        self.problems: list[FileProblem] = []
        self.incomplete = 0
        self.suppressed = 0
        self._violations: list[tuple[Rule, Violation]] = []

    def run(self, files: Sequence[SourceFile]) -> None:
        """Analyse `files` as one program and ask every rule about it."""
        from ampclip_lint.amp.analysis import analyse_program

        program = analyse_program(files)
        self._ask(program, self._check)

    def run_guarded(self, files: Sequence[SourceFile]) -> None:
        """As `run`, but a crash costs only the file or the rule that it comes from, and is reported."""
        from ampclip_lint.amp.analysis import analyse_program

        try:
            program = analyse_program(files)
        except Exception as error:
            if len(files) == 1:
                self._crash(files[0].name, "analysis", error)
            else:
                for file in files:
                    self.run_guarded([file])
            return
        self._ask(program, self._guarded_check)

    def _check(self, rule: Rule, subject: object, _where: str) -> None:
        self._violations.extend([(rule, violation) for violation in rule.check(subject)])

    def _guarded_check(self, rule: Rule, subject: object, where: str) -> None:
        try:
            self._check(rule, subject, where)
        except Exception as error:
            self._crash(where, f"rule {rule.code}", error)

    def _crash(self, where: str, what: str, error: Exception) -> None:
        reason = f"internal error in {what}: {type(error).__name__}: {error}"
        self.problems.append(FileProblem(where, reason, internal=True))

    def _ask(self, program: ProgramAnalysis, check: Callable[[Rule, object, str], None]) -> None:
        self.incomplete += sum(1 for function in program.functions if function.gaps)
        for rule in self.rules:
            if rule.scope == "program":
                check(rule, program, "the program")
                continue
            for function in program.functions:
                check(rule, function, f"{function.span.filename}:{function.span.start.row}")

    def report(self, codes_of: Callable[[str], frozenset[str]]) -> list[Diagnostic]:
        """What is left after settings, suppressions and doubles, in the one order."""
        kept: dict[tuple[object, ...], Diagnostic] = {}
        silenced: dict[str, Suppressions] = {}
        for rule, violation in self._violations:
            name = violation.span.filename
            if rule.code not in codes_of(name):
                continue
            if violation.confidence is Confidence.POSSIBLE and not self.pedantic:
                continue
            diagnostic = self._diagnostic(rule, violation)
            key = (name, violation.span.start, violation.span.end, rule.code)
            other = kept.get(key)
            # The same place may be reached in several contexts; one that surely shows the fault speaks for all.
            if other is None or (other.confidence, diagnostic.confidence) == (Confidence.POSSIBLE, Confidence.DEFINITE):
                kept[key] = diagnostic
        result = []
        for diagnostic in sorted(kept.values(), key=lambda diagnostic: diagnostic.sort_key):
            name = diagnostic.span.filename
            if name not in silenced:
                source = self.sources.get(name)
                silenced[name] = NONE if source is None else suppressions(source)
            if silenced[name].covers(diagnostic):
                self.suppressed += 1
            else:
                result.append(diagnostic)
        for name in sorted(silenced):
            self.problems.extend(silenced[name].malformed)
        return result

    def _diagnostic(self, rule: Rule, violation: Violation) -> Diagnostic:
        source = self.sources.get(violation.span.filename)
        return Diagnostic(
            code=rule.code,
            name=rule.name,
            severity=rule.severity,
            confidence=violation.confidence,
            message=violation.message,
            span=violation.span,
            effect=violation.effect,
            trace=violation.trace,
            url=rule.url,
            line_text=source.line(violation.span.start.row) if source else "",
        )
