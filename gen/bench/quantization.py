"""Float networks quantised: labels and values of the float model, of onnxruntime and of the machine."""

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from PIL import Image

from gen.bench.dequantised import as_float
from gen.check.compare import compare_model
from gen.files.photographs import read_photographs
from gen.files.read import read_file
from gen.ir import reference
from gen.onnx.importer import Imported, load_model
from gen.onnx.read import read
from gen.quantize.options import QuantizeOptions
from gen.quantize.quantize import quantize
from gen.quantize.sessions import values_of

__all__ = ["NETWORKS", "QuantizedNetwork", "Result", "measure"]

#: Samples that are quantised on; and those on which each layer is compared with onnxruntime.
_CALIBRATION, _COMPARED = 200, 10
#: Samples that the machine's reference computes at once.
_BATCH = 50


class Images(NamedTuple):
    """Images (N, C, H, W) float32 as the network takes them, and their labels if they have any."""

    calibration: np.ndarray
    test: np.ndarray
    labels: np.ndarray | None


@dataclass(frozen=True)
class QuantizedNetwork:
    """``images``: from the folder of the models; ``integers``: the file is of one that others have quantised."""

    title: str
    file: str
    images: Callable[[Path], Images]
    integers: bool = False

    def read(self, folder: Path) -> onnx.ModelProto:
        """The float model. Raises OSError, GraphError."""
        model = read(folder / self.file).proto
        return as_float(model) if self.integers else model


@dataclass(frozen=True, kw_only=True)
class Result:
    """``float_right``, ``quantized_right``, ``machine_right``: shares of the labels, by the float model and the
    quantised one in onnxruntime and by the machine's reference; None without labels. ``same_answer``: share of the
    samples of which onnxruntime and the machine have one opinion; None where the output is an image. ``psnr_db``: of an
    image, against float, for a peak of 1. ``differing`` of ``values`` of all layers, each on equal inputs, are others
    than onnxruntime's, by ``largest`` at most.
    """

    samples: int
    float_right: float | None
    quantized_right: float | None
    machine_right: float | None
    same_answer: float | None
    sqnr_db: float
    psnr_db: float | None
    differing: int
    values: int
    largest: int


def _zipped(path: Path, a_class: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, 3, H, W) of 0..255 from an archive with a folder for each class, and labels."""
    images, labels = read_photographs(path, a_class=a_class)
    return images.transpose(0, 3, 1, 2).astype(np.float32), labels


def _cifar(folder: Path) -> Images:
    calibration, _ = _zipped(folder / "cifar10_train_jpg_1500_a_class.zip", _CALIBRATION // 10)
    return Images(calibration, *_zipped(folder / "cifar10_test_jpg_0000-0099.zip"))


def _normalised(folder: Path) -> Images:
    """As ImageNet is, which the network was trained with."""
    mean, deviation = (np.array(v, np.float32)[:, None, None] for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    calibration, test, labels = _cifar(folder)
    return Images((calibration / 255 - mean) / deviation, (test / 255 - mean) / deviation, labels)


def _mnist(folder: Path) -> Images:
    """The first images to quantise on, and all others."""
    pixels = gzip.decompress(read_file(folder / "t10k-images-idx3-ubyte.gz"))
    labels = gzip.decompress(read_file(folder / "t10k-labels-idx1-ubyte.gz"))
    x = np.frombuffer(pixels, np.uint8, offset=16).reshape(-1, 1, 28, 28).astype(np.float32)
    y = np.frombuffer(labels, np.uint8, offset=8).astype(np.int64)
    return Images(x[:_CALIBRATION], x[_CALIBRATION:], y[_CALIBRATION:])


def _mnist_shares(folder: Path) -> Images:
    """From 0 to 1."""
    calibration, test, labels = _mnist(folder)
    return Images(calibration / 255, test / 255, labels)


def _enlarged(folder: Path) -> Images:
    """CIFAR's pictures three times as large, 0..1: not what the network knows, so without labels."""
    calibration, test = (x.repeat(3, 2).repeat(3, 3) / 255 for x in _cifar(folder)[:2])
    return Images(calibration, test[::10], None)


def _luminance(folder: Path) -> Images:
    """CIFAR's pictures seven times as large, gray, 0..1."""
    def gray(images: np.ndarray) -> np.ndarray:
        pictures = (Image.fromarray(x.transpose(1, 2, 0).astype(np.uint8)).convert("L") for x in images)
        scaled = [np.asarray(p.resize((224, 224), Image.Resampling.BICUBIC)) for p in pictures]
        return np.stack(scaled)[:, None].astype(np.float32) / 255

    images = _cifar(folder)
    return Images(gray(images.calibration[::10]), gray(images.test[::50]), None)


NETWORKS = (
    QuantizedNetwork("ResNet-8", "mlperf_resnet8_float.onnx", _cifar),
    QuantizedNetwork("ResNet-20", "resnet20_cifar10_bn.onnx", _normalised),
    QuantizedNetwork("mnist-8", "mnist8_float.onnx", _mnist),
    QuantizedNetwork("MobileNetV1 0.25", "mlperf_vww_float.onnx", _enlarged),
    QuantizedNetwork("super resolution", "super_resolution_10_float.onnx", _luminance),
    QuantizedNetwork("TinyMaix MNIST", "tinymaix_mnist_valid_int8.onnx", _mnist_shares, True),
    QuantizedNetwork("TinyMaix ResNet", "tinymaix_mnist_resnet_int8.onnx", _mnist_shares, True),
    QuantizedNetwork("MLPerf ResNet-8", "mlperf_resnet8_int8.onnx", _cifar, True),
    QuantizedNetwork("MLPerf MobileNetV1", "mlperf_vww_mnv1_025_int8.onnx", _enlarged, True),
)


def measure(network: QuantizedNetwork, folder: Path, options: QuantizeOptions,
            progress: Callable[[str], None] = lambda remark: None) -> Result:
    """Quantise and run a network. Raises OSError, and what `gen.quantize.quantize` does."""
    model, images = network.read(folder), network.images(folder)
    constants = {tensor.name for tensor in model.graph.initializer}
    (name,) = (value.name for value in model.graph.input if value.name not in constants)
    (output,) = (value.name for value in model.graph.output)
    found = quantize(model, {name: images.calibration}, options,
                     progress=lambda done, total, what: progress(what))
    imported = load_model(network.file, found.model.SerializeToString())
    progress("onnxruntime")
    exact, quantized = (np.concatenate([values[output] for values in values_of(proto, [output], {name: images.test})])
                        for proto in (found.reference, found.model))
    progress("the machine's reference")
    machine = _machine(imported, name, output, images.test)
    noise = float(((exact - quantized).astype(np.float64) ** 2).mean())
    compared = compare_model(imported, {name: images.test[:_COMPARED]})
    answers = [values.reshape(len(values), -1).argmax(axis=1) for values in (exact, quantized, machine)]
    right = [None if images.labels is None else float((answer == images.labels).mean()) for answer in answers]
    image = exact.ndim > 2
    return Result(
        samples=len(images.test), float_right=right[0], quantized_right=right[1], machine_right=right[2],
        same_answer=None if image else float((answers[1] == answers[2]).mean()),
        sqnr_db=float(10 * np.log10((exact.astype(np.float64) ** 2).mean() / noise)),
        psnr_db=float(-10 * np.log10(noise)) if image else None,
        differing=sum(row.differing for row in compared.layers), values=sum(row.values for row in compared.layers),
        largest=compared.largest)


def _machine(imported: Imported, name: str, output: str, images: np.ndarray) -> np.ndarray:
    return np.concatenate([reference.run(imported.graph, {name: images[start:start + _BATCH]})[0][output]
                           for start in range(0, len(images), _BATCH)])
