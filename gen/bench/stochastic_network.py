"""Handwritten digits by an MLP of stochastic dot products: right answers against the length of the streams.

The labelled images are the 10,000 of MNIST's test set: trained on the first 8,000, tested on the last 2,000.
"""

import gzip
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from cores.arch.stochastic import Circuit
from sim.golden import quantize_multiplier, requantize
from sim.stochastic.fast import accumulate
from sim.stochastic.streams import Streams

__all__ = ["AccuracyRow", "Layer", "MNIST_FILES", "Multiply", "Trained", "accuracies", "exact", "measure_accuracy",
           "plot", "quantised", "read_mnist", "scores", "trained"]

#: int8 (n, K) activations and (O, K) weights -> (n, O) sums of products.
Multiply = Callable[[np.ndarray, np.ndarray], np.ndarray]

#: Channels of a block: inputs of one stochastic dot product.
_FAN_IN = 16
_TRAINED = 8000
_WIDTHS = (784, 200, 32, 10)
_EPOCHS = 12
LENGTHS = tuple(1 << log for log in range(3, 11))
#: Circuits whose sums are looked up; for others so many images of the test set, and for serial ones streams up to here:
#: minutes instead of hours.
_QUICK = frozenset({Circuit.XNOR_MUX, Circuit.AND_LOOP})
_FEW_IMAGES, _SERIAL_LONGEST = 200, 256
#: Share of a layer's results that is in the range of its int8: a wider one would leave most streams nearly empty.
_IN_RANGE = 0.97

#: Names of the files, as they are published.
MNIST_FILES = ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")


@dataclass(frozen=True)
class Layer:
    """int8 ``weights`` (outputs, inputs); ``bias`` and the factor to the next layer's int8 are of sums of products."""

    weights: np.ndarray
    bias: np.ndarray
    scale: float


@dataclass(frozen=True)
class AccuracyRow:
    """Share of right answers of ``circuit`` with streams of ``length`` bits; the exact int8 network's has no length."""

    circuit: str
    length: int | None
    images: int
    right: float


def read_mnist(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 784) of 0 to 1 and labels (n,). Raises OSError for a missing file, ValueError for a damaged one."""
    try:
        images, labels = (gzip.decompress((folder / name).read_bytes()) for name in MNIST_FILES)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{folder}: {' or '.join(MNIST_FILES)} is damaged: {error}") from None
    count = len(labels) - 8
    if count < 1 or len(images) != 16 + count * 784:
        raise ValueError(f"{folder}: {' and '.join(MNIST_FILES)} do not belong together")
    pixels = np.frombuffer(images, np.uint8, offset=16).reshape(count, 784)
    return pixels.astype(np.float32) / 255, np.frombuffer(labels, np.uint8, offset=8).astype(np.int64)


def _train(x: np.ndarray, labels: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Weights and biases of the float network."""
    import torch

    torch.manual_seed(0)
    layers = [torch.nn.Linear(*widths) for widths in zip(_WIDTHS, _WIDTHS[1:], strict=False)]
    network = torch.nn.Sequential(*[part for layer in layers[:-1] for part in (layer, torch.nn.ReLU())], layers[-1])
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3, weight_decay=1e-4)
    inputs, wanted = torch.from_numpy(x), torch.from_numpy(labels)
    for _ in range(_EPOCHS):
        for batch in torch.randperm(len(inputs)).split(100):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(inputs[batch]), wanted[batch]).backward()
            optimizer.step()
    return [(layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in layers]


def quantised(network: list[tuple[np.ndarray, np.ndarray]], x: np.ndarray) -> list[Layer]:
    """int8 layers, all zero points 0; activations' ranges are those of most results for the samples ``x``."""
    layers, scale = [], 1 / 127
    for weights, bias in network:
        weight_scale = float(np.abs(weights).max()) / 127
        x = np.maximum(x @ weights.T + bias, 0)
        following = float(np.quantile(x, _IN_RANGE)) / 127
        layers.append(Layer(np.rint(weights / weight_scale).astype(np.int8),
                            np.rint(bias / (scale * weight_scale)).astype(np.int64), scale * weight_scale / following))
        scale = following
    return layers


def scores(layers: list[Layer], x: np.ndarray, multiply: Multiply) -> np.ndarray:
    """(n, 10) sums of the last layer; ``x`` int8 (n, 784), ``multiply`` gives a layer's sums without its bias."""
    for layer in layers[:-1]:
        multiplier, shift = quantize_multiplier(np.full(len(layer.bias), layer.scale))
        sums = multiply(x, layer.weights)[:, :, None, None]
        x = requantize(sums, layer.bias, multiplier, shift, 0, 0, 127)[:, :, 0, 0]
    return multiply(x, layers[-1].weights) + layers[-1].bias


@dataclass(frozen=True, eq=False)
class Trained:
    """The network's ``layers``; ``images`` (n, 784) int8 that it was not trained on, and their ``labels`` (n,)."""

    layers: list[Layer]
    images: np.ndarray
    labels: np.ndarray

    @property
    def score_scale(self) -> float:
        """Sums of the last layer that make one step of an int8 that holds all of them."""
        return float(np.abs(scores(self.layers, self.images, exact)).max() / 127)


def exact(activations: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """int8 (n, K), (O, K) -> (n, O)."""
    return np.asarray(activations.astype(np.int64) @ weights.T.astype(np.int64))


def trained(folder: Path) -> Trained:
    """Raises ImportError without PyTorch, and what `read_mnist` does."""
    x, labels = read_mnist(folder)
    layers = quantised(_train(x[:_TRAINED], labels[:_TRAINED]), x[:_TRAINED])
    return Trained(layers, np.rint(127 * x[_TRAINED:]).astype(np.int8), labels[_TRAINED:])


def measure_accuracy(folder: Path, remark: Callable[[str], None] = lambda step: None) -> Iterator[AccuracyRow]:
    """`accuracies` of the network trained on the images in ``folder``. Raises as `trained`."""
    remark("training")
    yield from accuracies(trained(folder), remark)


def accuracies(network: Trained, remark: Callable[[str], None] = lambda step: None) -> Iterator[AccuracyRow]:
    """The exact network, then each circuit by length."""
    layers, images, wanted = network.layers, network.images, network.labels

    def share(count: int, multiply: Multiply) -> float:
        return float((scores(layers, images[:count], multiply).argmax(axis=1) == wanted[:count]).mean())

    for count in (len(images), _FEW_IMAGES):
        yield AccuracyRow("int8", None, count, share(count, exact))
    for circuit in Circuit:
        for length in LENGTHS:
            if circuit.serial and length > _SERIAL_LONGEST:
                continue
            count = len(images) if circuit in _QUICK else _FEW_IMAGES
            remark(f"{circuit.label}, {length} bits")
            multiply = partial(accumulate, circuit, streams=Streams(length), fan_in=_FAN_IN)
            yield AccuracyRow(circuit.label, length, count, share(count, multiply))


def plot(rows: list[AccuracyRow]) -> bytes:
    """PNG: right answers by length, a line a circuit."""
    import io

    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.axhline(100 * rows[0].right, color="black", linewidth=1, label="int8")
    for circuit in Circuit:
        mine = {row.length: 100 * row.right for row in rows if row.circuit == circuit.label and row.length}
        axes.plot(list(mine), list(mine.values()), marker="o", label=circuit.label)
    axes.set_xscale("log", base=2)
    axes.set(xlabel="bits of a stream", ylabel="right answers, %")
    axes.legend()
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    return picture.getvalue()
