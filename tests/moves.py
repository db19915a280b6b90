"""Graphs that move pixels: material of the comparisons on all targets."""

from dataclasses import replace

import numpy as np

from gen.ir.epilogue.add import Add
from gen.ir.graph import Graph, Move
from gen.ir.tensor import Requantize, Tensor
from sim.golden import quantize_multiplier, quantize_residual

__all__ = ["ORDERS", "move_graph", "patches", "windows"]

_POINT = 3


def windows(height: int, width: int, size: int, shift: int = 0) -> np.ndarray:
    """The pixels of each window of a map that is shifted in a circle."""
    moved = np.roll(np.arange(height * width).reshape(height, width), (-shift, -shift), (0, 1))
    return moved.reshape(height // size, size, width // size, size).swapaxes(1, 2).ravel()


def patches(height: int, width: int, size: int) -> np.ndarray:
    """Pixels at the same place of all patches."""
    places = np.arange(height * width).reshape(height // size, size, width // size, size)
    return places.transpose(1, 3, 0, 2).ravel()


#: Places, and the boxes of pixels that they are at most.
ORDERS: dict[str, tuple[np.ndarray, int]] = {
    "windows": (windows(14, 21, 7), 6), "windows together": (np.argsort(windows(14, 21, 7)), 14),
    "shifted windows": (windows(14, 14, 7, 3), 9),
    "shifted windows together": (np.argsort(windows(14, 14, 7, 3)), 27),
    "patches": (patches(8, 12, 2), 16), "patches together": (np.argsort(patches(8, 12, 2)), 16),
    "a turn": (np.arange(48).reshape(6, 8).T.ravel(), 8), "every third": (np.arange(0, 45, 3), 1),
    "one": (np.array([7]), 1), "several times": (np.arange(9).repeat(3), 4), "backwards": (np.arange(11)[::-1], 11),
    "as they are": (np.arange(500), 1),
}


def move_graph(places: np.ndarray, channels: int, *pixels: int, added: bool = False) -> Graph:
    """Pixels ``places`` of inputs "x1", "x2", ... of so many ``pixels``; with ``added`` those of an input "z" are added
    to them.
    """
    multiplier, shift = quantize_multiplier(np.ones(channels))
    stage = Requantize(np.full(channels, -_POINT), multiplier, shift, _POINT, -128, 127)
    names = [f"x{number}" for number in range(1, len(pixels) + 1)]
    tensors = {name: Tensor(name, (channels, 1, count), 1.0, _POINT)
               for name, count in zip(("y", *names), (len(places), *pixels), strict=True)}
    one, _, exponent = quantize_residual(1.0, 1.0)
    sums = Add(middle=tensors["y"], other="z", multiplier_a=one, multiplier_b=one, constant=-2 * _POINT * one,
               shift=exponent, zero_point=_POINT, low=-128, high=127)
    layer = Move("move", names[0], "y", requantize=stage, places=places.astype(np.int64), shape=(1, len(places)),
                 more=tuple(names[1:]), epilogue=(sums,) * added)
    if added:
        tensors["z"] = replace(tensors["y"], name="z")
    return Graph("moved", tensors, (layer,), {name: (name, ()) for name in tensors if name != "y"}, {"y": ("y", ())})
