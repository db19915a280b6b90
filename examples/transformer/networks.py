"""Vision transformers with drawn weights, and images to train and test them:

    python examples/transformer/networks.py digits -o build/transformer
    python examples/transformer/networks.py cifar --images FOLDER -o build/transformer

writes `digits_start.onnx`, `digits_train.npz` and `digits_test.npz` there, which `digits.json` beside this script
trains, or `cifar_start.onnx`, for `cifar.json`. The digits are those of examples/digits. FOLDER has CIFAR-10's
photographs, `cifar10_train_jpg_1500_a_class.zip` and `cifar10_test_jpg_0000-0099.zip`; they become `cifar_train.npz`
and `cifar_test.npz`. docs/transformers.md has what comes of both.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import onnx

from gen.stochastic.cifar import read_cifar
from gen.zoo.builder import Builder, Tensor
from gen.zoo.network import Network, make
from gen.zoo.transformer import pre_norm, with_token

sys.path.insert(0, str(Path(__file__).parents[1] / "digits"))
from train import SEED, load_images  # noqa: E402


def _blocks(b: Builder, x: Tensor, count: int) -> Tensor:
    for number in range(count):
        x = pre_norm(b, x, heads=3, hidden=2 * x.channels, activation=b.gelu, name=f"b{number}")
    return b.layer_norm(x, name="norm")


def _tokens(b: Builder, x: Tensor) -> Tensor:
    """Of the pixels of a map."""
    x = b.reshape(x, x.channels, x.sample[0, 0].size, name="joined")
    return b.transpose(x, 0, 2, 1, name="tokens")


def _digits(b: Builder, image: Tensor, classes: int) -> None:
    """17 tokens of 60 channels: a learnt one, which is classed, and patches of 4x4 pixels. Three heads of 20."""
    x = b.biased_conv(image, 60, 4, stride=4, pad=0, name="patches")
    x = _blocks(b, with_token(b, _tokens(b, x)), 3)
    b.output(b.dense(b.node("Gather", x, np.array(0), name="first", axis=1), classes, name="head"))


def _cifar(b: Builder, image: Tensor, classes: int) -> None:
    """64 tokens of 96 channels, of two convolutions; their mean is classed. Three heads of 32."""
    x = b.relu(b.biased_conv(image, 32, 3, stride=2, pad=1, name="stem1"))
    x = _tokens(b, b.biased_conv(x, 96, 3, stride=2, pad=1, name="stem2"))
    x = _blocks(b, b.node("Add", x, b.embedding(1, *x.sample.shape[1:]), name="position"), 4)
    b.output(b.dense(b.node("ReduceMean", x, name="mean", axes=[1], keepdims=0), classes, name="head"))


NETWORKS = {
    "digits": Network(name="digits", title="digits", layers=_digits, size=(16, 16), least=16, channels=1, classes=10),
    "cifar": Network(name="cifar", title="CIFAR-10", layers=_cifar, size=(32, 32), channels=3, classes=10),
}


def _save(path: Path, images: np.ndarray, labels: np.ndarray) -> None:
    np.savez(path, allow_pickle=False, image=images, label=labels)


def _digit_images(folder: Path) -> None:
    """What examples/digits trains on, and what it holds out."""
    images, labels = load_images()
    order = np.random.default_rng(SEED).permutation(len(images))
    for name, part in (("test", order[:len(order) // 3]), ("train", order[len(order) // 3:])):
        _save(folder / f"digits_{name}.npz", images[part], labels[part])


def _photographs(archives: Path, folder: Path) -> None:
    """Pixels less the mean of all, in about -2 to 2."""
    found = read_cifar(archives, None)
    pixels = np.ascontiguousarray((found.pixels.transpose(0, 3, 1, 2) - 0.47) / 0.25, np.float32)
    for name, part in (("train", slice(0, found.trained)), ("test", slice(found.trained, None))):
        _save(folder / f"cifar_{name}.npz", pixels[part], found.labels[part])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("--images", type=Path, help="folder of CIFAR-10's photographs")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the files")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    onnx.save(make(NETWORKS[arguments.network]).model, arguments.output / f"{arguments.network}_start.onnx")
    if arguments.network == "digits":
        _digit_images(arguments.output)
    elif arguments.images is None:
        parser.error("cifar needs --images")
    else:
        _photographs(arguments.images, arguments.output)


if __name__ == "__main__":
    main()
