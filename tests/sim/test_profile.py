"""Layers of a profile add up to the whole, whatever the program."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from cores.arch.instruction import decode
from cores.arch.isa import Opcode
from cores.arch.registers import ENGINE_STATES
from cores.compute.compute_engine import ComputeEngine
from cores.compute.weight_loader import WeightLoader
from cores.config import NpuConfig
from gen.bench.layers import LayerBenchmark, conv_graph, measure_graph
from gen.compiler import compile_graph
from sim.cycles import estimate
from sim.profile import LayerTiming, instruction_beats, layer_timings
from sim.rtl.machine import RtlMachine

from .cases import SMALL, chain

STATES = ENGINE_STATES["compute"]


@dataclass(frozen=True)
class Layer:
    name: str
    op: str
    mode: str
    macs: int
    useful_macs: int
    lane_macs: int


@dataclass(frozen=True)
class Program:
    config: NpuConfig
    code: bytes
    layers: tuple[Layer, ...]
    instruction_layers: tuple[int, ...]


@pytest.fixture
def program(seed) -> Program:
    code = chain(seed)[0]
    count = len(code) // 16
    half = 25                       # a LOAD_SET and three tiles of eight instructions
    assert decode(code[16 * half:16 * half + 16]).opcode == Opcode.LOAD_SET
    layers = (Layer("first", "conv", "dense", 46656, 23328, 30000), Layer("second", "conv", "dense", 5184, 5184, 0))
    return Program(SMALL, code, layers, (0,) * half + (1,) * (count - half - 1) + (-1,))


def test_layers_add_up(program):
    timing = estimate(SMALL, program.code)
    layers = layer_timings(program, timing, timing.cycles)
    assert [layer.name for layer in layers] == ["first", "second"]
    assert sum(layer.cycles for layer in layers) == timing.cycles
    # END's own fetch belongs to no layer.
    beats = timing.read_beats + timing.write_beats
    assert sum(layer.dram_bytes for layer in layers) == beats * SMALL.beat_bytes - 16
    for layer, known in zip(layers, program.layers, strict=True):
        assert (layer.macs, layer.useful_macs) == (known.macs, known.useful_macs)
        assert layer.utilisation == known.useful_macs / (SMALL.macs * layer.cycles)
        assert min(layer.stalls.values()) >= 0


def test_cycles_are_work_and_stalls(program):
    timing = estimate(SMALL, program.code)
    layers = layer_timings(program, timing, timing.cycles)
    owners = np.array(program.instruction_layers)
    for number, layer in enumerate(layers):
        busy = int(timing.counts[1, STATES.index("busy"), owners == number].sum())
        assert busy == layer.useful + layer.idle_pixels + layer.idle_lanes
        assert layer.slots == busy * SMALL.macs and layer.lane_macs == program.layers[number].lane_macs
        assert layer.cycles == busy + sum(layer.stalls.values())
        assert set(layer.stalls) == {"setup", "short_steps", "wait_load", "wait_store", "wait_weights", "idle"}
        assert min(layer.useful, layer.idle_pixels, layer.idle_lanes, *layer.stalls.values()) >= 0
    # The second layer waits for the first one's stores: its loads do, and therefore its first tile.
    assert layers[1].stalls["wait_load"] > 40


def compiled(config: NpuConfig, name: str = "layer", **shape: Any) -> LayerTiming:
    """The only layer of a program, by the time model."""
    graph = conv_graph(LayerBenchmark(name=name, **shape), config=config)
    program, _ = compile_graph(graph, config)
    timing = estimate(config, program.code)
    (layer,) = layer_timings(program, timing, timing.cycles)
    assert layer.cycles == layer.useful + layer.idle_pixels + layer.idle_lanes + sum(layer.stalls.values())
    return layer


def test_lanes_without_work():
    """An odd row leaves half a word's pixels, few channels and plain depthwise layers leave lanes."""
    config = NpuConfig.preset(256)
    odd = compiled(config, channels=64, outputs=64, size=7, kernel=3)
    assert odd.idle_pixels == pytest.approx(odd.useful / 7, abs=1) and odd.idle_lanes == 0
    few = compiled(config, channels=64, outputs=16, size=8, kernel=3)
    assert few.idle_lanes == few.useful and few.idle_pixels == 0
    depthwise = compiled(config, channels=32, outputs=32, size=8, kernel=3, depthwise=True)
    assert depthwise.idle_lanes == 7 * depthwise.useful


def test_steps_that_lack_weights_or_words():
    """A single pixel: at 256 MACs a step's eight beats are longer than the pipeline, at 16 its one beat is shorter."""
    starved = compiled(NpuConfig.preset(256), channels=512, outputs=256, size=1, kernel=1)
    assert starved.stalls["wait_weights"] > 0.8 * starved.cycles
    assert starved.stalls["short_steps"] == starved.stalls["setup"] == 0
    config = NpuConfig.preset(16)
    short = compiled(config, channels=64, outputs=64, size=(1, 3), kernel=1)
    steps = 8 * 64
    waited = ComputeEngine.min_step(config) - 2 - WeightLoader.LATENCY
    assert short.stalls["short_steps"] == pytest.approx(steps * waited, abs=2)


@pytest.mark.parametrize("features", [(), pytest.param(("fusion", "winograd"), marks=pytest.mark.full)])
def test_the_split_is_the_rtls_too(features):
    config = NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, input_depth=512, acc_depth=64, weight_depth=512)
    config = replace(config, **config.feature_fields(features))
    layers = (LayerBenchmark(name="few", channels=5, outputs=20, size=9, kernel=3),
              LayerBenchmark(name="spread", channels=20, outputs=20, size=9, kernel=3, depthwise=True),
              LayerBenchmark(name="flat", channels=20, outputs=24, size=9, kernel=9, pads=(0, 0, 0, 0)),
              LayerBenchmark(name="single", channels=24, outputs=40, size=1, kernel=1))
    graph = conv_graph(*layers, config=config)
    with RtlMachine(config) as machine:
        measured = measure_graph(graph, machine)
    program, timing = measured.program, estimate(config, measured.program.code)
    known = layer_timings(program, measured.rtl.trace, measured.rtl.cycles)
    for layer, real in zip(layer_timings(program, timing, timing.cycles), known, strict=True):
        assert real.cycles == real.useful + real.idle_pixels + real.idle_lanes + sum(real.stalls.values())
        assert (layer.useful, layer.idle_pixels, layer.idle_lanes) == (real.useful, real.idle_pixels, real.idle_lanes)
        for cause, cycles in layer.stalls.items():
            assert cycles == pytest.approx(real.stalls[cause], abs=16 + 0.02 * real.cycles), (layer.name, cause)


def test_traffic(program):
    instructions = [decode(program.code[at:at + 16]) for at in range(0, len(program.code), 16)]
    beats = instruction_beats(instructions)
    timing = estimate(SMALL, program.code)
    assert beats.sum() == timing.read_beats - 2 * len(instructions) + timing.write_beats


def test_record_of_another_program(program):
    timing = estimate(SMALL, program.code)
    with pytest.raises(ValueError, match=r"record of \d+ instructions, program of \d+"):
        layer_timings(replace(program, code=program.code[:160]), timing, timing.cycles)
