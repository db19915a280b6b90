"""Weights with a scale for each block of a channel's weights, as weights with one scale a channel.

A sum of the machine has one scale. Where blocks of a channel share theirs, nothing changes; other weights get eight
bits, and are up to half a step of these away from what they stand for.
"""

import numpy as np

__all__ = ["merged"]

#: Of weights of eight bits.
_LARGEST = 127


def merged(integers: np.ndarray, scales: np.ndarray, points: np.ndarray, axis: int, block: int
           ) -> tuple[np.ndarray, np.ndarray, int, bool]:
    """Integers int8 in the shape of ``integers``, scales float32 of their channels, the axis of these, and whether they
    stand for the same numbers.

    ``integers``: of any type, its ``axis`` in blocks of ``block`` elements with a scale and a zero point each, as
    ONNX's DequantizeLinear has them. Raises ValueError for shapes that do not go together, and for scales that are no
    numbers.
    """
    if not -integers.ndim <= axis < integers.ndim:
        raise ValueError(f"blocks along axis {axis} of weights of {integers.shape}")
    axis %= integers.ndim
    count = integers.shape[axis]
    wanted = (*integers.shape[:axis], -(-count // block), *integers.shape[axis + 1:])
    if integers.ndim < 2 or scales.shape != wanted or points.shape != wanted:
        raise ValueError(f"scales of {scales.shape} for weights of {integers.shape} in blocks of {block}")
    if not np.isfinite(scales).all():
        raise ValueError("scales that are infinite or no numbers")
    channel = int(axis == 0)
    others = tuple(other for other in range(integers.ndim) if other != channel)

    def spread(values: np.ndarray) -> np.ndarray:
        return np.take(values.repeat(block, axis), np.arange(count), axis)

    shifted = integers.astype(np.int32) - spread(points.astype(np.int32))
    own = scales.max(axis=others)
    shared = (scales == own.reshape([-1 if other == channel else 1 for other in range(scales.ndim)])).all()
    if shared and (own > 0).all() and np.abs(shifted).max(initial=0) <= _LARGEST:
        return shifted.astype(np.int8), own, channel, True
    numbers = shifted * spread(scales.astype(np.float64))
    largest = np.abs(numbers).max(axis=others, initial=0)
    own = np.where(largest > 0, largest / _LARGEST, 1.0)
    steps = numbers / own.reshape([-1 if other == channel else 1 for other in range(numbers.ndim)])
    return np.rint(steps).astype(np.int8), own.astype(np.float32), channel, False
