"""Forms that become layers of other shapes, against onnxruntime: dilated, transposed, padded, cropped."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.compiler import compile_graph
from gen.ir import reference
from gen.ir.graph import Conv
from gen.options import CompileOptions
from sim import functional
from tests.compiled import compile_kept
from tests.gen.qdq import Builder
from tests.gen.test_compiler import run_and_compare
from tests.gen.test_onnx_import import check

Rng = np.random.Generator

PADS = [0, 0, 1, 2, 0, 0, 2, 1]


@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("dilations", [[2, 2], [1, 3]])
def test_dilated_convolution(dilations: list[int], group: int, rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    y = b.node("Conv", b.dequantize(b.input(1, 4, 9, 10)), b.weights(4, 4 // group, 3, 3), b.bias(4), group=group,
               dilations=dilations, pads=[2, 2, 1, 1], strides=[2, 1])
    b.output(b.quantize(y))
    check(b, tmp_path)


@pytest.mark.parametrize("length, dilation, pads, taps", [
    (32, 4, [8, 0], 3), (32, 4, [4, 4], 3), (32, 4, [0, 0], 3), (30, 4, [4, 4], 3), (33, 2, [3, 1], 4),
    (96, 32, [64, 0], 3), (100, 16, [48, 0], 4), (31, 2, [0, 5], 2), (8, 4, [3, 7], 2)])
@pytest.mark.parametrize("form", ["one", "row", "column"])
@pytest.mark.parametrize("group", [1, 20])
def test_dilation_in_one_dimension(length: int, dilation: int, pads: list[int], taps: int, form: str, group: int,
                                   rng: Rng, tmp_path: Path) -> None:
    """No zeros between taps; a copy first where rows of the map would not be full, and one after it for what is left.
    A layer that follows it reads what it makes.
    """
    b = Builder(rng)
    size, kernel = {"one": ([length], [taps]), "row": ([1, length], [1, taps]),
                    "column": ([length, 1], [taps, 1])}[form]
    one = len(size) == 1
    steps = {"one": [dilation], "row": [1, dilation], "column": [dilation, 1]}[form]
    around = {"one": pads, "row": [0, pads[0], 0, pads[1]], "column": [pads[0], 0, pads[1], 0]}[form]
    x = b.dequantize(b.input(1, 20, *size), 0.05, 3)
    y = b.node("Conv", x, b.weights(20, 20 // group, *kernel), b.bias(20), dilations=steps, pads=around, group=group)
    y = b.node("Conv", b.requantize(b.node("Relu", y), 0.05, -5), b.weights(7, 20, *[1] * len(size)))
    b.output(b.quantize(y), rank=3 if one else 4)
    graph, _ = check(b, tmp_path)
    kernels = [layer.weights.shape[2:] for layer in graph.layers if isinstance(layer, Conv)]
    assert max(kernel[0] * kernel[1] for kernel in kernels) <= taps
    program, kept = compile_kept(graph, NpuConfig.preset(16))
    run_and_compare(program, kept, 1, ("load", "store"))


@pytest.mark.parametrize("size, kernel, dilations, pads", [
    ([33, 33], [3, 3], [18, 18], [18] * 4), ([5, 40], [1, 61], [1, 1], [0, 30, 0, 33]),
    ([4, 60], [1, 2], [1, 40], [0, 50, 0, 0])])
def test_more_padding_than_the_machine_has(size: list[int], kernel: list[int], dilations: list[int], pads: list[int],
                                           rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    y = b.node("Conv", b.dequantize(b.input(1, 4, *size), 0.05, 3), b.weights(4, 4, *kernel), b.bias(4),
               dilations=dilations, pads=pads)
    b.output(b.quantize(y))
    graph, _ = check(b, tmp_path)
    program, kept = compile_kept(graph, NpuConfig.preset(16))
    run_and_compare(program, kept, 1, ("load", "store"))


@pytest.mark.parametrize("dilations, taps", [([6, 12], (3, 1)), ([12, 12], (1, 1)), ([7, 3], (3, 3)), ([9, 9], (1, 1))])
def test_taps_that_see_nothing(dilations: list[int], taps: tuple[int, int], rng: Rng, tmp_path: Path) -> None:
    """As of the branches that look far in small maps: what sees but padding is left out."""
    b = Builder(rng)
    y = b.node("Conv", b.dequantize(b.input(1, 4, 8, 9), 0.05, 3), b.weights(4, 4, 3, 3), b.bias(4),
               dilations=dilations, pads=dilations * 2)
    b.output(b.quantize(y))
    graph, _ = check(b, tmp_path)
    kernel = graph.layers[0].weights
    assert tuple(np.count_nonzero(kernel.any(axis=(0, 1)), axis=axis).max() for axis in (0, 1)) == taps


@pytest.mark.parametrize("padding", [{}, dict(pads=[1, 1, 1, 1], count_include_pad=1)])
def test_dilated_average(padding: dict[str, Any], rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng, opset=19)
    y = b.node("AveragePool", b.dequantize(b.input(1, 4, 9, 10)), kernel_shape=[2, 3], dilations=[2, 2], **padding)
    b.output(b.quantize(y, 0.02))
    check(b, tmp_path)


@pytest.mark.parametrize(("kernel", "attributes"), [
    ([3, 3], dict()),
    ([3, 3], dict(strides=[2, 2])),
    ([3, 3], dict(strides=[2, 2], pads=[1, 1, 1, 1])),
    ([3, 3], dict(strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])),
    ([2, 2], dict(strides=[2, 2])),
    ([4, 4], dict(strides=[2, 2], pads=[1, 1, 1, 1])),
    ([3, 2], dict(strides=[3, 2], dilations=[2, 3])),
    ([3, 3], dict(strides=[2, 2], output_shape=[10, 14])),
    ([3, 3], dict(strides=[2, 2], auto_pad="SAME_UPPER")),
    ([3, 3], dict(strides=[2, 2], auto_pad="SAME_LOWER")),
    ([1, 1], dict(strides=[3, 3], pads=[2, 2, 2, 2])),      # the phase of every tap but one is empty
    ([5, 5], dict(pads=[4, 4, 4, 4])),
    ([3, 3], dict(strides=[2, 2], group=2)),
    ([3, 3], dict(strides=[2, 1], group=6)),
    ([3, 3], dict(pads=[1, 1, 1, 1], group=6)),
    ([3], dict(strides=[2], pads=[1, 0])),
])
def test_transposed_convolution(kernel: list[int], attributes: dict[str, Any], rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    size, group = (5, 7)[:len(kernel)], attributes.get("group", 1)
    weights = b.weights(6, 6 // group, *kernel, axis=1)
    y = b.node("ConvTranspose", b.dequantize(b.input(1, 6, *size)), weights, b.bias(6), **attributes)
    b.output(b.quantize(y), rank=2 + len(kernel))
    graph, _ = check(b, tmp_path)
    (layer,) = graph.layers
    assert isinstance(layer, Conv) and layer.depthwise == (group == 6 and "strides" not in attributes)


def test_constants_behind_a_transposed_convolution(rng: Rng, tmp_path: Path) -> None:
    """Also where the phases of the stride are cut off at the end."""
    b = Builder(rng)
    y = b.node("ConvTranspose", b.dequantize(b.input(1, 4, 5, 6)), b.weights(4, 6, 3, 3, axis=1), strides=[2, 2])
    y = b.node("BatchNormalization", y, *(b.constant(rng.uniform(0.5, 1.5, 6).astype(np.float32)) for _ in range(4)))
    b.output(b.quantize(b.node("Relu", y), zero_point=0))
    check(b, tmp_path)


def test_transposed_convolution_of_stride_1_may_be_followed(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    y = b.node("ConvTranspose", b.dequantize(b.input(1, 4, 5, 6)), b.weights(4, 6, 3, 3, axis=1))
    b.output(b.quantize(b.node("Conv", b.requantize(y), b.weights(3, 6, 3, 3))))
    check(b, tmp_path)


@pytest.mark.parametrize("number", [0.0, 0.5, -0.25])
@pytest.mark.parametrize("behind", ["MaxPool", "Conv", "padded Conv", "Relu", "quantised", "other scale", "output"])
def test_pad(behind: str, number: float, rng: Rng, tmp_path: Path) -> None:
    """With any number of the tensor: in the Conv after it, or as a copy."""
    b = Builder(rng)
    scale, point = b.scale(0.05), b.point(3)
    x = b.node("DequantizeLinear", b.input(1, 4, 6, 7), scale, point)
    # The unit that a convolution may be off would be seen in an output, which has to be equal.
    x = b.node("Relu", x) if behind == "output" else b.node("Conv", x, b.weights(4, 4, 1, 1))
    x = b.node("DequantizeLinear", b.node("QuantizeLinear", x, scale, point), scale, point)
    y = b.node("Pad", x, b.constant(PADS), b.constant(np.float32(number)))
    match behind:
        case "MaxPool":
            y = b.quantize(b.node("MaxPool", y, kernel_shape=[2, 2]))
        case "Conv" | "padded Conv":
            pads = [1, 1, 1, 1] if behind == "padded Conv" else [0, 0, 0, 0]
            y = b.quantize(b.node("Conv", y, b.weights(4, 4, 3, 3), pads=pads))
        case "Relu":
            y = b.quantize(b.node("Relu", y), zero_point=-100)
        case "quantised":
            y = b.node("QuantizeLinear", y, scale, point)
        case "other scale":
            y = b.quantize(y, 0.08)
    b.output(y, np.float32 if behind == "output" else None)
    graph, _ = check(b, tmp_path)
    own = behind in ("MaxPool", "Relu") or (behind == "padded Conv" and number)
    assert len(graph.layers) == (3 if own else 2)


def test_padding_rounds_where_it_is_quantised(rng: Rng, tmp_path: Path) -> None:
    """And saturates: 0.51 of steps of 0.05, and minus infinity in front of a maximum."""
    for number in (0.51, -np.inf, 1e9):
        b = Builder(rng)
        scale, point = b.scale(0.05), b.point(3)
        x = b.node("DequantizeLinear", b.input(1, 4, 6, 7), scale, point)
        y = b.node("Pad", x, b.constant(PADS), b.constant(np.float32(number)))
        y = b.node("DequantizeLinear", b.node("QuantizeLinear", y, scale, point), scale, point)
        b.output(b.quantize(b.node("Conv", y, b.weights(4, 4, 3, 3))))
        graph, _ = check(b, tmp_path)
        assert len(graph.layers) == 1


@pytest.mark.parametrize("pads", [[0, 0, -1, 2, 0, 0, 0, -3], [0, 0, -1, -1, 0, 0, -1, -1]])
def test_negative_padding_cuts(pads: list[int], rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    y = b.node("Pad", b.dequantize(b.input(1, 4, 6, 7), 0.05, 3), b.constant(pads))
    b.output(b.quantize(b.node("Conv", y, b.weights(4, 4, 3, 3), pads=[1, 1, 1, 1])))
    graph, _ = check(b, tmp_path)
    assert len(graph.layers) == 2


@pytest.mark.parametrize("number", [0.0, 0.5])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("pads", [(2, 0, 0, 3, 0, 0), (0, 1, 2, 9, 0, 1), (-1, 0, -1, 5, 0, 0)])
def test_padding_of_channels(pads: tuple[int, ...], last: bool, number: float, rng: Rng, tmp_path: Path) -> None:
    """As shortcuts of residual networks have it, which grow; of rows and columns, too, and with channels cut off."""
    b = Builder(rng)
    x = b.requantize(b.node("Conv", b.dequantize(b.input(1, 4, 6, 7)), b.weights(5, 4, 1, 1)), 0.05, 3)
    begin, end = pads[:3], pads[3:]
    widths = [0, *begin[1:], begin[0], 0, *end[1:], end[0]] if last else [0, *begin, 0, *end]
    y = b.node("Transpose", x, perm=[0, 2, 3, 1]) if last else x
    y = b.node("Pad", y, b.constant(widths), b.constant(np.float32(number)))
    y = b.node("Transpose", y, perm=[0, 3, 1, 2]) if last else y
    y = b.requantize(y, 0.05, 3)
    channels = 5 + pads[0] + pads[3]
    if any((*begin[1:], *end[1:])):
        b.output(b.quantize(b.node("Conv", y, b.weights(4, channels, 3, 3))))
    else:
        other = b.requantize(b.node("Conv", x, b.weights(channels, 5, 1, 1)))
        b.output(b.quantize(b.node("Relu", b.node("Add", y, other))))
    graph, _ = check(b, tmp_path)
    assert channels in {graph.tensors[layer.output].shape[0] for layer in graph.layers}


@pytest.mark.parametrize("last", [False, True])
def test_padding_of_the_channels_of_tokens(last: bool, rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    x = b.requantize(b.node("Conv", b.dequantize(b.input(1, 4, 9)), b.weights(6, 4, 1)), 0.05, 3)
    y = b.node("Transpose", x, perm=[0, 2, 1]) if last else x
    y = b.node("Pad", y, b.constant([0, 0, 1, 0, 0, 2] if last else [0, 1, 0, 0, 2, 0]))
    y = b.node("Transpose", y, perm=[0, 2, 1]) if last else y
    b.output(b.quantize(b.node("Conv", b.requantize(y, 0.05, 3), b.weights(4, 9, 3))))
    check(b, tmp_path)


@pytest.mark.parametrize("shape, pads", [
    ((28, 28), (2, 2, 2, 2)), ((6, 7), (0, 2, 0, 1)), ((6, 7), (2, 0, 1, 0)), ((20,), (2, 3))])
def test_padding_of_one_channel(shape: tuple[int, ...], pads: tuple[int, ...], rng: Rng, tmp_path: Path) -> None:
    """As of digits: it is first, though all pixels' last axis is of the same one."""
    b, rank = Builder(rng), len(shape)
    y = b.node("Pad", b.dequantize(b.input(1, 1, *shape), 0.05, 3),
               b.constant([0, 0, *pads[:rank], 0, 0, *pads[rank:]]))
    b.output(b.quantize(b.node("Conv", y, b.weights(4, 1, *[3] * rank))), rank=rank + 2)
    graph, _ = check(b, tmp_path)
    assert len(graph.layers) == 1


def _cut(b: Builder, x: str) -> str:
    """Every second row, and all columns but the first and the last one."""
    starts, ends, axes, steps = ([1, 1], [8, 9], [2, 3], [2, 1])
    return b.node("Slice", x, *map(b.constant, (starts, ends, axes, steps)))


def _cropped(b: Builder) -> None:
    y = b.requantize(b.node("Conv", b.dequantize(b.input(1, 4, 9, 10)), b.weights(4, 4, 1, 1)))
    b.output(b.quantize(b.node("Conv", _cut(b, y), b.weights(4, 4, 3, 3))))


def test_rows_and_columns_in_the_middle(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    _cropped(b)
    graph, _ = check(b, tmp_path)
    assert [graph.tensors[layer.output].shape for layer in graph.layers] == [(4, 9, 10), (4, 4, 8), (4, 2, 6)]


def _padded(b: Builder) -> None:
    y = b.node("Pad", b.dequantize(b.input(1, 4, 6, 7), 0.05, 3), b.constant(PADS), b.constant(np.float32(0.5)))
    b.output(b.quantize(b.node("MaxPool", y, kernel_shape=[2, 2])))


def _transposed(b: Builder) -> None:
    y = b.node("ConvTranspose", b.dequantize(b.input(1, 6, 5, 7)), b.weights(6, 6, 3, 3, axis=1), strides=[2, 2])
    b.output(b.quantize(y))


def _dilated(b: Builder) -> None:
    y = b.node("Conv", b.dequantize(b.input(1, 4, 9, 10)), b.weights(4, 4, 3, 3), dilations=[2, 3], pads=[2, 3, 2, 3])
    b.output(b.quantize(y))


@pytest.mark.parametrize("make", [_cropped, _padded, _transposed, _dilated])
def test_programs(make: Any, rng: Rng, tmp_path: Path) -> None:
    """What the layers compute on the machine is what the reference says."""
    b = Builder(rng)
    make(b)
    graph, _ = check(b, tmp_path)
    config = NpuConfig.preset(16)
    program, graph = compile_graph(graph, config, CompileOptions(keep_all=True))
    _, kept = reference.run(graph, b.samples(1), keep=True)
    assert kept is not None
    image = program.image()
    for tensor in program.inputs.values():
        program.pack_input(image, tensor, kept[tensor][0])
    functional.run(config, program.code, image, write_start=program.write_start)
    for layer in graph.layers:
        assert np.array_equal(program.unpack_tensor(image, layer.output), kept[layer.output][0]), layer.name
