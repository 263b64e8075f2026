"""What a person sees: every command on a terminal of 80 or 120 columns, with colour and without."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from ampclip_lint.cli import main
from ampclip_lint.report.text import folded, reflowed
from ampclip_rules import RULES
from console import run

PROGRAM = """\
import torch
from torch.nn.utils import clip_grad_norm_


class Trainer:
    def __init__(self, model, critic, use_amp):
        self.model, self.critic = model, critic
        self.optimizer = torch.optim.AdamW(model.parameters())
        self.critic_optimizer = torch.optim.AdamW(critic.parameters())
        self.scaler = torch.amp.GradScaler("cuda", enabled=use_amp)

    def fit(self, loader, loss_fn, accumulate):
        for i, (inputs, targets) in enumerate(loader):
            self.scaler.scale(loss_fn(self.model(inputs), targets) / accumulate).backward()
            self.scaler.scale(loss_fn(self.critic(inputs), targets) / accumulate).backward()
            self.scaler.unscale_(self.optimizer)
            if (i + 1) % accumulate == 0:
                clip_grad_norm_(self.model.parameters(), 1.0)
                self.scaler.step(self.optimizer)
                self.scaler.step(self.critic_optimizer)
                self.scaler.update()
                self.optimizer.zero_grad()
                self.critic_optimizer.zero_grad()
"""
COMMANDS = [
    ("--help",),
    *((command, "--help") for command in main.commands),
    ("check", "train.py"),
    ("check", "--statistics", "--verbose", "train.py"),
    ("rules",),
    ("explain", "AMP101"),
    ("explain", "unscale-mid-accumulation"),
    ("trace", "train.py"),
    ("graph", "train.py::fit"),
    ("audit", "train.py"),
    ("config",),
]
ESCAPE = re.compile(r"\x1b\]8;[^\x1b]*\x1b\\|\x1b\[[0-9;?]*[A-Za-z]")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    Path("train.py").write_text(PROGRAM)


def shown(monkeypatch: pytest.MonkeyPatch, columns: int, *arguments: str) -> str:
    """What a terminal of that width gets on standard output."""
    terminal = Terminal()
    with monkeypatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        patch.setattr(sys, "stdout", terminal)
        patch.setattr(sys, "stderr", Terminal())
        with pytest.raises(SystemExit):
            main([*arguments], prog_name="ampclip-lint")
    return terminal.getvalue()


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_every_command_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: int, arguments: tuple[str, ...]
) -> None:
    colored = shown(monkeypatch, columns, *arguments)
    monkeypatch.setenv("NO_COLOR", "1")
    plain = shown(monkeypatch, columns, *arguments)
    assert "\x1b" not in plain
    for text in (plain, ESCAPE.sub("", colored)):
        code = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        wide = [line for line in code.splitlines() if len(line) > columns and "://" not in line]
        assert wide == []
    if arguments[0] != "explain":  # rich shows Markdown as such; without colour it is there as it is written
        assert ESCAPE.sub("", colored) == plain


@pytest.mark.parametrize("arguments", [("trace", "train.py"), ("graph", "train.py::fit"), ("explain", "AMP101")])
def test_a_terminal_loses_nothing_but_the_ends_of_source_lines(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    piped = run(*arguments).stdout
    assert shown(monkeypatch, 1000, *arguments).split() == piped.split()
    narrow = shown(monkeypatch, 80, *arguments)
    if arguments[0] == "trace":
        assert len(re.findall(r"^ +\d+ \|", narrow, re.MULTILINE)) == len(re.findall(r"^ +\d+ \|", piped, re.MULTILINE))
        assert "…" in narrow
    else:
        assert narrow.split() == piped.split()


def test_columns_of_a_trace_go_on_below(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    lines = shown(monkeypatch, 80, "trace", "train.py").splitlines()
    (at,) = (index for index, line in enumerate(lines) if line.startswith("  16 | self.scaler.unscale_("))
    bars = [line.index("|") for line in lines[at : at + 3]]
    text = [line.index(word) for line, word in zip(lines[at:], ("`self.scaler.unscale_`", "divides", "of"))]
    assert (len(set(bars)), len(set(text))) == (1, 1)


def test_each_command_has_a_summary_that_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, 80, "--help")
    assert "..." not in text.partition("Commands:")[2]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
@pytest.mark.parametrize("columns", [40, 80])
def test_reflowed_pages_keep_their_words_and_their_code(rule: object, columns: int) -> None:
    page = rule.page()  # type: ignore[attr-defined]
    text = reflowed(page, columns)
    assert text.split() == page.split()
    code = re.compile(r"^```.*?^```$|^    [^\n]*$|^#[^\n]*$", re.MULTILINE | re.DOTALL)
    assert code.findall(text) == code.findall(page)


def test_paragraphs_and_items_are_reflowed_on_their_own() -> None:
    page = "# A title that is not broken\n\none\ntwo three four\n- an item that goes\n  on\n- b\n\n"
    page += "    as it  is\n```\nx\ny\n```"
    assert reflowed(page, 14).split("\n") == [
        "# A title that is not broken",
        "",
        "one two three",
        "four",
        "- an item that",
        "  goes on",
        "- b",
        "",
        "    as it  is",
        "```",
        "x",
        "y",
        "```",
    ]


def test_what_is_folded_goes_on_further_right() -> None:
    assert folded("  a bc", 6, 4) == ["  a bc"]
    assert folded("  a bc longer", 8, 4) == ["  a bc", "      longer"], "words stay whole"
