"""Binary layers on the generated Verilog: every value of every tensor is the golden layers', times are the model's."""

from itertools import product

import numpy as np
import onnx
import pytest

from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode, StepKind
from cores.config import NpuConfig
from gen.bench.binary import BinaryLayer, binary_layers, layer_graph
from gen.bench.layers import measure_graph
from gen.ir.reference import host_output
from gen.ir.reference import run as run_reference
from gen.onnx.importer import load
from gen.quantize.quantize import quantize
from sim.cycles import estimate
from sim.rtl import Bus, RtlMachine, run_program
from tests.compiled import compile_kept
from tests.gen.test_binary_pairs import pair_graph, pair_loads
from tests.gen.test_quantize_shifts import reactnet
from tests.random_binary import random_binary_graph
from tests.selection import with_full

from .on_rtl import check_on_rtl, machines
from .programs import END, assemble

#: As many rows as a step has beats, fewer and more; one and two pixels, two and four banks.
CONFIGS = {
    "16": NpuConfig.preset(16, binary_rows=1, gather=1),
    "64": NpuConfig.preset(64, binary_rows=8, gather=1),
    "128-depthwise": NpuConfig.preset(64, ic_lanes=8, nnz_lanes=4, binary_rows=8, gather=1, depthwise=1),
    "32-pixel": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=2, pixel_lanes=1, binary_rows=4, gather=1, input_depth=512,
                          acc_depth=64, weight_depth=512),
    "engine": NpuConfig.preset(16, binary_rows=2, gather=1, binary_engine=1),
    "engine-depthwise": NpuConfig.preset(64, ic_lanes=8, nnz_lanes=4, binary_rows=8, gather=1, binary_engine=1,
                                         depthwise=1, local_store=1),
}

machine = machines(CONFIGS, "32-pixel", "64", "128-depthwise", "engine-depthwise")


def check(machine: RtlMachine, seed: int) -> set[str]:
    """Run a random graph; returns the modes of its layers."""
    program, graph = compile_kept(random_binary_graph(seed, max_channels=150, max_size=12), machine.config)
    check_on_rtl(machine, program, graph, seed)
    return {layer.mode for layer in program.layers}


@pytest.mark.parametrize("part", with_full(range(2), 1))
def test_random_layers(machine, seed, part):
    modes = set()
    for number in range(6):
        modes |= check(machine, seed + number)
    assert "binary" in modes


#: Kernel, stride, padding, blocks; and whether another layer reads the bits.
PAIRS = list(product([((3, 3), 1, 0, 4), ((3, 3), 2, 0, 4), ((1, 2), 1, None, 2), ((5, 5), 1, 1, 3)], [False, True]))


@pytest.mark.full
@pytest.mark.parametrize("part", range(10))
def test_many_random_layers(machine, seed, part):
    for number in range(12):
        check(machine, seed + number)


@pytest.mark.parametrize("layer, chain", with_full(PAIRS, *(PAIRS[index] for index in (0, 3, 4, 6))))
def test_pairs(machine, rng, seed, layer, chain):
    """Two taps in a step: values on a random bus and on a plain one, and the time model's cycles.

    So large that each machine is faster by pairs, each of which is a load of its own, and that a cycle is little.
    """
    kernel, stride, padding, blocks = layer
    channels = blocks * machine.config.ic_lanes
    graph = pair_graph(rng, channels, kernel, stride, padding, size=(14, 18), chain=chain, outputs=4 * channels)
    program, _ = compile_kept(graph, machine.config)
    assert pair_loads(program)
    check_on_rtl(machine, program, graph, seed)
    result = check_on_rtl(machine, program, graph, seed, bus=Bus())
    assert estimate(machine.config, program.code).cycles == pytest.approx(result.counters["cycles"], rel=0.005)


@pytest.mark.parametrize("kinds", ["ib" * 8, "iibb" * 4, "b" * 6 + "i" * 6])
def test_time_of_switching(machine, rng, kinds):
    """COMPUTEs int8 and binary in turn: what they wait for each other, if engines differ, is in the time model."""
    config = machine.config
    beats = {"i": config.groups_dense * config.weight_beats, "b": config.binary_groups * config.binary_rows}
    computes = [
        Instruction(Opcode.COMPUTE, blocks=1, groups=config.binary_groups if kind == "b" else config.groups_dense,
                    first=1, kind=StepKind.BINARY if kind == "b" else StepKind.DENSE, wait_load=int(number == 0))
        for number, kind in enumerate(kinds)]
    code = assemble(
        Instruction(Opcode.LOAD_SET, cols=7, row_pitch=7, stride=1, buf_row_pitch=7),
        Instruction(Opcode.LOAD_ACT, blocks=1, rows=4, post_compute=1),
        Instruction(Opcode.LOAD_WGT, offset=0, beats=sum(beats[kind] for kind in kinds)),
        Instruction(Opcode.COMPUTE_SET, kernel_h=1, kernel_w=1, stride=1, rows=4, cols=7, buf_row_pitch=7,
                    buf_row_step=7),
        *computes, END)
    image = rng.integers(0, 256, 512 * config.beat_bytes, np.uint8)
    machine.set_bus(Bus())
    result, timing = run_program(machine, code, image, write_start=512), estimate(config, code)
    np.testing.assert_array_equal(timing.counts[1].sum(axis=1), result.trace.counts[1].sum(axis=1))
    assert timing.cycles == result.counters["cycles"]


def test_block_of_reactnet(machine, rng, seed, tmp_path):
    """A bias between sums, signs of a stored tensor, and an RPReLU: every value of every tensor."""
    model = reactnet(rng, 1)
    made = quantize(model, {"x": rng.normal(size=(8, 3, 8, 8)).astype(np.float32)}).model
    onnx.save(made, tmp_path / "q.onnx")
    graph = load(tmp_path / "q.onnx")
    program, _ = compile_kept(graph, machine.config)
    assert [layer.mode for layer in program.layers].count("binary") == 1 and len(program.layers) == 4
    check_on_rtl(machine, program, graph, seed)


@pytest.mark.full
def test_trained_network(models):
    """The trained CNV network: logits are onnxruntime's, cycles within 2 % of the time model."""
    golden_file = np.load(models / "cnvW1A1_cifar10.golden.npz")
    graph = load(models / "cnvW1A1_cifar10.onnx")
    config = CONFIGS["64"]
    program, _ = compile_kept(graph, config)
    with RtlMachine(config) as machine:
        for sample in range(2):
            image = program.image()
            program.pack_input(image, "image", golden_file["image"][sample])
            result = run_program(machine, program.code, image, write_start=program.write_start)
            _, expected = run_reference(graph, {"image": golden_file["image"][sample:sample + 1]}, keep=True)
            assert expected is not None
            for name in program.tensors:
                np.testing.assert_array_equal(program.unpack_tensor(result.image, name), expected[name][0], name)
            logits = host_output(graph, "logits", program.unpack_tensor(result.image, program.outputs["logits"])[None])
            np.testing.assert_array_equal(logits[0], golden_file["ort"][sample])
    assert estimate(config, program.code).cycles == pytest.approx(result.cycles, rel=0.02)


def test_eight_times_as_fast():
    """A layer of whole entries with a shortcut, int8 to int8: at least 7.5 times the speed of int8 weights."""
    config = CONFIGS["16"]
    layer = BinaryLayer(channels=128, outputs=32, size=14, stride=1, count=1)
    with RtlMachine(config, bus=Bus()) as machine:
        dense, binary = (measure_graph(layer_graph(layer, binary=kind), machine) for kind in (False, True))
    assert not dense.mismatches + binary.mismatches
    assert dense.rtl.cycles / binary.rtl.cycles >= 7.5
    assert estimate(config, binary.program.code).cycles == pytest.approx(binary.rtl.cycles, rel=0.01)


@pytest.mark.full
def test_layers_of_the_network():
    config = NpuConfig.preset(256, binary_rows=8, gather=1)
    with RtlMachine(config) as machine:
        rows = [case.measure(machine) for case in binary_layers()]
    print(*rows, sep="\n")
    assert not any(row.wrong for row in rows)
    assert all(row.reached for row in rows if row.goal)
