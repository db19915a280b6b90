"""The model in C of tests/fuzz/c/model.c: operators whose results depend on indices, sizes and numbers in the data."""

from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from cores.config import NpuConfig
from gen.deploy.c_model import c_model
from gen.run.application import open_application
from tests.gen.qdq import Builder

__all__ = ["write_model"]

_CHANNELS, _SIZE, _BOXES = 6, 4, 12
_FLAT = _CHANNELS * _SIZE * _SIZE
#: In the order in which model.c has them: outputs 0 and 1.
_STATES = {"h0": "h", "n0": "n"}


def _made(b: Builder, op: str, name: str, *inputs: str, **attributes: int) -> str:
    b.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
    return name


def _network() -> onnx.ModelProto:
    """Two programs with the processor before, between and after them."""
    b = Builder(np.random.default_rng(0), opset=18, number=np.int8)

    def integers(*numbers: int) -> str:
        return b.constant(np.array(numbers, np.int64))

    x = b.input(1, _CHANNELS, _SIZE, _SIZE, number=np.float32)
    places, whole = b.input(1, 5, name="places", number=np.int64), b.input(1, 4, name="whole", number=np.int32)
    boxes = b.input(1, _BOXES, 4, name="boxes", number=np.float32)
    h = b.input(1, _CHANNELS, _SIZE, _SIZE, name="h0", number=np.float32)
    n = b.input(1, 4, name="n0", number=np.int32)
    first = b.node("Conv", b.requantize(b.node("Erf", b.node("Add", x, h)), 0.01, 0), b.weights(6, _CHANNELS, 3, 3),
                   pads=[1, 1, 1, 1])
    second = b.node("Conv", b.requantize(b.node("Erf", b.requantize(first, 0.03, 0)), 0.01, 0),
                    b.weights(_CHANNELS, 6, 1, 1))
    y = b.requantize(second, 0.02, 0)
    kept = _made(b, "Tanh", "h", b.node("Mul", y, h))
    counted = _made(b, "Add", "n", b.node("Div", whole, n), b.node("Mod", n, whole))
    flat = b.node("Reshape", b.node("Exp", y), integers(1, -1))
    picked = b.node("Gather", flat, places, axis=1)
    scattered = b.node("ScatterElements", flat, places, b.node("Reshape", picked, integers(1, 5)), axis=1)
    best, where = (f"top_{part}" for part in ("values", "indices"))
    b.nodes.append(helper.make_node("TopK", [scattered, integers(3)], [best, where], name="top"))
    turned = b.node("GatherElements", scattered, where, axis=1)
    hot = b.node("OneHot", places, integers(7), b.constant(np.array([0, 1], np.float32)))
    selected = b.node("NonMaxSuppression", boxes, b.node("Reshape", b.node("Slice", flat, integers(0), integers(
        2 * _BOXES), integers(1)), integers(1, 2, _BOXES)), integers(4), b.constant(np.array([0.4], np.float32)),
        b.constant(np.array([0.2], np.float32)))
    taken = b.node("Compress", scattered, b.node("Greater", b.node("Reshape", scattered, integers(_FLAT)),
                                                 b.constant(np.float32(1))), axis=1)
    bytes_ = b.quantize(b.node("Div", scattered, b.node("Slice", b.node("Reshape", x, integers(1, -1)), integers(0),
                                                        integers(1), integers(1))))
    cast = b.node("Cast", b.node("Log", b.node("Reshape", x, integers(1, -1))), to=onnx.TensorProto.INT32)
    for name, number, rank in ((kept, np.float32, 4), (counted, np.int32, 2), (picked, np.float32, 3),
                               (turned, np.float32, 2), (hot, np.float32, 3), (selected, np.int64, 2),
                               (taken, np.float32, 2), (bytes_, np.int8, 2), (cast, np.int32, 2),
                               (b.node("NonZero", cast), np.int64, 2), (b.node("Softmax", scattered), np.float32, 2)):
        b.output(name, number, rank=rank)
    return b.build()


def write_model(folder: Path, config: NpuConfig, *, states: bool) -> None:
    """Its files, into ``folder``. ``states``: whether it keeps two outputs, and so has one sample on its way at a time,
    or has two.
    """
    application = open_application(Path("fuzzed.onnx"), config, content=_network().SerializeToString())
    for name, content in c_model(application.file, _STATES if states else {}).files.items():
        (folder / name).write_bytes(content)
