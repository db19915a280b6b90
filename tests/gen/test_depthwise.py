"""Depthwise layers in windows and narrow layers: geometry, weights, programs on the functional simulator, cycles."""

from dataclasses import replace

import numpy as np
import pytest

from cores.arch.isa import Opcode, StepKind, WordForm
from cores.config import NpuConfig
from gen.ir.errors import LayerError
from gen.ir.graph import Conv, Graph
from gen.mapping.pack import pack, slices_of
from gen.mapping.plain import PlainMapping
from gen.mapping.windows import WindowGeometry, WindowWeights
from gen.onnx.importer import load
from gen.program.program import Program
from gen.tiling.geometry import Geometry
from gen.tiling.weights import PackedWeights
from sim.cycles import estimate
from tests.compiled import compile_kept
from tests.gen.test_compiler import conv_graph, run_and_compare
from tests.gen.test_pack import conv
from tests.random_layers import random_graph
from tests.selection import pairwise

#: Output lanes with taps of their own channel: one group of them, two, and a choice of channels beside.
OWN = [
    *(NpuConfig.preset(macs, "dense", depthwise=1) for macs in (64, 512, 1024, 4096)),
    NpuConfig.preset(512, depthwise=1),
    NpuConfig.preset(512, "dense", depthwise=1, input_depth=256, acc_depth=64, weight_depth=512, queue_depth=4),
]
CONFIGS = [
    *(NpuConfig.preset(macs, depthwise=1) for macs in (32, 64, 128, 256)),
    NpuConfig.preset(256, depthwise=1, input_depth=256, acc_depth=64, weight_depth=512, queue_depth=4),
]
#: (config, stride): one group of output lanes cannot alternate. The last two are of one of small memories.
FORMS = [(config, stride) for config in CONFIGS for stride in (1, 2)[:config.oc_groups]]
OWN_FORMS = [(config, stride) for config in OWN for stride in (1, 2, 3)]
ORDERS = ("load", "compute", "store", 5)


def config_id(config: NpuConfig) -> str:
    purpose = "-own" if config.own_taps else ""
    return f"{config.macs}{purpose}-{config.input_depth}"


def form_id(value: NpuConfig | int) -> str:
    return config_id(value) if isinstance(value, NpuConfig) else f"stride{value}"


@pytest.fixture
def windows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile depthwise layers in windows wherever that is possible, even if they are slower."""
    plain = PlainMapping.propose

    def propose(context):
        if isinstance(context.layer, Conv) and context.layer.depthwise:
            raise LayerError(context.layer.name, "not now", code="no-tile")
        return plain(context)

    monkeypatch.setattr(PlainMapping, "propose", propose)


def depthwise_graph(channels: int, kernel: tuple[int, int], size: tuple[int, int], stride: int, pad: int,
                    rng: np.random.Generator, limit: int = 127) -> Graph:
    return conv_graph(rng.integers(-limit, limit + 1, (channels, 1, *kernel)), size, stride=stride, pad=pad,
                      depthwise=True)


def settings(program: Program, opcode: Opcode, layer: int = 0) -> list:
    return [i for i, number in zip(program.instructions, program.instruction_layers, strict=True)
            if i.opcode is opcode and number == layer]


# -- geometry --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("config", CONFIGS, ids=config_id)
def test_all_reads_lie_inside_the_block(config, rng):
    """By the loops of docs/architecture.md: reads stay in the block, and those of valid outputs find loaded columns."""
    alternating = 0
    for _ in range(200):
        stride = int(rng.integers(1, 3)) if config.oc_groups == 2 else 1
        kernel = rng.integers(1, 8, 2)
        size = kernel + rng.integers(0, 30, 2)
        top, left = rng.integers(0, 3, 2)
        out = [int((s + 2 * p - k) // stride + 1) for s, p, k in zip(size, (top, left), kernel, strict=True)]
        geometry = WindowGeometry(tuple(kernel), (stride, stride), (top, left, top, left), tuple(size), tuple(out),
                                  band_words=int(rng.integers(10, 60)))
        y, x = (int(rng.integers(0, extent)) for extent in out)
        rows, cols = int(rng.integers(1, out[0] - y + 1)), int(rng.integers(1, out[1] - x + 1))
        spatial = geometry.spatial_tile(y, rows, x, cols, config)
        fields = geometry.compute_fields(spatial, config)
        alternating += fields["words"] == WordForm.ALTERNATE
        banks, lanes = config.banks, config.nnz_lanes
        last = 0
        for ky in range(fields["kernel_h"]):
            for t in range(fields["kernel_w"]):
                lines = fields["rows"] + (fields["shift"] and ky == 0)
                last = max(last, ky * spatial.row_pitch + t * lanes // banks + (lines - 1) * fields["buf_row_step"]
                           + fields["reads"] - 1)
        assert last < spatial.entries
        # Taps of the last column: the reads of their group reach them, and they are loaded.
        for kx in range(kernel[1]):
            group, lane = divmod(kx, lanes)
            column = (cols - 1) * stride + lane
            assert column // banks < fields["reads"]
            loaded = spatial.pad_left + spatial.data_cols + spatial.pad_right
            assert group * lanes + column < loaded
        assert fields["reads"] >= -(-cols // (config.pixel_lanes if geometry.alternate else banks))
        # The last output row's last input row.
        assert (rows - 1) * stride + kernel[0] == spatial.input_rows
        assert (-(-loaded // banks)) <= spatial.row_pitch
    assert alternating or config.oc_groups == 1


@pytest.mark.parametrize("config", OWN, ids=config_id)
def test_reads_of_phases(config, rng):
    """As above, of any stride: steps go over parts of the taps, and of each part over the phases."""
    for _ in range(200):
        stride, kernel = rng.integers(1, 5, 2), rng.integers(1, 10, 2)
        size = kernel + rng.integers(0, 30, 2)
        out = [int((s - k) // step + 1) for s, k, step in zip(size, kernel, stride, strict=True)]
        geometry = WindowGeometry(tuple(kernel), tuple(stride), (0,) * 4, tuple(size), tuple(out),
                                  band_words=int(rng.integers(10, 60)), phases=int(stride[1]))
        rows, cols = (int(rng.integers(1, extent + 1)) for extent in out)
        spatial = geometry.spatial_tile(0, rows, 0, cols, config)
        fields = geometry.compute_fields(spatial, config)
        assert fields["words"] == WordForm.SPREAD and not fields["shift"] and fields["stride"] == stride[1]
        assert geometry.load_stride == stride[1]
        banks, phases, seen, needed = config.banks, int(stride[1]), set(), -(-cols // config.banks)
        line = (fields["kernel_h"] - 1) * spatial.row_pitch + (rows - 1) * fields["buf_row_step"]
        for number in range(fields["kernel_w"]):
            part, phase = divmod(number, phases)
            entry = part * config.own_taps // banks * phases + phase
            assert line + entry + (fields["reads"] - 1) * phases < spatial.entries
            for lane in range(config.own_taps):
                kx = (part * config.own_taps + lane) * phases + phase
                if kx >= kernel[1]:
                    continue
                seen.add(kx)
                for x in (0, cols - 1):
                    # Where the tap's column lies, by docs/architecture.md, and which read of the step brings it.
                    column = x * phases + kx
                    bank, place = column // phases % banks, column // (banks * phases) * phases + column % phases
                    assert (place - entry) % phases == 0 and (x + lane) % banks == bank
                    assert (place - entry) // phases == (x + lane) // banks
                    needed = max(needed, (x + lane) // banks + 1)
                    assert column < spatial.pad_left + spatial.data_cols + spatial.pad_right
        assert seen == set(range(kernel[1])) and fields["reads"] == needed


@pytest.mark.parametrize("macs, stride, fits", [(256, (1, 1), True), (256, (2, 2), True), (256, (1, 2), False),
                                                (256, (3, 3), False), (128, (2, 2), False), (128, (1, 1), True)])
def test_which_layers_fit(macs, stride, fits):
    config = NpuConfig.preset(macs, depthwise=1)
    graph = conv_graph(np.ones((16, 1, 3, 3)), (9, 9), depthwise=True)
    layer, (source, target) = graph.layers[0], graph.tensors.values()
    out = tuple((9 - 3) // s + 1 for s in stride)
    layer, target = replace(layer, stride=stride), replace(target, shape=(16, *out))
    assert (WindowGeometry.fitting(layer, source, target, config) is not None) == fits
    assert WindowGeometry.fitting(layer, source, target, NpuConfig.preset(macs)) is None
    dense = NpuConfig.preset(macs, "dense", depthwise=1)
    of_any_stride = WindowGeometry.fitting(layer, source, target, dense)
    assert of_any_stride is not None and of_any_stride.phases == stride[1] and not of_any_stride.alternate


# -- weights ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("config, stride", FORMS[:-2], ids=form_id)
@pytest.mark.parametrize("kernel", [(3, 3), (1, 1), (2, 5), (5, 9)])
@pytest.mark.parametrize("limit", [127, 255])
def test_every_tap_arrives_once(config, kernel, stride, limit, rng):
    """Each group of output lanes gets every tap of its channels, in the steps that read the tap's input row."""
    weights = rng.integers(-limit, limit + 1, (37, 1, *kernel))
    if limit > 127:
        weights[16:32] //= 2                # a block without a remainder
    geometry = WindowGeometry(kernel, (stride, stride), (0,) * 4, (20, 20), (9, 9))
    packed = WindowWeights(conv(weights, depthwise=True), geometry, config).packed()
    tn, dn = config.ic_lanes, config.nnz_lanes
    assert len(packed.tiles) == -(-37 // tn)
    steps = sum(geometry.steps(config, item.rows) for tile in packed.tiles for item in tile)
    assert len(packed.data) == steps * config.weight_beats
    for block, slices in enumerate(packed.tiles):
        got = np.zeros((config.oc_lanes, kernel[0], geometry.tap_groups(config) * dn), int)
        for item in slices:
            assert (item.block, item.blocks, item.groups, item.kind) == (block, 1, 1, StepKind.WINDOW)
            beats = packed.data[item.offset:]
            for ky in item.rows:
                for t in range(geometry.tap_groups(config)):
                    step, beats = beats[:config.weight_beats], beats[config.weight_beats:]
                    values = step.reshape(config.oc_lanes, dn).view(np.int8).astype(int)
                    for lane in range(config.oc_lanes):
                        upper = geometry.alternate and lane >= tn
                        tap_row = 2 if upper and geometry.shift and ky == 0 else ky - 2 * upper
                        if 0 <= tap_row < kernel[0]:
                            got[lane, tap_row, t * dn:(t + 1) * dn] += values[lane]
                        else:
                            assert not values[lane].any()
        for lane in range(config.oc_lanes):
            channel = block * tn + lane % tn
            expected = weights[channel, 0] if channel < 37 else np.zeros(kernel, int)
            assert np.array_equal(got[lane, :, :kernel[1]], expected)
            assert not got[lane, :, kernel[1]:].any()


@pytest.mark.parametrize("config, stride", OWN_FORMS[:-3], ids=form_id)
@pytest.mark.parametrize("kernel", [(3, 3), (1, 1), (2, 5), (5, 9), (1, 14)])
@pytest.mark.parametrize("limit", [127, 255])
def test_every_tap_of_a_phase_arrives_once(config, kernel, stride, limit, rng):
    weights = rng.integers(-limit, limit + 1, (37, 1, *kernel))
    geometry = WindowGeometry(kernel, (stride, stride), (0,) * 4, (20, 40), (9, 9), phases=stride)
    packed = WindowWeights(conv(weights, depthwise=True), geometry, config).packed()
    tn, taps = config.ic_lanes, config.own_taps
    for block, slices in enumerate(packed.tiles):
        got = np.zeros((config.oc_lanes, *kernel), int)
        for item in slices:
            beats = packed.data[item.offset:]
            for ky in item.rows:
                for number in range(geometry.tap_groups(config)):
                    step, beats = beats[:config.weight_beats], beats[config.weight_beats:]
                    values = step.reshape(config.oc_lanes, config.nnz_lanes).view(np.int8).astype(int)
                    part, phase = divmod(number, stride)
                    for lane in range(config.nnz_lanes):
                        kx = (part * taps + lane) * stride + phase
                        if lane < taps and kx < kernel[1]:
                            got[:, ky, kx] += values[:, lane]
                        else:
                            assert not values[:, lane].any()
        for lane in range(config.oc_lanes):
            channel = block * tn + lane % tn
            assert np.array_equal(got[lane], weights[channel, 0] if channel < 37 else np.zeros(kernel, int))


def test_remainders_take_only_their_rows():
    config = NpuConfig.preset(256, depthwise=1)
    weights = np.ones((48, 1, 3, 3), int)
    weights[20, 0, 1, 2] = 200
    geometry = WindowGeometry((3, 3), (1, 1), (0,) * 4, (9, 9), (7, 7))
    packed = WindowWeights(conv(weights, depthwise=True), geometry, config).packed()
    assert [[item.rows for item in tile] for tile in packed.tiles] == [
        [range(3)], [range(3), range(1, 2)], [range(3)]]


def test_narrow_tiles_have_their_weights_in_all_groups(rng):
    config = NpuConfig.preset(256, depthwise=1)
    weights = rng.integers(1, 100, (40, 16, 1, 1))
    tiles = slices_of(conv(weights), config)
    packed = PackedWeights(pack(conv(weights), tiles, config), tiles)
    first, last = (packed.data[tile[0].offset:][:config.groups_dense * config.weight_beats].reshape(-1, 32, 4)
                   for tile in packed.tiles)
    assert np.array_equal(last[:, :16], last[:, 16:]) and last[:, :8].any() and not last[:, 8:16].any()
    assert not np.array_equal(first[:, :16], first[:, 16:])


# -- programs --------------------------------------------------------------------------------------------------------

@pytest.mark.slow
@pytest.mark.parametrize("config", [*CONFIGS, *OWN], ids=config_id)
def test_random_graphs(config, seed):
    modes = set()
    for number in range(8):
        graph = random_graph(seed + number, depthwise=0.7 if number % 4 else None)
        program, graph = compile_kept(graph, config, density=0.25 if number % 3 == 0 else None)
        modes |= {layer.mode for layer in program.layers}
        run_and_compare(program, graph, seed, ("load", "compute", "store", number))
    assert "window" in modes


@pytest.mark.full
@pytest.mark.parametrize("config", [*CONFIGS, *OWN], ids=config_id)
def test_many_random_graphs(config, seed):
    for number in range(200):
        program, graph = compile_kept(random_graph(seed + number, depthwise=0.7), config)
        run_and_compare(program, graph, seed, ("load", number))


#: Kernel, size, padding.
SHAPES = [
    ((3, 3), (12, 13), 1), ((3, 3), (7, 6), 1), ((3, 3), (3, 3), 0), ((1, 1), (8, 8), 0), ((2, 2), (9, 10), 0),
    ((5, 5), (11, 9), 2), ((7, 9), (12, 20), 4), ((4, 1), (9, 5), 0), ((9, 4), (9, 4), 0), ((3, 5), (40, 61), 2),
]


@pytest.mark.parametrize("config, stride, kernel, size, pad", [
    *((*form, *shape) for form in FORMS[1:] for shape in SHAPES),
    *pairwise([(config,) for config in OWN], [(1,), (2,), (3,)], SHAPES),
], ids=lambda value: config_id(value) if isinstance(value, NpuConfig) else str(value))
def test_shapes(config, stride, kernel, size, pad, rng, windows_only):
    for limit, channels in ((127, 37), (255, 16)):
        graph = depthwise_graph(channels, kernel, size, stride, pad, rng, limit)
        program, graph = compile_kept(graph, config)
        assert program.layers[0].mode == "window"
        assert all(i["kind"] == StepKind.WINDOW for i in settings(program, Opcode.COMPUTE))
        run_and_compare(program, graph, 1, ORDERS)


@pytest.mark.parametrize("config", [NpuConfig.preset(64, depthwise=1, acc_depth=64),
                                    NpuConfig.preset(64, "dense", depthwise=1, acc_depth=64)], ids=config_id)
def test_pixels_of_a_copy_are_one_long_row(config, rng, windows_only):
    """The input buffer holds more of it than an accumulator bank."""
    program, graph = compile_kept(depthwise_graph(3, (1, 1), (60, 100), 1, 0, rng), config)
    assert program.layers[0].mode == "window"
    run_and_compare(program, graph, 1, ORDERS)


def test_fields_of_a_window_layer(rng):
    config = NpuConfig.preset(256, depthwise=1)
    program, _ = compile_kept(depthwise_graph(32, (3, 3), (10, 10), 2, 1, rng), config)
    (load_set,) = settings(program, Opcode.LOAD_SET)
    (compute_set,) = settings(program, Opcode.COMPUTE_SET)
    (store_set,) = settings(program, Opcode.STORE_SET)
    assert load_set["stride"] == 1
    assert [compute_set[name] for name in ("words", "shift", "rows", "cols", "kernel_h", "kernel_w", "reads")] == [
        WordForm.ALTERNATE, 1, 3, 5, 4, 1, 3]
    assert (store_set["words"], store_set["rows"]) == (WordForm.ALTERNATE, 5)
    stores = [i for i in program.instructions if i.opcode is Opcode.STORE]
    assert [(i["blocks"], i["bank"]) for i in stores] == [(1, 0), (1, 1)]


def test_plain_depthwise_on_request(rng):
    config = NpuConfig.preset(256, depthwise=1)
    graph = depthwise_graph(32, (3, 3), (12, 12), 1, 1, rng)
    program, _ = compile_kept(graph, config, depthwise="plain")
    assert program.layers[0].mode == "depthwise"
    assert all(i["words"] == WordForm.PIXELS for i in settings(program, Opcode.COMPUTE_SET))
    assert not any(i["kind"] == StepKind.WINDOW for i in settings(program, Opcode.COMPUTE))
    run_and_compare(program, graph, 1, ORDERS)


@pytest.mark.parametrize("channels, modes", [(16, "spread"), (8, "spread"), (17, "dense"), (40, "dense")])
def test_narrow_layers(channels, modes, rng):
    """Output tiles of one channel block are spread: the only one, or the last."""
    config = NpuConfig.preset(256, depthwise=1)
    graph = conv_graph(rng.integers(1, 100, (channels, 16, 3, 3)), (13, 11), pad=1)
    program, graph = compile_kept(graph, config)
    assert program.layers[0].mode == modes
    for opcode in (Opcode.COMPUTE_SET, Opcode.STORE_SET):
        pixels, spread = WordForm.PIXELS, WordForm.SPREAD
        assert {i["words"] for i in settings(program, opcode)} == {
            8: {spread}, 16: {spread}, 17: {pixels}, 40: {pixels, spread}}[channels]
    run_and_compare(program, graph, 1, ORDERS)


def test_without_the_feature_nothing_changes():
    config = NpuConfig.preset(256)
    for number in range(5):
        graph = random_graph(number, depthwise=0.7)
        programs = [compile_kept(graph, config, depthwise=mode)[0] for mode in ("auto", "plain")]
        assert programs[0].code == programs[1].code
        for instruction in programs[0].instructions:
            assert not any(instruction.fields.get(name) for name in ("words", "reads"))
            assert instruction.fields.get("kind") != StepKind.WINDOW


# -- time ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("stride, size", [(1, 8), (1, 14), (1, 56), (2, 28), (2, 112)])
def test_windows_keep_the_bus_busy(stride, size, rng):
    """A 3x3 depthwise layer takes no longer than its data on their way in or out, give or take a little."""
    config = NpuConfig.preset(256, depthwise=1)
    channels = 256 if size < 56 else 64
    program, _ = compile_kept(depthwise_graph(channels, (3, 3), (size, size), stride, 1, rng), config)
    assert program.layers[0].mode == "window"
    blocks, out = channels // 16, -(-size // stride)
    bound = max(blocks * (out * out + 8), blocks * ((size + 2) ** 2 + 8 + 24))
    cycles = estimate(config, program.code).cycles
    # What comes before the first part of a tile is there, and after the last that is computed.
    assert cycles < 1.06 * bound + 1500


@pytest.mark.slow
@pytest.mark.parametrize("name, gain", [("mlperf_vww_mnv1_025_int8", 1.3), ("mlperf_kws_dscnn_int8", 1.2),
                                        ("mlperf_resnet8_int8", 1.35)])
def test_networks_gain(name, gain, models):
    graph = load(models / f"{name}.onnx")
    without, having = NpuConfig.preset(256), NpuConfig.preset(256, depthwise=1)
    before = estimate(without, compile_kept(graph, without)[0].code).cycles
    program, graph = compile_kept(graph, having)
    assert before > gain * estimate(having, program.code).cycles
    run_and_compare(program, graph, 1, ("load", "store"))


def test_geometry_of_a_plain_layer_is_untouched():
    """`WindowGeometry` takes what `Geometry.of` found, but loads every row."""
    graph = conv_graph(np.ones((16, 1, 1, 3)), (9, 9), depthwise=True)
    layer, (source, target) = graph.layers[0], graph.tensors.values()
    geometry = WindowGeometry.fitting(layer, source, target, NpuConfig.preset(256, depthwise=1))
    assert geometry is not None and geometry.row_skip == 1
    assert geometry.kernel == Geometry.of(layer, source, target).kernel
