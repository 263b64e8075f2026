"""Cycles of graphs, beside a search from each node."""

from __future__ import annotations

import random

from ampclip_lint.amp.cycles import on_cycles
from ampclip_lint.flow.graph import Edge, Graph


def test_one_walk_finds_what_searches_from_each_node_find() -> None:
    chance = random.Random(7)
    for _ in range(500):
        graph = Graph()
        size = chance.randint(1, 9)
        for _ in range(size):
            graph.add()
        for _ in range(chance.randint(0, 14)):
            graph.connect(chance.randrange(size), Edge(chance.randrange(size)))
        for without in (None, chance.randrange(size)):
            others = [index for index in range(size) if index != without]
            assert on_cycles(graph, without) == {index for index in others if graph.on_cycle(index, without=without)}
