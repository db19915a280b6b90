"""Networks quantised for streams: right answers by the way that ranges and biases are chosen."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cores.config import NpuConfig
from gen.compiler import prepare
from gen.options import CompileOptions
from gen.passes.streams import shorten_streams
from gen.quantize.options import QuantizeOptions
from sim.stochastic.streams import Streams

from .classifier import Classifier

__all__ = ["LENGTHS", "RangesRow", "WAYS", "measure_ranges"]

#: Bits of the streams that networks are tested with.
LENGTHS = (128, 64, 32, 16)
#: Of the machine, which decides nothing but what can be in streams.
_MACS = 64

WAYS = {
    "mse": QuantizeOptions(symmetric=True, method="mse"),
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


def measure_ranges(classifier: Classifier, remark: Callable[[str], None] = lambda step: None) -> Iterator[RangesRow]:
    """Of a classifier that is quantised in each of `WAYS`.

    Raises what `quantize` and the importer do.
    """
    preset = NpuConfig.preset(_MACS)
    config = NpuConfig.preset(_MACS, **preset.feature_fields(["stochastic"]))
    for way, options in WAYS.items():
        remark(f"{way}: quantising")
        exact = classifier.quantised(options)
        graph = prepare(exact, config, CompileOptions(stochastic=Streams(LENGTHS[0])))
        found = {}
        for shift, length in enumerate(LENGTHS):
            remark(f"{way}: {length} bits")
            found[length] = classifier.right(shorten_streams(graph, shift))
        yield RangesRow(way, classifier.right(exact), found)
