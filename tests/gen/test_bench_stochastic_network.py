"""The MLP of stochastic dot products: exact sums near the float network, its files, its rows."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from cores.arch.stochastic import Circuit
from gen.bench import stochastic_network
from gen.bench.stochastic_network import MNIST_FILES, measure_accuracy, plot, quantised, read_mnist, scores
from tests.cores.simulation import log_seed


def write_mnist(folder: Path, images: np.ndarray, labels: np.ndarray) -> None:
    for name, header, values in zip(MNIST_FILES, (16, 8), (images, labels), strict=True):
        (folder / name).write_bytes(gzip.compress(bytes(header) + values.astype(np.uint8).tobytes()))


def exact(a: np.ndarray, w: np.ndarray) -> np.ndarray:
    return a.astype(np.int64) @ w.T.astype(np.int64)


def test_integer_layers_are_near_the_float_network():
    rng = np.random.default_rng(log_seed())
    widths = (784, 40, 20, 10)
    network = [(rng.normal(0, 0.05, (n, k)), rng.normal(0, 0.05, n)) for k, n in zip(widths, widths[1:], strict=False)]
    x = rng.random((300, 784))
    layers = quantised(network, x)
    found = scores(layers, np.rint(127 * x).astype(np.int8), exact)
    for weights, bias in network[:-1]:
        x = np.maximum(x @ weights.T + bias, 0)
    weights, bias = network[-1]
    expected = x @ weights.T + bias
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.98


def test_files_are_read(tmp_path):
    images, labels = np.arange(3 * 784) % 256, np.array([7, 2, 1])
    write_mnist(tmp_path, images, labels)
    pixels, found = read_mnist(tmp_path)
    np.testing.assert_array_equal(np.rint(pixels.ravel() * 255), images)
    assert found.tolist() == [7, 2, 1]
    write_mnist(tmp_path, images[:-1], labels)
    with pytest.raises(ValueError, match="do not belong together"):
        read_mnist(tmp_path)


def test_rows(tmp_path, monkeypatch):
    """Trained on a few images that are easily told apart; long streams keep the answers."""
    pytest.importorskip("torch", reason="training needs PyTorch")
    rng = np.random.default_rng(log_seed())
    labels = rng.integers(10, size=450)
    images = (np.arange(784) // 79 == labels[:, None]) * 200 + rng.integers(0, 40, (450, 784))
    write_mnist(tmp_path, images, labels)
    for name, value in (("_WIDTHS", (784, 16, 10)), ("_TRAINED", 400), ("_FEW_IMAGES", 5),
                        ("LENGTHS", (8, 256)), ("_SERIAL_LONGEST", 8)):
        monkeypatch.setattr(stochastic_network, name, value)
    rows = list(measure_accuracy(tmp_path))
    assert [(row.circuit, row.length, row.images) for row in rows] == [
        ("int8", None, 50), ("int8", None, 5),
        *((circuit.label, length, 50 if circuit in (Circuit.XNOR_MUX, Circuit.AND_LOOP) else 5) for circuit in Circuit
          for length in ((8,) if circuit.serial else (8, 256)))]
    right = {(row.circuit, row.length): row.right for row in rows}
    assert right["int8", None] > 0.9
    assert right["and-loop", 256] > right["int8", None] - 0.1
    assert plot(rows).startswith(b"\x89PNG")
