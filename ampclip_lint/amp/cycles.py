"""Which nodes of a graph lie on cycles, for all of them in one walk. Knows nothing of what they do."""

from __future__ import annotations

from collections.abc import Iterator

from ampclip_lint.flow.graph import Graph


def on_cycles(graph: Graph, without: int | None = None) -> set[int]:
    """The nodes from which a path leads back to them, `without` passing a certain one."""
    found: set[int] = set()
    number: dict[int, int] = {}
    lowest: dict[int, int] = {}
    open_ones: list[int] = []
    """What was come to, and may still turn out to lead to what was come to before it."""
    is_open: set[int] = set()

    def enter(index: int) -> tuple[int, Iterator[int]]:
        number[index] = lowest[index] = len(number)
        open_ones.append(index)
        is_open.add(index)
        return index, iter([edge.target for edge in graph.edges[index] if edge.target != without])

    for root in range(len(graph.nodes)):
        if root in number or root == without:
            continue
        walk = [enter(root)]
        while walk:
            index, rest = walk[-1]
            for target in rest:
                if target == index:
                    found.add(index)
                elif target not in number:
                    walk.append(enter(target))
                    break
                elif target in is_open:
                    lowest[index] = min(lowest[index], number[target])
            else:
                walk.pop()
                if walk:
                    above = walk[-1][0]
                    lowest[above] = min(lowest[above], lowest[index])
                if lowest[index] == number[index]:
                    ring = [open_ones.pop()]
                    while ring[-1] != index:
                        ring.append(open_ones.pop())
                    is_open.difference_update(ring)
                    if len(ring) > 1:
                        found.update(ring)
    return found
