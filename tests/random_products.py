"""Seeded graphs of products of two activations: material of the comparisons on all targets."""

import numpy as np

from gen.ir.graph import Graph, MatMul
from gen.ir.tensor import Requantize, Tensor

__all__ = ["product_graph", "random_products"]


def product_graph(*, reduced: int, rows: int, size: tuple[int, int], zero_points: tuple[int, int] = (0, 0),
                  by_channels: bool = False, outputs: int | None = None, parts: int = 1) -> Graph:
    """A product "y" of inputs "a", ``reduced`` channels of ``size``, and "b", a matrix of ``rows`` rows; or of so many
    ``parts``, each of ``size`` and with a matrix of its own.
    """
    outputs = outputs or rows
    ones, constant = np.ones(outputs, np.int64), reduced * zero_points[0] * zero_points[1]
    shift = 16 + int(np.log2(reduced**0.5 * 100))
    layer = MatMul(
        "product", "a", "y", matrix="b", outputs=outputs, rows=rows, reduced=reduced, zero_points=zero_points,
        by_channels=by_channels, parts=parts,
        requantize=Requantize(constant * ones, 65536 * ones, shift * ones, 3, -128, 127))
    size = parts * size[0], size[1]
    tensors = {
        "a": Tensor("a", (reduced, *size), 1.0, zero_points[0]),
        "b": Tensor("b", (rows, parts, reduced) if by_channels else (reduced, parts * rows, 1), 1.0, zero_points[1]),
        "y": Tensor("y", (outputs, *size), 1.0, 3),
    }
    return Graph("product", tensors, (layer,), {name: (name, ()) for name in "ab"}, {"y": ("y", ())})


def random_products(seed: int, *, largest: int, parts: int = 1) -> Graph:
    """Sizes up to ``largest``; zero points are none, or any; up to so many ``parts``."""
    rng = np.random.default_rng(seed)
    reduced, rows, height, width = (int(n) for n in rng.integers(1, [largest, largest, 6, 9]))
    zero_points = tuple(int(rng.choice([0, -128, 127, rng.integers(-128, 128)])) for _ in range(2))
    return product_graph(reduced=reduced, rows=rows, size=(height, width), zero_points=zero_points,  # type: ignore[arg-type]
                         by_channels=bool(rng.integers(2)), outputs=rows + int(rng.choice([0, rng.integers(9)])),
                         parts=int(rng.integers(1, parts + 1)))
