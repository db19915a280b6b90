"""Networks quantised for streams: right answers by the way that ranges and biases are chosen, or are trained."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from cores.config import NpuConfig
from gen.compiler import prepare
from gen.ir.graph import Graph
from gen.onnx.importer import load_model
from gen.options import CompileOptions
from gen.passes.streams import shorten_streams
from gen.quantize.options import QuantizeOptions
from gen.train.session import Data, TrainingSession, TrainingStage
from sim.stochastic.streams import Streams

from .classifier import Classifier

__all__ = ["LENGTHS", "RangesRow", "TRAINED", "WAYS", "measure_ranges", "measure_trained"]

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


#: The way that training begins with, and the bits of the streams that it goes through.
TRAINED = {f"trained {bits}": ("streams 32", TrainingStage(epochs=10, batch=16, lr=0.002, scales=True, streams=bits))
           for bits in (32, 16)}


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
    for way, options in WAYS.items():
        remark(f"{way}: quantising")
        yield _row(way, classifier, classifier.quantised(options), remark)


def measure_trained(classifier: Classifier, remark: Callable[[str], None] = lambda step: None) -> Iterator[RangesRow]:
    """Of a classifier that is trained as each of `TRAINED` says, on what it is calibrated with; needs PyTorch.

    Raises as `measure_ranges`, and TrainError.
    """
    from gen.train.fit import train

    for way, (begun, stage) in TRAINED.items():
        remark(f"{way}: quantising")
        model = classifier.quantised_model(WAYS[begun])
        session = TrainingSession(model="", train=Data(path="learnt.npz"), shift=1, seed=1, stages=(stage,))
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            np.savez(folder / "learnt.npz", allow_pickle=False,
                     **{classifier.input: classifier.calibration, "label": classifier.learnt})
            model = train(session, model, folder, name=way, progress=lambda step, way=way: remark(  # type: ignore[misc]
                f"{way}: {step}")).model
        yield _row(way, classifier, _graph(model), remark)


def _graph(model: onnx.ModelProto) -> Graph:
    return load_model("model", model.SerializeToString()).graph


def _row(way: str, classifier: Classifier, exact: Graph, remark: Callable[[str], None]) -> RangesRow:
    preset = NpuConfig.preset(_MACS)
    config = NpuConfig.preset(_MACS, **preset.feature_fields(["stochastic"]))
    graph = prepare(exact, config, CompileOptions(stochastic=Streams(LENGTHS[0])))
    found = {}
    for shift, length in enumerate(LENGTHS):
        remark(f"{way}: {length} bits")
        found[length] = classifier.right(shorten_streams(graph, shift))
    return RangesRow(way, classifier.right(exact), found)
