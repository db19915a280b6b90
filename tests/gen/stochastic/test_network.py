"""Networks of dot products: exact sums near the float network, convolutions unfolded right, circuits' sums."""

import numpy as np
import pytest

from cores.arch.stochastic import Circuit
from gen.stochastic.backbone import Backbone
from gen.stochastic.network import _products, exact, float_scores, integers, quantised, scores, stochastic
from sim.golden import conv2d_accumulate
from sim.stochastic.circuits import sums_by_bits
from sim.stochastic.streams import Streams


def float_network(rng: np.random.Generator, backbone: Backbone) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(rng.normal(0, (layer.taps * layer.input.channels) ** -0.5,
                        (layer.outputs, layer.taps, layer.input.channels)), rng.normal(0, 0.05, layer.outputs))
            for layer in backbone.layers]


@pytest.mark.parametrize("word", ["784-40-20-10", "28x28-c6k3-p3-c8k5s2-20-10"])
def test_integer_layers_are_near_the_float_network(word: str, rng: np.random.Generator):
    torch = pytest.importorskip("torch", reason="the float network runs in PyTorch")
    backbone = Backbone(word)
    network = float_network(rng, backbone)
    shape = backbone.input
    pixels = rng.random((60, shape.height, shape.width, shape.channels))
    found = scores(quantised(backbone, network, pixels, 0.97), integers(pixels), exact)
    x = torch.from_numpy(np.moveaxis(pixels, 3, 1))
    for number, (layer, (weights, bias)) in enumerate(zip(backbone.layers, network, strict=True)):
        kernel = np.moveaxis(weights.reshape(layer.outputs, *layer.kernel, -1), 3, 1)
        x = torch.nn.functional.conv2d(x, torch.from_numpy(kernel.copy()), torch.from_numpy(bias), layer.stride,
                                       layer.padding)
        if number < len(network) - 1:
            x = torch.nn.functional.max_pool2d(torch.relu(x), layer.pool)
    assert np.corrcoef(found.ravel(), x.numpy().ravel())[0, 1] > 0.95
    np.testing.assert_allclose(float_scores(backbone, network, pixels), x.numpy().reshape(60, -1), rtol=1e-4, atol=1e-5)


def test_some_images_at_a_time_are_scored_alike(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator):
    backbone = Backbone("8x8x3-c4k3s2-10")
    pixels = rng.random((7, 8, 8, 3))
    network = float_network(rng, backbone)
    layers = quantised(backbone, network, pixels, 0.97)
    sizes: list[int] = []

    def counted(activations: np.ndarray, weights: np.ndarray) -> np.ndarray:
        sizes.append(len(activations))
        return exact(activations, weights)

    whole = scores(layers, integers(pixels), counted)
    assert sizes == [7 * 16, 7]
    sizes.clear()
    monkeypatch.setattr("gen.stochastic.network._AT_ONCE", 3 * 64)     # results of three images' first layer
    np.testing.assert_array_equal(scores(layers, integers(pixels), counted), whole)
    assert max(sizes) <= 3 * 16 and sum(sizes) == 7 * 17
    assert float_scores(backbone, network, pixels).shape == (7, 10)


def test_convolutions_are_the_golden_ones(rng: np.random.Generator):
    layer = Backbone("9x7x5-c6k3s2-10").layers[0]
    x = rng.integers(-128, 128, (2, 9, 7, 5)).astype(np.int8)
    weights = rng.integers(-128, 128, (6, 9, 5)).astype(np.int8)
    found = _products(x, layer, exact, weights)
    kernel = np.moveaxis(weights.reshape(6, 3, 3, 5), 3, 1)
    for image, sums in zip(x, found, strict=True):
        expected = conv2d_accumulate(np.moveaxis(image, 2, 0), kernel, False, (2, 2), (1, 1, 1, 1), 0)
        np.testing.assert_array_equal(np.moveaxis(sums, 2, 0), expected)


@pytest.mark.parametrize("circuit", Circuit)
def test_units_are_blocks_of_a_taps_channels(circuit: Circuit, rng: np.random.Generator):
    """As the machine computes them, zeros in what is left of a block; also where zeros are left out as they add 0."""
    activations = rng.integers(0, 128, (4, 2, 21)).astype(np.int8)
    weights = rng.integers(-128, 128, (3, 2, 21)).astype(np.int8)
    streams = Streams(16)
    a, w = (np.pad(values, [(0, 0), (0, 0), (0, 11)]).reshape(len(values), 4, 16) for values in (activations, weights))
    expected = sums_by_bits(circuit, a[:, None], w[None], streams).sum(axis=2)
    np.testing.assert_array_equal(stochastic(circuit, streams)(activations, weights), expected)
