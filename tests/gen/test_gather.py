"""Layers of few input channels as 1x1 convolutions of gathered rows."""

import dataclasses

import numpy as np
import pytest

from cores.arch.isa import Opcode, StepKind
from cores.config import NpuConfig
from gen.ir.graph import Conv, Graph, Pool, output_size
from gen.ir.tensor import Requantize, Tensor
from gen.ir.verify import verify
from gen.mapping.gather import GatherGeometry
from gen.program.file import load_program, save_program
from gen.program.program import Program
from sim import functional, golden
from sim.cycles import estimate
from sim.functional import ORDERS
from sim.rtl import Bus, RtlMachine, run_program
from tests.compiled import compile_kept
from tests.selection import with_full

CONFIGS = {
    "16": NpuConfig.preset(16, gather=1, input_depth=512),
    "64": NpuConfig.preset(64, gather=1),
    "four_banks": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, gather=1, input_depth=512),
    "one_pixel": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=1, gather=1, input_depth=512),
    "tn32": NpuConfig(oc_lanes=32, ic_lanes=32, nnz_lanes=4, gather=1, input_depth=512),
}


def first_layer(rng: np.random.Generator, *, channels: int, size: tuple[int, int], outputs: int,
                kernel: tuple[int, int], stride: tuple[int, int] = (1, 1),
                pads: tuple[int, int, int, int] = (0, 0, 0, 0)) -> Graph:
    """A graph of one convolution that reads the model's input."""
    weights = rng.integers(-100, 101, (outputs, channels, *kernel)).astype(np.int16)
    shape = tuple(output_size(size[axis], kernel[axis], stride[axis], pads[axis], pads[axis + 2]) for axis in (0, 1))
    requantize = Requantize(
        rng.integers(-1000, 1000, outputs), np.full(outputs, 70000), np.full(outputs, 26), 0, -128, 127)
    tensors = {"x": Tensor("x", (channels, *size), 1.0, int(rng.integers(-128, 128))),
               "y": Tensor("y", (outputs, *shape), 1.0, 0)}
    graph = Graph("first", tensors, (Conv("first", "x", "y", weights=weights, stride=stride, pads=pads,
                                          requantize=requantize),),
                  {"x": ("x", ())}, {"y": ("y", ())})
    verify(graph)
    return graph


def random_first_layer(rng: np.random.Generator, *, largest: int = 24) -> Graph:
    kernel = tuple(int(k) for k in rng.integers(1, 9, 2))
    pads = tuple(int(rng.integers(0, kernel[axis] // 2 + 1)) for axis in (0, 1, 0, 1))
    size = tuple(int(n) for n in rng.integers(1, largest, 2))
    kernel = tuple(min(kernel[axis], size[axis] + pads[axis] + pads[axis + 2]) for axis in (0, 1))
    return first_layer(
        rng, channels=int(rng.integers(1, 9)), size=size, outputs=int(rng.integers(1, 40)), kernel=kernel,
        stride=(int(rng.integers(1, 4)), int(rng.integers(1, 4))), pads=pads)


def expected(graph: Graph, x: np.ndarray) -> np.ndarray:
    return golden.run_layer(graph.layers[0], x, zero_point=graph.tensors["x"].zero_point)


def image_of(program: Program, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A data region with noise where results will be, and the input in it."""
    image = rng.integers(0, 256, program.data_beats * program.config.beat_bytes, np.uint8)
    image[:len(program.constants)] = np.frombuffer(program.constants, np.uint8)
    x = rng.integers(-128, 128, program.tensors["x"].shape).astype(np.int8)
    program.pack_input(image, "x", x)
    np.testing.assert_array_equal(program.unpack_tensor(image, "x"), x)
    return image, x


@pytest.mark.slow
def test_random_layers(rng):
    modes = set()
    for number in range(60):
        config = list(CONFIGS.values())[number % len(CONFIGS)]
        graph = random_first_layer(rng)
        program, _ = compile_kept(graph, config)
        image, x = image_of(program, rng)
        functional.run(config, program.code, image, write_start=program.write_start, strict=True,
                       order=ORDERS[number % len(ORDERS)])
        np.testing.assert_array_equal(program.unpack_tensor(image, "y"), expected(graph, x), f"layer {number}")
        modes.add(program.layers[0].mode)
    assert "gathered" in modes and len(modes) > 1


@pytest.mark.parametrize("name", with_full(["16", "four_banks"], "four_banks"))
def test_random_layers_on_rtl(name, rng):
    """Also cycles: the time model follows the machine."""
    with RtlMachine(CONFIGS[name]) as machine:
        for number in range(12):
            graph = random_first_layer(rng, largest=20)
            program, _ = compile_kept(graph, machine.config)
            image, x = image_of(program, rng)
            slow = number % 3 == 2
            machine.set_bus(Bus(latency=17, bandwidth=0.5, stall_probability=0.2) if slow else Bus())
            result = run_program(machine, program.code, image, write_start=program.write_start)
            found = program.unpack_tensor(result.image, "y")
            np.testing.assert_array_equal(found, expected(graph, x), f"layer {number}")
            if not slow:
                timing = estimate(machine.config, program.code)
                assert abs(timing.cycles - result.cycles) <= 0.05 * result.cycles, f"layer {number}"


@pytest.mark.parametrize("channels,kernel,stride,macs,ideal", [(3, (3, 3), 2, 256, 0.8), (1, (10, 4), 2, 256, 0.5),
                                                              (3, (7, 7), 2, 64, 0.8)])
def test_faster_than_tap_by_tap(channels, kernel, stride, macs, ideal, rng):
    """What `estimate` counts from start to done, of the multipliers' work."""
    config = NpuConfig.preset(macs, gather=1)
    graph = first_layer(rng, channels=channels, size=(96, 96), outputs=32, kernel=kernel, stride=(stride, stride))
    programs = [compile_kept(graph, config, gather=mode)[0] for mode in ("auto", "plain")]
    assert [program.layers[0].mode for program in programs] == ["gathered", "dense"]
    gathered, plain = (estimate(config, program.code).cycles for program in programs)
    assert gathered < plain
    assert programs[0].layers[0].macs / macs / gathered > ideal


def test_pieces_fill_blocks(rng):
    config = NpuConfig.preset(256, gather=1)
    graph = first_layer(rng, channels=3, size=(20, 20), outputs=8, kernel=(3, 3))
    geometry = GatherGeometry.fitting(graph.layers[0], *graph.tensors.values(), config)
    assert [(p.row, p.first, p.length, p.block, p.place) for p in geometry.gather_loads(config)] == [
        (0, 0, 9, 0, 0), (1, 0, 7, 0, 9), (1, 7, 2, 1, 0), (2, 0, 9, 1, 2)]
    program, _ = compile_kept(graph, config)
    # 16 and 11 channels: 4 and 3 steps of 4 lanes.
    assert {(i["blocks"], i["groups"], i["kind"]) for i in program.instructions if i.opcode is Opcode.COMPUTE} == {
        (1, 4, StepKind.DENSE), (1, 3, StepKind.INDEXED)}


def test_what_cannot_be_gathered(rng):
    """Other readers of the input, other machines, rows that the instructions do not reach."""
    config = NpuConfig.preset(64, gather=1)
    graph = first_layer(rng, channels=3, size=(20, 20), outputs=8, kernel=(3, 3))
    copy = Requantize(np.zeros(3, int), np.full(3, 1 << 16), np.full(3, 16), 0, -128, 127)
    pool = Pool("copy", "x", "z", maximum=True, pad_value=-128, requantize=copy)
    both = dataclasses.replace(
        graph, tensors={**graph.tensors, "z": Tensor("z", (3, 20, 20), 1.0, 0)}, layers=(*graph.layers, pool))
    shown = dataclasses.replace(graph, outputs={**graph.outputs, "x": ("x", ())})
    wide = first_layer(rng, channels=32, size=(9, 9), outputs=8, kernel=(3, 3), stride=(2, 2))
    for case, machine in ((both, config), (shown, config), (wide, config), (graph, NpuConfig.preset(64))):
        program, _ = compile_kept(case, machine)
        assert "gathered" not in {layer.mode for layer in program.layers}
        assert not program.tensors["x"].interleaved
        assert Opcode.LOAD_GATHER not in {i.opcode for i in program.instructions}
    assert compile_kept(graph, config)[0].layers[0].mode == "gathered"


def test_interleaved_tensors_are_saved(tmp_path, rng):
    config = NpuConfig.preset(64, gather=1)
    program, _ = compile_kept(first_layer(rng, channels=3, size=(5, 7), outputs=8, kernel=(3, 3)), config)
    save_program(program, tmp_path / "first.npu")
    again = load_program(tmp_path / "first.npu")
    assert again.tensors == program.tensors and again.tensors["x"].interleaved
    image, x = image_of(again, rng)
    # Rows of 7 * 3 bytes begin a beat each.
    start = again.tensors["x"].offset * 16
    np.testing.assert_array_equal(image[start:start + 5 * 32].view(np.int8).reshape(5, 32)[:, :21],
                                  x.transpose(1, 2, 0).reshape(5, 21))
