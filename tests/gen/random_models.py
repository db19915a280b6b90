"""Random quantised ONNX models with scales calibrated on samples, as quantisers write them, with pairs left out."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from tests.gen.qdq import Builder

__all__ = ["RandomModel"]

#: Samples that scales are calibrated on.
_SAMPLES = 4


class RandomModel(Builder):
    """One to six steps: convolutions, lone BatchNormalizations and constants, residuals, pools, copies, activations,
    concatenations and parts of tensors.

    What lies between two quantisations is sometimes a single operator and sometimes several; the branch that a residual
    adds is quantised or not. ``values``: the float value of every name on the calibration samples.
    """

    def __init__(self, rng: np.random.Generator, *, opset: int = 13) -> None:
        super().__init__(rng, opset=opset, number=rng.choice([np.int8, np.uint8]))
        self.values: dict[str, np.ndarray] = {}
        self.make()

    def make(self) -> None:
        """All of it, in order."""
        channels, size = self.between(1, 24), self.between(4, 12)
        real = self.entrance(channels, size, size)
        for _ in range(self.between(1, 6)):
            step = self.rng.choice(np.array([self.convolution, self.affine, self.residual, self.pool, self.copy,
                                             self.bent, self.concatenation, self.cut]))
            real = step(real)
        if self.chance(0.3):
            real = self.quantised(self.apply("GlobalAveragePool", real))
        self.output(real, np.float32)

    def entrance(self, *shape: int) -> str:
        """An input of samples of this shape, float or quantised; what it stands for."""
        number = self.rng.choice([np.float32, self.number])
        name = self.input(1, *shape, number=number)
        samples = self.rng.normal(0, 1, (_SAMPLES, *shape)).astype(np.float32)
        if number == np.float32:
            self.values[name] = samples
            return self.quantised(name)
        scale, point = self.parameters(samples)
        real = self.node("DequantizeLinear", name, scale, point)
        self.values[real] = samples
        return real

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def between(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def apply(self, op: str, value: str, *constants: str, **attributes: Any) -> str:
        """A node after ``value``; constants are initializers, dequantised weights, or values of the model."""
        name = self.node(op, value, *constants, **attributes)
        self.values[name] = self.evaluate(name)
        return name

    def evaluate(self, name: str) -> np.ndarray:
        """The newest node's value on the samples."""
        known = [n for n in self.nodes[-1].input if n in self.values]
        made = {node.output[0]: node for node in self.nodes}
        weights = [made[n] for n in self.nodes[-1].input if n in made and n not in known]
        model = helper.make_model(helper.make_graph(
            [*weights, self.nodes[-1]], "step",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, self.values[n].shape) for n in known],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)], self.initializers),
            opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        options = ort.SessionOptions()
        options.log_severity_level = 3
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return session.run([name], {n: self.values[n] for n in known})[0]

    def parameters(self, values: np.ndarray) -> tuple[str, str]:
        """Scale and zero point for about the range of ``values``; sometimes less than that, sometimes symmetric."""
        low, high = min(0.0, float(values.min())), max(1e-3, float(values.max()))
        low, high = (end * self.rng.uniform(0.6, 1.1) for end in (low, high))
        limits = np.iinfo(self.number)
        if self.chance(0.3):
            half = max(-low, high)
            low, high = -half, half
        scale = np.float32((high - low) / 255)
        point = int(np.clip(round(limits.min - low / scale), limits.min, limits.max))
        return self.constant(scale), self.constant(self.number(point))

    def quantised(self, value: str) -> str:
        scale, point = self.parameters(self.values[value])
        name = self.node("DequantizeLinear", self.node("QuantizeLinear", value, scale, point), scale, point)
        self.values[name] = self.values[value]
        return name

    def activated(self, value: str) -> str:
        """``value``, or an activation function of it."""
        match self.between(0, 3):
            case 0:
                return self.apply("Relu", value)
            case 1:
                low, high = self.rng.uniform(0.5, 3, 2) * self.values[value].std()
                return self.apply("Clip", value, self.constant(np.float32(-low)), self.constant(np.float32(high)))
        return value

    def shifted(self, value: str) -> str:
        """``value`` with a constant or a BatchNormalization after it."""
        channels, spread = self.values[value].shape[1], float(self.values[value].std()) + 1e-3
        column = (channels, 1, 1)
        choices: list[Callable[[], str]] = [
            partial(self.apply, "Add", value, self.number32(spread, column)),
            partial(self.apply, "Sub", value, self.number32(spread, ())),
            lambda: self.apply("Add", self.apply("Mul", value, self.constant(
                self.rng.uniform(0.2, 4, column).astype(np.float32))), self.number32(spread, column)),
            partial(self.apply, "BatchNormalization", value, *(self.constant(n.astype(np.float32)) for n in (
                self.rng.uniform(0.2, 4, channels) * self.rng.choice([1, 1, 1, -1], channels),
                self.rng.normal(0, spread, channels), self.rng.normal(0, spread, channels),
                self.rng.uniform(0.5, 2, channels) * spread**2))),
        ]
        return choices[self.between(0, len(choices) - 1)]()

    def number32(self, spread: float, shape: tuple[int, ...]) -> str:
        return self.constant(self.rng.normal(0, spread, shape).astype(np.float32))

    def convolved(self, value: str, channels: int, kernel: int, stride: int = 1) -> str:
        source = self.values[value].shape[1]
        depthwise = channels == source and self.chance(0.3)
        weights = self.weights(channels, 1 if depthwise else source, kernel, kernel, per_channel=self.chance(0.5))
        bias = [self.number32(0.3, (channels,))] if self.chance(0.7) else []
        return self.apply("Conv", value, weights, *bias, pads=[kernel // 2] * 4, strides=[stride] * 2,
                          group=channels if depthwise else 1)

    # -- steps -----------------------------------------------------------------------------------------------------

    def convolution(self, value: str) -> str:
        made = self.convolved(value, self.between(1, 40), int(self.rng.choice([1, 3])), self.between(1, 2))
        made = self.shifted(made) if self.chance(0.3) else made
        return self.quantised(self.activated(made))

    def affine(self, value: str) -> str:
        return self.quantised(self.activated(self.shifted(value)))

    def residual(self, value: str) -> str:
        branch = value
        for _ in range(self.between(0, 1)):
            branch = self.quantised(self.activated(self.convolved(branch, self.values[value].shape[1], 1)))
        branch = self.convolved(branch, self.values[value].shape[1], 3)
        branch = self.shifted(branch) if self.chance(0.3) else branch
        branch = self.quantised(branch) if self.chance(0.4) else branch
        return self.quantised(self.activated(self.apply("Add", *self.rng.permutation([branch, value]).tolist())))

    def pool(self, value: str) -> str:
        if min(self.values[value].shape[2:]) < 3:
            return self.copy(value)
        kernel, stride = self.between(2, 3), self.between(1, 2)
        op = self.rng.choice(["MaxPool", "AveragePool"])
        if op == "MaxPool" and self.chance(0.5):
            value = self.activated(self.convolved(value, self.between(1, 40), 1))
            return self.quantised(self.apply(op, value, kernel_shape=[kernel] * 2, strides=[stride] * 2))
        made = self.apply(op, value, kernel_shape=[kernel] * 2, strides=[stride] * 2)
        made = self.shifted(made) if self.chance(0.3) else made
        return self.quantised(made)

    def bent(self, value: str) -> str:
        return self.quantised(self.apply("LeakyRelu", value, alpha=float(self.rng.choice([0.01, 0.1, 0.3, 1.5]))))

    def concatenation(self, value: str) -> str:
        """``value`` between results of convolutions, some of them quantised before."""
        made = [self.convolved(value, self.between(1, 12), 1) for _ in range(self.between(1, 2))]
        made = [self.quantised(self.activated(part)) if self.chance(0.6) else self.activated(part) for part in made]
        return self.quantised(self.apply("Concat", *self.rng.permutation([*made, value]).tolist(), axis=1))

    def cut(self, value: str) -> str:
        """Convolution of some neighbouring channels, or of all in another order, quantised once more or not."""
        channels = self.values[value].shape[1]
        low = self.between(0, channels - 1)
        limits = (low, self.between(low + 1, channels), 1) if self.chance(0.7) else (-1, -channels - 1, -1)
        ends, step = [self.constant([number]) for number in limits[:2]], self.constant([limits[2]])
        made = self.apply("Slice", value, *ends, self.constant([1]), step)
        return self.convolution(self.quantised(made) if self.chance(0.5) else made)

    def copy(self, value: str) -> str:
        made = self.activated(value)
        return self.quantised(made) if made != value or self.chance(0.5) else self.quantised(self.apply("Relu", value))


