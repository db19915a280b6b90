"""Channels taken out of a model: it is really smaller afterwards."""

from collections.abc import Mapping, Set

import numpy as np
import onnx
from onnx import helper, numpy_helper

from gen.onnx.names import unique
from gen.prune.channels import ChannelMap, Consumer
from gen.prune.measure import run_model

__all__ = ["shrink"]


def _without_gammas(model: onnx.ModelProto, channels: ChannelMap, dropped: Set[int]) -> onnx.ModelProto:
    """The model with gamma 0 for what is to be dropped, so that those channels are act(beta) everywhere."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    scales = {norm.initializer: norm for norm in channels.gammas}
    for tensor in result.graph.initializer:
        if tensor.name in scales:
            gamma = numpy_helper.to_array(tensor).copy()
            gone = np.isin(channels.roots(scales[tensor.name].atoms), list(dropped))
            gamma[gone] = 0
            tensor.CopyFrom(numpy_helper.from_array(gamma, tensor.name))
    return result


def _compensations(channels: ChannelMap, dropped: Set[int], constants: Mapping[str, np.ndarray]
                   ) -> list[tuple[Consumer, np.ndarray]]:
    """For each node that sums over dropped channels, what its outputs lose where those are ``constants``."""
    found = []
    for consumer in channels.consumers:
        gone = np.isin(channels.roots(consumer.atoms), list(dropped))
        if gone.any():
            weights = np.moveaxis(channels.view.array(consumer.weights).astype(np.float64), consumer.axis, 1)
            values = constants[consumer.node.input[0]][gone]
            sums = weights[:, gone].reshape(len(weights), len(values), -1).sum(2)
            found.append((consumer, (sums @ values).astype(np.float32)))
    return found


def _add_bias(model: onnx.ModelProto, name: str, value: np.ndarray) -> None:
    """Add ``value`` (OC,) to the result of the Conv, Gemm or MatMul of this name."""
    graph = model.graph
    place, node = next((i, node) for i, node in enumerate(graph.node) if node.name == name)
    taken = {n for other in graph.node for n in (other.name, *other.input, *other.output)}
    if node.op_type == "MatMul":
        bias, product = unique(f"{name}_bias", taken), unique(f"{name}_product", taken)
        graph.node.insert(place + 1, helper.make_node(
            "Add", [product, bias], [node.output[0]], name=unique(f"{name}_add", taken)))
        node.output[0] = product
    elif len(node.input) > 2 and node.input[2]:
        old = next(tensor for tensor in graph.initializer if tensor.name == node.input[2])
        beta = next((a.f for a in node.attribute if a.name == "beta"), 1.0)
        value = numpy_helper.to_array(old) + _alpha(node) * value / beta
        bias = unique(f"{name}_bias", taken)    # the old one may have other readers
        node.input[2] = bias
    else:
        bias = unique(f"{name}_bias", taken)
        value = _alpha(node) * value
        del node.input[2:]
        node.input.append(bias)
    graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), bias))


def _alpha(node: onnx.NodeProto) -> float:
    return next((a.f for a in node.attribute if a.name == "alpha"), 1.0) if node.op_type == "Gemm" else 1.0


def _cut(model: onnx.ModelProto, channels: ChannelMap, dropped: set[int]) -> None:
    """Drop the slices of dropped channels from all initializers, and what else counts channels."""
    graph = model.graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    arrays = {part.initializer: numpy_helper.to_array(tensors[part.initializer]) for part in channels.slices}
    for part in channels.slices:
        arrays[part.initializer] = np.take(
            arrays[part.initializer], channels.kept(part.atoms, dropped), axis=part.axis)
    for name, array in arrays.items():
        tensors[name].CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), name))
    nodes = {node.name: node for node in graph.node}
    for node in channels.depthwise:
        group = next(a for a in nodes[node.name].attribute if a.name == "group")
        group.i = len(channels.kept(channels.atoms[node.input[0]], dropped))
    taken = set(tensors) | {name for node in graph.node for name in (*node.input, *node.output)}
    for node in channels.reshapes:
        target = channels.view.array(node.input[1]).copy()
        if target[1] > 0:
            target[0], target[1] = (1 if channels.view.shapes[node.input[0]][0] == 1 else 0), -1
            name = unique(f"{node.name}_shape", taken)
            taken.add(name)
            nodes[node.name].input[1] = name
            graph.initializer.append(numpy_helper.from_array(target, name))
    del graph.value_info[:]


def shrink(model: onnx.ModelProto, channels: ChannelMap, dropped: Set[int], inputs: Mapping[str, np.ndarray], *,
           by_gamma: bool) -> onnx.ModelProto:
    """The model without the channels of the ``dropped`` root atoms; what they gave goes into the next layers' biases.

    A channel dropped for its gamma is taken to be act(beta) everywhere, any other to be its mean over ``inputs``:
    b[oc] += value * sum_k W[oc, c, k] (at a border with padding that is more than the channel gave). Raises PruneError
    when onnxruntime does not take the model.
    """
    if not dropped:
        return model
    # A slice of a bias may be cut as well as changed: cut first, with the losses in the order of what is left.
    sources = sorted({consumer.node.input[0] for consumer in channels.consumers})
    silenced = _without_gammas(model, channels, dropped) if by_gamma else model
    means = {name: values.mean(axis=tuple(axis for axis in range(values.ndim) if axis != 1))
             for name, values in zip(sources, run_model(silenced, inputs, sources), strict=True)}
    losses = _compensations(channels, dropped, means)
    result = onnx.ModelProto()
    result.CopyFrom(model)
    _cut(result, channels, set(dropped))
    for consumer, loss in losses:
        made = channels.atoms[consumer.node.output[0]]
        _add_bias(result, consumer.node.name, loss[channels.kept(made, set(dropped))])
    return result
