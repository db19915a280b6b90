"""Whether a machine with a stochastic unit computes a network: asked of the compiler, without training."""

from pathlib import Path

import numpy as np

from cores.arch.stochastic import MAX_LENGTH_LOG, Circuit
from cores.config import NpuConfig
from cores.errors import NpugenError
from gen.compiler import compile_graph
from gen.onnx.importer import load_model
from gen.options import CompileOptions
from gen.stochastic.backbone import Backbone
from gen.stochastic.model import onnx_model
from gen.stochastic.network import Layer
from sim.stochastic.streams import Streams

__all__ = ["refusal", "with_streams"]

#: Of weights, as only their number counts: small, so that no sum is too large for the accumulators.
_LARGEST_WEIGHT = 8
_SEED = 0


def with_streams(config: NpuConfig, circuit: Circuit) -> NpuConfig:
    """The machine with a unit of this circuit, with the rows of `feature_fields` unless it has one."""
    fields = config.to_dict()
    if not config.stochastic_rows:
        fields |= config.feature_fields(["stochastic"])
    return NpuConfig(**{**fields, "stochastic_circuit": int(circuit)})


def refusal(backbone: Backbone, config: NpuConfig, circuit: Circuit) -> str:
    """What the compiler says against a network, all of whose products are streams, on the machine; "" if nothing."""
    rng = np.random.default_rng(_SEED)
    layers = [Layer(one, rng.integers(-_LARGEST_WEIGHT, _LARGEST_WEIGHT, (one.outputs, one.taps, one.input.channels),
                                      dtype=np.int8), np.zeros(one.outputs, np.int64), 0.002)
              for one in backbone.layers]
    try:
        graph = load_model(Path("network.onnx"), onnx_model(layers, 1000.0)).graph
        streams = {layer.name: Streams(1 << MAX_LENGTH_LOG) for layer in graph.layers if layer.op == "conv"}
        compile_graph(graph, with_streams(config, circuit), CompileOptions(stochastic=streams))
    except NpugenError as error:
        return str(error)
    return ""
