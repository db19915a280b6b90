"""A copy whose work the store of the layer before it can do goes into that layer."""

from dataclasses import replace

from gen.ir.epilogue.chain import appended, with_stage
from gen.ir.epilogue.upsample import MAX_REPEATS
from gen.ir.graph import Graph, Layer
from gen.ir.queries import count_readers, used_tensors
from gen.ir.tensor import Tensor

__all__ = ["fuse_copies"]


def _merged(graph: Graph, maker: Layer, copy: Layer) -> Layer | None:
    """A layer that does what ``maker`` does and, after it, ``copy``; None if a store cannot do that.

    Windows would be pooled again for each copy of a row. A store repeats a column a few times only.
    """
    if copy.repeats != (1, 1) and not maker.keeps_sums and maker.kernel != (1, 1):
        return None
    if maker.repeats[1] * copy.repeats[1] > MAX_REPEATS:
        return None
    stages = with_stage(maker.requantize, maker.epilogue, copy.requantize)
    if stages is None:
        return None
    stage, epilogue = stages
    source: Tensor | None = graph.tensors[copy.input]
    for op in copy.epilogue:
        longer = appended(epilogue, op, source=source, point=copy.requantize.zero_point, first=stage.zero_point)
        if longer is None:
            return None
        epilogue, source = longer, source if op.source is None else None
    return replace(maker, output=copy.output, requantize=stage, epilogue=epilogue,
                   onnx_nodes=(*maker.onnx_nodes, *copy.onnx_nodes))


def fuse_copies(graph: Graph) -> Graph:
    """Merge a copy into the layer that makes its input, if nobody else reads that and a store can do both at once.

    One that repeats rows and columns is a Resize, any other an activation function with a quantisation of its own.
    Operations on two tensors are left to `fuse_residual`.
    """
    readers = count_readers(graph)
    layers: list[Layer] = []
    for layer in graph.layers:
        made = next((i for i, earlier in enumerate(layers) if earlier.output == layer.input), None)
        merged = None
        if (made is not None and readers[layer.input] == 1 and layer.copies and not layer.others
                and not graph.tensors[layer.output].signs):
            merged = _merged(graph, layers[made], layer)
        if made is None or merged is None:
            layers.append(layer)
        else:
            layers[made] = merged
    if len(layers) == len(graph.layers):
        return graph
    graph = replace(graph, layers=layers)
    return replace(graph, tensors=used_tensors(graph))
