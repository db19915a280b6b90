"""The operators: a module for each family."""

from gen.c.kernels import (
    arithmetic,
    detection,
    movement,
    products,
    qlinear,
    quantisation,
    recurrent,
    reductions,
    resizing,
    windows,
)

__all__ = [
    "arithmetic", "detection", "movement", "products", "qlinear", "quantisation", "recurrent",
    "reductions", "resizing", "windows",
]
