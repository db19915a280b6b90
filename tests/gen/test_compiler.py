"""Compiled programs on the functional simulator against the golden layers, tensor by tensor."""

from dataclasses import replace

import numpy as np
import pytest

from cores.arch.isa import Opcode
from cores.config import NpuConfig
from gen.ir.errors import CompileError, GraphError
from gen.ir.graph import Conv, Graph, Pool, output_size
from gen.ir.tensor import Requantize, Tensor
from gen.onnx.importer import load
from gen.program.program import Program
from sim import functional
from tests.compiled import check_tensors, compile_kept, golden_tensors, random_image
from tests.random_layers import random_graph, random_inputs

#: Ordinary machines, and one of each kind with as little memory as can be built.
CONFIGS = [
    NpuConfig.preset(256),
    NpuConfig.preset(16),
    NpuConfig.preset(64),
    NpuConfig.preset(512, select_fanin=8),
    NpuConfig.preset(256, select_fanin=4, input_depth=256, acc_depth=64, weight_depth=512, queue_depth=4),
    NpuConfig(oc_lanes=32, ic_lanes=32, nnz_lanes=4, pixel_lanes=1, input_depth=512),
    NpuConfig.preset(256, pixel_lanes=1),
]
MODELS = ["mlperf_resnet8_int8", "mlperf_vww_mnv1_025_int8", "mlperf_kws_dscnn_int8", "tinymaix_mnist_resnet_int8",
          "tinymaix_mnist_valid_int8", "coral_mnv1_025_128_uint8"]


def run_and_compare(program: Program, graph: Graph, seed: int, orders: tuple[functional.Order, ...], *,
                    reused: bool = False) -> None:
    """Run in strict mode under different interleavings of the queues; every tensor must be the golden one."""
    inputs = random_inputs(graph, seed)
    image, expected = random_image(program, inputs, seed), golden_tensors(graph, inputs)
    for order in orders:
        memory = image.copy()
        functional.run(program.config, program.code, memory, write_start=program.write_start, strict=True, order=order)
        check_tensors(program, graph, memory, expected, f"order {order}", reused=reused)
        assert np.array_equal(memory[:len(program.constants)], image[:len(program.constants)])


def compile_and_compare(seed: int, number: int, config: NpuConfig, orders: tuple[functional.Order, ...], *,
                        density: float | None) -> bool:
    """A random graph; False if no tile of it fits: a window with all its padding can be larger than a small buffer."""
    try:
        program, graph = compile_kept(random_graph(seed + number), config, density=density)
    except CompileError as error:
        assert error.code == "no-tile"
        return False
    run_and_compare(program, graph, seed, orders)
    return True


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.macs}-{c.input_depth}")
def test_random_graphs(config, seed):
    compiled = 0
    for number in range(10):
        if compiled < 8:
            compiled += compile_and_compare(seed, number, config, ("load", "compute", "store", number),
                                            density=0.25 if number % 3 == 0 else None)
    assert compiled == 8


@pytest.mark.full
@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.macs}-{c.input_depth}")
def test_many_random_graphs(config, seed):
    compiled = sum(compile_and_compare(seed, number, config, ("load", number),
                                       density=0.5 if number % 4 == 0 else None) for number in range(300))
    assert compiled >= 294


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("density", [None, 0.25])
def test_models(name, density, models):
    graph = load(models / f"{name}.onnx")
    program, graph = compile_kept(graph, NpuConfig.preset(256), density=density)
    run_and_compare(program, graph, 1, ("load", "store"))


@pytest.mark.full
def test_large_model(models):
    program, graph = compile_kept(load(models / "coral_mnv2_10_224_uint8.onnx"), NpuConfig.preset(256))
    run_and_compare(program, graph, 1, ("load", 3))


# -- hand-made graphs ------------------------------------------------------------------------------------------------

def conv_graph(weights: np.ndarray, size: tuple[int, int], *, stride: int = 1, pad: int = 0,
               depthwise: bool = False) -> Graph:
    """One convolution."""
    oc, ic, *kernel = weights.shape
    channels = oc if depthwise else ic
    ones = np.ones(oc, np.int64)
    out = [output_size(extent, k, stride, pad, pad) for extent, k in zip(size, kernel, strict=True)]
    tensors = {"x": Tensor("x", (channels, *size), 1.0, 3), "y": Tensor("y", (oc, *out), 1.0, -5)}
    layer = Conv("only", "x", "y", weights=weights.astype(np.int16), depthwise=depthwise, stride=(stride, stride),
                 pads=(pad,) * 4, requantize=Requantize(0 * ones, 90000 * ones, 30 * ones, -5, -128, 127))
    return Graph("hand", tensors, (layer,), {"x": ("x", ())}, {"y": ("y", ())})


def pool_graph(channels: int, size: tuple[int, int], kernel: int, maximum: bool) -> Graph:
    ones = np.ones(channels, np.int64)
    tensors = {"x": Tensor("x", (channels, *size), 1.0, 3),
               "y": Tensor("y", (channels, size[0] - kernel + 1, size[1] - kernel + 1), 1.0, 3)}
    layer = Pool("only", "x", "y", maximum=maximum, kernel=(kernel, kernel), pad_value=0,
                 requantize=Requantize(0 * ones, 65536 * ones, 16 * ones, 3, -128, 127))
    return Graph("hand", tensors, (layer,), {"x": ("x", ())}, {"y": ("y", ())})


@pytest.mark.parametrize("shape, size, options", [
    ((64, 64, 3, 3), (28, 28), {"pad": 1}),           # all of it held
    ((40, 600, 1, 1), (14, 14), {}),                  # input larger than half the buffer
    ((70, 1200, 1, 1), (20, 20), {}),                 # too large to hold
    ((40, 300, 3, 3), (14, 14), {"pad": 1}),          # turns around in the buffer while held
    ((100, 512, 7, 7), (7, 7), {}),                   # matrix product
    ((33, 2000, 1, 1), (1, 1), {}),                   # matrix product of a vector
    ((8, 3, 7, 7), (60, 201), {"pad": 3, "stride": 2}),
    ((8, 8, 1, 1), (7, 700), {"stride": 2}),
    ((8, 8, 1, 3), (4, 9), {"stride": 3}),
    ((3, 5, 2, 2), (1, 1), {"pad": 1}),
    ((48, 1, 3, 3), (31, 17), {"pad": 1, "depthwise": True, "stride": 2}),
    ((16, 16, 1, 1), (90, 90), {}),                   # flattened, more pixels than a row may have
    ((5, 20, 9, 1), (1, 1), {"pad": 4}),              # windows that see nothing but padding in most rows
], ids=range(13))
@pytest.mark.parametrize("depth", [4096, 1024])
def test_shapes(shape, size, options, depth, rng):
    weights = rng.integers(-40, 41, shape)
    program, graph = compile_kept(conv_graph(weights, size, **options), NpuConfig.preset(256, input_depth=depth))
    run_and_compare(program, graph, 1, ("load", "compute", "store", 5))


@pytest.mark.parametrize("channels, size, kernel, maximum", [
    (1280, (7, 7), 7, False), (300, (60, 60), 60, False), (20, (64, 9), 1, False), (33, (50, 50), 3, True),
    (2100, (1, 1), 1, True),
])
def test_pools(channels, size, kernel, maximum):
    program, graph = compile_kept(pool_graph(channels, size, kernel, maximum), NpuConfig.preset(256))
    run_and_compare(program, graph, 1, ("load", "compute", "store", 5))


def test_weights_beyond_the_ring_behind_a_dependency(rng):
    """Weights that are fetched while their activations wait for a STORE leave room in the ring."""
    first = conv_graph(rng.integers(-9, 10, (16, 16, 1, 1)), (10, 10))
    second = conv_graph(rng.integers(-9, 10, (32, 16, 7, 7)), (10, 10), pad=3)
    tensors = {**first.tensors, "z": replace(second.tensors["y"], name="z")}
    graph = Graph("two", tensors, (first.layers[0], replace(second.layers[0], name="second", input="y", output="z")),
                  {"x": ("x", ())}, {"z": ("z", ())})
    program, graph = compile_kept(graph, NpuConfig.preset(256))
    assert max(i["beats"] for i in program.instructions if i.opcode is Opcode.LOAD_WGT) > 1024
    run_and_compare(program, graph, 1, ("load", "compute", "store"))


def test_tokens_balance():
    """What is posted is taken: no counter creeps up in a long program."""
    for number in range(30):
        program, _ = compile_kept(random_graph(number), CONFIGS[number % len(CONFIGS)])
        totals: dict[tuple[str, str], int] = {}
        for instruction in program.instructions:
            queue = instruction.opcode.queue.name.lower()
            for other in ("load", "compute", "store"):
                totals[queue, other] = totals.get((queue, other), 0) + instruction[f"post_{other}"]
                totals[other, queue] = totals.get((other, queue), 0) - instruction[f"wait_{other}"]
            totals["store", "load"] -= instruction["stores"]
        assert not any(totals.values()), totals


def test_program_ends_and_names_its_layers():
    program, graph = compile_kept(random_graph(5, layers=3), NpuConfig.preset(256))
    assert program.instructions[-1].opcode is Opcode.END
    assert program.instruction_layers[-1] == -1
    assert set(program.instruction_layers[:-1]) == set(range(len(graph.layers)))
    assert [layer.name for layer in program.layers] == [layer.name for layer in graph.layers]


def test_macs_and_modes(rng):
    weights = rng.integers(1, 100, (64, 64, 3, 3))
    graph = conv_graph(weights, (8, 8), pad=1)
    info = compile_kept(graph, NpuConfig.preset(256))[0].layers[0]
    assert (info.mode, info.macs, info.useful_macs) == ("dense", 64 * 64 * 9 * 64, 64 * 64 * 9 * 64)
    weights[:, rng.permutation(64)[:40]] = 0
    info = compile_kept(conv_graph(weights, (8, 8), pad=1), NpuConfig.preset(256))[0].layers[0]
    assert (info.mode, info.macs, info.useful_macs) == ("sparse", 64 * 64 * 9 * 64, 64 * 24 * 9 * 64)
    graph = conv_graph(rng.integers(1, 100, (32, 1, 3, 3)), (8, 8), depthwise=True)
    info = compile_kept(graph, NpuConfig.preset(256))[0].layers[0]
    assert (info.mode, info.macs) == ("depthwise", 32 * 9 * 36)


# -- sums ------------------------------------------------------------------------------------------------------------

def test_sums_beyond_the_accumulator():
    weights = np.full((4, 4096, 3, 3), 127)
    message = r"layer only: channel 0 sums to .* beyond acc_width=27; build and compile with --acc-width 31"
    with pytest.raises(CompileError, match=message):
        compile_kept(conv_graph(weights, (3, 3)), NpuConfig.preset(256))
    compile_kept(conv_graph(weights, (3, 3)), NpuConfig.preset(256, acc_width=31))


def test_the_message_names_the_worst_channel():
    """And the width that is enough, to the bit: with the bias as with a zero that no input has."""
    weights = np.full((4, 64, 3, 3), 127)
    weights[1:] *= 2
    weights[2, 0, 0, 0] -= 1
    graph = conv_graph(weights, (3, 3))
    width = (127 * 2 * 64 * 9 * 128).bit_length() + 1
    message = rf"layer only: channel 1 sums to .*; build and compile with --acc-width {width}"
    with pytest.raises(CompileError, match=message):
        compile_kept(graph, NpuConfig.preset(256, acc_width=width - 1))
    compile_kept(graph, NpuConfig.preset(256, acc_width=width))


def test_constant_channels_need_no_range(rng):
    """Dead channels of quantised models: hardly any weights, a huge bias, a tiny scale."""
    weights = rng.integers(-3, 4, (20, 16, 1, 1))
    graph = conv_graph(weights, (5, 5))
    layer = graph.layers[0]
    bias, shift = layer.requantize.bias.copy(), layer.requantize.shift.copy()
    bias[[2, 7]], shift[[2, 7]] = (1 << 30, -(1 << 30)), 43
    graph = replace(graph, layers=(replace(layer, requantize=replace(layer.requantize, bias=bias, shift=shift)),))
    program, graph = compile_kept(graph, NpuConfig.preset(256))
    run_and_compare(program, graph, 1, ("load",))
    shift[2] = 30
    requantize = replace(layer.requantize, bias=bias // 8, shift=shift)
    graph = replace(graph, layers=(replace(layer, requantize=requantize),))
    run_and_compare(*compile_kept(graph, NpuConfig.preset(256)), 1, ("load",))


@pytest.mark.parametrize("change, message", [
    ({"multiplier": np.full(4, 1 << 17)}, r"multipliers must be in 0..131071, not 131072..131072"),
    ({"shift": np.full(4, 11)}, r"shifts must be in 12..43, not 11..11"),
])
def test_requantisation_limits(change, message):
    graph = conv_graph(np.ones((4, 4, 1, 1)), (3, 3))
    layer = graph.layers[0]
    graph = replace(graph, layers=(replace(layer, requantize=replace(layer.requantize, **change)),))
    with pytest.raises(GraphError, match=f"layer only: requantisation {message}"):
        compile_kept(graph, NpuConfig.preset(256))


@pytest.mark.parametrize("graph, message", [
    (conv_graph(np.ones((4, 4, 1, 70)), (1, 80)), "windows are at most 63x63"),
    (conv_graph(np.ones((4, 4, 1, 1)), (1, 30), stride=11), "horizontal strides are at most 7, or products of"),
    (conv_graph(np.ones((4, 4, 33, 33)), (3, 3), pad=16), "padding is at most 15 columns"),
    (conv_graph(np.ones((4, 4, 60, 60)), (60, 60)), "no tile of it fits"),
    (pool_graph(4, (257, 257), 257, False), "at most 65,536 pixels can be summed, not 257x257; average in two"),
])
def test_limits(graph, message):
    with pytest.raises(CompileError, match=f"layer only: .*{message}"):
        compile_kept(graph, NpuConfig.preset(256, input_depth=256))
