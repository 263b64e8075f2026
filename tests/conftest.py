"""What several test modules share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import stub_engine
from ampclip_lint.lint import registry


@pytest.fixture(scope="session", autouse=True)
def _rules_of_the_checkout() -> Iterator[None]:
    """Entry points exist only once the package is installed; a bare checkout has the same rules."""
    with pytest.MonkeyPatch.context() as patch:
        if not registry.entry_points():
            patch.setattr(registry, "entry_points", lambda: [("builtin", "ampclip_rules:RULES")])
        yield


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Analysis by the stub engine: tests of what surrounds the engine must not depend on its verdicts."""
    monkeypatch.setattr("ampclip_lint.amp.analysis.analyse_program", stub_engine.analyse_program)


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may find what another one left, or leave something in the checkout."""
    monkeypatch.setenv("AMPCLIP_LINT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
