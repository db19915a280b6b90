"""Softmax and normalisations on the row unit: values, ranges, tilings, and how far they are from onnxruntime's."""

from dataclasses import replace

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.compiler import compile_graph
from gen.ir.errors import UnfitError
from gen.ir.graph import Graph
from gen.ir.layers.rows import RowOp
from gen.ir.ranges import input_ranges
from sim.rows import EXPONENTIAL_PLACES, exponentials, moments
from tests.compiled import compile_kept
from tests.every_order import check_in_every_order
from tests.random_rows import normalisation_graph, random_rows, softmax_graph

MACHINES = {
    "16": NpuConfig.preset(16, rows=16, input_depth=512),
    "256": NpuConfig.preset(256, rows=64, depthwise=1),
    "one pixel": NpuConfig(oc_lanes=32, ic_lanes=8, nnz_lanes=4, pixel_lanes=1, select_fanin=4, input_depth=512,
                           acc_depth=64, rows=32),
}

#: 197 keys of three heads, whose last blocks are padding; channels of a ViT.
SOFTMAX = softmax_graph(channels=197, size=(3, 7), heads=3, span=224)
NORMALISED = normalisation_graph(channels=192, size=(1, 19))
OF_HEADS = normalisation_graph(channels=20, size=(1, 19), heads=3, span=32)


@pytest.mark.parametrize("name", MACHINES)
def test_directed(name: str) -> None:
    for graph in (SOFTMAX, NORMALISED, OF_HEADS):
        program, graph = compile_kept(graph, MACHINES[name])
        assert [layer.mode for layer in program.layers] == ["rows"]
        check_in_every_order(program, graph, 1)


@pytest.mark.parametrize("name", MACHINES)
def test_random(name: str, seed: int) -> None:
    for number in range(seed, seed + 4):
        program, graph = compile_kept(random_rows(number, largest=90), MACHINES[name])
        check_in_every_order(program, graph, number)


def test_tails_are_left_out() -> None:
    """A row with a channel more gives other bytes."""
    (layer,) = SOFTMAX.layers
    assert isinstance(layer, RowOp)
    more = replace(layer, rows=replace(layer.rows, channels=198))
    program, _ = compile_kept(SOFTMAX, MACHINES["256"])
    with pytest.raises(AssertionError, match="layer rows"):
        check_in_every_order(program, Graph("more", SOFTMAX.tensors, (more,), SOFTMAX.inputs, SOFTMAX.outputs), 1)


def test_distance_from_real_numbers(rng: np.random.Generator) -> None:
    """Before they are rounded, results are less than half a step from real ones: of 1/256, and of 1/127 of the largest
    number of a normalisation.
    """
    for channels in (3, 16, 20, 197, 513, 1024):
        for scale in (0.004, 0.05, 0.6):
            spread = rng.choice([2, 30, 90])
            x = np.clip(np.rint(rng.normal(0, spread, (channels, 200))), -128, 127).astype(np.int8)
            real = np.exp(scale * (x - x.max(axis=0).astype(float)))
            found = exponentials(channels, scale).of(x) * 2.0**-EXPONENTIAL_PLACES
            assert abs(found - real / real.sum(axis=0)).max() < 0.6 / 256
            for centred in (True, False):
                rows, step = moments(channels, scale, -17, 1e-5, centred=centred)
                real = (x + 17.0) * scale
                real = real - real.mean(axis=0) * centred
                real = real / np.sqrt((real**2).mean(axis=0) + 1e-5)
                assert abs(rows.of(x) * step - real).max() < 0.5 / 127 * abs(real).max()


def test_ranges_and_distances(rng: np.random.Generator) -> None:
    for graph in (SOFTMAX, NORMALISED, OF_HEADS):
        (layer,) = graph.layers
        low, high = layer.sum_range(input_ranges(graph)["rows"][0:1])
        for _ in range(4):
            x = rng.choice([-128, 127], graph.tensors["x"].shape, p=[0.99, 0.01]).astype(np.int8)
            other = np.where(rng.random(x.shape) < 0.01, x ^ 1, x).astype(np.int8)
            sums, others = (layer.accumulate([values], 0) for values in (x, other))
            assert (low[:, None, None] <= sums).all() and (sums <= high[:, None, None]).all()
            assert (abs(sums - others) <= layer.sum_distance([abs(x.astype(int) - other)])).all()


def test_machines_without_the_unit() -> None:
    with pytest.raises(UnfitError) as caught:
        compile_graph(SOFTMAX, NpuConfig.preset(16))
    assert "no machine computes layers of the kind softmax" in str(caught.value.reasons["rows"])
