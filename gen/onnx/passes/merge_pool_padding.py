"""Padding in front of maxima that changes none of them."""

from collections import Counter

import numpy as np
import onnx

from gen.onnx.passes.constants import constant_of

__all__ = ["merge_pool_padding"]

_SPATIAL = 2


def merge_pool_padding(model: onnx.ModelProto) -> onnx.ModelProto:
    """A Pad that repeats the values at the edge, or pads with the least number, in front of a MaxPool -> its padding.

    Keras on PyTorch writes so what is padded on one side alone. As long as no window lies in the padding as a whole,
    each that has a repeated value has the value itself.
    """
    graph = model.graph
    readers = Counter([*(name for node in graph.node for name in node.input), *(out.name for out in graph.output)])
    pads = {node.output[0]: node for node in graph.node if node.op_type == "Pad" and readers[node.output[0]] == 1}
    if not pads:
        return model
    merged = set()
    for node in graph.node:
        pad = pads.get(node.input[0]) if node.op_type == "MaxPool" and not any(node.output[1:]) else None
        if pad is None:
            continue
        wider = _merged(graph, pad, {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute})
        if wider is not None:
            kept = [a for a in node.attribute if a.name not in ("pads", "auto_pad")]
            del node.attribute[:]
            node.attribute.extend([*kept, onnx.helper.make_attribute("pads", wider)])
            node.input[0] = pad.input[0]
            merged.add(pad.output[0])
    left = [node for node in graph.node if not (node.output and node.output[0] in merged)]
    values = [value for value in graph.value_info if value.name not in merged]
    del graph.node[:], graph.value_info[:]
    graph.node.extend(left)
    graph.value_info.extend(values)
    return model


def _merged(graph: onnx.GraphProto, pad: onnx.NodeProto, attributes: dict[str, object]) -> list[int] | None:
    """The ``pads`` of a MaxPool of ``attributes`` with ``pad`` among them; None where that would be something else."""
    if attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID") or attributes.get("ceil_mode"):
        return None
    kernel = np.array(attributes["kernel_shape"])
    own = np.array(attributes.get("pads") or [0] * 2 * len(kernel)).reshape(2, -1)
    said = {a.name: onnx.helper.get_attribute_value(a) for a in pad.attribute}
    if own.any() or set(attributes.get("dilations") or [1]) != {1} or not _is_neutral(graph, pad, said):    # type: ignore[call-overload]
        return None
    rank = _SPATIAL + len(kernel)
    found = np.array(said["pads"]) if "pads" in said else constant_of(graph, pad.input[1])
    axes: np.ndarray | None = np.arange(rank)
    if len(pad.input) > 3 and pad.input[3]:
        axes = constant_of(graph, pad.input[3])
    if found is None or axes is None or found.size != 2 * axes.size:
        return None
    whole = np.zeros((2, rank), np.int64)
    whole[:, axes % rank] = found.reshape(2, -1)
    if whole.min() < 0 or whole[:, :_SPATIAL].any() or (whole[:, _SPATIAL:] >= kernel).any():
        return None
    return [int(size) for size in whole[:, _SPATIAL:].ravel()]


def _is_neutral(graph: onnx.GraphProto, pad: onnx.NodeProto, said: dict[str, object]) -> bool:
    """Whether the padding has no number that is larger than all that a window has besides."""
    mode = said.get("mode", b"constant")
    if mode == b"constant":
        number = constant_of(graph, pad.input[2]) if len(pad.input) > 2 and pad.input[2] else said.get("value")
        return number is not None and bool(np.all(np.asarray(number) <= np.finfo(np.float32).min))
    return mode == b"edge"
