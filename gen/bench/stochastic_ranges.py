"""Networks quantised for streams: right answers by the way that ranges and biases are chosen."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx

from cores.config import NpuConfig
from gen.compiler import prepare
from gen.ir import reference
from gen.ir.graph import Graph
from gen.onnx.importer import load_model
from gen.options import CompileOptions
from gen.passes.streams import shorten_streams
from gen.quantize.options import QuantizeOptions
from gen.quantize.quantize import quantize
from sim.stochastic.streams import Streams

__all__ = ["LENGTHS", "RangesRow", "WAYS", "measure_ranges"]

#: Bits of the streams that networks are tested with.
LENGTHS = (128, 64, 32, 16)
#: Of the machine, which decides nothing but what can be in streams.
_MACS = 64

WAYS = {
    "mse": QuantizeOptions(symmetric=True),
    "percentile 99": QuantizeOptions(symmetric=True, method="percentile", percentile=99),
    "percentile 97": QuantizeOptions(symmetric=True, method="percentile", percentile=97),
    "streams 64": QuantizeOptions(symmetric=True, streams=64),
    "streams 32": QuantizeOptions(symmetric=True, streams=32),
}


@dataclass(frozen=True)
class RangesRow:
    """Shares of right answers: of the exact int8 network, and by the bits of streams."""

    way: str
    exact: float
    right: dict[int, float]


def measure_ranges(model: onnx.ModelProto, calibration: np.ndarray, images: np.ndarray, labels: np.ndarray,
                   remark: Callable[[str], None] = lambda step: None) -> Iterator[RangesRow]:
    """Of a float classifier with one input, (N, ...) float32, that is quantised on ``calibration`` in each of `WAYS`.

    Raises what `quantize` and the importer do.
    """
    preset = NpuConfig.preset(_MACS)
    config = NpuConfig.preset(_MACS, **preset.feature_fields(["stochastic"]))
    (name,) = (value.name for value in model.graph.input)

    def right(graph: Graph) -> float:
        outputs, _ = reference.run(graph, {name: images})
        (scores,) = outputs.values()
        return float((scores.reshape(len(labels), -1).argmax(axis=1) == labels).mean())

    for way, options in WAYS.items():
        remark(f"{way}: quantising")
        content = quantize(model, {name: calibration}, options).model.SerializeToString()
        exact = load_model("model", content).graph
        graph = prepare(exact, config, CompileOptions(stochastic=Streams(LENGTHS[0])))
        found = {}
        for shift, length in enumerate(LENGTHS):
            remark(f"{way}: {length} bits")
            found[length] = right(shorten_streams(graph, shift))
        yield RangesRow(way, right(exact), found)
