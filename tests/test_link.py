"""The slice of a function that is explored: what decides nothing about its operations is not part of it."""

from __future__ import annotations

from ampclip_lint.amp.analysis import analyse_program
from ampclip_lint.flow.graph import Graph
from ampclip_lint.syntax.source import SourceFile

HEAD = """
def train(net, loader, opt, scaler, crit, use_amp, quiet, patience, epochs, show):
    best, last, report = None, None, None
    for epoch in range(epochs):
        for i, (inputs, targets) in enumerate(loader):
            opt.zero_grad()
            loss = crit(net(inputs), targets)
            if use_amp:
                scaler.scale(loss).backward()
                scaler.step(opt)
                scaler.update()
            else:
                loss.backward()
                opt.step()
"""
REPORT = """
            if quiet:
                continue
            if last is None:
                last = show(i)
                continue
            if i % patience == 0:
                report = last if report is None else show(report)
                if show(report) > patience:
                    break
            if best is None or last < best:
                best = last
            elif report:
                break
        if best is None:
            continue
        show(best)
"""


def sliced(text: str) -> Graph:
    (function,) = analyse_program([SourceFile("train.py", None, text)]).functions
    assert function.linked is not None
    return function.linked.graph


def test_ways_that_come_to_the_same_operation_are_one() -> None:
    with_report, without = sliced(HEAD + REPORT), sliced(HEAD)
    assert {atom.subject.text for atom in with_report.atoms()} == {atom.subject.text for atom in without.atoms()}
    assert len(with_report.nodes) == len(without.nodes)


def test_a_flag_that_decides_about_an_operation_stays() -> None:
    graph = sliced(HEAD + "            if quiet:\n                opt.zero_grad()\n")
    assert "quiet" in {atom.subject.text for atom in graph.atoms()}
