"""Networks of the zoo, quantised and compiled: every tensor that the program leaves is the golden one."""

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.ir.graph import Graph
from gen.onnx.importer import load_model
from gen.quantize.quantize import quantize
from gen.zoo.builder import pictures
from gen.zoo.network import make
from gen.zoo.registry import NETWORKS
from tests.compiled import compile_kept
from tests.gen.test_compiler import run_and_compare


def quantised(name: str, size: tuple[int, int], rng: np.random.Generator) -> Graph:
    network = NETWORKS[name]
    found = quantize(make(network, size=size, classes=10).model, {"image": pictures(rng, 2, (network.channels, *size))})
    return load_model(name, found.model.SerializeToString()).graph


@pytest.mark.slow
def test_binary_network(seed: int, rng: np.random.Generator):
    """BiRealNet-18 from float, with its batch norms: 16 binary layers, each adds its shortcut and reads its signs."""
    graph = quantised("birealnet18", (32, 32), rng)
    program, _ = compile_kept(graph, NpuConfig.preset(16, binary_rows=1, gather=1))
    assert [layer.mode for layer in program.layers].count("binary") == 16
    # The rest: the first layer and its maximum, three shortcuts of an average and a 1x1, and the scores. Averages of
    # one pixel are none.
    assert len(program.layers) == 16 + 9
    run_and_compare(program, graph, seed, ("load",))


@pytest.mark.full
@pytest.mark.parametrize("name", ["alexnet-cifar", "lenet5", "lenet5-caffe", "mobilenetv1", "mobilenetv2", "resnet18",
                                  "yolov3-tiny"])
def test_networks(name: str, seed: int, rng: np.random.Generator):
    network = NETWORKS[name]
    graph = quantised(name, (max(network.least, 64),) * 2 if network.size[0] > 200 else network.size, rng)
    program, _ = compile_kept(graph, NpuConfig.preset(64, depthwise=1))
    run_and_compare(program, graph, seed, ("load",))
