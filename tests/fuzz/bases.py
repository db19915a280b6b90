"""What is mutated: small models and programs that use most of what there is, and inputs of them."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from PIL import Image

from cores.config import NpuConfig
from gen.program.file import save_program
from gen.run.workload import Workload, open_workload
from tests.gen.qdq import Builder

__all__ = ["SMALL", "Bases", "Sample"]

_DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"
SMALL = NpuConfig.preset(16)
_EVERYTHING = NpuConfig.preset(64, depthwise=1, gather=1, binary_rows=4, winograd=1, local_store=1, table=1,
                               product=1)


def _residual(rng: np.random.Generator) -> onnx.ModelProto:
    """Float in and out: convolutions, an addition, both pools, a matrix product, Softmax."""
    b = Builder(rng)
    x = b.requantize(b.input("samples", 3, 8, 8, number=np.float32))
    y = b.node("Conv", x, b.weights(8, 3, 3, 3), b.bias(8), pads=[1, 1, 1, 1])
    y = b.requantize(b.node("Relu", y))
    z = b.requantize(b.node("Conv", y, b.weights(8, 8, 1, 1), b.bias(8)))
    z = b.requantize(b.node("MaxPool", b.requantize(b.node("Add", y, z)), kernel_shape=[2, 2], strides=[2, 2]))
    z = b.requantize(b.node("AveragePool", z, kernel_shape=[2, 2], strides=[2, 2]))
    z = b.requantize(b.node("Gemm", b.node("Flatten", z), b.weights(32, 5, axis=1), b.bias(5)))
    b.output(b.node("Softmax", z), np.float32, rank=2)
    return b.build()


def _mobile(rng: np.random.Generator) -> onnx.ModelProto:
    """uint8, interleaved channels, two outputs: depthwise and pointwise layers, BatchNormalization, Clip, Pad."""
    b = Builder(rng, number=np.uint8)
    x = b.node("Transpose", b.dequantize(b.input(1, 9, 9, 3)), perm=[0, 3, 1, 2])
    y = b.node("Conv", x, b.weights(8, 3, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER")
    vectors = [b.constant(rng.uniform(0.5, 1, 8).astype(np.float32)) for _ in range(4)]
    y = b.node("BatchNormalization", y, *vectors)
    y = b.requantize(b.node("Clip", y, b.constant(np.float32(0)), b.constant(np.float32(6))))
    y = b.node("Pad", y, b.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1])))
    y = b.requantize(b.node("Conv", y, b.weights(8, 1, 3, 3, per_channel=False), group=8))
    y = b.requantize(b.node("Conv", y, b.weights(16, 8, 1, 1)))
    b.output(b.quantize(b.node("GlobalAveragePool", y)))
    shape = b.node("Shape", y)
    first = b.node("Gather", shape, b.constant(np.array([0])))
    b.output(b.quantize(b.node("Reshape", y, b.node("Concat", first, b.constant(np.array([-1])), axis=0))), rank=2)
    return b.build()


def _operators(rng: np.random.Generator) -> onnx.ModelProto:
    """Operators that carry their scales."""
    b = Builder(rng)
    scales = [(b.scale(s), b.point(None)) for s in (0.05, 0.04, 0.06)]

    def weights(*shape: int) -> list[str]:
        return [b.constant(rng.integers(-128, 128, shape).astype(np.int8)), b.scale(0.003), b.point(0)]

    x = b.input(1, 4, 6, 6)
    bias = b.constant(rng.integers(-300, 300, 4).astype(np.int32))
    y = b.node("QLinearConv", x, *scales[0], *weights(4, 4, 3, 3), *scales[1], bias, pads=[1, 1, 1, 1])
    y = b.node("QLinearAdd", x, *scales[0], y, *scales[1], *scales[2], domain="com.microsoft")
    y = b.node("QLinearGlobalAveragePool", y, *scales[2], *scales[1], domain="com.microsoft")
    b.output(b.node("QLinearMatMul", b.node("Flatten", y), *scales[1], *weights(4, 3), *scales[0]), rank=2)
    return b.build()


def _functions(rng: np.random.Generator) -> onnx.ModelProto:
    """Functions of a value: with a quantisation in between, with constants, after a sum."""
    b = Builder(rng)
    x = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 6, 6)), b.weights(8, 3, 3, 3)))
    y = b.requantize(b.node("Mul", x, b.requantize(b.node("Sigmoid", x), 1 / 256, -128)))
    z = b.node("Clip", b.node("Add", y, b.scale(3)), b.scale(0), b.scale(6))
    z = b.requantize(b.node("Div", b.node("Mul", y, z), b.scale(6)))
    b.output(b.quantize(b.node("Elu", b.requantize(b.node("Add", x, z)), alpha=0.5)))
    return b.build()


@dataclass(frozen=True)
class Sample:
    """A valid input: what its file is called, and its bytes."""

    name: str
    content: bytes


@dataclass(frozen=True)
class Base:
    """A model, its inputs (arrays first), and programs of it."""

    model: bytes
    samples: tuple[Sample, ...]
    programs: tuple[bytes, ...]


def _arrays(workload: Workload, rng: np.random.Generator) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for name, (tensor, steps) in workload.graph.inputs.items():
        shape = (2, *workload.input_shapes[name][1:])
        if any(step.kind == "quantize" for step in steps):
            arrays[name] = rng.uniform(-3, 3, shape).astype(np.float32)
        else:
            number = np.uint8 if workload.graph.tensors[tensor].onnx_unsigned else np.int8
            arrays[name] = rng.integers(np.iinfo(number).min, np.iinfo(number).max + 1, shape).astype(number)
    return arrays


def _samples(workload: Workload, rng: np.random.Generator) -> tuple[Sample, ...]:
    arrays = _arrays(workload, rng)
    samples = []
    for name, options in (("x.npz", {"label": np.arange(2)}), ("y.npz", {})):
        buffer = io.BytesIO()
        (np.savez if options else np.savez_compressed)(buffer, **arrays, **options)  # type: ignore[arg-type]
        samples.append(Sample(name, buffer.getvalue()))
    buffer = io.BytesIO()
    np.save(buffer, next(iter(arrays.values())))
    samples.append(Sample("x.npy", buffer.getvalue()))
    pixels = rng.integers(0, 256, (12, 10, 3), np.uint8)
    gray = rng.integers(0, 65536, (12, 10)).astype(np.uint16)
    for name, image in (("x.png", Image.fromarray(pixels)), ("x.jpg", Image.fromarray(pixels)),
                        ("x.bmp", Image.fromarray(pixels)), ("x.gif", Image.fromarray(pixels).convert("P")),
                        ("gray.png", Image.fromarray(gray)), ("gray.tiff", Image.fromarray(gray)),
                        ("x.webp", Image.fromarray(pixels)), ("x.ppm", Image.fromarray(pixels))):
        buffer = io.BytesIO()
        image.save(buffer, {"jpg": "JPEG"}.get(name.split(".")[1]) or name.split(".")[1])
        samples.append(Sample(name, buffer.getvalue()))
    return tuple(samples)


@dataclass(frozen=True)
class Bases:
    """The same in every run."""

    bases: tuple[Base, ...]
    configs: tuple[str, ...]

    @classmethod
    def make(cls, folder: Path, more: Sequence[Path] = ()) -> "Bases":
        """``folder``: for files on the way; ``more``: further models."""
        models = [make(np.random.default_rng(0)).SerializeToString() for make in (_residual, _mobile, _operators)]
        models += [path.read_bytes() for path in (_DIGITS, *more)]
        machines = {model: (SMALL, _EVERYTHING) for model in models}
        machines[_functions(np.random.default_rng(0)).SerializeToString()] = (_EVERYTHING,)
        bases = []
        for model, configs in machines.items():
            path = folder / "base.onnx"
            path.write_bytes(model)
            programs = []
            for config in configs:
                workload = open_workload(path, config)
                save_program(workload.program, folder / "base.npu")
                programs.append((folder / "base.npu").read_bytes())
            bases.append(Base(model, _samples(workload, np.random.default_rng(0)), tuple(programs)))
        return cls(tuple(bases), tuple(config.to_json() for config in (SMALL, _EVERYTHING, NpuConfig())))
