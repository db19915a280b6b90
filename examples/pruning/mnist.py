"""A small network for MNIST with random weights, and data to train and test it, from the t10k files of MNIST:

    python examples/pruning/mnist.py t10k-images-idx3-ubyte.gz t10k-labels-idx1-ubyte.gz -o build/mnist

writes `start.onnx`, `train.npz` (the first 8,000 images) and `test.npz` (the last 2,000) there; `mnist.json` beside
this script trains it. `start_binary.onnx` is like it, with layers that read signs, as in Bi-Real Net, which
`mnist_binary.json` trains. docs/pruning.md has what comes of both.
"""

import argparse
import gzip
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TRAINED_ON = 8000

#: Name, channels, stride, and the value that is added before the ReLU.
LAYERS = (("stem", 16, 1, ""), ("down1", 32, 2, ""), ("block1", 32, 1, ""), ("block2", 32, 1, "down1"),
          ("down2", 64, 2, ""), ("block3", 64, 1, ""))


def network(rng: np.random.Generator, *, signs: bool = False) -> onnx.ModelProto:
    """Convolutions with batch norms, a residual block, a mean over space and a matrix product.

    With ``signs`` all convolutions but the first read signs, and a shortcut goes around those that leave the shape.
    """
    nodes, initializers = [], []

    def constant(name: str, array: np.ndarray) -> str:
        initializers.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    value, channels = "image", 1
    for name, outputs, stride, add in LAYERS:
        weights = rng.normal(0, np.sqrt(2 / (9 * channels)), (outputs, channels, 3, 3))
        around = value
        if signs and name != "stem":
            nodes.append(helper.make_node("Sign", [value], [f"{name}_signs"], name=f"{name}_sign"))
            value = f"{name}_signs"
        nodes.append(helper.make_node("Conv", [value, constant(f"{name}_w", weights)], [f"{name}_sum"], name=name,
                                      pads=[1] * 4, strides=[stride] * 2))
        parameters = [constant(f"{name}_{part}", np.full(outputs, start))
                      for part, start in (("gamma", 1.0), ("beta", 0.0), ("mean", 0.0), ("variance", 1.0))]
        nodes.append(helper.make_node("BatchNormalization", [f"{name}_sum", *parameters], [f"{name}_norm"]))
        value = f"{name}_norm"
        if signs:
            if channels == outputs:
                nodes.append(helper.make_node("Add", [value, around], [f"{name}_added"]))
                value = f"{name}_added"
            channels = outputs
            continue
        if add:
            nodes.append(helper.make_node("Add", [value, f"{add}_relu"], [f"{name}_added"]))
            value = f"{name}_added"
        nodes.append(helper.make_node("Relu", [value], [f"{name}_relu"]))
        value, channels = f"{name}_relu", outputs
    nodes += [helper.make_node("GlobalAveragePool", [value], ["mean"]), helper.make_node("Flatten", ["mean"], ["flat"])]
    weights = rng.normal(0, np.sqrt(1 / channels), (channels, 10))
    nodes.append(helper.make_node("Gemm", ["flat", constant("classifier_w", weights),
                                           constant("classifier_b", np.zeros(10))], ["logits"], name="classifier"))
    graph = helper.make_graph(
        nodes, "mnist", [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 28, 28])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 10])], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def read_idx(path: Path, header: int) -> np.ndarray:
    return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=header)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("images", type=Path)
    parser.add_argument("labels", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("build/mnist"))
    arguments = parser.parse_args()
    images = read_idx(arguments.images, 16).reshape(-1, 1, 28, 28).astype(np.float32) / 255
    labels = read_idx(arguments.labels, 8).astype(np.int64)
    arguments.output.mkdir(parents=True, exist_ok=True)
    onnx.save(network(np.random.default_rng(1)), arguments.output / "start.onnx")
    onnx.save(network(np.random.default_rng(1), signs=True), arguments.output / "start_binary.onnx")
    np.savez(arguments.output / "train.npz", image=images[:TRAINED_ON], label=labels[:TRAINED_ON])
    np.savez(arguments.output / "test.npz", image=images[TRAINED_ON:], label=labels[TRAINED_ON:])


if __name__ == "__main__":
    main()
