"""Shifts of narrow Winograd layers from sample inputs: those that leave the least squared error."""

from collections.abc import Iterable, Mapping

import numpy as np

from cores.arch.numerics import POSITIONS
from gen.ir import reference
from gen.ir.graph import Conv, Graph
from gen.mapping.winograd.narrow import SAFE_SHIFTS, narrow_layer
from sim.golden import winograd_input, winograd_output, winograd_tiles, winograd_weights

__all__ = ["fit_shifts"]

#: What an error is measured on, at most.
_SAMPLES, _TILES, _CHANNELS = 64, 1024, 64


def _products(weights: np.ndarray, tiles: np.ndarray) -> np.ndarray:
    """Sums (OC, T, 2, 2) of transformed weights (OC, C, 4, 4) and tiles (T, C, 4, 4)."""
    factors = weights.astype(np.float64).transpose(2, 3, 0, 1)
    sums = factors @ tiles.astype(np.float64).transpose(2, 3, 1, 0)
    return winograd_output(np.rint(sums.transpose(2, 3, 0, 1)))


def _choose_shifts(layer: Conv, zero_point: int, tiles: np.ndarray) -> tuple[int, ...]:
    """Position by position the best of three shifts, twice around; ``tiles`` (T, C, 4, 4) int8 of the layer's input.

    The error is that of the output before it is rounded, so channels count by their scale.
    """
    rng = np.random.default_rng(0)
    if len(tiles) > _TILES:
        tiles = rng.choice(tiles, _TILES, replace=False)
    scale = layer.requantize.scale
    exact = _products(winograd_weights(layer.weights), winograd_input(tiles))
    exact += 4 * layer.requantize.bias[:, None, None, None]
    if len(exact) > _CHANNELS:
        some = rng.choice(len(exact), _CHANNELS, replace=False)
    else:
        some = np.arange(len(exact))

    def error(shifts: list[int]) -> float:
        narrow = narrow_layer(layer, zero_point, shifts)
        assert narrow.winograd is not None
        sums = _products(narrow.winograd.weights[some], winograd_input(tiles, shifts))
        first = narrow.requantize
        got = (sums + first.bias[some, None, None, None]) * first.scale[some, None, None, None]
        return float(((got - exact[some] * (scale[some] / 4)[:, None, None, None]) ** 2).sum())

    best = list(SAFE_SHIFTS)
    least = error(best)
    for position in list(range(POSITIONS)) * 2:
        for shift in range(3):
            tried = [*best[:position], shift, *best[position + 1:]]
            if tried != best and (found := error(tried)) < least:
                best, least = tried, found
    return tuple(best)


def fit_shifts(graph: Graph, layers: Iterable[str], inputs: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    """Shifts of the named layers for what ``inputs`` (model input -> (N, ...)) bring them in their direct form.

    Raises GraphError for inputs that do not fit the model.
    """
    wanted = set(layers)
    if not wanted:
        return {}
    samples = len(next(iter(inputs.values())))
    some = np.unique(np.linspace(0, samples - 1, min(samples, _SAMPLES)).round().astype(int))
    _, tensors = reference.run(graph, {name: array[some] for name, array in inputs.items()}, keep=True)
    assert tensors is not None
    shifts = {}
    for layer in graph.of(Conv):
        if layer.name in wanted:
            zero_point = graph.tensors[layer.input].zero_point
            tiles = winograd_tiles(tensors[layer.input], layer.pads, layer.padding(zero_point))
            # (N, C, TY, TX, 4, 4) -> (N * TY * TX, C, 4, 4)
            tiles = np.moveaxis(tiles, 1, 3)
            shifts[layer.name] = _choose_shifts(layer, zero_point, tiles.reshape(-1, *tiles.shape[3:]))
    return shifts
