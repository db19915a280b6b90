"""Estimated cycles, by hand, and beside the time model's."""

from pathlib import Path

import numpy as np
import pytest

from cores.arch.stochastic import Circuit
from cores.config import NpuConfig
from gen.compiler import compile_graph
from gen.explore.stream_machine import with_streams
from gen.onnx.importer import load_model
from gen.options import CompileOptions
from gen.stochastic.backbone import Backbone
from gen.stochastic.cycles import estimated_cycles
from gen.stochastic.model import onnx_model
from gen.stochastic.network import Layer
from sim.cycles import estimate
from sim.stochastic.streams import Streams


@pytest.mark.parametrize("length, expected", [
    # 28 rows of 14 words, 9 taps, 1 block, 1 tile, 4 steps; then 10 outputs of 784 taps, 1 block, 1 tile, 1 word.
    (32, 9 * 4 * 28 * 14 * 32 + 784 * 4 * 32), (8, 9 * 4 * 28 * 14 * 8 + 784 * 4 * 8),
    # Dense int8: 4 steps of a block too; 8 beats of weights are more than one word.
    (None, 9 * 4 * 28 * 14 + 784 * 4 * 8)])
def test_a_convolution(length: int | None, expected: int):
    assert estimated_cycles(Backbone("28x28-c6k3-10"), length, NpuConfig.preset(256)) == expected


def test_weights_that_take_longer_than_words():
    """Of 512 output lanes 128 rows' beats are more than 8 bits of the one word."""
    config = NpuConfig.preset(256, oc_lanes=128)
    assert estimated_cycles(Backbone("16-10"), 8, config) == 4 * 32
    assert estimated_cycles(Backbone("16-10"), 64, config) == 4 * 64


def test_beside_the_time_model(rng: np.random.Generator):
    """What is not counted is the loads and stores around the layers."""
    backbone = Backbone("256-96-10")
    layers = [Layer(one, rng.integers(-127, 128, (one.outputs, 1, one.input.channels), dtype=np.int8),
                    np.zeros(one.outputs, np.int64), 0.002) for one in backbone.layers]
    graph = load_model(Path("mlp.onnx"), onnx_model(layers, 1000.0)).graph
    config = NpuConfig.preset(64, **NpuConfig.preset(64).feature_fields(["stochastic"]))
    names = [layer.name for layer in graph.layers]
    for length in (32, 256):
        options = CompileOptions(stochastic=dict.fromkeys(names, Streams(length)))
        program, _ = compile_graph(graph, config, options)
        exact = estimate(program.config, program.code).cycles
        assert 0 < exact - estimated_cycles(backbone, length, config) < 300


@pytest.mark.parametrize("word", ["28x28-c6k3-p2-c64k7-p2-32-128-10", "28x28-c32k3-c6k5-32-512-10"])
def test_published_convolutions_beside_the_time_model(word: str, rng: np.random.Generator):
    """All layers in streams, pools included."""
    backbone, config = Backbone(word), with_streams(NpuConfig.preset(256), Circuit.AND_LOOP)
    layers = [Layer(one, rng.integers(-8, 8, (one.outputs, one.taps, one.input.channels), dtype=np.int8),
                    np.zeros(one.outputs, np.int64), 0.002) for one in backbone.layers]
    graph = load_model(Path("net.onnx"), onnx_model(layers, 1000.0)).graph
    streams = {layer.name: Streams(32) for layer in graph.layers if layer.op == "conv"}
    assert len(streams) == len(backbone.layers)
    program, _ = compile_graph(graph, config, CompileOptions(stochastic=streams))
    assert estimate(program.config, program.code).cycles == pytest.approx(estimated_cycles(backbone, 32, config),
                                                                          rel=0.02)
