"""Seeded random graphs of convolutions with maxima of 2x2 after them."""

from dataclasses import replace

import numpy as np

from cores.arch.numerics import TABLE_BYTES
from gen.ir.epilogue.table import Table
from gen.ir.graph import Graph, Pool
from gen.ir.tensor import Requantize, Tensor
from gen.ir.verify import verify
from gen.onnx.quant_scales import same
from tests.random_layers import RandomBuilder

__all__ = ["maximum_of", "random_maxima"]


def maximum_of(name: str, source: Tensor, target: Tensor, *, low: int = -128, high: int = 127) -> Pool:
    """The layer that takes maxima of 2x2 of ``source``."""
    stage: Requantize = replace(same(source, source.shape[0]), low=low, high=high)
    return Pool(name, source.name, target.name, maximum=True, kernel=(2, 2), stride=(2, 2), pad_value=-128,
                requantize=stage)


def random_maxima(seed: int, *, layers: int = 2, max_channels: int = 70, max_size: int = 24, grouped: float = 0.2,
                  winograd: float | None = None, tables: float = 0.0) -> Graph:
    """``layers`` convolutions, most with maxima after them; of ``tables`` a share has one in front of these.

    Now and then another layer reads what the maxima are of, or it is an output as well.
    """
    rng = np.random.default_rng(seed)
    builder = RandomBuilder(rng, max_channels, max_size, None, winograd, 0.1, grouped)
    size = builder.between(2, max_size), builder.between(2, max_size)
    tensor = entrance = builder.tensor((builder.channels(), *size))
    outputs = {}
    for _ in range(layers):
        tensor = builder.conv(tensor)
        if builder.chance(tables):
            layer = builder.layers.pop()
            table = Table(tensor, rng.integers(-128, 128, TABLE_BYTES).astype(np.int8))
            builder.layers.append(replace(layer, epilogue=(*layer.epilogue, table)))
        channels, height, width = tensor.shape
        if min(height, width) < 2 or builder.chance(0.1):
            continue
        if builder.chance(0.1):
            outputs[f"other{len(outputs)}"] = tensor.name, ()
        target = builder.tensor((channels, height // 2, width // 2))
        low, high = (-128, 127) if builder.chance(0.7) else sorted(rng.integers(-128, 128, 2).tolist())
        builder.layers.append(maximum_of(f"layer{len(builder.layers)}", tensor, target, low=low, high=high))
        tensor = target
    outputs["output"] = tensor.name, ()
    graph = Graph(f"maxima{seed}", builder.tensors, tuple(builder.layers), {"input": (entrance.name, ())}, outputs)
    verify(graph)
    return graph
