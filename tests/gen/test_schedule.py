"""Tilings: what spatial tiles read, what instructions can hold, and how busy the array is kept."""

from dataclasses import replace

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.compiler import compile_graph
from gen.ir.graph import Graph
from gen.mapping.base import MappingContext
from gen.mapping.registry import choose
from gen.onnx.importer import load
from gen.options import CompileOptions
from gen.passes.prune import prune
from gen.tiling.geometry import Geometry, tilings
from sim.cycles import estimate
from tests.gen.test_compiler import conv_graph, pool_graph


def place(column: int, stride: int, banks: int) -> int:
    """Entry of a padded column within its row (docs/architecture.md, Loading)."""
    return column // (banks * stride) * stride + column % stride if banks > 1 else column


@pytest.mark.parametrize("options", [{"pixel_lanes": 1}, {}, {"depthwise": 1}], ids=["1 bank", "2 banks", "4 banks"])
def test_windows_hold_what_is_read(options, rng):
    """Every output's input lies inside its block, that of the outputs read beside the last one too."""
    config = NpuConfig.preset(256, **options)
    banks = config.banks
    for _ in range(300):
        size = rng.integers(1, 30, 2)
        kernel = rng.integers(1, 6, 2)
        stride = rng.integers(1, 4, 2)
        pads = rng.integers(0, kernel.repeat(2).reshape(2, 2).T.reshape(-1)) // 2 * (rng.random() < 0.5)
        out = [(s + pads[a] + pads[a + 2] - kernel[a]) // stride[a] + 1 for a, s in enumerate(size)]
        if min(out) < 1:
            continue
        y, x = rng.integers(0, out)
        rows, cols = rng.integers(1, [out[0] - y + 1, out[1] - x + 1])
        skip = int(stride[0]) if kernel[0] == 1 and not pads[[0, 2]].any() else 1
        geometry = Geometry(tuple(kernel), tuple(stride), tuple(pads), tuple(size), tuple(out), skip)
        spatial = geometry.spatial_tile(y, rows, x, cols, config)
        # The input's own coordinates.
        if skip == 1:
            assert spatial.row - spatial.pad_top == y * stride[0] - pads[0] or not spatial.data_rows
            assert spatial.input_rows == (rows - 1) * stride[0] + kernel[0]
            assert spatial.row + spatial.data_rows <= size[0]
        else:
            assert (spatial.row, spatial.data_rows) == (y * skip, rows)
        if spatial.data_cols:
            assert spatial.col - spatial.pad_left == x * stride[1] - pads[1]
        assert spatial.pad_left + spatial.data_cols + spatial.pad_right == (cols - 1) * stride[1] + kernel[1]
        # The buffer's.
        columns = -(-cols // banks) * banks
        read = {int(c * stride[1] + kx) for c in range(columns) for kx in range(kernel[1])}
        written = range(spatial.pad_left + spatial.data_cols + spatial.pad_right)
        last = max(place(column, int(stride[1]), banks) for column in read.union(written))
        assert last < spatial.row_pitch <= last + stride[1]
        lowest_row = (rows - 1) * geometry.buffer_row_step(spatial) + (kernel[0] - 1) * spatial.row_pitch
        assert lowest_row + last < spatial.entries


def test_tilings_cover_the_output_once(rng):
    config = NpuConfig.preset(256)
    for _ in range(20):
        height, width = (int(size) for size in rng.integers(1, 60, 2))
        geometry = Geometry((3, 3), (1, 1), (1, 1, 1, 1), (height, width), (height, width))
        for rows, cols in tilings(geometry, config):
            covered = np.zeros((height, width), int)
            for y, h in rows:
                for x, w in cols:
                    covered[y:y + h, x:x + w] += 1
            assert (covered == 1).all()
            assert all(start % 2 == 0 for start, _ in cols)


def test_long_rows_are_flattened():
    graph = conv_graph(np.ones((16, 16, 1, 1)), (13, 7))
    layer = graph.layers[0]
    geometry = Geometry.of(layer, graph.tensors["x"], graph.tensors["y"])
    assert (geometry.input_size, geometry.output_size) == ((1, 91), (1, 91))


def test_a_kernel_of_one_row_skips_rows():
    graph = conv_graph(np.ones((16, 16, 1, 1)), (14, 14), stride=2)
    geometry = Geometry.of(graph.layers[0], graph.tensors["x"], graph.tensors["y"])
    assert geometry.row_skip == 2
    assert geometry.spatial_tile(0, 7, 0, 7, NpuConfig.preset(256)).input_rows == 7


def test_small_memories_make_small_tiles():
    graph = conv_graph(np.ones((64, 64, 3, 3)), (56, 56), pad=1)
    for depth, acc in ((4096, 256), (256, 64)):
        config = NpuConfig.preset(256, input_depth=depth, acc_depth=acc)
        plan = choose(MappingContext(graph, config, CompileOptions()).context(graph.layers[0])).plan
        assert all(w.rows * -(-w.cols // 2) <= acc and w.entries * plan.chunk <= depth for w in plan.spatial_tiles)
    pool = pool_graph(64, (50, 50), 3, True)
    plan = choose(MappingContext(pool, config, CompileOptions()).context(pool.layers[0])).plan
    assert all(spatial.entries * plan.chunk <= 256 for spatial in plan.spatial_tiles)


# -- time ------------------------------------------------------------------------------------------------------------

def pruned_graph(graph: Graph, density: float) -> Graph:
    """A layer that reads the model's input, pruned all the same."""
    entrance = {name: ("elsewhere", steps) for name, (_, steps) in graph.inputs.items()}
    return replace(prune(replace(graph, inputs=entrance), NpuConfig.preset(256), density), inputs=graph.inputs)


@pytest.mark.parametrize("shape, size, density, least", [
    ((64, 64, 3, 3), 28, None, 0.97),
    ((64, 64, 3, 3), 28, 0.25, 0.95),
    ((256, 256, 1, 1), 14, None, 0.97),
    ((128, 128, 3, 3), 56, 0.25, 0.98),
    ((512, 512, 1, 1), 7, None, 0.95),
])
def test_the_array_is_kept_busy(shape, size, density, least, rng):
    """From START to DONE of a single layer, everything included, at 40 cycles of memory latency."""
    config = NpuConfig.preset(256)
    graph = conv_graph(rng.integers(1, 40, shape), (size, size), pad=shape[2] // 2)
    program, _ = compile_graph(pruned_graph(graph, density) if density else graph, config)
    useful = sum(layer.useful_macs for layer in program.layers)
    assert useful / config.macs / estimate(config, program.code).cycles >= least


def test_layers_follow_without_a_gap(models):
    """Whole network: 70,272 cycles are the array's own work (16 of 32 output lanes in the first layers)."""
    config = NpuConfig.preset(256)
    program, _ = compile_graph(load(models / "mlperf_resnet8_int8.onnx"), config)
    assert estimate(config, program.code).cycles < 73_000
