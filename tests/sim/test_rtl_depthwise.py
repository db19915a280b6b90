"""Depthwise layers on the generated Verilog where output lanes have taps of their own channel."""

from functools import partial

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.ir.graph import Graph
from tests.compiled import compile_random
from tests.gen.test_compiler import conv_graph
from tests.random_layers import random_graph
from tests.selection import pairwise, with_full

from .on_rtl import check_bytes_and_cycles, check_on_rtl, machines

_SMALL = dict(input_depth=512, acc_depth=64, weight_depth=512)
#: One channel for each multiplier, or a choice of two, and two groups of output lanes; four of eight lanes with taps
#: beside a choice of half a block; and presets.
CONFIGS = {
    "one": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=8, select_fanin=1, depthwise=1, gather=1, **_SMALL),
    "two": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, select_fanin=2, depthwise=1, **_SMALL),
    "half": NpuConfig(oc_lanes=16, ic_lanes=16, nnz_lanes=8, select_fanin=8, depthwise=1, binary_rows=8, gather=1,
                      **_SMALL),
    "256": NpuConfig.preset(256, "dense", depthwise=1, gather=1),
    "512": NpuConfig.preset(512, "dense", depthwise=1),
}

machine = machines(CONFIGS, "two", "half", "256", "512")


def dilated(weights: np.ndarray, by: int) -> np.ndarray:
    """The kernel with zeros between its taps."""
    height, width = (by * (extent - 1) + 1 for extent in weights.shape[2:])
    out = np.zeros((*weights.shape[:2], height, width), weights.dtype)
    out[:, :, ::by, ::by] = weights
    return out


def layer(rng: np.random.Generator, config: NpuConfig, kernel: int, stride: int, dilation: int,
          channels: int) -> Graph:
    """Padded by half the kernel, of an input whose zero is not 0, so that its values are no plain padding."""
    weights = dilated(rng.integers(-127, 128, (channels, 1, kernel, kernel)), dilation)
    return conv_graph(weights, (33, 38), stride=stride, pad=dilation * (kernel // 2), depthwise=True)


@pytest.mark.parametrize("kernel, stride, dilation, channels", pairwise(
    [(3,), (5,)], [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2)], [(8,), (21,), (40,)]))
def test_kernels(machine, seed, kernel, stride, dilation, channels):
    """Bytes on a random bus, and the time model within 0.5 %."""
    graph = layer(np.random.default_rng(seed), machine.config, kernel, stride, dilation, channels)
    check_bytes_and_cycles(machine, graph, seed, slack=20)


@pytest.mark.parametrize("part", with_full(range(4), 1, 2, 3))
def test_random_networks(machine, seed, part):
    """Of several layers, most of them depthwise, on random buses that stall."""
    windows = 0
    make = partial(random_graph, depthwise=0.7)
    for number in range(12):
        program, graph = compile_random(machine.config, seed + 12 * part + number, max_size=20, make=make)
        windows += sum(one.mode == "window" for one in program.layers)
        check_on_rtl(machine, program, graph, seed + number, reused=True)
    assert windows > 3
