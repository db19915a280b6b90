"""The order in which the segments of a model run, in as few turns of accelerator and processor as can be.

What is scheduled are *units*: the nodes of a layer, which stay together, or a node of the processor. A unit waits for
the units that make what it reads. Nodes that only move or convert values are none (`Probed.is_copied`): whoever needs
their results has copies of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gen.onnx.model import Node
from gen.partition.probe import Probed

__all__ = ["Place", "Turn", "Unit", "bases", "turns", "units"]

Place = Literal["accelerator", "host"]


@dataclass(frozen=True)
class Unit:
    place: Place
    #: In the order of the model.
    nodes: tuple[Node, ...]
    #: Values of other units and of the model's inputs that it reads, through nodes that are copied.
    reads: frozenset[str]

    @property
    def makes(self) -> frozenset[str]:
        return frozenset(name for node in self.nodes for name in node.outputs if name)


@dataclass(frozen=True)
class Turn:
    """Units that run on one place, one behind the other."""

    place: Place
    units: tuple[Unit, ...]

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(node.name for unit in self.units for node in unit.nodes)


def bases(nodes: Sequence[Node], probed: Probed) -> Mapping[str, frozenset[str]]:
    """For each value the inputs of the model and the results of units that it is a copy of; constants have none.

    A value that is nowhere here is its own base: an input of the model.
    """
    found: dict[str, frozenset[str]] = {"": frozenset(), **dict.fromkeys(probed.constants, frozenset())}
    for node in nodes:
        read = frozenset().union(*(found.get(name, frozenset([name])) for name in node.inputs))
        for name in node.outputs:
            found.setdefault(name, read if probed.is_copied(node) else frozenset([name]))
    return found


def units(nodes: Sequence[Node], probed: Probed) -> list[Unit]:
    """In the order of the model; layers that share a node are one unit."""
    head: dict[str, str] = {}       # node -> another of its unit, or itself

    def find(name: str) -> str:
        while head.setdefault(name, name) != name:
            name = head[name]
        return name

    for layer in probed.layers:
        for name in layer.onnx_nodes[1:]:
            head[find(name)] = find(layer.onnx_nodes[0])
    grouped: dict[str, list[Node]] = {}
    for node in nodes:
        if not probed.is_copied(node):
            grouped.setdefault(find(node.name), []).append(node)
    found, result = bases(nodes, probed), []
    for members in grouped.values():
        made = {name for node in members for name in node.outputs}
        read = frozenset().union(*(found.get(name, frozenset([name])) for node in members for name in node.inputs))
        place: Place = "host" if members[0].name in probed.host else "accelerator"
        result.append(Unit(place, tuple(members), read - made))
    return result


def turns(waiting: Sequence[Unit]) -> tuple[list[Turn], list[Unit]]:
    """All units in as few turns as can be, and the units that wait for each other, if there are any.

    A turn takes whatever is ready for its place, so no unit is later than it has to be.
    """
    return min((_alternate(waiting, place) for place in ("accelerator", "host")), key=lambda found: len(found[0]))


def _alternate(waiting: Sequence[Unit], place: Place) -> tuple[list[Turn], list[Unit]]:
    """Turns of which the first is on ``place``."""
    left, missing = list(waiting), {name for unit in waiting for name in unit.makes}
    result: list[Turn] = []
    idle = 0
    while left and idle < 2:
        taken: list[Unit] = []
        before = -1
        while before < len(taken):      # a layer may have nodes in front of what it waits for
            before, rest = len(taken), []
            for unit in left:
                if unit.place == place and missing.isdisjoint(unit.reads):
                    taken.append(unit)
                    missing -= unit.makes
                else:
                    rest.append(unit)
            left = rest
        if taken:
            result.append(Turn(place, tuple(taken)))
        idle = 0 if taken else idle + 1
        place = "host" if place == "accelerator" else "accelerator"
    return result, left
