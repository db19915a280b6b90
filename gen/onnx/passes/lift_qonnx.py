"""Models with QONNX's operators, in an opset whose DequantizeLinear has a scale for each channel; its operators whose
channels are last are ONNX's, between Transposes.
"""

from collections.abc import Mapping

import onnx
from onnx import helper, version_converter

from gen.onnx.fused.qonnx import DOMAINS
from gen.onnx.passes.hoist_transposes import ELEMENTWISE
from gen.onnx.passes.report import nested

__all__ = ["lift_qonnx"]

_OPSET = 13
_CHANNELS_LAST = "qonnx.custom_op.channels_last"


def lift_qonnx(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model``, in opset 13 at least if it has such operators; as it is where it cannot be converted.

    Their domain is imported, which some of QONNX's own tools leave out.
    """
    _put_channels_first(model.graph)
    used = {node.domain for node in nested(model.graph.node)} & set(DOMAINS)
    if not used:
        return model
    for domain in sorted(used - {entry.domain for entry in model.opset_import}):
        model.opset_import.append(helper.make_opsetid(domain, 1))
    if max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0) >= _OPSET:
        return model
    try:
        return version_converter.convert_version(model, _OPSET)
    except Exception:   # a converter in C++ raises anything; what is wrong with the model is said by others
        return model


def _put_channels_first(graph: onnx.GraphProto) -> None:
    """Convolutions, pools and norms of channels that are last, between Transposes; weights have one, too."""
    nodes = []
    ranks = {tensor.name: len(tensor.dims) for tensor in graph.initializer} | {
        value.name: len(value.type.tensor_type.shape.dim) for value in (*graph.input, *graph.value_info)
        if value.type.tensor_type.HasField("shape")}
    for node in graph.node:
        axes = _spatial_axes(node, ranks) if node.domain == _CHANNELS_LAST else 0
        if not axes:
            if node.domain in DOMAINS or node.op_type in ELEMENTWISE:
                ranks.setdefault(node.output[0], max(ranks.get(name, 0) for name in node.input))
            if node.domain == _CHANNELS_LAST and node.op_type == "BatchNormalization" and ranks.get(node.input[0]) == 2:
                node.domain = ""        # where the last axis is the first after that of the samples
            nodes.append(node)
            continue
        result = node.output[0]
        ranks[result] = axes + 2
        first, last = [0, axes + 1, *range(1, axes + 1)], [0, *range(2, axes + 2), 1]
        for place, name in enumerate(node.input[:2 if node.op_type == "Conv" else 1]):
            node.input[place] = f"{result}/first{place}"
            nodes.append(helper.make_node("Transpose", [name], [node.input[place]], node.input[place], perm=first))
        node.domain, node.output[0] = "", f"{result}/last"
        nodes += node, helper.make_node("Transpose", [node.output[0]], [result], node.output[0], perm=last)
    if len(nodes) > len(graph.node):
        del graph.node[:]
        graph.node.extend(nodes)


def _spatial_axes(node: onnx.NodeProto, ranks: Mapping[str, int]) -> int:
    """How many there are, by an attribute, all of which may be left out, or by a rank; 0 where nothing says it."""
    lengths = {attribute.name: len(attribute.ints) for attribute in node.attribute}
    said = (lengths.get(name, 0) for name in ("kernel_shape", "strides", "dilations"))
    return next(filter(None, (*said, lengths.get("pads", 0) // 2, *(
        max(0, ranks.get(name, 0) - 2) for name in node.input[:2]))), 0)
