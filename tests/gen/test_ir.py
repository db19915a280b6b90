"""The IR's rules: a graph that breaks one is refused, with the layer and the rule."""

from dataclasses import replace

import numpy as np
import pytest

from gen.ir.errors import GraphError
from gen.ir.graph import Conv, Graph, Pool, Requantize, Residual, Tensor, verify


def requantize(channels: int = 4, **changes: object) -> Requantize:
    fields = dict(bias=np.zeros(channels, np.int64), multiplier=np.full(channels, 1 << 16), shift=np.full(channels, 16),
                  zero_point=0, low=-128, high=127)
    return Requantize(**{**fields, **changes})  # type: ignore[arg-type]


CONV = Conv("conv", "x", "y", np.ones((4, 3, 3, 3), np.int16), False, (1, 1), (1, 1, 1, 1), requantize())
POOL = Pool("pool", "y", "z", True, (2, 2), (2, 2), (0, 0, 0, 0), -128, requantize())
ADD = Residual(Tensor("m", (4, 3, 3), 1.0, 0), "y", 1 << 16, 1 << 16, 0, 16, 0, -128, 127)
TENSORS = {name: Tensor(name, shape, 1.0, 0) for name, shape in
           dict(x=(3, 6, 6), y=(4, 6, 6), z=(4, 3, 3)).items()}


def graph(*layers: Conv | Pool, output: str = "z", **tensors: Tensor) -> Graph:
    return Graph("test", {**TENSORS, **tensors}, layers, {"in": ("x", ())}, {"out": (output, ())})


def test_whole_graph_passes() -> None:
    verify(graph(CONV, POOL))


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
    (graph(replace(CONV, requantize=requantize(5))), "one bias, multiplier and shift a channel"),
    (graph(replace(CONV, requantize=requantize(low=5, high=4))), "clip bounds"),
    (graph(replace(CONV, requantize=requantize(high=128))), "clip bounds"),
    (graph(CONV, replace(POOL, residual=ADD)), "residual and output differ in shape"),
    (graph(replace(CONV, residual=replace(ADD, other="z"))), "residual 'z' is read before it is written"),
    (graph(CONV), "output out: tensor 'z' is never written"),
])
def test_broken_rules(broken: Graph, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        verify(broken)
