"""The bench's MLP as an ONNX model: the compiler's graph computes the same integers."""

from pathlib import Path

import numpy as np

from gen.bench.stochastic_model import onnx_model
from gen.bench.stochastic_network import Layer, exact, scores
from gen.ir import reference
from gen.onnx.importer import load_model


def test_integers_are_the_networks(rng):
    widths = (20, 11, 5)
    layers = [Layer(rng.integers(-127, 128, (outputs, inputs), dtype=np.int8), rng.integers(-999, 999, outputs),
                    float(rng.uniform(0.002, 0.006))) for inputs, outputs in zip(widths, widths[1:], strict=False)]
    images = rng.integers(0, 128, (30, 20)).astype(np.int8)
    sums = scores(layers, images, exact)
    step = float(np.abs(sums).max() / 127)
    graph = load_model(Path("mlp.onnx"), onnx_model(layers, step)).graph
    assert all(tensor.zero_point == 0 for tensor in graph.tensors.values())
    outputs, _ = reference.run(graph, {"x": images.astype(np.float32) / 127})
    found = np.rint(outputs["scores"] * 127)
    assert np.abs(found - sums / step).max() <= 0.5 + 1e-3
