"""Weights of four bits: -7..7 times a scale of their channel, in int8 tensors, as machines with `int4` find them."""

import numpy as np
import onnx
from onnx import numpy_helper

from gen.quantize.options import QuantizeError, QuantizeOptions
from gen.quantize.plan import Layer, Plan

__all__ = ["INT4_CHOICES", "int4_weights"]

#: In the place of a node's name: all layers that gain, and those that are products alone.
INT4_CHOICES = ("all", "linear")
_LEVELS = 7
#: Shares of a channel's largest weight that its range may end at: where the squared error is least.
_SHARES = np.linspace(0.3, 1.0, 29)


def int4_weights(model: onnx.ModelProto, plan: Plan, options: QuantizeOptions) -> dict[str, np.ndarray]:
    """Of the layers that ``options.int4`` names: weights -> scales, float32 (C,), or (1,) where they have one. In
    ``model`` the weights become what such scales can represent. Raises QuantizeError for a name of no such layer, and
    where none is left.
    """
    layers = list(_chosen(model, plan, options.int4)) if options.int4 else []
    tensors, found = {tensor.name: tensor for tensor in model.graph.initializer}, dict[str, np.ndarray]()
    for layer in layers:
        if layer.weights in found:
            continue
        weights = numpy_helper.to_array(tensors[layer.weights])
        rows = np.moveaxis(weights, layer.axis, 0)
        scales = _scales(rows.reshape(len(rows) if options.per_channel else 1, -1))
        ends = _LEVELS * scales.reshape([-1, *[1] * (rows.ndim - 1)])
        clipped = np.moveaxis(np.clip(rows, -ends, ends), 0, layer.axis)
        tensors[layer.weights].CopyFrom(numpy_helper.from_array(np.ascontiguousarray(clipped), layer.weights))
        found[layer.weights] = scales
    return found


def _chosen(model: onnx.ModelProto, plan: Plan, names: frozenset[str]) -> list[Layer]:
    nodes = {node.name: node for node in model.graph.node}
    products = [layer for layer in plan.layers if not _is_depthwise(nodes[layer.node])]
    unknown = names - {*INT4_CHOICES, *(layer.node for layer in plan.layers)}
    if unknown:
        several = "; --int4 takes one name, and is given several times" if "," in min(unknown) else ""
        raise QuantizeError(f"there is no node {min(unknown)} with weights that could have four bits{several}",
                            code="no-such-layer")
    grouped = names & {layer.node for layer in plan.layers} - {layer.node for layer in products}
    if grouped:
        raise QuantizeError(f"node {min(grouped)} has groups, whose weights keep eight bits in every machine; leave "
                            f"out --int4 {min(grouped)}", code="no-such-layer")
    found = [layer for layer in products if layer.node in names or "all" in names
             or "linear" in names and nodes[layer.node].op_type in ("Gemm", "MatMul")]
    if not found:
        what = "Gemm or MatMul" if "all" not in names else "Gemm, MatMul or Conv without groups"
        raise QuantizeError(f"no {what} is quantised whose weights could have four bits; leave out --int4",
                            code="no-such-layer")
    return found


def _is_depthwise(node: onnx.NodeProto) -> bool:
    """Whether a node has groups: their weights keep eight bits in the machine."""
    return any(attribute.name == "group" and attribute.i > 1 for attribute in node.attribute)


def _scales(rows: np.ndarray) -> np.ndarray:
    """Of each of ``rows``, the scale of least squared error; of zeros 1."""
    largest = np.abs(rows).max(axis=1, initial=0)
    best, least = np.where(largest > 0, largest / _LEVELS, 1).astype(np.float32), np.full(len(rows), np.inf)
    for share in _SHARES:
        scales = np.where(largest > 0, share * largest / _LEVELS, 1).astype(np.float32)
        steps = np.clip(np.rint(rows / scales[:, None]), -_LEVELS, _LEVELS)
        errors = ((steps * scales[:, None] - rows) ** 2).sum(axis=1)
        best, least = np.where(errors < least, scales, best), np.minimum(errors, least)
    return best
