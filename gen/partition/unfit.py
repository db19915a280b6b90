"""What a machine turned out not to be able to compute of a graph, as nodes of the model."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable

from cores.errors import Reason
from gen.ir.errors import CompileError, GraphError, UnfitError
from gen.ir.graph import Graph, Layer
from gen.ir.parts import origin
from gen.onnx.model import PRODUCTS, Model
from gen.partition.moved import in_the_way

__all__ = ["UnfitNodesError"]

#: Operators that only convert a layer's ends.
_EDGES = ("QuantizeLinear", "DequantizeLinear")


class UnfitNodesError(CompileError):
    """``reasons``: nodes of the model that have to be left to the processor, and why. The message is that of ``error``.

    Where a layer has a convolution or a matrix product, that alone is too much for the machine: what is computed with
    its result may be a layer of its own. A layer that was added has no nodes: those that read its result have to go,
    or, where none has any, those that make what it reads. Of a tensor it is the node that makes it, or, of a part of
    another one, all that read it.
    """

    def __init__(self, error: UnfitError, graph: Graph, model: Model) -> None:
        super().__init__(str(error), code=error.code, **error.fields)
        found = _Nodes(graph, model)
        self.reasons: dict[str, Reason] = {
            node: reason for name, reason in error.reasons.items() for node in found.at_fault(name)}

    @classmethod
    def refused(cls, error: GraphError, model: Model, nodes: Collection[str]) -> "UnfitNodesError":
        """Of a node that the importer refuses in a segment of ``model``, ``nodes``, where it lies in another way than
        in the whole; or of the normalisations of the segment that are in its way.
        """
        result = cls.__new__(cls)
        CompileError.__init__(result, str(error), code=error.code, **error.fields)
        said = str(error).partition("): ")[2] or str(error)
        node = str(error.fields["node"])
        before = in_the_way(model, node) if error.code == "rearranged" else {}
        result.reasons = ({name: reason for name, reason in before.items() if name in nodes}
                          or {node: Reason(said, code=error.code, **error.fields)})
        return result


class _Nodes:
    """Those of layers and tensors."""

    def __init__(self, graph: Graph, model: Model) -> None:
        self._graph = graph
        self._ops = {node.name: node.op for node in model.nodes}
        self._makers = {name: node for node in model.nodes for name in node.outputs}
        #: Tensor that is part of no other -> layers that read, or write, channels of it.
        self._readers: dict[str, list[Layer]] = defaultdict(list)
        self._writers: dict[str, list[Layer]] = defaultdict(list)
        for layer in graph.layers:
            for name in layer.reads:
                self._readers[self._whole(name)].append(layer)
            self._writers[self._whole(layer.output)].append(layer)

    def _whole(self, name: str) -> str:
        return origin(self._graph.tensors, name)[0]

    def at_fault(self, name: str) -> Collection[str]:
        """The nodes of the layer or of the tensor called so."""
        layers = [layer for layer in self._graph.layers if layer.name == name]
        if layers or name not in self._graph.tensors:
            return self._near(layers, self._after) or self._near(layers, self._before)
        if made := self._maker(name):
            return [made]
        whole = self._whole(name)
        readers = [node for layer in self._readers[whole] for node in self._reading(layer, name)]
        return readers or self._near(self._writers[whole], self._before)

    def _maker(self, tensor: str) -> str:
        """The node after whose result a tensor of the model is quantised; "" where there is none."""
        node = self._makers.get(self._graph.tensors[tensor].onnx_name)
        while node is not None and node.op in _EDGES:
            node = self._makers.get(node.inputs[0])
        return node.name if node is not None else ""

    def _reading(self, layer: Layer, name: str) -> Collection[str]:
        """The nodes of a layer that read a tensor: what is added is not read by a product."""
        if layer.input == name:
            return self._near([layer], self._after)
        nodes = self._of(layer) if name in layer.reads else []
        return [node for node in nodes if self._ops[node] not in PRODUCTS] or nodes

    def _of(self, layer: Layer) -> list[str]:
        """Nodes that compute."""
        return [node for node in layer.onnx_nodes if self._ops.get(node, _EDGES[0]) not in _EDGES]

    def _near(self, layers: Iterable[Layer], beside: Callable[[Layer], list[Layer]]) -> Collection[str]:
        """The nodes of the first of ``layers``, and those ``beside`` them, that has any."""
        waiting, seen = list(layers), set[str]()
        while waiting:
            layer = waiting.pop(0)
            if layer.name in seen:
                continue
            seen.add(layer.name)
            if nodes := self._of(layer):
                return [node for node in nodes if self._ops[node] in PRODUCTS][:1] or nodes
            waiting += beside(layer)
        return ()

    def _after(self, layer: Layer) -> list[Layer]:
        return self._readers[self._whole(layer.output)]

    def _before(self, layer: Layer) -> list[Layer]:
        return [writer for name in layer.reads for writer in self._writers[self._whole(name)]]
