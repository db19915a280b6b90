"""Float ONNX models for the tests of the quantiser, of pruning and of training."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import TensorProto, helper, numpy_helper, shape_inference

__all__ = [
    "FloatBuilder", "depthwise_network", "detection_network", "mobile_network", "residual_network", "yolo_network",
]


class FloatBuilder:
    """Collects nodes with random weights, each named after its output; methods return the names of their outputs.

    ``shape``: of the input ``x``.
    """

    def __init__(self, rng: np.random.Generator, shape: Sequence[int | str], *, opset: int = 13) -> None:
        self.rng, self.opset, self.shape = rng, opset, list(shape)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, values: ArrayLike) -> str:
        name, array = f"c{len(self.constants)}", np.asarray(values)
        array = array.astype(np.float32) if array.dtype == np.float64 else array
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def weights(self, *shape: int) -> str:
        return self.constant(self.rng.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape))

    def node(self, op: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        name = name or f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def conv(self, source: str, channels: int, outputs: int, *, kernel: int = 3, name: str = "",
             **attributes: Any) -> str:
        """A convolution without bias, and without padding unless ``attributes`` say so."""
        weights = self.weights(outputs, channels // attributes.get("group", 1), kernel, kernel)
        return self.node("Conv", source, weights, name=name, **attributes)

    def same_conv(self, source: str, channels: int, outputs: int, *, kernel: int = 3, name: str = "",
                  **attributes: Any) -> str:
        """A convolution with a bias, whose result is as large as its input."""
        result = self.conv(source, channels, outputs, kernel=kernel, name=name, pads=[kernel // 2] * 4, **attributes)
        self.nodes[-1].input.append(self.constant(self.rng.normal(size=outputs) / 4))
        return result

    def norm(self, source: str, gamma: np.ndarray) -> str:
        beta, mean = self.rng.normal(size=(2, len(gamma)))
        variance = self.rng.uniform(0.5, 2, len(gamma))
        return self.node("BatchNormalization", source, *map(self.constant, (gamma, beta, mean, variance)))

    def model(self, output: str, *, rank: int | None = None) -> onnx.ModelProto:
        """``rank``: of the output, where its shape cannot be inferred."""
        graph = helper.make_graph(
            self.nodes, "float", [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None if rank is None else [None] * rank)],
            self.constants)
        model = shape_inference.infer_shapes(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8))
        onnx.checker.check_model(model, full_check=True)
        return model


def residual_network(rng: np.random.Generator, *, opset: int = 13) -> onnx.ModelProto:
    """Batch norms, an addition, a pool, a concatenation, Clip, LeakyRelu, Gemm and Softmax; 3x12x12 -> 5."""
    b = FloatBuilder(rng, ["N", 3, 12, 12], opset=opset)
    stem = b.norm(b.conv("x", 3, 8, pads=[1] * 4, name="stem"), rng.uniform(0.5, 2, 8))
    stem = b.node("Relu", stem, name="stem_relu")
    branch = b.norm(b.conv(stem, 8, 8, pads=[1] * 4, name="branch"), rng.uniform(0.5, 2, 8))
    total = b.node("Relu", b.node("Add", branch, stem, name="sum"), name="sum_relu")
    pooled = b.node("MaxPool", total, name="pool", kernel_shape=[2, 2], strides=[2, 2])
    clipped = b.node("Clip", b.same_conv(pooled, 8, 6, kernel=1, name="clipped"), b.constant(np.float32(0)),
                     b.constant(np.float32(6)), name="relu6")
    bent = b.node("LeakyRelu", b.same_conv(pooled, 8, 6, name="bent"), name="leaky", alpha=0.1)
    both = b.node("Concat", clipped, bent, name="both", axis=1)
    flat = b.node("Flatten", b.node("GlobalAveragePool", both, name="mean"), name="flat")
    scores = b.node("Gemm", flat, b.constant(rng.normal(size=(5, 12)) / 3), b.constant(rng.normal(size=5)),
                    name="scores", transB=1)
    return b.model(b.node("Softmax", scores, name="y", axis=1))


def depthwise_network(rng: np.random.Generator, spread: float = 1.0) -> onnx.ModelProto:
    """Pointwise, depthwise, pointwise, depthwise, pointwise; channels differ by up to ``spread`` in size."""
    b = FloatBuilder(rng, [1, 4, 8, 8])
    x, channels = "x", 4
    for stage in range(2):
        x = b.node("Relu", b.same_conv(x, channels, 16, kernel=1, name=f"point{stage}"))
        factors = spread ** rng.uniform(-0.5, 0.5, 16)
        for constant in b.constants[-2:]:
            array = numpy_helper.to_array(constant)
            constant.CopyFrom(numpy_helper.from_array(
                (array * factors.reshape(-1, *[1] * (array.ndim - 1))).astype(np.float32), constant.name))
        x, channels = b.node("Relu", b.same_conv(x, 16, 16, group=16, name=f"depth{stage}")), 16
    return b.model(b.same_conv(x, 16, 5, kernel=1, name="y"))


def mobile_network(rng: np.random.Generator, *, excited: bool = False) -> onnx.ModelProto:
    """Blocks as MobileNetV3 has them: 3x32x32 images, HardSwish as its first exporters wrote it, and as ONNX has it
    now; ``excited``: with squeeze and excitation."""
    b = FloatBuilder(rng, ["N", 3, 32, 32], opset=18)

    def composed(x: str) -> str:
        gate = b.node("Clip", b.node("Add", x, b.constant(3.0)), b.constant(0.0), b.constant(6.0))
        return b.node("Div", b.node("Mul", x, gate), b.constant(6.0))

    x = composed(b.same_conv("x", 3, 8, strides=[2, 2]))
    for _ in range(2):
        y = b.node("HardSwish", b.same_conv(x, 8, 24, kernel=1))
        y = b.node("HardSwish", b.same_conv(y, 24, 24, kernel=5, group=24))
        if excited:
            gate = b.same_conv(b.node("GlobalAveragePool", y), 24, 8, kernel=1)
            y = b.node("Mul", y, b.node("HardSigmoid", b.same_conv(b.node("Relu", gate), 8, 24, kernel=1)))
        x = b.node("Add", x, b.same_conv(y, 24, 8, kernel=1))
    x = b.node("Flatten", b.node("GlobalAveragePool", b.node("HardSwish", b.same_conv(x, 8, 32, kernel=1))))
    return b.model(b.node("Gemm", x, b.weights(32, 10), b.constant(rng.normal(size=10))))


def yolo_network(rng: np.random.Generator) -> onnx.ModelProto:
    """Blocks as YOLOv5 has them: SiLU, a bottleneck, pools of pools side by side, upsampled and put together."""
    b = FloatBuilder(rng, ["N", 3, 32, 32], opset=13)

    def conv(x: str, channels: int, outputs: int, **attributes: Any) -> str:
        y = b.same_conv(x, channels, outputs, **attributes)
        return b.node("Mul", y, b.node("Sigmoid", y))

    first = conv(conv("x", 3, 8, strides=[2, 2]), 8, 16, strides=[2, 2])
    inner = conv(first, 16, 8, kernel=1)
    inner = b.node("Add", inner, conv(conv(inner, 8, 8, kernel=1), 8, 8))
    first = conv(b.node("Concat", inner, conv(first, 16, 8, kernel=1), axis=1), 16, 16, kernel=1)
    pools = [conv(conv(first, 16, 16, strides=[2, 2]), 16, 8, kernel=1)]
    for _ in range(3):
        pools.append(b.node("MaxPool", pools[-1], kernel_shape=[5, 5], pads=[2, 2, 2, 2], strides=[1, 1]))
    small = conv(b.node("Concat", *pools, axis=1), 32, 16, kernel=1)
    scales = b.constant(np.float32([1, 1, 2, 2]))
    large = b.node("Resize", small, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric",
                   nearest_mode="floor")
    return b.model(b.same_conv(conv(b.node("Concat", large, first, axis=1), 32, 16), 16, 6, kernel=1))


def detection_network(rng: np.random.Generator, *, joined: bool = False, scale: float = 8.0) -> onnx.ModelProto:
    """Boxes and scores of two feature maps as YOLOv8 has them, 3x32x32 -> (1, 4 + 6, 80): distances are the means of
    distributions over 8 bins, and boxes (the first 4 channels) count in pixels of ``scale`` to a cell.

    ``joined``: boxes and scores of a map are side by side before both maps are, as in exports of the first years.
    """
    b, bins, classes = FloatBuilder(rng, [1, 3, 32, 32]), 8, 6
    fine = b.node("Relu", b.same_conv("x", 3, 16, strides=[4, 4]))
    coarse = b.node("Relu", b.same_conv(fine, 16, 16, strides=[2, 2]))
    cells = [8 * 8, 4 * 4]
    boxes = [b.same_conv(b.node("Relu", b.same_conv(x, 16, 16)), 16, 4 * bins, kernel=1) for x in (fine, coarse)]
    scores = [b.same_conv(b.node("Relu", b.same_conv(x, 16, 16)), 16, classes, kernel=1) for x in (fine, coarse)]

    def flat(x: str, channels: int) -> str:
        return b.node("Reshape", x, b.constant(np.int64([1, channels, -1])))

    if joined:
        maps = [flat(b.node("Concat", *pair, axis=1), 4 * bins + classes) for pair in zip(boxes, scores, strict=True)]
        both = b.node("Concat", *maps, axis=2)
        distances, logits = (b.node("Slice", both, *(b.constant(np.int64([v])) for v in (*ends, 1)))
                             for ends in ((0, 4 * bins), (4 * bins, 4 * bins + classes)))
    else:
        distances, logits = (b.node("Concat", *(flat(x, channels) for x in maps), axis=-1)
                             for maps, channels in ((boxes, 4 * bins), (scores, classes)))
    spread = b.node("Transpose", b.node("Reshape", distances, b.constant(np.int64([1, 4, bins, sum(cells)]))),
                    perm=[0, 2, 1, 3])
    spread = b.node("Conv", b.node("Softmax", spread, axis=1), b.constant(np.arange(8.0).reshape(1, bins, 1, 1)),
                    name="decoded")
    distances = b.node("Reshape", spread, b.constant(np.int64([1, 4, -1])))
    near, far = (b.node("Slice", distances, *(b.constant(np.int64([v])) for v in ends)) for ends in ((0, 2, 1),
                                                                                                     (2, 4, 1)))
    grid = np.concatenate([np.indices((side, side)).reshape(2, -1) + 0.5 for side in (8, 4)], axis=1)
    near, far = b.node("Sub", b.constant(grid[None]), near), b.node("Add", b.constant(grid[None]), far)
    centre = b.node("Div", b.node("Add", near, far), b.constant(2.0))
    strides = np.repeat([scale, 2 * scale], cells)[None]
    found = b.node("Mul", b.node("Concat", centre, b.node("Sub", far, near), axis=1), b.constant(strides))
    return b.model(b.node("Concat", found, b.node("Sigmoid", logits), name="y", axis=1))
