"""Strongly connected components: what waits for each other."""

from collections.abc import Mapping, Sequence

__all__ = ["components"]


def components(waits_for: Sequence[Mapping[int, None]]) -> list[list[int]]:
    """The members of each component, in rising order; a component comes after those that it waits for.

    ``waits_for``: for each number those that it waits for, in an order that decides among equals. The time is linear
    in their sum (R. Tarjan, "Depth-First Search and Linear Graph Algorithms", 1972), without recursion: chains are as
    long as models are deep.
    """
    count = len(waits_for)
    seen, low = [-1] * count, [0] * count       # when a number was first met; the earliest that it leads back to
    open_: list[int] = []
    is_open = [False] * count
    found: list[list[int]] = []
    clock = 0
    for root in range(count):
        if seen[root] >= 0:
            continue
        path = [(root, iter(waits_for[root]))]
        while path:
            here, rest = path[-1]
            if seen[here] < 0:
                seen[here] = low[here] = clock
                clock += 1
                open_.append(here)
                is_open[here] = True
            for other in rest:
                if seen[other] < 0:
                    path.append((other, iter(waits_for[other])))
                    break
                if is_open[other]:
                    low[here] = min(low[here], seen[other])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[here])
                if low[here] == seen[here]:
                    members: list[int] = []
                    while not members or members[-1] != here:
                        members.append(open_.pop())
                        is_open[members[-1]] = False
                    found.append(sorted(members))
    return found
