"""The compiler's use of the binary unit: every tensor is the golden one, on all kinds of machines."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cores.arch.isa import EntryForm, Opcode
from cores.config import NpuConfig
from gen.bench.binary import BinaryLayer, bireal_graph, layer_graph
from gen.ir.epilogue.add import Add
from gen.ir.errors import GraphError
from gen.ir.graph import Conv, Graph
from gen.ir.layers.conv import is_binary
from gen.ir.reference import host_output
from gen.ir.reference import run as run_reference
from gen.ir.tensor import Requantize, Tensor
from gen.ir.verify import verify
from gen.mapping.base import MappingContext
from gen.mapping.binary import BinaryLayers
from gen.onnx.importer import load
from gen.options import CompileOptions
from gen.program.file import load_program, save_program
from gen.program.program import ProgramError
from sim import functional, golden
from tests.compiled import compile_kept
from tests.gen.qdq import Builder
from tests.gen.test_compiler import run_and_compare
from tests.random_binary import random_binary_graph

#: Units of as many rows as a step has beats, of one row and fully populated; one and two pixels; all sizes of a block.
CONFIGS = (
    NpuConfig.preset(16, binary_rows=1, gather=1),
    NpuConfig.preset(64, binary_rows=16, gather=1),
    NpuConfig.preset(256, binary_rows=8, gather=1, depthwise=1),
    NpuConfig(oc_lanes=32, ic_lanes=32, nnz_lanes=2, pixel_lanes=1, binary_rows=2, gather=1, input_depth=512,
              acc_depth=64),
)
IDS = [f"{c.macs}-{c.ic_lanes}-{c.binary_rows}" for c in CONFIGS]


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS, ids=IDS)
def test_random_graphs(config: NpuConfig, seed: int) -> None:
    found = set()
    for number in range(15):
        graph = random_binary_graph(seed + number)
        program, _ = compile_kept(graph, config)
        run_and_compare(program, graph, seed, ("load", "compute", "store", number))
        found |= {layer.mode for layer in program.layers} | {place.signs for place in program.tensors.values()}
    assert {"binary", True, False} <= found


def test_plain_machine(seed: int) -> None:
    """Without the unit the same graphs run in int8."""
    for number in range(5):
        graph = random_binary_graph(seed + number)
        program, _ = compile_kept(graph, NpuConfig.preset(64))
        run_and_compare(program, graph, seed, ("load", number))
        assert not any(place.signs for place in program.tensors.values())


@pytest.mark.parametrize("channels, padding", [
    (64, 0), (40, 0), (128, 0), (128, 1), (48, -1), (33, 1), (200, 0), (129, None)])
@pytest.mark.parametrize("unit_rows", [2, 16])
def test_sums(channels: int, padding: int | None, unit_rows: int, rng: np.random.Generator) -> None:
    """Bits without a channel and padding cancel: what the unit requantises is what the layer does; where it is slower
    than loads, from pairs of pixels.
    """
    config, pads = replace(CONFIGS[1], binary_rows=unit_rows), (0 if padding is None else 1,) * 4
    weights = rng.choice(np.array([-1, 1], np.int16), (19, channels, 3, 3))
    sizes = 1 << rng.integers(0, 7, (19, 1, 1, 1))
    weights = (weights * sizes).astype(np.int16)
    bias, multiplier = rng.integers(-100, 100, 19) * sizes.ravel() // 2, rng.integers(1, 1 << 17, 19)
    shift = rng.integers(13, 20, 19) + np.log2(sizes.ravel()).astype(np.int64)
    stage = Requantize(bias, multiplier, shift, -3, -100, 110)
    graph = layer_graph(BinaryLayer(channels=channels, outputs=19, size=6, stride=1, count=1))
    signs, conv = graph.layers
    assert isinstance(conv, Conv) and is_binary(conv, graph.tensors[conv.input])
    size = 6 if padding is not None else 4
    tensors = {**graph.tensors, "y": Tensor("y", (19, size, size), 1.0, 0)}
    layer = Conv("y", conv.input, "y", weights=weights, pads=pads, requantize=stage, pad_value=padding)
    graph = Graph("sums", tensors, (signs, layer), {"input": ("input", ())}, {"output": ("y", ())})
    verify(graph)
    chosen = BinaryLayers.of(MappingContext(graph, config, CompileOptions()))
    unit = chosen.mapped["y"]
    source = unit.signs
    assert unit.input == "input" and not source.packed and chosen.spared == {signs.output}
    x = rng.integers(-128, 128, (channels, 6, 6)).astype(np.int8)
    expected = golden.run_layer(layer, golden.run_layer(signs, x), zero_point=0)
    # A slow unit: bits of the entries as they are loaded, unused ones zero.
    bits = np.zeros((-(-channels // 128) * 128, 6 + 2 * pads[0], 6 + 2 * pads[0]), np.int64)
    blocks = -(-channels // 16) * 16
    flags = np.pad(np.zeros((6, 6), bool), pads[0], constant_values=padding == 0)
    inside = np.pad(np.pad(x, ((0, blocks - channels), (0, 0), (0, 0))) >= 0, ((0, 0), (pads[0],) * 2, (pads[0],) * 2),
                    constant_values=(padding or 0) >= 0)
    bits[:blocks] = inside

    def entries(block: int, tap: int) -> tuple[np.ndarray, np.ndarray]:
        """What a step reads for all output pixels: bits (size, size, 128), flags (size, size, 2)."""
        def under(values: np.ndarray, ky: int, kx: int) -> np.ndarray:
            return np.moveaxis(values[..., ky:ky + size, kx:kx + size], (-2, -1), (0, 1))
        if not source.columns:
            ky, kx = divmod(tap, 3)
            return under(bits[128 * block:][:128], ky, kx), under(np.stack([flags] * 2), ky, kx)
        left = 2 * block
        if not source.is_pair(block):
            return under(bits, tap, left), under(np.stack([flags] * 2), tap, left)
        # Two pixels, whose int8 blocks take turns.
        pixels = [under(bits[:64], tap, kx).reshape(size, size, 4, 16) for kx in (left, left + 1)]
        return (np.stack(pixels, axis=-2).reshape(size, size, 128),
                np.stack([under(flags, tap, kx) for kx in (left, left + 1)], axis=-1))

    assert bool(source.columns) == (channels <= 64 and unit_rows == 2)
    taps = 3 if source.columns else 9
    rows = np.unpackbits(unit.weights.data, axis=1, bitorder="little").reshape(-1, source.blocks, taps, 16, 128)
    counts = np.zeros((32, size, size), np.int64)
    for tile, of_tile in enumerate(rows):
        for block in range(source.blocks):
            for tap in range(taps):
                window, zeros = entries(block, tap)
                count = golden.binary_sums(window, of_tile[block, tap], zeros)
                counts[tile * 16:][:16] += count.transpose(2, 0, 1)
    stage = unit.requantize
    got = golden.requantize(counts[:19], stage.bias, stage.multiplier, stage.shift, -3, -100, 110)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("config", CONFIGS, ids=IDS)
def test_entries_that_are_not_full(config: NpuConfig, stride: int, rng: np.random.Generator) -> None:
    """Bytes without a block of channels are zero in all banks, whatever was in the buffer before."""
    channels, cols = 2 * config.ic_lanes, 9
    graph = layer_graph(BinaryLayer(channels=channels, outputs=16, size=cols, stride=1, count=1))
    signs, conv = graph.layers
    assert isinstance(conv, Conv)
    rows, width = (cols - 3) // stride + 1, (cols - 5) // stride + 1
    weights = rng.choice(np.array([-1, 1], np.int16), (16, channels, 3, 5))
    stage = Requantize(np.zeros(16, np.int64), np.full(16, 1 << 14), np.full(16, 16), 0, -128, 127)
    layer = Conv("y", conv.input, "y", weights=weights, stride=(stride, stride), requantize=stage)
    tensors = {**graph.tensors, "y": Tensor("y", (16, rows, width), 1.0, 0)}
    graph = Graph("part", tensors, (signs, layer), {"input": ("input", ())}, {"output": ("y", ())})
    program, _ = compile_kept(graph, config)
    assert [layer.mode for layer in program.layers] == ["binary"]
    run_and_compare(program, graph, 1, ("load",))


def test_what_the_unit_cannot_run() -> None:
    """Weights of no power of two, or an odd number of channels among zeros, stay in int8; any bias does not."""
    graph = layer_graph(BinaryLayer(channels=128, outputs=16, size=6, stride=1, count=1))
    signs, conv = graph.layers
    assert isinstance(conv, Conv)
    odd = replace(conv, requantize=replace(conv.requantize, bias=conv.requantize.bias + 1))
    for layer, modes in ((conv, ["binary"]), (odd, ["binary"]),
                         (replace(conv, weights=conv.weights * np.int16(64)), ["binary"]),
                         (replace(conv, weights=conv.weights * np.int16(3)), ["sum", "dense"]),
                         (replace(conv, weights=conv.weights * np.int16(128)), ["sum", "dense"])):
        changed = replace(graph, layers=(signs, layer))
        program, _ = compile_kept(changed, CONFIGS[1])
        assert [layer.mode for layer in program.layers] == modes
        run_and_compare(program, changed, 1, ("load",))
    few = layer_graph(BinaryLayer(channels=129, outputs=16, size=6, stride=1, count=1))
    assert not BinaryLayers.of(MappingContext(few, CONFIGS[1], CompileOptions())).mapped


@pytest.mark.parametrize("channels, spared", [((32, 16), True), ((32, 24), False)])
def test_signs_of_a_tensor_of_parts(channels: tuple[int, int], spared: bool, rng: np.random.Generator, seed: int,
                                    tmp_path: Path) -> None:
    """Of whole blocks they are taken from there; what is beyond the last channel of another is not known."""
    b = Builder(rng)
    x = b.dequantize(b.input(1, 3, 6, 6), 0.05)
    parts = [b.requantize(b.node("Conv", x, b.weights(count, 3, 1, 1)), 0.05, 0) for count in channels]
    whole = b.requantize(b.node("Concat", *parts, axis=1), 0.05, 0)
    weights = b.constant(rng.choice(np.float32([-1, 1]), (16, sum(channels), 3, 3)))
    b.output(b.quantize(b.node("Conv", b.node("Sign", whole), weights), 0.5, 0))
    graph = load(b.save(tmp_path))
    program, _ = compile_kept(graph, CONFIGS[1])
    modes = [layer.mode for layer in program.layers]
    assert modes[-1] == "binary" and (modes[-2] != "sum") == spared
    run_and_compare(program, graph, seed, ("load", "compute", "store"))


def test_signs_are_proven() -> None:
    graph = layer_graph(BinaryLayer(channels=32, outputs=16, size=6, stride=1, count=1))
    signs, conv = graph.layers
    broken = replace(graph, layers=(replace(signs, requantize=replace(signs.requantize, zero_point=0)), conv))
    with pytest.raises(GraphError, match="not limited to -1 and \\+1"):
        verify(broken)


def test_maps_of_signs_are_the_machines() -> None:
    place = compile_kept(bireal_graph(size=32), CONFIGS[1])[0]
    assert not any(tensor.signs for tensor in place.tensors.values())   # shortcuts are int8
    for number in range(50):
        graph = random_binary_graph(number)
        program, _ = compile_kept(graph, CONFIGS[1])
        name = next((name for name, tensor in program.tensors.items() if tensor.signs), None)
        if name is not None:
            break
    assert name is not None
    with pytest.raises(ProgramError, match="only the machine writes"):
        program.pack_input(program.image(), name, np.ones(program.tensors[name].shape, np.int8))


@pytest.mark.slow
def test_network_of_blocks(seed: int) -> None:
    """BiRealNet-18 on a small image: all 3x3 layers on the unit, from int8 to int8."""
    graph = bireal_graph(size=64, seed=seed)
    program, _ = compile_kept(graph, CONFIGS[2])
    assert [layer.mode for layer in program.layers].count("binary") == 16
    run_and_compare(program, graph, seed, ("load",))


@pytest.mark.slow
@pytest.mark.parametrize("config", [CONFIGS[1], CONFIGS[2], NpuConfig.preset(64)], ids=["64", "256", "64 without"])
def test_trained_network(config: NpuConfig, models, tmp_path) -> None:
    """The trained CNV network, simulated: every logit is onnxruntime's, every tensor the reference's."""
    golden_file = np.load(models / "cnvW1A1_cifar10.golden.npz")
    graph = load(models / "cnvW1A1_cifar10.onnx")
    program, _ = compile_kept(graph, config)
    modes = [layer.mode for layer in program.layers]
    assert modes.count("binary") == (8 if config.binary_rows else 0)
    save_program(program, tmp_path / "cnv.npu")
    program = load_program(tmp_path / "cnv.npu")
    tensor = program.outputs["logits"]
    for sample in range(2):
        image = program.image()
        program.pack_input(image, "image", golden_file["image"][sample])
        functional.run(config, program.code, image, write_start=program.write_start, strict=True)
        _, expected = run_reference(graph, {"image": golden_file["image"][sample:sample + 1]}, keep=True)
        assert expected is not None
        for name in program.tensors:
            np.testing.assert_array_equal(program.unpack_tensor(image, name), expected[name][0], name)
        logits = host_output(graph, "logits", program.unpack_tensor(image, tensor)[None])
        np.testing.assert_array_equal(logits[0], golden_file["ort"][sample])


def test_input_with_two_readers() -> None:
    """A model input whose signs a binary layer takes is laid out as it expects, whatever else reads it."""
    graph = layer_graph(BinaryLayer(channels=24, outputs=16, size=6, stride=1, count=1))
    signs, conv = graph.layers
    assert isinstance(conv, Conv)
    other = replace(conv, name="int8", input="input", output="beside", weights=2 * conv.weights, epilogue=())
    tensors = {**graph.tensors, "beside": replace(graph.tensors["output"], name="beside")}
    (added,) = conv.epilogue
    assert isinstance(added, Add)
    conv = replace(conv, epilogue=(replace(added, other="beside"),))
    graph = replace(graph, tensors=tensors, layers=(signs, other, conv), inputs={"input": ("input", ())})
    verify(graph)
    program, _ = compile_kept(graph, CONFIGS[1])
    assert [layer.mode for layer in program.layers][-1] == "binary"
    run_and_compare(program, graph, 1, ("load", "compute"))


def test_loads_of_signs() -> None:
    """An int8 tensor with a shortcut is loaded as signs; a chain of signs passes through packed bits."""
    layer = BinaryLayer(channels=128, outputs=128, size=8, stride=1, count=1)
    program, _ = compile_kept(layer_graph(layer), CONFIGS[1])
    loads = [i for i in program.instructions if i.opcode == Opcode.LOAD_SET]
    assert all(i["form"] == EntryForm.SIGNS and i["pad_zero"] for i in loads)
    assert not any(i.opcode == Opcode.LOAD_GATHER for i in program.instructions)
