"""Matrix products over more pixels than a window can have."""

from dataclasses import replace

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.ir.errors import CompileError
from gen.ir.graph import Conv, Graph
from gen.ir.tensor import Requantize
from gen.mapping import matrix
from tests.compiled import compile_kept
from tests.gen.test_compiler import CONFIGS, conv_graph, run_and_compare


def copied(graph: Graph) -> Graph:
    """With a layer in front that makes what the only one reads: its loads have to wait for that."""
    (layer,), source = graph.layers, graph.tensors["x"]
    channels, ones = source.shape[0], np.ones(source.shape[0], np.int64)
    first = Conv("first", "in", "x", weights=2 * np.eye(channels, dtype=np.int16)[:, :, None, None],
                 requantize=Requantize(-6 * ones, 65536 * ones, 17 * ones, 3, -128, 127))
    tensors = {**graph.tensors, "in": replace(source, name="in")}
    return replace(graph, tensors=tensors, layers=(first, layer), inputs={"in": ("in", ())})


@pytest.mark.parametrize("config", [CONFIGS[1], CONFIGS[4], CONFIGS[5]], ids=("16", "small", "one pixel"))
@pytest.mark.parametrize("shape", [(5, 1, 1, 64), (3, 20, 1, 67), (40, 3, 70, 2)], ids=str)
def test_every_pixel_is_a_channel(shape: tuple[int, ...], config: NpuConfig, rng: np.random.Generator) -> None:
    weights = rng.integers(-128, 256, shape)
    weights[rng.random(shape) < 0.4] = 0
    graph = copied(conv_graph(weights, shape[2:]))
    program, graph = compile_kept(graph, config)
    assert [layer.mode for layer in program.layers][1:] == ["matrix"]
    assert program.layers[1].macs == weights.size
    run_and_compare(program, graph, 1, ("load", "store"))


def test_weights_are_rearranged_once(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be 512 MiB."""
    made: list[int] = []
    real = matrix._as_channels

    def counted(layer: Conv, config: NpuConfig) -> Conv:
        made.append(layer.weights.size)
        return real(layer, config)

    monkeypatch.setattr(matrix, "_as_channels", counted)
    weights = rng.integers(-128, 128, (5, 3, 1, 67))
    program, _ = compile_kept(conv_graph(weights, (1, 67)), NpuConfig.preset(16))
    assert [layer.mode for layer in program.layers] == ["matrix"] and made == [weights.size]


def test_other_layers_stay_what_they_are(rng: np.random.Generator) -> None:
    for shape, size in (((4, 4, 1, 63), (1, 63)), ((4, 4, 7, 7), (7, 7))):
        program, _ = compile_kept(conv_graph(rng.integers(1, 100, shape), size), NpuConfig.preset(64))
        assert program.layers[0].mode == "dense"


def test_windows_that_leave_pixels_out() -> None:
    with pytest.raises(CompileError, match="layer only: windows are at most 63x63, not 1x70"):
        compile_kept(conv_graph(np.ones((4, 4, 1, 70)), (1, 71)), NpuConfig.preset(64))
