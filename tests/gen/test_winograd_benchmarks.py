"""The figures of Winograd: what the narrow form does to a network's values."""

import numpy as np
import pytest

from gen.bench.layers import conv_graph
from gen.bench.winograd import EXACT, NARROW, VGG16, errors
from gen.onnx.importer import load
from tests.random_layers import random_graph


def test_machines_have_as_many_multipliers():
    assert NARROW.macs == EXACT.macs == 256
    assert (NARROW.winograd, EXACT.winograd) == (1, 2)
    assert sum(len(layer.name.split(",")) for layer in VGG16) == 12
    assert all(conv_graph(layer, config=NARROW).layers[0].weights.shape[2:] == (3, 3) for layer in VGG16[-2:])


@pytest.mark.slow
def test_errors_of_a_trained_network(models):
    graph = load(models / "mlperf_resnet8_int8.onnx")
    golden = np.load(models / "mlperf_resnet8_int8.golden.npz")
    (name,) = graph.inputs
    inputs, labels = {name: golden[name]}, golden["label"]
    safe, fit = errors(graph, inputs, labels=labels), errors(graph, inputs, samples=inputs)
    assert len(safe.layers) == len(fit.layers) == 5 and safe.samples == 10
    assert safe.labels <= 1 and fit.labels <= 1 and safe.right is not None and min(safe.right) >= 9
    for layer, (alone, _) in safe.layers.items():
        assert 20 < alone < fit.layers[layer][0]
    assert [row["layer"] for row in safe.rows()] == list(safe.layers)


def test_no_errors_where_nothing_is_narrow(rng):
    graph = random_graph(1, layers=1, depthwise=1.0)
    inputs = {name: rng.integers(-128, 128, (3, *graph.tensors[tensor].shape)).astype(np.int8)
              for name, (tensor, _) in graph.inputs.items()}
    found = errors(graph, inputs)
    assert (found.layers, found.labels, found.samples, found.right) == ({}, 0, 3, None)
