"""Horizontal strides that instructions cannot name: columns become channels, and no value changes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.compiler import prepare
from gen.ir import reference
from gen.ir.errors import UnfitError
from gen.ir.graph import Conv, Graph
from gen.ir.verify import verify
from gen.mapping.strides import split_strides
from gen.options import CompileOptions
from gen.run.application import open_application
from sim.stochastic.streams import Streams
from tests.compiled import compile_kept
from tests.gen.float_models import FloatBuilder
from tests.gen.test_compiler import conv_graph, run_and_compare
from tests.gen.test_never_refused import CONFIG, compiled, host

Rng = np.random.Generator
CONFIGS = (NpuConfig.preset(16), NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=1, gather=1))


def inside(graph: Graph) -> Graph:
    """The model reads its input elsewhere, too, so that nothing can be gathered."""
    return replace(graph, outputs={**graph.outputs, "x": ("x", ())})


#: (outputs, channels, kernel), rows and columns, stride, padding.
PATCHES = [
    ((5, 3, 16, 16), (32, 48), 16, 0), ((5, 3, 14, 14), (28, 42), 14, 0), ((6, 3, 16, 16), (40, 48), 8, 0),
    ((4, 20, 3, 3), (20, 41), 8, 1), ((4, 2, 9, 17), (17, 40), 9, 4), ((4, 3, 1, 1), (9, 50), 12, 0),
    ((3, 1, 2, 70), (2, 200), 64, 3), ((4, 2, 1, 5), (3, 130), 60, 2), ((3, 2, 2, 9), (3, 21), 10, 3),
]


@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("shape, size, stride, pad", PATCHES, ids=str)
def test_results_stay_the_same(shape: tuple[int, ...], size: tuple[int, int], stride: int, pad: int, depthwise: bool,
                               rng: Rng) -> None:
    shape = (shape[1], 1, *shape[2:]) if depthwise and shape[1] > 1 else shape
    graph = inside(conv_graph(rng.integers(-128, 128, shape), size, stride=stride, pad=pad, depthwise=shape[1] == 1))
    for config in CONFIGS:
        changed = split_strides(graph, config)
        verify(changed)
        assert len(changed.layers) > 1 and all(layer.stride[1] <= 7 for layer in changed.layers)
        inputs = {"x": rng.integers(-128, 128, (2, *graph.tensors["x"].shape)).astype(np.int8)}
        (wanted, _), (made, _) = reference.run(graph, inputs), reference.run(changed, inputs)
        np.testing.assert_array_equal(made["y"], wanted["y"])
        program, changed = compile_kept(graph, config)
        run_and_compare(program, changed, 1, ("load", "store"))


def test_what_stays(rng: Rng) -> None:
    """Short strides, those of a single output, of primes, of what a machine gathers."""
    for shape, size, stride in (((4, 3, 3, 3), (9, 30), 7), ((4, 3, 3, 20), (9, 20), 20), ((4, 3, 3, 3), (9, 60), 11),
                                ((4, 3, 3, 3), (9, 100), 22)):
        graph = inside(conv_graph(rng.integers(-128, 128, shape), size, stride=stride))
        assert split_strides(graph, CONFIGS[0]) is graph
    graph = conv_graph(rng.integers(-128, 128, (4, 3, 16, 16)), (32, 48), stride=16)
    assert split_strides(graph, CONFIGS[1]) is graph
    program, graph = compile_kept(graph, CONFIGS[1])
    assert [layer.mode for layer in program.layers] == ["gathered"]
    with pytest.raises(UnfitError, match="horizontal strides are at most 7, or products of such, not 11"):
        compile_kept(inside(conv_graph(np.ones((4, 3, 3, 3)), (9, 60), stride=11)), CONFIGS[0])


def test_no_streams_where_values_only_move(rng: Rng) -> None:
    """All layers that can be are in streams: the copy of columns stays exact."""
    graph = conv_graph(rng.integers(-9, 10, (8, 8, 1, 1)), (9, 50))
    (layer,) = graph.layers
    tensors = {name: replace(tensor, zero_point=0) for name, tensor in graph.tensors.items()}
    ones = np.ones(8, np.int64)
    stage = replace(layer.requantize, zero_point=0)
    assert isinstance(layer, Conv)
    weights = rng.integers(-128, 128, (8, 8, 8, 8)).astype(np.int16)
    last = Conv("last", "y", "z", weights=weights, stride=(8, 8), requantize=replace(stage, multiplier=ones * 70000))
    tensors["z"] = replace(tensors["y"], name="z", shape=(8, 1, 6))
    graph = replace(graph, tensors=tensors, layers=(replace(layer, requantize=stage), last), outputs={"z": ("z", ())})
    config = NpuConfig.preset(16, stochastic_rows=2, stochastic_bits=4)
    found = prepare(graph, config, CompileOptions(stochastic=Streams(64)))
    assert [isinstance(layer, Conv) and layer.stochastic is not None for layer in found.layers] == [False, False, True]


@pytest.mark.parametrize("kernel, stride", [(14, 14), (16, 8), (16, 16)])
def test_patch_embeddings(kernel: int, stride: int, rng: Rng, tmp_path: Path) -> None:
    """Of an image, and of what a layer makes, on a machine that gathers nothing."""
    b = FloatBuilder(rng, ["n", 3, 2 * kernel, 3 * kernel])
    stem = b.node("Relu", b.same_conv("x", 3, 8))
    tokens = [b.conv(x, channels, 12, kernel=kernel, strides=[stride] * 2) for x, channels in (("x", 3), (stem, 8))]
    y = b.node("Add", *tokens)
    y = b.node("Transpose", b.node("Reshape", y, b.constant(np.array([0, 12, -1]))), perm=[0, 2, 1])
    found = compiled(b.model(b.node("MatMul", y, b.weights(12, 4))), tmp_path, config=CONFIG, near=0.03)
    assert not host(found)
    found.save(tmp_path / "model.npu")
    assert len(open_application(tmp_path / "model.npu", None).workloads) == 1
