"""Layers of streams: which can be, why others cannot, programs that compute what the reference does, at any length."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cores.arch.stochastic import Circuit
from cores.config import NpuConfig
from gen.compiler import compile_graph, prepare
from gen.ir.errors import CompileError, GraphError
from gen.ir.graph import Conv, Graph
from gen.ir.layers.conv import Stochastic
from gen.ir.tensor import Requantize, Tensor
from gen.ir.verify import verify
from gen.options import CompileOptions
from gen.passes.streams import exact_layers, shorten_streams
from gen.program.file import load_program, save_program
from gen.program.program import Program
from sim import functional
from sim.cycles import estimate
from sim.functional import ORDERS
from sim.golden import conv2d_accumulate
from sim.stochastic.layers import conv2d_streams, largest_sums
from sim.stochastic.streams import Streams
from tests.compiled import check_tensors, compile_kept, golden_tensors, random_image
from tests.random_layers import random_inputs
from tests.random_streams import centred, random_choice

STREAMS = Streams(64)


def machine(circuit: Circuit = Circuit.AND_LOOP, **fields: int) -> NpuConfig:
    lanes = {"oc_lanes": 16, "ic_lanes": 8, "nnz_lanes": 4, "input_depth": 512, "acc_depth": 64, "weight_depth": 512}
    return NpuConfig(**{**lanes, "stochastic_rows": 4, "stochastic_circuit": circuit, "stochastic_bits": 1, **fields})


MACHINES = {
    "and_loop": machine(),
    "and_acc": machine(Circuit.AND_ACC, stochastic_rows=8, oc_lanes=8),
    "four_bits": machine(stochastic_bits=4, depthwise=1, gather=1),
    "one_pixel": machine(Circuit.AND_SEP_OR, pixel_lanes=1),
}


def with_streams(seed: int, config: NpuConfig, rng: np.random.Generator, **options: int) -> tuple[Program, Graph]:
    """A random program with layers of streams."""
    while True:
        graph = centred(seed, **options)
        seed += 1000
        if choice := random_choice(graph, config, rng):
            return compile_kept(graph, config, stochastic=choice)


@pytest.mark.parametrize("name", MACHINES)
def test_random_programs(name, seed, rng):
    """Every tensor is the reference's, with the streams of the program and with shorter ones; nothing else changes."""
    config = MACHINES[name]
    for number in range(3):
        program, graph = with_streams(seed + number, config, rng, max_channels=40, max_size=8)
        assert {layer.mode for layer in program.layers} >= {"stochastic"}
        inputs = random_inputs(graph, seed)
        for shift in (0, 2):
            image = random_image(program, inputs, seed)
            functional.run(config, program.code, image, write_start=program.write_start, strict=True,
                           order=ORDERS[number], stream_shift=shift)
            shorter = shorten_streams(graph, shift)
            check_tensors(program, shorter, image, golden_tensors(shorter, inputs), f"graph {seed + number}")


def chain(**changes: object) -> Graph:
    """Two 1x1 convolutions of 10 channels."""
    rng = np.random.default_rng(1)
    stage = Requantize(np.zeros(10, np.int64), np.full(10, 1 << 16), np.full(10, 26), 0, -128, 127)
    tensors = {name: Tensor(name, (10, 3, 3), 1.0, 0) for name in ("x", "y", "z")}
    layers = [Conv(name, source, target, weights=rng.integers(-100, 101, (10, 10, 1, 1)).astype(np.int16),
                   requantize=stage) for name, source, target in (("first", "x", "y"), ("second", "y", "z"))]
    graph = Graph("chain", tensors, layers, {"input": ("x", ())}, {"output": ("z", ())})
    return replace(graph, **changes)


def test_all_that_can_be_but_the_first():
    graph = prepare(chain(), MACHINES["and_loop"], CompileOptions(stochastic=STREAMS))
    forms = [layer.stochastic for layer in graph.layers if isinstance(layer, Conv)]
    assert forms == [None, Stochastic(Circuit.AND_LOOP, STREAMS, 8)]
    assert exact_layers(chain(), MACHINES["and_loop"]) == {
        "first": "it reads an input of the model; name it to have it in streams"}


def test_a_program_keeps_its_streams(tmp_path: Path):
    program, _ = compile_kept(chain(), MACHINES["and_loop"], stochastic={"first": Streams(64, 16)})
    save_program(program, tmp_path / "p.npu")
    assert load_program(tmp_path / "p.npu").streams == {"first": Streams(64, 16)}


def test_time_goes_by_the_bits_made():
    """A word stays for as many cycles as bits are made of its streams, whatever they say they are."""
    cycles = {}
    for made in (16, 64):
        program, _ = compile_kept(chain(), MACHINES["and_loop"], stochastic={"second": Streams(64, made)})
        cycles[made] = estimate(program.config, program.code).cycles
        assert estimate(program.config, program.code, stream_shift=1).cycles < cycles[made]
    steps, words = 2 * MACHINES["and_loop"].stochastic_groups, 5
    assert cycles[64] - cycles[16] == steps * words * 48


@pytest.mark.parametrize("change, config, choice, message", [
    ({}, NpuConfig(), STREAMS, r"streams need a machine with the stochastic unit \(--features stochastic\)"),
    ({}, machine(), {"third": STREAMS}, "has no layer 'third' for streams; `profile` lists them"),
    ({"zero_point": 3}, machine(), {"second": STREAMS},
     r"second: cannot be computed by streams: its input y has the zero point 3, .*\(`quantize --symmetric`\)"),
    ({"zero_point": 3}, machine(), STREAMS, "chain: no layer can be computed by streams; first: it reads an input"),
    ({"weights": np.full((10, 10, 1, 1), 200, np.int16)}, machine(), {"second": STREAMS}, "it has weights beyond int8"),
    ({"low": 1}, machine(Circuit.UGEMM), {"second": STREAMS},
     "ugemm adds up whole blocks of 8 channels, and beyond the last of y are others than zeros"),
])
def test_refusals(change, config, choice, message):
    graph = chain()
    if "zero_point" in change:
        graph = chain(tensors={**graph.tensors, "y": replace(graph.tensors["y"], **change)})
    if "weights" in change:
        graph = chain(layers=[graph.layers[0], replace(graph.layers[1], **change)])
    if "low" in change:
        stage = replace(graph.layers[0].requantize, **change)
        graph = chain(layers=[replace(graph.layers[0], requantize=stage), graph.layers[1]])
    with pytest.raises(CompileError, match=message):
        prepare(graph, config, CompileOptions(stochastic=choice))


@pytest.mark.parametrize("size", [5, 8])
def test_signs_of_streams(size, seed):
    """A layer of streams can be followed by a binary one: it writes packed bits, as others do."""
    rng, config = np.random.default_rng(seed), machine(gather=1, binary_rows=4)
    signs = Requantize(np.zeros(10, np.int64), np.full(10, 1 << 16), np.full(10, 15), 1, -1, 1)
    first, second = chain().layers
    third = replace(second, name="third", input="z", output="s",
                    weights=rng.choice([-1, 1], second.weights.shape).astype(np.int16))
    tensors = {name: Tensor(name, (10, size, size), 1.0, 0, signs=name == "z") for name in "xyzs"}
    graph = chain(tensors=tensors, layers=[first, replace(second, requantize=signs), third],
                  outputs={"output": ("s", ())})
    program, graph = compile_kept(graph, config, stochastic=STREAMS)
    assert [layer.mode for layer in program.layers] == ["dense", "stochastic", "binary"]
    inputs = random_inputs(graph, seed)
    image = random_image(program, inputs, seed)
    functional.run(config, program.code, image, write_start=program.write_start, strict=True)
    check_tensors(program, graph, image, golden_tensors(graph, inputs), "signs")


def test_another_machines_streams():
    graph = prepare(chain(), machine(), CompileOptions(stochastic=STREAMS))
    with pytest.raises(CompileError, match="second: its streams are those of a unit and-loop of 8 inputs, which this"):
        compile_graph(graph, machine(Circuit.UGEMM))


@pytest.mark.parametrize("change, message", [
    ({"weights": np.full((10, 10, 1, 1), 128, np.int16)}, r"weights of streams must be in -128\.\.127"),
    ({"pad_value": 1}, "streams stand for numbers around 0"),
    ({"stochastic": Stochastic(Circuit.AND_LOOP, STREAMS, 12)}, "a unit has 8, 16 or 32 inputs, not 12"),
])
def test_rules_of_the_graph(change, message):
    form = {"stochastic": Stochastic(Circuit.AND_LOOP, STREAMS, 8)}
    graph = chain()
    verify(chain(layers=[graph.layers[0], replace(graph.layers[1], **form)]))
    with pytest.raises(GraphError, match=message):
        verify(chain(layers=[graph.layers[0], replace(graph.layers[1], **(form | change))]))


@pytest.mark.parametrize("circuit", Circuit)
def test_sums_stay_below_their_bound(circuit, rng):
    """And near those of the layer, the nearer the longer the streams."""
    weights = rng.integers(-128, 128, (5, 11, 2, 3)).astype(np.int16)
    x = rng.integers(-128, 128, (2, 11, 4, 5)).astype(np.int8)
    x[:, :, :2] = 127 * np.sign(x[:, :, :2])
    form = (1, 2), (1, 0, 1, 2)
    for streams in (Streams(8), Streams(128), Streams(64, 8)):
        sums = conv2d_streams(x, weights, *form, circuit, streams, 8)
        assert (np.abs(sums) <= largest_sums(weights, circuit, streams, 8)[:, None, None]).all()
    exact = conv2d_accumulate(x, weights, False, *form, 0)
    assert sums.shape == exact.shape
    if circuit == Circuit.AND_LOOP:
        sums = conv2d_streams(x, weights, *form, circuit, Streams(1024), 8)
        assert np.abs(sums - exact).max() < np.abs(exact).max() / 20
