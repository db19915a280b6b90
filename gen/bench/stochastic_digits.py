"""The digits example with stochastic layers, as the machine has it: right answers by circuit and length of streams."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cores.arch.stochastic import Circuit
from cores.config import NpuConfig
from gen.compiler import prepare
from gen.files.results import kept
from gen.files.sources import sources_digest
from gen.options import CompileOptions
from gen.quantize.options import QuantizeOptions
from gen.stochastic.accuracy import FEW, lengths_of
from sim.stochastic.fast import LOOKED_UP
from sim.stochastic.streams import Streams

from .classifier import Classifier
from .stochastic_network import AccuracyRow

__all__ = ["NAME", "measure_digits"]

NAME = "digits"
#: One model for all lengths: of the ways to quantise it, the one that is best from 16 to 1,024 bits taken together.
_OPTIONS = QuantizeOptions(symmetric=True, method="percentile", percentile=97)
#: Of the machine, which decides nothing but what can be in streams.
_MACS = 64
#: What a result depends on beside its model and images.
_SOURCES = ("cores", "gen/bench/classifier.py", "gen/compiler.py", "gen/ir", "gen/onnx", "gen/options.py", "gen/passes",
            "gen/quantize", "sim")


@dataclass(frozen=True)
class _Right:
    right: float


def measure_digits(classifier: Classifier, folder: Path | None, few: int = FEW,
                   remark: Callable[[str], None] = lambda step: None) -> Iterator[AccuracyRow]:
    """Rows of the exact int8 network, and of each circuit by length; ``few``: images for circuits whose sums are not
    looked up. Results are kept in ``folder``, if there is one.

    Raises what `quantize` and the compiler's passes do.
    """
    remark(f"{NAME}: quantising")
    exact = classifier.quantised(_OPTIONS)
    everything = len(classifier.labels)
    few = min(few, everything)
    fields = NpuConfig.preset(_MACS).feature_fields(["stochastic"])

    def right(count: int, circuit: Circuit | None = None, length: int = 0) -> float:
        config = NpuConfig.preset(_MACS, **{**fields, "stochastic_circuit": circuit or 0})
        streams = None if circuit is None else Streams(length)

        def measure() -> _Right:
            graph = exact if streams is None else prepare(exact, config, CompileOptions(stochastic=streams))
            return _Right(classifier.right(graph, count))

        key = repr((classifier.digest, _OPTIONS, count, config.to_json(), streams, sources_digest(*_SOURCES)))
        return kept(folder, f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.kept", lambda values: _Right(**values),
                    measure).right

    for count in sorted({everything, few}, reverse=True):
        yield AccuracyRow(NAME, "int8", None, count, right(count))
    for circuit in Circuit:
        count = everything if circuit in LOOKED_UP else few
        for length in lengths_of(circuit):
            remark(f"{NAME}: {circuit.label}, {length} bits")
            yield AccuracyRow(NAME, circuit.label, length, count, right(count, circuit, length))
