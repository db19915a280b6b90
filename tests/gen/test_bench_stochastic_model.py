"""The bench's MLP as an ONNX model: the compiler's graph computes the same integers."""

from pathlib import Path

import numpy as np

from gen.bench.stochastic_model import onnx_model
from gen.ir import reference
from gen.onnx.importer import load_model
from gen.stochastic.backbone import Backbone
from gen.stochastic.network import Layer, exact, scores


def test_integers_are_the_networks(rng):
    products = Backbone("20-11-5").layers
    layers = [Layer(product, rng.integers(-127, 128, (product.outputs, 1, product.input.channels), dtype=np.int8),
                    rng.integers(-999, 999, product.outputs), float(rng.uniform(0.002, 0.006))) for product in products]
    images = rng.integers(0, 128, (30, 20)).astype(np.int8)
    sums = scores(layers, images.reshape(30, 1, 1, 20), exact)
    step = float(np.abs(sums).max() / 127)
    graph = load_model(Path("mlp.onnx"), onnx_model(layers, step)).graph
    assert all(tensor.zero_point == 0 for tensor in graph.tensors.values())
    outputs, _ = reference.run(graph, {"x": images.astype(np.float32) / 127})
    found = np.rint(outputs["scores"] * 127)
    assert np.abs(found - sums / step).max() <= 0.5 + 1e-3
