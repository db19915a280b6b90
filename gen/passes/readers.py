"""Who reads a tensor."""

from collections import Counter

from gen.ir import Graph

__all__ = ["count_readers", "used_tensors"]


def count_readers(graph: Graph) -> Counter[str]:
    """How often each tensor is read: by a layer, as a residual, or as an output of the graph."""
    readers = Counter(layer.input for layer in graph.layers)
    readers.update(layer.residual.other for layer in graph.layers if layer.residual)
    readers.update(tensor for tensor, _ in graph.outputs.values())
    return readers


def used_tensors(graph: Graph) -> dict:
    """The graph's tensors without those that no layer, input or output names."""
    used = {tensor for tensor, _ in (*graph.inputs.values(), *graph.outputs.values())}
    for layer in graph.layers:
        used |= {layer.input, layer.output} | ({layer.residual.other} if layer.residual else set())
    return {name: tensor for name, tensor in graph.tensors.items() if name in used}
