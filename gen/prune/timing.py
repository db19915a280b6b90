"""How many cycles a model takes, float or quantised, before anybody has calibrated it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, shape_inference

from cores.config import NpuConfig
from gen.compiler import generate, prepare
from gen.ir.errors import CompileError, GraphError
from gen.onnx.importer import Imported
from gen.options import CompileOptions
from gen.passes.prune import prune
from gen.quantize.calibrate import distributions
from gen.quantize.insert import insert
from gen.quantize.options import QuantizeError, QuantizeOptions
from gen.quantize.plan import plan_quantisation
from gen.quantize.prepare import quantised_node
from gen.quantize.ranges import ranges_of
from gen.run.application import open_application
from gen.run.inputs import InputSpec
from sim import cycles
from sim.profile import layer_timings

__all__ = ["Times", "QuantisedCounterpart", "cycles_of", "quantised", "random_inputs", "specs_of"]

#: The opset in which DequantizeLinear learnt of scales for each channel.
_PER_CHANNEL = 13


@dataclass(frozen=True)
class Times:
    """Cycles of an inference, and of each ONNX node that a layer of the machine computes (as its first)."""

    total: int
    nodes: Mapping[str, int]


def random_inputs(model: onnx.ModelProto, samples: int) -> dict[str, np.ndarray]:
    """Standard normal numbers for float inputs, all values for integer ones; the same at every call."""
    rng, inputs = np.random.default_rng(0), {}
    for name, spec in specs_of(model).items():
        shape = (samples, *spec.shape[1:])
        if spec.dtype.kind in "iu":
            limits = np.iinfo(spec.dtype)
            inputs[name] = rng.integers(limits.min, limits.max, shape, spec.dtype, endpoint=True)
        else:
            inputs[name] = rng.normal(size=shape).astype(spec.dtype)
    return inputs


def specs_of(model: onnx.ModelProto) -> dict[str, InputSpec]:
    """What the model's inputs take."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return {value.name: InputSpec((1, *(d.dim_value for d in value.type.tensor_type.shape.dim[1:])),
                                  helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
            for value in model.graph.input if value.name not in constants}


def quantised(model: onnx.ModelProto) -> onnx.ModelProto:
    """A float model as int8, its nodes as they are, with scales that mean nothing: time does not depend on values.

    `gen.quantize.quantize.quantize` would fold batch norms first, and rename nodes by it. Raises QuantizeError.
    """
    model = shape_inference.infer_shapes(model)
    opset = max(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    options = QuantizeOptions(method="minmax", per_channel=opset >= _PER_CHANNEL)
    plan = plan_quantisation(model)
    found = distributions(model, plan.tensors, random_inputs(model, 1), lambda done, total, what: None)
    return insert(model, plan, ranges_of(plan, found, options), options)


@dataclass(frozen=True, eq=False)
class QuantisedCounterpart:
    """The layers that a machine would compute for a model. They stand for its cycles; their values mean nothing."""

    #: Of each part that runs on the accelerator.
    imported: Sequence[Imported]
    #: ONNX node -> the layer that computes it.
    layers: Mapping[str, str]
    #: Of the model.
    inputs: frozenset[str]
    #: Nodes that are left to the processor.
    on_host: int = 0

    @classmethod
    def of(cls, model: onnx.ModelProto, config: NpuConfig, *, name: str) -> "QuantisedCounterpart":
        """Raises GraphError, CompileError, QuantizeError for a model that the machine cannot have any of; ``name`` is
        its file's.
        """
        integers = quantised(model) if quantised_node(model) is None else model
        application = open_application(Path(name), config, content=integers.SerializeToString())
        imported = [workload.imported for workload in application.workloads]
        layers = {node: layer.name for one in imported for layer in one.graph.layers for node in layer.onnx_nodes}
        return cls(imported, layers, frozenset(value.name for value in model.graph.input),
                   len(application.partition.host) if application.partition else 0)

    def times(self, config: NpuConfig, density: Mapping[str, float] | None = None) -> Times:
        """With the layers of these nodes pruned to ``density``. Raises CompileError."""
        wanted = {self.layers[node]: value for node, value in (density or {}).items() if node in self.layers}
        options, total = CompileOptions(), 0
        found: dict[str, int] = {}
        for one in self.imported:
            here = {layer.name: wanted[layer.name] for layer in one.graph.layers if layer.name in wanted}
            made_before = one.graph.inputs.keys() - self.inputs
            graph = prepare(prune(one.graph, config, here, made_before), config, options)
            program = generate(graph, config, options)
            timing = cycles.estimate(config, program.code)
            found |= {layer.name: layer.cycles for layer in layer_timings(program, timing, timing.cycles)}
            total += timing.cycles
        return Times(total, dict(self._of_nodes(found)))

    def _of_nodes(self, found: Mapping[str, int]) -> Iterator[tuple[str, int]]:
        return ((node, found[layer]) for node, layer in self.layers.items() if layer in found)


def cycles_of(model: onnx.ModelProto, config: NpuConfig, *, name: str) -> int | None:
    """Of an inference, on the accelerator; None where it can have nothing of the model."""
    try:
        return QuantisedCounterpart.of(model, config, name=name).times(config).total
    except (CompileError, GraphError, QuantizeError):
        return None
