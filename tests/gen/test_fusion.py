"""Depthwise and pointwise layers without memory between them: plans, programs on the functional simulator, cycles."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from cores.arch.isa import Opcode
from cores.config import NpuConfig
from gen.compiler import compile_graph
from gen.ir.epilogue.add import Add
from gen.ir.epilogue.leaky import Leaky
from gen.ir.errors import CompileError
from gen.ir.graph import Graph, Pool
from gen.ir.queries import count_readers
from gen.ir.tensor import Tensor
from gen.mapping.fused import FusedLayers, fusable
from gen.mapping.registry import map_graph
from gen.mapping.trial import Trial
from gen.onnx.importer import load
from gen.options import CompileOptions
from gen.program.program import Program
from sim.cycles import estimate
from tests.compiled import compile_kept
from tests.gen.test_compiler import conv_graph, run_and_compare
from tests.random_layers import random_pairs

CONFIGS = [
    *(NpuConfig.preset(macs, depthwise=1, local_store=1) for macs in (32, 64, 128, 256)),
    NpuConfig.preset(256, depthwise=1, local_store=1, input_depth=512, acc_depth=64, weight_depth=512, queue_depth=4),
]
ORDERS = ("load", "compute", "store", 5)


def config_id(config: NpuConfig) -> str:
    return f"{config.macs}-{config.input_depth}"


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> random.Random:
    """Fuse wherever it is possible, in any of the ways that are tried."""
    monkeypatch.setattr("gen.mapping.fused._PROMISING", math.inf)
    chance = random.Random(1)
    monkeypatch.setattr(Trial, "cycles", lambda self, steps, limit=math.inf: (
        20 + chance.random() - 9 * sum(isinstance(step, FusedLayers) for step in steps)))
    return chance


def pair_graph(channels: int, outputs: int, size: tuple[int, int], stride: int = 1, seed: int = 0) -> Graph:
    """A 3x3 depthwise layer and a pointwise one."""
    rng = np.random.default_rng(seed)
    first = conv_graph(rng.integers(-100, 100, (channels, 1, 3, 3)), size, stride=stride, pad=1, depthwise=True)
    out = first.tensors["y"].shape[1:]
    second = conv_graph(rng.integers(-100, 100, (outputs, channels, 1, 1)), out)
    middle = replace(first.tensors["y"], name="middle", zero_point=second.tensors["x"].zero_point)
    target = second.tensors["y"]
    layers = (replace(first.layers[0], name="depthwise", output="middle"),
              replace(second.layers[0], name="pointwise", input="middle"))
    return Graph("pair", {"x": first.tensors["x"], "middle": middle, "y": target}, layers, first.inputs,
                 second.outputs)


def modes(program: Program) -> list[str]:
    return [layer.mode for layer in program.layers]


# -- which -----------------------------------------------------------------------------------------------------------

def test_which_pairs():
    graph = pair_graph(32, 48, (9, 9))
    first, second = graph.layers
    assert fusable(count_readers(graph), first, second) and not fusable(count_readers(graph), second, first)
    added = Add(middle=Tensor("sum", (48, 9, 9), 1.0, 0), other="middle", multiplier_a=1, multiplier_b=1, constant=0,
                shift=16, zero_point=0, low=-128, high=127)
    tensors = {**graph.tensors, "z": replace(graph.tensors["y"], name="z")}
    for layers, outputs in [
        ((first, replace(second, stride=(2, 2))), "y"),
        ((first, replace(second, pads=(1, 0, 0, 0))), "y"),
        ((first, replace(second, weights=np.ones((48, 32, 1, 2), np.int16))), "y"),
        ((first, replace(second, input="x")), "y"),
        ((first, replace(second, epilogue=(added,))), "y"),
        ((replace(first, epilogue=(added,)), second), "y"),
        ((replace(first, depthwise=False), second), "y"),
        ((replace(first, weights=np.ones((32, 1, 1, 1), np.int16)), second), "y"),
        ((first, second), "middle"),                                        # also an output
        ((first, second, replace(second, name="other", output="z")), "y"),  # two readers
    ]:
        changed = replace(graph, tensors=tensors, layers=layers, outputs={"y": (outputs, ())})
        assert not fusable(count_readers(changed), *layers[:2])


def test_modes(always):
    graph = pair_graph(32, 48, (9, 9))
    config = NpuConfig.preset(256, depthwise=1, local_store=1)
    program, _ = compile_kept(graph, config)
    assert modes(program) == ["fused", "dense"]
    assert list(program.tensors) == ["x", "y"]
    for options in (CompileOptions(fusion="off"), CompileOptions(depthwise="plain")):
        program, _ = compile_graph(graph, config, options)
        assert "fused" not in modes(program) and list(program.tensors) == ["x", "middle", "y"]
    for fields in ({"depthwise": 1}, {"local_store": 1}):
        plain = NpuConfig.preset(256, **fields)
        program, _ = compile_kept(graph, plain)
        assert program.code == compile_kept(graph, plain, fusion="off")[0].code


def test_likeness_of_steps():
    """Steps whose layers do other things in their stores are not taken to be alike, even where plans are."""
    graph = pair_graph(32, 32, (8, 8))
    source, target, stage = graph.tensors["x"], graph.tensors["middle"], graph.layers[0].requantize
    leaky = Leaky(middle=target, multiplier=1 << 16, negative=1 << 14, shift=16, zero_point=0, low=-128, high=127)
    layers = [Pool(name, "x", name, maximum=True, kernel=(3, 3), pads=(1, 1, 1, 1), pad_value=-128, requantize=stage,
                   epilogue=epilogue)
              for name, epilogue in (("plain", ()), ("leaky", (leaky,)))]
    tensors = {"x": source, **{layer.name: replace(target, name=layer.name) for layer in layers}}
    graph = Graph("pools", tensors, layers, graph.inputs, {layer.name: (layer.name, ()) for layer in layers})
    mapped = map_graph(graph, NpuConfig.preset(64), CompileOptions())
    assert len({step.layers[0].plan for step in mapped.steps}) == 1
    trial = Trial(mapped)
    assert len({trial.cycles([step]) for step in mapped.steps}) == 2


# -- programs --------------------------------------------------------------------------------------------------------

@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS, ids=config_id)
def test_random_pairs(config, seed, always):
    fused = 0
    for number in range(10):
        graph = random_pairs(seed + number)
        try:
            program, graph = compile_kept(graph, config, density=0.25 if number % 3 == 0 else None)
        except CompileError as error:
            assert error.code == "no-tile"
            continue
        fused += modes(program).count("fused")
        run_and_compare(program, graph, seed, ("load", "compute", "store", number))
    assert fused > 3


@pytest.mark.full
@pytest.mark.parametrize("config", CONFIGS, ids=config_id)
def test_many_random_pairs(config, seed, always):
    for number in range(150):
        try:
            program, graph = compile_kept(random_pairs(seed + number, pairs=3), config)
        except CompileError as error:
            assert error.code == "no-tile"
            continue
        run_and_compare(program, graph, seed, ("load", number))


@pytest.mark.slow
@pytest.mark.parametrize("config", [CONFIGS[1], CONFIGS[3]], ids=config_id)
@pytest.mark.parametrize("channels, outputs, size, stride", [
    (48, 40, (14, 14), 1), (64, 130, (12, 9), 2), (16, 16, (40, 40), 1), (24, 8, (60, 44), 2), (200, 70, (7, 7), 1),
    (130, 64, (21, 50), 1), (17, 33, (3, 3), 2),
], ids=str)
def test_shapes(config, channels, outputs, size, stride, always):
    """Several bands, tiles of several bands, narrow outputs, one band made early."""
    graph = pair_graph(channels, outputs, size, stride)
    for _ in range(4):
        program, graph = compile_kept(graph, config)
        if config.oc_groups == 2 or stride == 1:
            assert modes(program)[0] == "fused"
            stores = [i for i, layer in zip(program.instructions, program.instruction_layers, strict=True)
                      if i.opcode is Opcode.STORE_SET and layer == 0]
            assert stores and all(i["local"] and not i["row_pitch"] for i in stores)
        run_and_compare(program, graph, 1, ORDERS)


# -- time ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("channels, outputs, size, stride, gain", [
    (128, 128, (6, 6), 1, 1.05), (96, 64, (28, 28), 2, 1.1), (16, 32, (48, 48), 2, 1.03),
])
def test_pairs_gain(channels, outputs, size, stride, gain):
    graph = pair_graph(channels, outputs, size, stride)
    config = NpuConfig.preset(256, depthwise=1, local_store=1)
    before, after = (estimate(config, compile_kept(graph, config, fusion=mode)[0].code).cycles
                     for mode in ("off", "auto"))
    assert before > gain * after


@pytest.mark.slow
@pytest.mark.parametrize("name, gain", [("mlperf_vww_mnv1_025_int8", 1.07), ("mlperf_kws_dscnn_int8", 1.0)])
def test_networks_gain(name, gain, models):
    config = NpuConfig.preset(256, depthwise=1, local_store=1)
    graph = load(models / f"{name}.onnx")
    before = estimate(config, compile_kept(graph, config, fusion="off")[0].code).cycles
    program, graph = compile_kept(graph, config)
    assert before >= gain * estimate(config, program.code).cycles
    run_and_compare(program, graph, 1, ("load", "store"))
