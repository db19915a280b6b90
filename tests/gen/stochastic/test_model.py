"""Networks of `gen.stochastic` as ONNX models: the compiler's graph computes the same integers."""

from pathlib import Path

import numpy as np
import pytest

from gen.ir import reference
from gen.onnx.importer import load_model
from gen.stochastic.backbone import Backbone
from gen.stochastic.model import model_inputs, onnx_model
from gen.stochastic.network import Layer, exact, scores


@pytest.mark.parametrize("word", ["20-11-5", "8x9-c5k3-p2-c7k3s2-6-4", "6x6x3-c4k1-5"])
def test_integers_are_the_networks(word, rng):
    products = Backbone(word).layers
    layers = [Layer(product, rng.integers(-127, 128, (product.outputs, product.taps, product.input.channels), np.int8),
                    rng.integers(-999, 999, product.outputs), float(rng.uniform(0.002, 0.006))) for product in products]
    shape = products[0].input
    images = rng.integers(0, 128, (30, shape.height, shape.width, shape.channels)).astype(np.int8)
    sums = scores(layers, images, exact)
    step = float(np.abs(sums).max() / 127)
    graph = load_model(Path("net.onnx"), onnx_model(layers, step)).graph
    assert all(tensor.zero_point == 0 for tensor in graph.tensors.values())
    outputs, _ = reference.run(graph, {"x": model_inputs(images)})
    found = np.rint(outputs["scores"] * 127)
    assert np.abs(found - sums / step).max() <= 0.5 + 1e-3
    assert len(np.unique(found)) > 10
