"""Maxima of 2x2 that the stores of the layer before take: a pooling layer that is no layer any more.

Decision 18. The layer before has tiles of whole windows, and its rows lie in accumulator words of their own. Both
layers stay as they are where together they would take longer, or where no tile of them fits.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from cores.arch.numerics import MAXIMUM_SIDE
from cores.config import NpuConfig
from gen.ir.epilogue.chain import chain_problems, with_stage
from gen.ir.epilogue.maximum import Maximum
from gen.ir.errors import LayerError
from gen.ir.graph import Conv, Graph, Pool
from gen.ir.queries import count_readers, used_tensors
from gen.mapping.base import MappingContext
from gen.mapping.binary import BinaryLayers
from gen.mapping.fused import fusable
from gen.mapping.registry import choose
from gen.options import CompileOptions

__all__ = ["maxima_in_stores"]

_WINDOW = (MAXIMUM_SIDE, MAXIMUM_SIDE)


def maxima_in_stores(graph: Graph, config: NpuConfig, options: CompileOptions) -> Graph:
    """Merge each maximum of 2x2 with a stride of 2 into the convolution that it alone reads, where a machine with the
    unit takes no longer for it, by counted cycles.
    """
    if not config.maximum:
        return graph
    pairs = {layers: layer for layers, layer in _pairs(graph) if not _is_fused(graph, layers[0], config, options)}
    if not pairs:
        return graph
    apart, together = (MappingContext(one, config, options) for one in (graph, _merged(graph, pairs)))
    packed = apart.analysis(BinaryLayers).packed | together.analysis(BinaryLayers).packed
    kept = {}
    for (maker, pool), layer in pairs.items():
        if {maker.output, pool.output} & packed:
            continue
        try:
            cost = choose(together.context(layer)).cost
            if cost <= choose(apart.context(maker)).cost + choose(apart.context(pool)).cost:
                kept[maker, pool] = layer
        except LayerError:
            continue
    return _merged(graph, kept)


def _is_fused(graph: Graph, maker: Conv, config: NpuConfig, options: CompileOptions) -> bool:
    """Whether a layer may be one that reads a depthwise layer's result from the input buffer."""
    return bool(config.local_store) and options.fusion == "auto" and any(
        layer.output == maker.input and fusable(count_readers(graph), layer, maker) for layer in graph.of(Conv))


def _pairs(graph: Graph) -> Iterator[tuple[tuple[Conv, Pool], Conv]]:
    """Convolutions whose result only a maximum of 2x2 reads, with it, and the two as one layer."""
    readers, makers = count_readers(graph), {layer.output: layer for layer in graph.of(Conv)}
    for pool in graph.of(Pool):
        maker = makers.get(pool.input)
        if not _takes_maxima(pool) or maker is None or readers[pool.input] != 1:
            continue
        signs = any(graph.tensors[name].signs for name in (pool.input, pool.output))
        if maker.others or maker.repeats != (1, 1) or signs:
            continue
        stages = with_stage(maker.requantize, maker.epilogue, pool.requantize)
        if stages is None:
            continue
        stage, epilogue = stages
        epilogue = *epilogue, Maximum()
        if not any(chain_problems(epilogue)):
            yield (maker, pool), replace(maker, output=pool.output, requantize=stage, epilogue=epilogue,
                                         onnx_nodes=(*maker.onnx_nodes, *pool.onnx_nodes))


def _takes_maxima(pool: Pool) -> bool:
    """Whether a layer is a maximum of 2x2 with a stride of 2, and nothing else but bounds."""
    return (pool.maximum and pool.kernel == tuple(pool.stride) == _WINDOW and not any(pool.pads) and not pool.epilogue
            and pool.requantize.only_clips)


def _merged(graph: Graph, pairs: Mapping[tuple[Conv, Pool], Conv]) -> Graph:
    """The graph with these pairs as the layers that they are mapped to."""
    if not pairs:
        return graph
    together = {maker.name: layer for (maker, _), layer in pairs.items()}
    gone = {pool.name for _, pool in pairs}
    layers = tuple(together.get(layer.name, layer) for layer in graph.layers if layer.name not in gone)
    graph = replace(graph, layers=layers)
    return replace(graph, tensors=used_tensors(graph))
