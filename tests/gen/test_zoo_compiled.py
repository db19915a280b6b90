"""Networks of the zoo, quantised and compiled: every tensor that the program leaves is the golden one."""

from pathlib import Path

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.onnx.importer import load
from gen.zoo.network import make
from gen.zoo.registry import NETWORKS
from tests.compiled import compile_kept
from tests.gen.test_compiler import run_and_compare
from tests.gen.zoo_quantised import quantise


def test_binary_network(seed: int, rng: np.random.Generator, tmp_path: Path):
    """BiRealNet-18 from float, with its batch norms: 16 binary layers, each adds its shortcut and reads its signs."""
    graph = load(quantise(make(NETWORKS["birealnet18"], size=(32, 32), classes=10).model, tmp_path, rng))
    program, _ = compile_kept(graph, NpuConfig.preset(16, binary_rows=1, gather=1))
    assert [layer.mode for layer in program.layers].count("binary") == 16
    # The rest: the first layer and its maximum, three shortcuts of an average and a 1x1, and the scores. Averages of
    # one pixel are none.
    assert len(program.layers) == 16 + 9
    run_and_compare(program, graph, seed, ("load",))


@pytest.mark.full
@pytest.mark.parametrize("name", ["alexnet-cifar", "lenet5", "lenet5-caffe", "mobilenetv1", "mobilenetv2", "resnet18"])
def test_networks(name: str, seed: int, rng: np.random.Generator, tmp_path: Path):
    network = NETWORKS[name]
    made = make(network, size=(max(network.least, 64),) * 2 if network.size[0] == 224 else network.size, classes=10)
    graph = load(quantise(made.model, tmp_path, rng))
    program, _ = compile_kept(graph, NpuConfig.preset(64, depthwise=1))
    run_and_compare(program, graph, seed, ("load",))
