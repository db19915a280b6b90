"""Weights whose scales are of blocks, as weights with a scale for each channel (`gen.onnx.blocks`)."""

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import NodeProto, helper

from gen.onnx.blocks import merged
from gen.onnx.index import GraphIndex

__all__ = ["MERGED", "merge_blocks"]

#: The entry of a model's metadata with the names of the nodes whose weights are others, a line each.
MERGED = "npugen.merged_blocks"


def merge_blocks(model: onnx.ModelProto) -> onnx.ModelProto:
    """DequantizeLinear of constants, but for what is damaged: of that the handler says what is wrong."""
    nodes = list(_of_blocks(model))
    if not nodes:
        return model
    index, others = GraphIndex(model), list[str]()
    for node, axis, block in nodes:
        integers, scales, *given = map(index.number, filter(None, node.input))
        if integers is None or scales is None or any(point is None for point in given):
            continue
        points = given[0] if given and given[0] is not None else np.zeros(scales.shape, np.int32)
        try:
            values, own, channel, same = merged(integers, scales, points, axis, block)
        except ValueError:
            continue
        name = node.name or node.output[0]
        node.input[:] = [index.constant(f"{name}/weights", values), index.constant(f"{name}/scales", own)]
        del node.attribute[:]
        node.attribute.append(helper.make_attribute("axis", channel))
        others += [] if same else [name]
    if others:
        model.metadata_props.add(key=MERGED, value="\n".join(others))
    return model


def _of_blocks(model: onnx.ModelProto) -> Iterator[tuple[NodeProto, int, int]]:
    """Nodes that have them, the axis and the length of their blocks."""
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear":
            found = {one.name: one.i for one in node.attribute if one.name in ("axis", "block_size")}
            if found.get("block_size", 0) > 0:
                yield node, found.get("axis", 1), found["block_size"]
