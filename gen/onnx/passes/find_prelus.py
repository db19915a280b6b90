"""PRelus that are written as sums of two Relus."""

from collections import Counter

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from gen.onnx.names import unique
from gen.onnx.passes.constants import constant_of

__all__ = ["find_prelus"]


def find_prelus(model: onnx.ModelProto) -> onnx.ModelProto:
    """Relu(x) + Relu(-x) * constant -> PRelu(x, -constant), as Keras writes its PReLU."""
    graph = model.graph
    readers = Counter([*(name for node in graph.node for name in node.input), *(out.name for out in graph.output)])
    makers = {name: node for node in graph.node for name in node.output}
    taken = {n for node in graph.node for n in (node.name, *node.input, *node.output)}

    def alone(name: str, op: str) -> NodeProto | None:
        """What makes a value that has one reader, if it is such an operator."""
        maker = makers.get(name)
        return maker if maker is not None and maker.op_type == op and readers[name] == 1 else None

    for node in graph.node:
        for one, other in (node.input, reversed(node.input)) if node.op_type == "Add" else ():
            positive, product = alone(one, "Relu"), alone(other, "Mul")
            if positive is None or product is None:
                continue
            for part, factor in (product.input, reversed(product.input)):
                negative, slope = alone(part, "Relu"), constant_of(graph, factor)
                turned = alone(negative.input[0], "Neg") if negative is not None else None
                if turned is None or slope is None or turned.input[0] != positive.input[0]:
                    continue
                name = unique(f"{factor}/slope", taken)
                taken.add(name)
                graph.initializer.append(numpy_helper.from_array(np.asarray(-slope), name))
                node.CopyFrom(helper.make_node("PRelu", [positive.input[0], name], node.output, name=node.name))
                break
            if node.op_type == "PRelu":
                break
    return model
