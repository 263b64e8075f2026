"""What a run found, for reports. Knows nothing of how it was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from ampclip_lint.records import dataclass

if TYPE_CHECKING:
    from ampclip_lint.diagnostics import Diagnostic
    from ampclip_lint.lint.baseline import Outcome
    from ampclip_lint.lint.rule import Rule
    from ampclip_lint.lint.run import Program
    from ampclip_lint.syntax.reading import FileProblem
    from ampclip_lint.syntax.source import SourceFile


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
    baselines: tuple[Outcome, ...] = ()
    """What was held against each baseline; what one covers is not among the diagnostics."""
    codes: tuple[str, ...] = ()
    """The rules that were on for any file."""
    registry: Mapping[str, Rule] | None = field(default=None, compare=False)
    """The rules that the run knew, where they are loaded already."""
    program: Program | None = field(default=None, compare=False)
    """What was analysed, for those who want to know what other texts would change; not of a result that was kept."""

    @property
    def sources_of_all(self) -> dict[str, SourceFile]:
        """Every file that a finding may stand in, by name."""
        return {**self.sources, **self.commented}

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules that were on for any file."""
        from ampclip_lint.lint.registry import load_rules

        registry = load_rules() if self.registry is None else self.registry
        return tuple(registry[code] for code in self.codes)

    def source(self, name: str) -> SourceFile | None:
        """The file of a finding."""
        return self.sources.get(name) or self.commented.get(name)
