"""Two taps of a row in a step of the binary unit: every tensor is the golden one, with all kinds of padding."""

from dataclasses import replace

import numpy as np
import pytest

from cores.arch.isa import EntryForm, Opcode
from cores.config import NpuConfig
from gen.bench.binary import takes_pairs
from gen.ir.graph import Conv, Graph, Pool, output_size
from gen.ir.tensor import Requantize, Tensor
from gen.ir.verify import verify
from gen.mapping.signs import Columns, PairGeometry
from gen.program.program import Program
from gen.tiling.geometry import Geometry
from tests.compiled import compile_kept
from tests.gen.test_compiler import run_and_compare

CONFIGS = {
    "8": NpuConfig.preset(16, binary_rows=1, gather=1),
    "16": NpuConfig.preset(64, binary_rows=4, gather=1),
    "16, four banks": NpuConfig.preset(256, binary_rows=4, gather=1, depthwise=1),
    "32, one pixel": NpuConfig(oc_lanes=32, ic_lanes=32, nnz_lanes=2, pixel_lanes=1, binary_rows=1, gather=1,
                               input_depth=512, acc_depth=64),
}


def pair_graph(rng: np.random.Generator, channels: int, kernel: tuple[int, int], stride: int, padding: int | None,
               *, size: tuple[int, int] = (7, 9), chain: bool = False, outputs: int | None = None) -> Graph:
    """Signs of an int8 tensor and a layer of them; ``chain``: another layer between, which gives packed bits."""
    pads = (0,) * 4 if padding is None else (kernel[0] // 2, kernel[1] // 2) * 2
    tensors = {"input": Tensor("input", (channels, *size), 1.0, 0),
               "signs": Tensor("signs", (channels, *size), 1.0, 0, signs=True)}

    def stage(outputs: int, taps: int, *, signs: bool) -> Requantize:
        bias = 2 * rng.integers(-6, 6, outputs) + taps % 2
        if signs:
            return Requantize(bias, np.full(outputs, 1 << 16), np.full(outputs, 15), 1, -1, 1)
        return Requantize(bias, rng.integers(1 << 15, 1 << 17, outputs), rng.integers(16, 19, outputs), -3, -100, 110)

    as_it_is = replace(stage(channels, 0, signs=True), bias=np.zeros(channels, np.int64))
    layers: list[Conv | Pool] = [
        Pool("signs", "input", "signs", maximum=False, pad_value=0, requantize=as_it_is)]
    source = "signs"
    if chain:
        tensors["map"] = Tensor("map", (channels, *size), 1.0, 0, signs=True)
        weights = rng.choice(np.array([-1, 1], np.int16), (channels, channels, 1, 1))
        layers.append(Conv("map", source, "map", weights=weights, requantize=stage(channels, channels, signs=True)))
        source = "map"
    outputs = outputs or 2 * channels
    made = tuple(output_size(n, k, stride, p, p) for n, k, p in zip(size, kernel, pads[:2], strict=True))
    tensors["y"] = Tensor("y", (outputs, *made), 1.0, 0)
    weights = rng.choice(np.array([-1, 1], np.int16), (outputs, channels, *kernel))
    taps = 0 if padding == 0 else weights[0].size
    layers.append(Conv("y", source, "y", weights=weights, stride=(stride, stride), pads=pads,
                       requantize=stage(outputs, taps, signs=False), pad_value=padding))
    graph = Graph("pairs", tensors, tuple(layers), {"input": ("input", ())}, {"output": ("y", ())})
    verify(graph)
    return graph


def pair_loads(program: Program) -> int:
    """How many operations say that loads bring pairs."""
    count = program.config.sign_bytes
    return sum((i.opcode == Opcode.LOAD_SET and i["form"] == EntryForm.SIGN_PAIRS)
               or (i.opcode == Opcode.LOAD_GATHER and (i["length"], i["step"]) == (2 * count, count))
               for i in program.instructions)


@pytest.mark.parametrize("kernel, stride, padding, blocks", [
    ((3, 3), 1, 0, 4), ((3, 3), 1, 1, 4), ((3, 3), 2, 0, 4), ((3, 3), 1, None, 3), ((1, 2), 1, None, 4),
    ((2, 4), 3, None, 2), ((5, 5), 2, -1, 4), ((3, 5), 1, 0, 3), ((1, 3), 2, 0, 2)])
@pytest.mark.parametrize("chain", [False, True], ids=["int8", "map"])
@pytest.mark.parametrize("name", CONFIGS)
def test_pairs(name: str, chain: bool, kernel: tuple[int, int], stride: int, padding: int | None, blocks: int,
               rng: np.random.Generator) -> None:
    """From an int8 tensor, and from packed bits where the stride allows them."""
    config = CONFIGS[name]
    graph = pair_graph(rng, blocks * config.ic_lanes, kernel, stride, padding, chain=chain)
    program, _ = compile_kept(graph, config)
    assert {layer.mode for layer in program.layers} == {"binary"}
    assert program.tensors["map"].signs == (stride == 1) if chain else "map" not in program.tensors
    assert pair_loads(program) and takes_pairs(program) == (not chain or stride > 1)
    run_and_compare(program, graph, 1, ("load", "compute"))


@pytest.mark.parametrize("channels", [17, 40, 60, 64])
@pytest.mark.parametrize("padding", [None, 0])
def test_channels(channels: int, padding: int | None, rng: np.random.Generator) -> None:
    """Bits without a channel cancel in either half; an odd number of channels has no pairs among zeros."""
    config = CONFIGS["16"]
    graph = pair_graph(rng, channels, (3, 3), 1, padding)
    program, _ = compile_kept(graph, config)
    assert bool(pair_loads(program)) == (channels % 2 == 0 or padding is None)
    run_and_compare(program, graph, 1, ("load",))


def test_where_pairs_do_not_pay(rng: np.random.Generator) -> None:
    """More than half an entry's channels, one column of taps, or loads that take longer than the steps they save."""
    config = CONFIGS["16"]
    for channels, kernel in ((80, (3, 3)), (64, (3, 1))):
        program, _ = compile_kept(pair_graph(rng, channels, kernel, 1, 0), config)
        assert [layer.mode for layer in program.layers] == ["binary"] and not pair_loads(program)
    full = replace(config, binary_rows=16)
    few = pair_graph(rng, 64, (3, 3), 1, 0, size=(30, 30), outputs=16)
    assert pair_loads(compile_kept(few, config)[0]) and not pair_loads(compile_kept(few, full)[0])


def test_a_column_without_data() -> None:
    """A tile whose last column of taps sees padding alone is not cut like that: a load has a column of data."""
    graph = pair_graph(np.random.default_rng(0), 64, (3, 3), 1, 0, size=(4, 5))
    conv = graph.layers[-1]
    assert isinstance(conv, Conv)
    config = CONFIGS["16"]
    geometry = PairGeometry.of_pairs(Geometry.of(conv, graph.tensors[conv.input], graph.tensors[conv.output]))
    whole, last = (geometry.spatial_tile(0, 4, x, cols, config) for x, cols in ((0, 5), (4, 1)))
    assert geometry.loads(whole) and not geometry.loads(last)
    assert geometry.part(whole, 0) == Columns(0, 5, 1, 0) and geometry.part(whole, 1) == Columns(1, 4, 0, 1)
