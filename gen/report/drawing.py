"""The model as a graph to be drawn: segments of the processor as one node each, layers of the accelerator, in ranks."""

from collections.abc import Sequence

from gen.report.document import Edge, Node
from gen.run.application import Application
from gen.run.workload import Workload

__all__ = ["graph_of"]


class _Drawing:
    def __init__(self) -> None:
        self.names: list[tuple[str, str, int]] = []     # name, kind, layer
        self.edges: list[Edge] = []
        self.made: dict[str, int] = {}                  # value or tensor -> the node that makes it

    def add(self, name: str, kind: str, layer: int, reads: Sequence[str]) -> int:
        number = len(self.names)
        self.names.append((name, kind, layer))
        self.edges += [Edge(source=self.made[read], target=number, tensor=read)
                       for read in dict.fromkeys(reads) if read in self.made]
        return number


def graph_of(application: Application) -> tuple[list[Node], list[Edge]]:
    """Nodes, each after those that it reads, and edges."""
    drawing = _Drawing()
    for name in application.inputs:
        drawing.made[name] = drawing.add(name, "input", -1, ())
    layers = hosts = 0
    for number, segment in enumerate(application.segments):
        if isinstance(segment, Workload):
            _add_layers(drawing, segment, layers, f"{number}/")
            layers += len(segment.program.layers)
        else:
            node = drawing.add(f"processor, part {hosts + 1}", "host", hosts, segment.inputs)
            drawing.made.update(dict.fromkeys(segment.outputs, node))
            hosts += 1
    for name in application.outputs:
        drawing.add(name, "output", -1, (name,))
    return _placed(drawing), drawing.edges


def _add_layers(drawing: _Drawing, segment: Workload, first: int, prefix: str) -> None:
    """Tensors of different segments may have one name: here they begin with a ``prefix``."""
    graph = segment.graph
    for name, (tensor, _) in graph.inputs.items():
        if name in drawing.made:
            drawing.made[prefix + tensor] = drawing.made[name]
    by_output = {layer.output: layer for layer in graph.layers}
    for number, info in enumerate(segment.program.layers):
        layer = by_output.get(info.output)
        reads = layer.reads if layer else (info.input,)
        node = drawing.add(info.name, "layer", first + number, [prefix + one for name in reads
                                                                for one in _wholes(segment, name)])
        for name in _wholes(segment, info.output):
            drawing.made[prefix + name] = node
    for name, (tensor, _) in graph.outputs.items():
        for one in _wholes(segment, tensor):
            if prefix + one in drawing.made:
                drawing.made[name] = drawing.made[prefix + one]


def _wholes(segment: Workload, tensor: str) -> list[str]:
    """A tensor, the one that it is a part of, and those that are parts of it."""
    tensors = segment.graph.tensors
    part = tensors[tensor].part
    inside = [name for name, one in tensors.items() if one.part is not None and one.part.whole == tensor]
    return [tensor, *([part.whole] if part else []), *inside]


def _placed(drawing: _Drawing) -> list[Node]:
    """Each a rank below the lowest that it reads; beside others of its rank by where those are."""
    ranks = [0] * len(drawing.names)
    sources: dict[int, list[int]] = {}
    for edge in drawing.edges:
        ranks[edge.target] = max(ranks[edge.target], ranks[edge.source] + 1)
        sources.setdefault(edge.target, []).append(edge.source)
    columns: dict[int, int] = {}
    for rank in range(max(ranks, default=-1) + 1):
        own = [number for number, its in enumerate(ranks) if its == rank]
        own.sort(key=lambda number: (sum(columns[source] for source in sources.get(number, ()))
                                     / max(1, len(sources.get(number, ()))), number))
        columns.update({number: column for column, number in enumerate(own)})
    return [Node(name=name, kind=kind, layer=layer, rank=ranks[number], column=columns[number])
            for number, (name, kind, layer) in enumerate(drawing.names)]
