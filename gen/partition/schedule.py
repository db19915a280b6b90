"""The order in which the segments of a model run, in as few as can be.

What is scheduled are *tasks*: the nodes of a layer, which stay together, or a node of the processor. A task waits for
the tasks that make what it reads. Nodes that only move or convert values are none (`Probed.is_copied`): whoever needs
their results has copies of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cores.errors import Reason
from gen.onnx.model import Node
from gen.partition.components import components
from gen.partition.probe import Probed

__all__ = ["Place", "Segment", "Task", "bases", "schedule", "tasks"]

Place = Literal["accelerator", "host"]


@dataclass(frozen=True)
class Task:
    place: Place
    #: In the order of the model.
    nodes: tuple[Node, ...]
    #: Values of other tasks and of the model's inputs that it reads, through nodes that are copied.
    reads: frozenset[str]

    @property
    def makes(self) -> frozenset[str]:
        return frozenset(name for node in self.nodes for name in node.outputs if name)


@dataclass(frozen=True)
class Segment:
    """Tasks that run on one place, one after the other."""

    place: Place
    tasks: tuple[Task, ...]

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(node.name for task in self.tasks for node in task.nodes)


def bases(nodes: Sequence[Node], probed: Probed) -> Mapping[str, frozenset[str]]:
    """For each value the inputs of the model and the results of tasks that it is a copy of; constants have none.

    A value that is nowhere here is its own base: an input of the model.
    """
    found: dict[str, frozenset[str]] = {"": frozenset(), **dict.fromkeys(probed.constants, frozenset())}
    for node in nodes:
        read = frozenset().union(*(found.get(name, frozenset([name])) for name in node.inputs))
        for name in node.outputs:
            found.setdefault(name, read if probed.is_copied(node) else frozenset([name]))
    return found


def tasks(nodes: Sequence[Node], probed: Probed) -> tuple[list[Task], dict[str, Reason]]:
    """Tasks, each after those it waits for; and nodes that keep some from an order -> why.

    Layers that share a node are one task, and so are tasks of the accelerator that wait for each other: a table that
    begins before another layer's quantisation and ends after it. Where a node of the processor is among those, the
    task cannot run in one segment: the nodes of it that come after that node have to be left to the processor.
    """
    based = bases(nodes, probed)
    grouped = _grouped(nodes, probed, based)
    made_in = {name: number for number, task in enumerate(grouped) for name in task.makes}
    place = {node.name: number for number, node in enumerate(nodes)}
    result: list[Task] = []
    apart: dict[str, Reason] = {}
    for members in components([dict.fromkeys(sorted(made_in[name] for name in task.reads if name in made_in))
                               for task in grouped]):
        together = [grouped[number] for number in members]
        inside = sorted((node for task in together for node in task.nodes), key=lambda node: place[node.name])
        if len(together) > 1 and any(task.place == "host" for task in together):
            found = _after_host(inside, probed, based)
            assert found, "tasks around a node of the processor have nothing after it"
            apart |= found
        makes = frozenset().union(*(task.makes for task in together))
        reads = frozenset().union(*(task.reads for task in together))
        result.append(Task(together[0].place, tuple(inside), reads - makes))
    return result, apart


def _grouped(nodes: Sequence[Node], probed: Probed, based: Mapping[str, frozenset[str]]) -> list[Task]:
    """In the order of the model; layers that share a node are one task."""
    head: dict[str, str] = {}       # node -> another of its task, or itself

    def find(name: str) -> str:
        while head.setdefault(name, name) != name:
            head[name] = name = head[head[name]]
        return name

    for layer in probed.layers:
        for name in layer.onnx_nodes[1:]:
            head[find(name)] = find(layer.onnx_nodes[0])
    grouped: dict[str, list[Node]] = {}
    for node in nodes:
        if not probed.is_copied(node):
            grouped.setdefault(find(node.name), []).append(node)
    result = []
    for members in grouped.values():
        made = {name for node in members for name in node.outputs}
        read = frozenset().union(*(based.get(name, frozenset([name])) for node in members for name in node.inputs))
        place: Place = "host" if members[0].name in probed.host else "accelerator"
        result.append(Task(place, tuple(members), read - made))
    return result


def _after_host(nodes: Sequence[Node], probed: Probed, based: Mapping[str, frozenset[str]]) -> dict[str, Reason]:
    """Those of a component's ``nodes`` that a layer has and that need a result of one of the processor's -> why."""
    found: dict[str, Reason] = {}
    maker: dict[str, str] = {}      # value -> the node of the processor that it needs
    for node in nodes:
        needed = next((maker[base] for name in node.inputs for base in based.get(name, (name,)) if base in maker), "")
        if node.name in probed.host:
            needed = node.name
        elif needed:
            found[node.name] = Reason(f"its layer begins before node {needed}, which runs on the processor, and ends "
                                      "after it; put QuantizeLinear and DequantizeLinear between the two",
                                      code="around-processor", maker=needed)
        if needed:
            maker.update(dict.fromkeys(node.outputs, needed))
    return found


def schedule(tasks: Sequence[Task]) -> list[Segment]:
    """All tasks in as few segments as can be; each of ``tasks`` comes after those it waits for.

    A segment takes whatever is ready for its place, so no task is later than it has to be.
    """
    return min((_alternate(tasks, place) for place in ("accelerator", "host")), key=len)


def _alternate(tasks: Sequence[Task], first: Place) -> list[Segment]:
    """Segments of which the first is on ``first``."""
    segment_of: dict[str, int] = {}        # value -> the segment that makes it
    taken: list[list[Task]] = []
    for task in tasks:
        parity = task.place != first
        segment = max((segment_of[name] for name in task.reads if name in segment_of), default=0)
        segment += segment % 2 != parity
        segment_of.update(dict.fromkeys(task.makes, segment))
        taken += [[] for _ in range(len(taken), segment + 1)]
        taken[segment].append(task)
    return [Segment(members[0].place, tuple(members)) for members in taken if members]
