"""The operators: a module for each family."""

from gen.c.kernels import (
    arithmetic,
    detection,
    indexing,
    movement,
    normalisation,
    products,
    qlinear,
    quantisation,
    recurrent,
    reductions,
    resizing,
    windows,
)

__all__ = [
    "arithmetic", "detection", "indexing", "movement", "normalisation", "products", "qlinear",
    "quantisation", "recurrent", "reductions", "resizing", "windows",
]
