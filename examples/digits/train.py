"""Train the digits network, quantise it, and write the files beside this script. Takes a minute or two:

    python examples/digits/train.py

The images are scikit-learn's bundled digits (8x8 pixels, the test set of the UCI "Optical Recognition of Handwritten
Digits"), doubled to 16x16. A third, drawn once, is held out: it sees neither training nor calibration.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import onnx
from export import Range, float_model, int8_model
from network import IMAGE_SIZE, Parameters, forward, gradients, initial_parameters
from sklearn.datasets import load_digits

from gen.onnx.runtime import RuntimeModel

SEED = 1
BATCH = 32


def load_images() -> tuple[np.ndarray, np.ndarray]:
    """(1797, 1, 16, 16) float32 in steps of 1/15 from 0 to 1, and labels."""
    digits = load_digits()
    images = digits.images / 16
    # Bilinear with the pixel centres of 8x8 in the middles of 2x2 squares.
    centre = (np.arange(IMAGE_SIZE) + 0.5) / 2 - 0.5
    grid = np.clip(centre[:, None] - np.arange(8)[None, :], -1, 1)
    weights = np.maximum(1 - np.abs(grid), 0)
    weights /= weights.sum(1, keepdims=True)
    images = np.einsum("yi,nij,xj->nyx", weights, images, weights)
    return (np.round(images * 15) / 15).astype(np.float32)[:, None], digits.target.astype(np.int64)


def moved(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each image moved by up to a pixel in each direction."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    result = np.empty_like(images)
    for index, (y, x) in enumerate(rng.integers(0, 3, (len(images), 2))):
        result[index] = padded[index, :, y:y + IMAGE_SIZE, x:x + IMAGE_SIZE]
    return result


def train(images: np.ndarray, labels: np.ndarray, epochs: int, rng: np.random.Generator) -> Parameters:
    """Adam with a falling rate."""
    parameters = initial_parameters(rng)
    slots = {(name, part): (0.0, 0.0) for name in parameters for part in range(2)}
    steps = epochs * (len(images) // BATCH)
    step = 0
    for epoch in range(epochs):
        order = rng.permutation(len(images))
        losses = []
        for start in range(0, len(order) - BATCH + 1, BATCH):
            batch = order[start:start + BATCH]
            loss, found = gradients(parameters, moved(images[batch], rng), labels[batch])
            losses.append(loss)
            step += 1
            rate = 3e-3 * 0.5 * (1 + np.cos(np.pi * step / steps)) + 1e-5
            for name, pair in parameters.items():
                updated = []
                for part, value in enumerate(pair):
                    first, second = slots[name, part]
                    first = 0.9 * first + 0.1 * found[name][part]
                    second = 0.999 * second + 0.001 * found[name][part] ** 2
                    slots[name, part] = (first, second)
                    change = (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
                    updated.append((value - rate * change).astype(np.float32))
                parameters[name] = (updated[0], updated[1])
        print(f"epoch {epoch + 1:2} of {epochs}: loss {np.mean(losses):.4f}", file=sys.stderr)
    return parameters


def accuracy(model: onnx.ModelProto, images: np.ndarray, labels: np.ndarray) -> float:
    """By onnxruntime, an implementation that is not ours."""
    (found,) = RuntimeModel(model, optimised="all").run({"image": images})
    return float((found.argmax(1) == labels).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent, help="folder of the three files")
    arguments = parser.parse_args()
    rng = np.random.default_rng(SEED)
    images, labels = load_images()
    order = rng.permutation(len(images))
    held_out, training = order[:len(order) // 3], order[len(order) // 3:]
    parameters = train(images[training], labels[training], arguments.epochs, rng)
    tensors = forward(parameters, images[training])
    ranges = {name: Range(float(value.min()), float(value.max())) for name, value in tensors.items()}
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name, model in (("digits_float", float_model(parameters)), ("digits_int8", int8_model(parameters, ranges))):
        onnx.save(model, arguments.output / f"{name}.onnx")
        right = accuracy(model, images[held_out], labels[held_out])
        print(f"{name}: {100 * right:.2f} % of the held-out {len(held_out)} images")
    np.savez_compressed(arguments.output / "digits_test.npz", image=images[held_out], label=labels[held_out])


if __name__ == "__main__":
    main()
