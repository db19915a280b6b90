"""The graph on NumPy, and the host's part of the work for every way to run."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from gen.ir.errors import GraphError
from gen.ir.graph import Graph
from gen.ir.host import apply_step
from gen.ir.parts import ByChannel, Present, origin
from gen.ir.queries import count_readers
from sim.golden import run_layer

__all__ = ["host_output", "run"]


def _sample_shape(graph: Graph, name: str) -> tuple[int, ...]:
    """Shape of one sample of a model input; only the number of its values where it is rearranged on its way in."""
    tensor, steps = graph.inputs[name]
    shape: tuple[int, ...] = graph.tensors[tensor].shape
    if any(step.kind in ("reshape", "gather") for step in steps):
        return (int(np.prod(shape)),)
    for step in steps:
        if step.kind == "transpose":
            axes: Any = step.parameters["axes"]
            shape = tuple(shape[i] for i in np.argsort([a - 1 for a in axes[1:]]))
    return shape


def _host_input(graph: Graph, name: str, array: np.ndarray) -> np.ndarray:
    """A model input (N, ...) in the model's own type -> its tensor, (N, C, H, W) int8.

    Raises GraphError for an unknown name, a shape that does not fit or a type that the model does not take.
    """
    if name not in graph.inputs:
        raise GraphError(f"the model has no input {name!r}; it has {', '.join(graph.inputs)}", code="sample-names")
    tensor_name, steps = graph.inputs[name]
    tensor, x = graph.tensors[tensor_name], np.asarray(array)
    wanted = np.float32 if any(s.kind == "quantize" for s in steps) else np.uint8 if tensor.onnx_unsigned else np.int8
    if wanted == np.float32 and np.issubdtype(x.dtype, np.floating):
        x = x.astype(np.float32)
    if x.dtype != wanted:
        raise GraphError(f"input {name} must be {np.dtype(wanted)}, not {x.dtype}", code="sample-type")
    shape = _sample_shape(graph, name)
    if x.ndim < 2 or (x.shape[1:] if len(shape) > 1 else (int(np.prod(x.shape[1:])),)) != shape:
        raise GraphError(f"input {name} must have shape (samples, {', '.join(map(str, shape))}), not {x.shape}",
                         code="sample-shape")
    for step in steps:
        x = apply_step(step, x)
    if tensor.onnx_unsigned:
        x = (x ^ 128).view(np.int8)
    return np.ascontiguousarray(x.reshape(len(x), *tensor.shape))


def host_output(graph: Graph, name: str, array: np.ndarray) -> np.ndarray:
    """A model output as the model gives it, from its tensor (N, C, H, W) int8."""
    tensor, steps = graph.outputs[name]
    x = np.asarray(array)
    if graph.tensors[tensor].onnx_unsigned:
        x = np.ascontiguousarray(x).view(np.uint8) ^ 128
    for step in steps:
        x = apply_step(step, x)
    return x


def run(graph: Graph, inputs: Mapping[str, np.ndarray], *,
        keep: bool = False) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray] | None]:
    """Run all samples.

    ``inputs``: model input -> (N, ...) array. Returns the model's outputs, and with ``keep`` every tensor as
    (N, C, H, W) int8.
    Raises GraphError when inputs are missing or do not fit.
    """
    missing = [name for name in graph.inputs if name not in inputs]
    if missing:
        raise GraphError(f"input {missing[0]!r} is missing", code="sample-names")
    converted = {name: _host_input(graph, name, array) for name, array in inputs.items()}
    if len({len(x) for x in converted.values()}) > 1:
        raise GraphError("inputs have different numbers of samples", code="bad-samples")
    tensors, there = ByChannel(graph.tensors), Present(graph.tensors)
    for name, array in converted.items():
        tensors[graph.inputs[name][0]] = array
        there.add(graph.inputs[name][0])
    samples = len(next(iter(converted.values())))
    for name, value in graph.constants.items():
        tensors[name] = np.broadcast_to(value, (samples, *value.shape))
        there.add(name)
    unread = count_readers(graph)
    for layer in graph.layers:
        zero_point = graph.tensors[layer.input].zero_point
        tensors[layer.output] = run_layer(
            layer, tensors[layer.input], [tensors[name] for name in layer.reads[1:]], zero_point=zero_point)
        there.add(layer.output)
        for name in layer.reads:
            whole, _ = origin(graph.tensors, name)
            unread[whole] -= 1
            if not (keep or unread[whole]):
                tensors.drop(whole)
    outputs = {name: host_output(graph, name, tensors[tensor]) for name, (tensor, _) in graph.outputs.items()}
    kept = {name: tensors[name] for name in graph.tensors if there.all_of(name)} if keep else None
    return outputs, kept
