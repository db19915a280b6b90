"""onnxruntime's product with weights of few bits, by blocks of its inputs."""

import numpy as np

from gen.onnx.fused.spread import Fused, Spreads, UnsupportedError
from gen.onnx.model import MICROSOFT

__all__ = ["FLOAT_SPREADS", "SPREADS"]

_TAKEN = (2, 4, 8)


def _weights(fused: Fused) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Integers (outputs, inputs), scales and zero points (outputs, blocks), and the length of a block."""
    attributes = {"bits": 4, **fused.attributes}
    inputs, outputs, bits, block = (int(attributes.get(name, 0)) for name in ("K", "N", "bits", "block_size"))
    packed, scales, points = fused.array(fused.given(1)), fused.array(fused.given(2)), fused.array(fused.given(3))
    if packed is None or scales is None or fused.given(3) and points is None:
        raise UnsupportedError("has weights that are no constants")
    if fused.given(4):
        raise UnsupportedError("has inputs in an order of their own")
    if attributes.get("weight_prepacked"):
        raise UnsupportedError("has weights in an order for one kind of processor; export the model without packing")
    if bits not in _TAKEN or block <= 0 or packed.dtype != np.uint8:
        raise UnsupportedError(f"has weights of {bits} bits")
    blocks = -(-inputs // block)
    if packed.size != outputs * blocks * -(-block * bits // 8):
        raise ValueError(f"weights of {packed.shape} for {outputs} outputs of {blocks} blocks of {block}")
    integers = _unpacked(packed.reshape(outputs, -1), bits)[:, :inputs]
    scales = scales.reshape(outputs, blocks).astype(np.float32)
    if not np.isfinite(scales).all():
        raise ValueError("scales that are infinite or no numbers")
    if points is None:
        points = np.full(scales.shape, 1 << bits - 1, np.uint8)
    elif points.dtype == np.uint8:      # a row ends with its byte
        points = _unpacked(points.reshape(outputs, -1), bits)[:, :blocks]
    else:
        raise UnsupportedError("has zero points that are no integers")
    return integers, scales, points, block


def _unpacked(data: np.ndarray, bits: int) -> np.ndarray:
    """Integers of bytes (rows, bytes), the low bits first."""
    parts = data[..., None] >> np.arange(0, 8, bits, dtype=np.uint8) & (1 << bits) - 1
    return parts.reshape(len(data), -1)


def _product(fused: Fused, weights: str) -> None:
    """The MatMul, and what is added to it."""
    bias = fused.given(5)
    total = fused.make("MatMul", fused.given(0), weights, result="" if bias else fused.node.output[0], what="product")
    if bias:
        fused.make("Add", total, bias, result=fused.node.output[0], what="sum")


def quantised(fused: Fused) -> None:
    """With weights of scales of blocks, which the pass `merge_blocks` takes on."""
    *arrays, block = _weights(fused)
    constants = (fused.constant(values.T.copy(), what)
                 for values, what in zip(arrays, ("integers", "scales", "points"), strict=True))
    _product(fused, fused.make("DequantizeLinear", *constants, what="weights", axis=0, block_size=block))


def in_floats(fused: Fused) -> None:
    """With the numbers that the weights stand for, which are to be quantised."""
    integers, scales, points, block = _weights(fused)
    steps, starts = (values.repeat(block, 1)[:, :integers.shape[1]] for values in (scales, points))
    weights = ((integers - starts.astype(np.int32)) * steps).astype(np.float32)
    _product(fused, fused.constant(weights.T.copy(), "weights"))


SPREADS: Spreads = {(MICROSOFT, "MatMulNBits"): quantised}
#: The same for a float model that is to be quantised.
FLOAT_SPREADS: Spreads = {(MICROSOFT, "MatMulNBits"): in_floats}
