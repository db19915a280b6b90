"""A model that goes back and forth between accelerator and processor, unless the machine has the units for it."""

import numpy as np

from tests.gen.qdq import Builder

__all__ = ["gated"]


def _layer(b: Builder, x: str) -> str:
    return b.requantize(b.node("Conv", x, b.weights(8, 8, 3, 3), b.bias(8), pads=[1, 1, 1, 1]))


def gated(*operators: str) -> None:
    """Layers with a product of two activations after each, which one of these functions has made of one of them; an
    InstanceNormalization, which no unit takes, in the end. Written to m.onnx, a sample to x.npz.
    """
    b = Builder(np.random.default_rng(0))
    x = b.requantize(b.input(1, 8, 6, 6, number=np.float32))
    for operator in operators:
        x = _layer(b, x)
        other = b.requantize(b.node(operator, x), 1 / 256, -128) if operator != "Mul" else _layer(b, x)
        x = b.requantize(b.node("Mul", x, other))
    ones, zeros = (b.constant(np.full(8, value, np.float32)) for value in (1, 0))
    b.output(b.node("InstanceNormalization", _layer(b, x), ones, zeros), np.float32)
    with open("m.onnx", "wb") as file:
        file.write(b.build().SerializeToString())
    np.savez("x.npz", x=np.zeros((1, 8, 6, 6), np.float32))
