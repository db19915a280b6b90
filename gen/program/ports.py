"""Inputs and outputs of a program as the driver takes and gives them."""

from collections.abc import Mapping

import numpy as np

from gen.ir import reference
from gen.ir.graph import Graph
from gen.memory.placement import Placement
from npudriver.program import Port, Step

__all__ = ["input_ports", "output_ports"]


def input_ports(graph: Graph, tensors: Mapping[str, Placement], shapes: Mapping[str, tuple[int, ...]]
                ) -> tuple[Port, ...]:
    """Those of a ``graph`` whose ``tensors`` lie there. ``shapes``: of the model's inputs, samples first; those of
    their feature maps where they are not known.
    """
    return tuple(_input(graph, tensors, name, shapes.get(name)) for name in graph.inputs)


def _input(graph: Graph, tensors: Mapping[str, Placement], name: str, shape: tuple[int, ...] | None) -> Port:
    tensor, host_steps = graph.inputs[name]
    steps = [Step(step.kind, step.parameters) for step in host_steps]
    unsigned = graph.tensors[tensor].onnx_unsigned
    if unsigned:
        steps.append(Step("retype", {"unsigned": False}))
    floats = any(step.kind == "quantize" for step in host_steps)
    dtype = "float32" if floats else "uint8" if unsigned else "int8"
    return _port(name, dtype, shape[1:] if shape else graph.tensors[tensor].shape, tensor, tensors, steps)


def output_ports(graph: Graph, tensors: Mapping[str, Placement]) -> tuple[Port, ...]:
    """As `input_ports`."""
    found = []
    for name, (tensor, host_steps) in graph.outputs.items():
        steps = [Step("retype", {"unsigned": True})] if graph.tensors[tensor].onnx_unsigned else []
        steps += [Step(step.kind, step.parameters) for step in host_steps]
        example = reference.host_output(graph, name, np.zeros((1, *graph.tensors[tensor].shape), np.int8))
        found.append(_port(name, example.dtype.name, example.shape[1:], tensor, tensors, steps))
    return tuple(found)


def _port(name: str, dtype: str, shape: tuple[int, ...], tensor: str, tensors: Mapping[str, Placement],
          steps: list[Step]) -> Port:
    place = tensors[tensor]
    return Port(name=name, dtype=dtype, shape=list(shape), tensor=tensor, map_shape=list(place.shape),
                offset=place.offset, interleaved=place.interleaved, signs=place.signs, steps=steps)
