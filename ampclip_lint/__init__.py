"""A linter for the order of GradScaler, gradient clipping and optimizer calls in PyTorch code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ampclip_lint.lint.run import lint_source as lint_source

__version__ = "0.1.0"
__all__ = ["__version__", "lint_source"]


def __getattr__(name: str) -> Any:
    # `from ampclip_lint import lint_source` works, yet `import ampclip_lint` alone loads nothing.
    if name == "lint_source":
        from ampclip_lint.lint.run import lint_source

        return lint_source
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
