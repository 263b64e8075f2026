"""A linter for the order of GradScaler, gradient clipping and optimizer calls in PyTorch code.

`import ampclip_lint` alone loads nothing; what is listed in `__all__` is loaded when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ampclip_lint.diagnostics import Applicability as Applicability
    from ampclip_lint.diagnostics import Confidence as Confidence
    from ampclip_lint.diagnostics import Diagnostic as Diagnostic
    from ampclip_lint.diagnostics import Edit as Edit
    from ampclip_lint.diagnostics import Fix as Fix
    from ampclip_lint.diagnostics import Position as Position
    from ampclip_lint.diagnostics import Severity as Severity
    from ampclip_lint.diagnostics import Span as Span
    from ampclip_lint.diagnostics import TraceStep as TraceStep
    from ampclip_lint.lint.config import Selection as Selection
    from ampclip_lint.lint.config import Settings as Settings
    from ampclip_lint.lint.errors import ToolError as ToolError
    from ampclip_lint.lint.run import RunResult as RunResult
    from ampclip_lint.lint.run import lint_paths as lint_paths
    from ampclip_lint.lint.run import lint_source as lint_source
    from ampclip_lint.syntax.source import FileProblem as FileProblem

__version__ = "0.1.0"

_HOMES = {
    "Applicability": "ampclip_lint.diagnostics",
    "Confidence": "ampclip_lint.diagnostics",
    "Diagnostic": "ampclip_lint.diagnostics",
    "Edit": "ampclip_lint.diagnostics",
    "FileProblem": "ampclip_lint.syntax.source",
    "Fix": "ampclip_lint.diagnostics",
    "Position": "ampclip_lint.diagnostics",
    "RunResult": "ampclip_lint.lint.run",
    "Selection": "ampclip_lint.lint.config",
    "Settings": "ampclip_lint.lint.config",
    "Severity": "ampclip_lint.diagnostics",
    "Span": "ampclip_lint.diagnostics",
    "ToolError": "ampclip_lint.lint.errors",
    "TraceStep": "ampclip_lint.diagnostics",
    "lint_paths": "ampclip_lint.lint.run",
    "lint_source": "ampclip_lint.lint.run",
}
"""The modules that the public names come from."""

__all__ = [
    "Applicability",
    "Confidence",
    "Diagnostic",
    "Edit",
    "FileProblem",
    "Fix",
    "Position",
    "RunResult",
    "Selection",
    "Settings",
    "Severity",
    "Span",
    "ToolError",
    "TraceStep",
    "__version__",
    "lint_paths",
    "lint_source",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
