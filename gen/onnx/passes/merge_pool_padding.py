"""Padding in front of maxima that changes none of them."""

import numpy as np
import onnx

from gen.onnx.edited import EditedGraph

__all__ = ["merge_pool_padding"]

_SPATIAL = 2


def merge_pool_padding(model: onnx.ModelProto) -> onnx.ModelProto:
    """A Pad that repeats the values at the edge, or pads with the least number, in front of a MaxPool -> its padding.

    Keras on PyTorch writes so what is padded on one side alone. As long as no window lies in the padding as a whole,
    each that has a repeated value has the value itself.
    """
    graph = EditedGraph(model)
    for node in graph.nodes:
        pad = graph.made(node.input[0], "Pad") if node.op_type == "MaxPool" and not any(node.output[1:]) else None
        if pad is None or graph.uses(pad.output[0]) != 1:
            continue
        wider = _merged(graph, pad, {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute})
        if wider is not None:
            kept = [a for a in node.attribute if a.name not in ("pads", "auto_pad")]
            del node.attribute[:]
            node.attribute.extend([*kept, onnx.helper.make_attribute("pads", wider)])
            graph.connect(node, 0, pad.input[0])
            graph.remove(pad)
    graph.finish()
    return model


def _merged(graph: EditedGraph, pad: onnx.NodeProto, attributes: dict[str, object]) -> list[int] | None:
    """The ``pads`` of a MaxPool of ``attributes`` with ``pad`` among them; None where that would be something else."""
    if attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID") or attributes.get("ceil_mode"):
        return None
    kernel = np.array(attributes["kernel_shape"])
    own = np.array(attributes.get("pads") or [0] * 2 * len(kernel)).reshape(2, -1)
    said = {a.name: onnx.helper.get_attribute_value(a) for a in pad.attribute}
    if own.any() or set(attributes.get("dilations") or [1]) != {1} or not _is_neutral(graph, pad, said):    # type: ignore[call-overload]
        return None
    rank = _SPATIAL + len(kernel)
    found = np.array(said["pads"]) if "pads" in said else graph.number(pad.input[1])
    axes: np.ndarray | None = np.arange(rank)
    if len(pad.input) > 3 and pad.input[3]:
        axes = graph.number(pad.input[3])
    if found is None or axes is None or found.size != 2 * axes.size:
        return None
    whole = np.zeros((2, rank), np.int64)
    whole[:, axes % rank] = found.reshape(2, -1)
    if whole.min() < 0 or whole[:, :_SPATIAL].any() or (whole[:, _SPATIAL:] >= kernel).any():
        return None
    return [int(size) for size in whole[:, _SPATIAL:].ravel()]


def _is_neutral(graph: EditedGraph, pad: onnx.NodeProto, said: dict[str, object]) -> bool:
    """Whether the padding has no number that is larger than all that a window has besides."""
    mode = said.get("mode", b"constant")
    if mode == b"constant":
        number = graph.number(pad.input[2]) if len(pad.input) > 2 and pad.input[2] else said.get("value")
        return number is not None and bool(np.all(np.asarray(number) <= np.finfo(np.float32).min))
    return mode == b"edge"
