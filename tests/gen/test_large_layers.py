"""Layers of more pixels, and windows of more taps, than an instruction or the input buffer has room for."""

from dataclasses import replace

import pytest

from cores.arch.isa import Opcode
from cores.config import NpuConfig
from gen.bench.large import LargeLayer, large_graph, measure_large
from gen.ir.errors import CompileError
from sim.rtl.machine import RtlMachine
from tests.compiled import compile_kept
from tests.gen.test_compiler import conv_graph, pool_graph, run_and_compare
from tests.sim.cases import SMALL

#: On the small machine 64 tiles of a bank's words are 8,192 pixels.
MANY = [
    *(LargeLayer(kind=kind, size=(96, 97), channels=8) for kind in ("1x1", "Relu", "requantise", "Add")),
    LargeLayer(kind="maximum", size=(96, 192), channels=8, kernel=(2, 2), stride=2),
    LargeLayer(kind="average", size=(96, 95), channels=8, kernel=(3, 3)),
    *(LargeLayer(kind=kind, size=(64, 64), channels=20, kernel=(64, 64)) for kind in ("average", "maximum")),
    LargeLayer(kind="average", size=(112, 112), channels=8, kernel=(112, 112)),
    LargeLayer(kind="average", size=(3, 300), channels=8, kernel=(3, 300)),
    LargeLayer(kind="maximum", size=(76, 72), channels=8, kernel=(75, 70)),
    LargeLayer(kind="average", size=(24, 40), channels=8, kernel=(8, 8), stride=8),
]


@pytest.mark.parametrize("layer", MANY, ids=lambda layer: layer.name)
def test_large_layers(layer):
    program, graph = compile_kept(large_graph(layer), SMALL)
    run_and_compare(program, graph, 1, ("load", "compute", "store", 5))


def test_large_layers_on_the_rtl():
    """Bit for bit, and no long way from what bus and engines need."""
    with RtlMachine(SMALL) as machine:
        for row in measure_large(machine, [layer for layer in MANY if layer.stride < 8]):
            print(row)
            assert row["wrong"] == 0, row
            assert row["cycles"] < (1.6 if "Add" in row["layer"] else 1.1) * row["ideal"] + 300, row


@pytest.mark.full
def test_large_layers_at_256_macs():
    with RtlMachine(NpuConfig.preset(256)) as machine:
        for row in measure_large(machine):
            print(row)
            assert row["wrong"] == 0, row
            assert row["cycles"] < (1.6 if "Add" in row["layer"] else 1.05) * row["ideal"] + 300, row


@pytest.mark.slow
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (5, 9, 3, 2)])
@pytest.mark.parametrize("maximum", [False, True])
def test_padded_pieces(pads, maximum):
    """Padding belongs to the pieces at the edges."""
    graph = pool_graph(10, (70, 66), 64, maximum)
    layer, target = graph.layers[0], graph.tensors["y"]
    size = (target.shape[1] + pads[0] + pads[2], target.shape[2] + pads[1] + pads[3])
    shape = (10, -(-size[0] // 3), -(-size[1] // 9))
    graph = replace(graph, layers=(replace(layer, pads=pads, stride=(3, 9), pad_value=-128 if maximum else 3),),
                    tensors={**graph.tensors, "y": replace(target, shape=shape)})
    program, graph = compile_kept(graph, SMALL)
    assert any(instruction["open"] for instruction in program.instructions if instruction.opcode is Opcode.POOL)
    run_and_compare(program, graph, 1, ("load", "compute", "store", 5))


def test_a_window_that_fits_is_one_pool():
    program, _ = compile_kept(pool_graph(20, (14, 14), 14, False), NpuConfig.preset(256))
    assert not any(instruction["open"] for instruction in program.instructions if instruction.opcode is Opcode.POOL)


def test_too_many_pixels():
    graph = pool_graph(1, (1, 16), 1, True)
    tensors = {name: replace(tensor, shape=(1, 4096, 4097)) for name, tensor in graph.tensors.items()}
    with pytest.raises(CompileError, match="feature maps have at most 16,777,215 pixels; cut the image"):
        compile_kept(replace(graph, tensors=tensors), NpuConfig.preset(256))


def test_narrow_tiles_where_no_wide_one_fits(rng):
    """20 rows of 27 columns are more than the buffer holds, of 23 they are not."""
    graph = conv_graph(rng.integers(-9, 10, (8, 8, 20, 20)), (30, 40))
    program, graph = compile_kept(graph, SMALL)
    run_and_compare(program, graph, 1, ("load", 5))
