"""Products with a constant matrix of zeros and ones, which move values and are exact in every byte.

The corner turn, or gathered loads, take a tensor as weights; where the other operand picks one number of each sum, what
comes out is the tensor in another order.
"""

import numpy as np

from gen.ir.tensor import Requantize, Tensor
from gen.onnx.builder import GraphBuilder, Result
from gen.onnx.machine import Units
from gen.onnx.values import Head, PendingProduct, Quantisation
from sim.golden import quantize_multiplier

__all__ = ["can_move", "picked"]

#: Values of such a matrix, for memory.
_MAX_MATRIX = 1 << 20


def can_move(units: Units, source: Tensor, values: int) -> bool:
    """Whether a machine can multiply ``source`` with a matrix of so many ``values``; asks for the unit."""
    return (not source.signs and source.value is None and values <= _MAX_MATRIX
            and (units.have("turn") or units.have("gather")))


def picked(graph: GraphBuilder, source: Tensor, matrix: np.ndarray, *, by_channels: bool, name: str) -> str:
    """The tensor that a layer ``name`` makes of ``source`` by a ``matrix`` of zeros and ones, int8 (reduced, H, W).

    ``by_channels``: what is reduced are the pixels of ``source``, whose channels stay; else its channels, and its
    pixels become channels.
    """
    reduced, *size = matrix.shape
    rows = source.shape[0] if by_channels else int(np.prod(source.shape[1:]))
    shape = rows, *size
    constant = graph.add_constant(f"{name}/matrix", matrix, Quantisation(1.0, 0, False))
    head = Head(arguments=dict(input=constant, matrix=source.name, reduced=reduced, rows=rows, zero_points=(0, 0),
                               by_channels=by_channels))
    product = PendingProduct(name=name, nodes=(), order=np.arange(np.prod(shape)).reshape(1, *shape), heads=(head,),
                             outputs=rows, size=(size[0], size[1]), scale=1.0)
    multiplier, shift = quantize_multiplier(np.ones(rows))
    stage = Requantize(np.zeros(rows, np.int64), multiplier, shift, 0, -128, 127)
    kept = Quantisation(source.scale, source.zero_point, False)
    return graph.add_product(product, head, stage, (rows, size[0], size[1]), result=Result(None, kept),
                             part=None).tensor
