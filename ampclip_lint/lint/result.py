"""What a run found, for reports. Knows nothing of how it was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ampclip_lint.diagnostics import Diagnostic
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

    def source(self, name: str) -> SourceFile | None:
        """The file of a finding."""
        return self.sources.get(name) or self.commented.get(name)
