"""The IR's rules: a graph that breaks one is refused, with the layer and the rule."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from gen.ir.epilogue.add import Add
from gen.ir.epilogue.leaky import Leaky
from gen.ir.epilogue.table import Table
from gen.ir.epilogue.upsample import Upsample
from gen.ir.errors import GraphError
from gen.ir.graph import Conv, Graph, Pool
from gen.ir.host import HostStep
from gen.ir.tensor import Requantize, Tensor
from gen.ir.verify import verify


def requantize(channels: int = 4, **changes: object) -> Requantize:
    fields = dict(bias=np.zeros(channels, np.int64), multiplier=np.full(channels, 1 << 16), shift=np.full(channels, 16),
                  zero_point=0, low=-128, high=127)
    return Requantize(**{**fields, **changes})  # type: ignore[arg-type]


CONV = Conv("conv", "x", "y", weights=np.ones((4, 3, 3, 3), np.int16), pads=(1, 1, 1, 1), requantize=requantize())
POOL = Pool("pool", "y", "z", maximum=True, kernel=(2, 2), stride=(2, 2), pad_value=-128, requantize=requantize())
ADD = Add(middle=Tensor("m", (4, 3, 3), 1.0, 0), other="y", multiplier_a=1 << 16, multiplier_b=1 << 16, constant=0,
          shift=16, zero_point=0, low=-128, high=127)
LEAKY = Leaky(middle=Tensor("m", (4, 6, 6), 1.0, 0), multiplier=1 << 16, negative=1 << 13, shift=16, zero_point=0,
              low=-128, high=127)
TABLE = Table(Tensor("m", (4, 6, 6), 1.0, 0), np.arange(-128, 128).astype(np.int8))
TENSORS = {name: Tensor(name, shape, 1.0, 0) for name, shape in
           dict(x=(3, 6, 6), y=(4, 6, 6), z=(4, 3, 3)).items()}


def graph(*layers: Conv | Pool, output: str = "z", **tensors: Tensor) -> Graph:
    return Graph("test", {**TENSORS, **tensors}, layers, {"in": ("x", ())}, {"out": (output, ())})


def staged(channels: int = 4, **changes: object) -> Graph:
    return graph(replace(CONV, requantize=requantize(channels, **changes)))


def added(**changes: object) -> Graph:
    """With an addition after a second convolution, which its whole result is added to."""
    residual = replace(ADD, middle=Tensor("m", (4, 6, 6), 1.0, 0))
    second = replace(CONV, name="second", input="y", output="s", weights=np.ones((4, 4, 3, 3), np.int16),
                     epilogue=(replace(residual, **changes),))  # type: ignore[arg-type]
    return graph(CONV, second, output="s", s=Tensor("s", (4, 6, 6), 1.0, 0))


def bent(**changes: object) -> Graph:
    """A layer with a `Leaky` that these fields are changed of."""
    return graph(replace(CONV, epilogue=(replace(LEAKY, **changes),)), POOL)  # type: ignore[arg-type]


def test_whole_graph_passes() -> None:
    verify(graph(CONV, POOL))
    verify(added())
    verify(bent())


def test_one_second_stage() -> None:
    _, second = added().layers
    with pytest.raises(GraphError, match="it adds and scales negative values; a store has one second stage"):
        verify(replace(added(), layers=(CONV, replace(second, epilogue=(*second.epilogue, LEAKY)))))


@pytest.mark.parametrize(("broken", "message"), [
    (graph(POOL, CONV), "layer pool: input 'y' is read before it is written"),
    (graph(CONV, CONV), "layer conv: output 'y' is written twice"),
    (graph(CONV, replace(POOL, output="x")), "output 'x' is written twice"),
    (graph(replace(CONV, output="nothing")), "tensor 'nothing' is not in the graph"),
    (graph(replace(CONV, weights=np.ones((4, 3, 3, 3), np.int8))), "int16"),
    (graph(replace(CONV, weights=np.full((4, 3, 3, 3), -256, np.int16))), "-255..255"),
    (graph(replace(CONV, weights=np.ones((4, 2, 3, 3), np.int16))), "do not fit"),
    (graph(replace(CONV, depthwise=True, weights=np.ones((4, 1, 3, 3), np.int16))), "do not fit"),
    (graph(replace(CONV, pads=(0, 1, 1, 1))), r"output is \(4, 6, 6\), its layer makes \(4, 5, 6\)"),
    (staged(5), "one bias, multiplier and shift a channel"),
    (staged(low=5, high=4), "clip bounds"),
    (staged(high=128), "clip bounds"),
    (graph(CONV, replace(POOL, epilogue=(ADD,))), "residual and output differ in shape"),
    (graph(replace(CONV, epilogue=(replace(ADD, other="z"),))), "residual 'z' is read before it is written"),
    (graph(CONV), "output out: tensor 'z' is never written"),
    (graph(CONV, replace(POOL, name="conv")), "layer conv: another layer has this name"),
    (graph(replace(CONV, onnx_nodes=["a"])), "layer conv: onnx_nodes must be a tuple, not list"),
    (graph(replace(CONV, weights=np.ones((4, 3, 3), np.int16))), r"\(OC, IC, KH, KW\), not of shape \(4, 3, 3\)"),
    (graph(replace(CONV, weights=np.ones((0, 3, 3, 3), np.int16))), r"not of shape \(0, 3, 3, 3\)"),
    (graph(replace(CONV, weights=np.full((4, 3, 3, 3), -32768, np.int16))), "-255..255"),
    # windows
    (graph(replace(CONV, stride=(0, 1))), r"layer conv: stride must be a tuple of two positive numbers, not \(0, 1\)"),
    (graph(replace(CONV, stride=[1, 1])), r"stride must be a tuple of two positive numbers, not \[1, 1\]"),
    (graph(replace(CONV, pads=(1, 1, 1, -1))), r"pads must be a tuple of four .*, not \(1, 1, 1, -1\)"),
    (graph(replace(CONV, pads=[1, 1, 1, 1])), r"pads must be a tuple of four .*, not \[1, 1, 1, 1\]"),
    (graph(CONV, replace(POOL, kernel=(0, 2))), r"kernel must be a tuple of two positive sizes, not \(0, 2\)"),
    (graph(CONV, replace(POOL, kernel=[2, 2])), r"kernel must be a tuple of two positive sizes, not \[2, 2\]"),
    (graph(replace(CONV, pad_value=128)), "the padding must be int8, not 128"),
    (graph(replace(CONV, pad_value=0.5)), "the padding must be int8, not 0.5"),
    # stages
    (staged(bias=np.zeros(4)), "requantisation bias must be int64, not float64"),
    (staged(bias=[0] * 4), "one bias, multiplier and shift a channel"),
    (staged(multiplier=np.full(4, 1 << 40)), "multipliers must be in 0..131071, not"),
    (staged(multiplier=np.full(4, -1)), "multipliers must be in 0..131071, not -1..-1"),
    (staged(shift=np.zeros(4, np.int64)), "shifts must be in 12..43, not 0..0"),
    (staged(shift=np.full(4, 44)), "shifts must be in 12..43, not 44..44"),
    (staged(zero_point=999), "layer conv: a stage's zero point must be int8, not 999"),
    (staged(low=-0.5), "clip bounds must be ordered integers"),
    (added(multiplier_b=1 << 17), "multipliers must be in 0..131071, not 65536..131072"),
    (added(multiplier_a=0.5), "beside another tensor must be integers"),
    (added(shift=11), "shifts must be in 12..43, not 11..11"),
    (added(constant=1 << 27), "the constant beside another tensor must be in -134217728..134217727, not 134217728"),
    (added(zero_point=128), "zero point must be int8, not 128"),
    (added(high=128), r"clip bounds must be ordered integers in -128..127, not -128..128"),
    (added(middle=Tensor("m", (4, 3, 3), 1.0, 0)), r"its own result is \(4, 3, 3\), the output \(4, 6, 6\)"),
    (graph(replace(CONV, epilogue=(Upsample((2, 1)),))), r"output is \(4, 6, 6\), its layer makes \(4, 12, 6\)"),
    (graph(replace(CONV, epilogue=(Upsample((0, 1)),))),
     r"upsample must be a tuple of two positive numbers, not \(0, 1\)"),
    (bent(negative=1 << 17), "multipliers must be in 0..131071, not 65536..131072"),
    (bent(multiplier=0.5), "of leaky must be integers"),
    (bent(shift=11), "shifts must be in 12..43, not 11..11"),
    (bent(high=128), r"clip bounds must be ordered integers in -128..127, not -128..128"),
    (bent(middle=Tensor("m", (4, 3, 3), 1.0, 0)), r"its own result is \(4, 3, 3\), the output \(4, 6, 6\)"),
    # tensors
    (graph(CONV, POOL, y=Tensor("other", (4, 6, 6), 1.0, 0)), "tensor y: its name is 'other'"),
    (graph(CONV, POOL, y=Tensor("y", [4, 6, 6], 1.0, 0)), "tensor y: shape must be a tuple of three positive sizes"),
    (graph(CONV, POOL, y=Tensor("y", (4, 0, 6), 1.0, 0)), "tensor y: shape must be a tuple of three positive sizes"),
    (graph(CONV, POOL, y=Tensor("y", (4, 1 << 12, 1 << 12), 1.0, 0)), "67,108,864 values; at most 33,554,432"),
    (graph(CONV, POOL, y=Tensor("y", (4, 6, 6), 0.0, 0)), "tensor y: scale must be positive and finite, not 0.0"),
    (graph(CONV, POOL, y=Tensor("y", (4, 6, 6), float("inf"), 0)), "scale must be positive and finite, not inf"),
    (graph(CONV, POOL, y=Tensor("y", (4, 6, 6), 1.0, 999)), "tensor y: zero point must be int8, not 999"),
    (graph(CONV, POOL, y=Tensor("y", (4, 6, 6), 1.0, 0.5)), "tensor y: zero point must be int8, not 0.5"),
    # inputs
    (replace(graph(CONV, POOL), inputs={"in": ("w", ())}), "input in: tensor 'w' is not in the graph"),
    (replace(graph(CONV, POOL), inputs={"in": ("x", ()), "too": ("x", ())}), "input too: .* is that of another"),
    (graph(CONV, POOL, x=Tensor("x", (3, 6, 6), 1.0, 0, signs=True)), "input in: .* can hold more than -1 and"),
])
def test_broken_rules(broken: Graph, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        verify(broken)


#: A host step of each kind that is as it must be.
STEPS = {step.kind: step for step in (
    HostStep("quantize", {"scale": 0.5, "zero_point": 200, "unsigned": True}),
    HostStep("dequantize", {"scale": np.float32(0.5), "zero_point": -128, "unsigned": False}),
    HostStep("softmax", {"axis": 1}), HostStep("reshape", {"shape": (-1, 4)}),
    HostStep("transpose", {"axes": (0, 2, 3, 1)}), HostStep("gather", {"index": np.arange(4)}),
    HostStep("retype", {"unsigned": True}),
    HostStep("join", {"parts": 2, "constant": -3, "scale": np.ones(2, np.float32), "bias": np.ones(2, np.float32)}),
)}


def test_host_steps_pass() -> None:
    assert list(STEPS) == list(get_args(HostStep.__annotations__["kind"]))
    verify(replace(graph(CONV, POOL), outputs={"out": ("z", tuple(STEPS.values()))}))


@pytest.mark.parametrize(("kind", "changes", "message"), [
    ("quantise", {}, "'quantise' is unknown; known: quantize, dequantize, softmax"),
    ("softmax", {"axes": 1}, "softmax must have axis, not axis, axes"),
    ("quantize", {"scale": 0.0}, "quantize cannot have scale=0.0"),
    ("dequantize", {"zero_point": 0.5}, "dequantize cannot have zero_point=0.5"),
    ("quantize", {"zero_point": 256}, "zero_point must be in 0..255, not 256"),
    ("dequantize", {"zero_point": 128}, "zero_point must be in -128..127, not 128"),
    ("retype", {"unsigned": 1}, "retype cannot have unsigned=1"),
    ("softmax", {"axis": 0}, "softmax cannot have axis=0"),
    ("reshape", {"shape": (4, -1)}, r"reshape cannot have shape=\(4, -1\)"),
    ("transpose", {"axes": (1, 0)}, r"transpose cannot have axes=\(1, 0\)"),
    ("transpose", {"axes": (0, 2)}, r"transpose cannot have axes=\(0, 2\)"),
    ("gather", {"index": np.arange(4) - 1}, "gather cannot have index="),
    ("join", {"parts": 0}, "join cannot have parts=0"),
    ("join", {"bias": np.ones(2)}, "join cannot have bias="),
])
@pytest.mark.parametrize("end", ["input", "output"])
def test_broken_host_steps(end: str, kind: str, changes: dict[str, object], message: str) -> None:
    step = STEPS.get(kind, STEPS["softmax"])
    broken = replace(step, kind=kind, parameters={**step.parameters, **changes})  # type: ignore[arg-type]
    whole = graph(CONV, POOL)
    whole = replace(whole, inputs={"end": ("x", (broken,))}) if end == "input" else replace(
        whole, outputs={"end": ("z", (broken,))})
    with pytest.raises(GraphError, match=f"{end} end: host step.* {message}"):
        verify(whole)


def test_host_steps_are_a_tuple() -> None:
    with pytest.raises(GraphError, match="output out: host steps must be a tuple, not list"):
        verify(replace(graph(CONV, POOL), outputs={"out": ("z", [STEPS["softmax"]])}))  # type: ignore[dict-item]
