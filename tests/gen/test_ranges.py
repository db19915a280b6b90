"""What values feature maps can have, and the sums that fit because of it."""

from dataclasses import replace

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.ir.errors import CompileError
from gen.ir.graph import Graph, Pool
from gen.ir.layers.base import any_int8
from gen.ir.ranges import input_ranges
from gen.ir.tensor import Requantize, Tensor
from gen.mapping.overflow_check import fit_sums
from sim.cycles import estimate
from tests.compiled import compile_kept, golden_tensors
from tests.gen.test_compiler import conv_graph, run_and_compare
from tests.random_layers import random_graph, random_inputs
from tests.vgg16 import vgg16_graph


def test_values_are_in_range(seed):
    for number in range(60):
        graph = random_graph(seed + number, max_channels=20, max_size=9)
        ranges = input_ranges(graph)
        inputs = random_inputs(graph, seed)
        extremes = np.random.default_rng(seed)
        for tensors in (inputs, {name: extremes.choice(np.array([-128, 127], np.int8), value.shape)
                                 for name, value in inputs.items()}):
            values = golden_tensors(graph, tensors)
            for layer in graph.layers:
                low, high = (end[:, None, None] for end in ranges[layer.name][0])
                assert ((low <= values[layer.input]) & (values[layer.input] <= high)).all()


def behind_a_relu(zero_point: int) -> Graph:
    """A convolution of 800 channels, weights of 127 and -127, that reads a ReLU."""
    weights = np.where(np.arange(800) % 2, 127, -127).repeat(8).reshape(800, 8).T[:, :, None, None]
    plain = conv_graph(weights, (2, 3))
    ones = np.ones(800, np.int64)
    relu = Pool("relu", "image", "x", maximum=False, pad_value=0,
                requantize=Requantize(0 * ones, 65536 * ones, 15 * ones, zero_point, zero_point, 127))
    tensors = {**plain.tensors, "image": Tensor("image", (800, 2, 3), 1.0, 0),
               "x": replace(plain.tensors["x"], zero_point=zero_point)}
    return replace(plain, tensors=tensors, layers=(relu, *plain.layers), inputs={"image": ("image", ())})


def test_sums_behind_a_relu():
    """Half of int8's values need a bit less: 0..127 of two signs of weights, where -128..127 is too much."""
    config, graph = NpuConfig.preset(16, acc_width=24), behind_a_relu(0)
    with pytest.raises(CompileError, match="with --acc-width 25"):
        fit_sums(graph.layers[1], config, [any_int8(800)])
    program, graph = compile_kept(graph, config)
    run_and_compare(program, graph, 1, ("load",))
    with pytest.raises(CompileError, match="beyond acc_width=24; build and compile with --acc-width 25"):
        compile_kept(behind_a_relu(-128), config)


@pytest.mark.full
def test_vgg16_whole_and_dense():
    """Activations of 0..127 fit the default machine; those of all of int8 need the bit that the message names."""
    config = NpuConfig.preset(256)
    program, _ = compile_kept(vgg16_graph(zero_point=0), config)
    cycles = estimate(config, program.code).cycles
    ideal = sum(layer.macs for layer in program.layers) / config.macs
    print(f"VGG16: {cycles} cycles, {ideal / cycles:.1%} of the multipliers in use")
    assert ideal < cycles < 1.2 * ideal
    graph = vgg16_graph(zero_point=-128)
    with pytest.raises(CompileError, match="layer fc6: .* build and compile with --acc-width 28"):
        compile_kept(graph, config)
    compile_kept(graph, replace(config, acc_width=28))
