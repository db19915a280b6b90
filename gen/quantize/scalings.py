"""Inputs whose numbers have units of their own, and models that bring these to one scale.

Measured quantities, as of joints and of gyroscopes, differ by far in size. Models of such inputs begin with a
difference and a factor for each number. In front of these one scale for all numbers would leave nothing of the small
ones. So the nodes that normalise them stay float, and their result is quantised.
"""

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from gen.onnx.index import GraphIndex

__all__ = ["normalisers"]

#: How far factors may be apart where one scale goes for all, as parts of a Concat may be.
_APART = 8
_AFFINE = ("Add", "Sub", "Mul", "Div", "BatchNormalization")


def normalisers(model: onnx.ModelProto) -> list[str]:
    """The nodes that do so with a float input of ``model``, one after the other."""
    index = GraphIndex(model)
    found: list[str] = []
    for value in model.graph.input:
        if value.type.tensor_type.elem_type != TensorProto.FLOAT:
            continue
        chain, name, gain = list[str](), value.name, np.ones(1)
        while len(index.readers[name]) == 1:
            (node,) = index.readers[name]
            factor = _factor(node, name, index.constants)
            if factor is None or 1 not in (gain.size, factor.size) and gain.size != factor.size:
                break
            chain.append(node.name)
            name, gain = node.output[0], gain * factor
        sizes = np.abs(gain[gain != 0])
        if sizes.size and sizes.max() > _APART * sizes.min():
            found += chain
    return found


def _factor(node: NodeProto, name: str, constants: dict[str, TensorProto]) -> np.ndarray | None:
    """What a node multiplies ``name`` with; None for one that does anything else."""
    others = [numpy_helper.to_array(constants[other]) for other in node.input if other in constants]
    if node.op_type not in _AFFINE or len(others) != len(node.input) - 1 or node.input[0] != name and (
            node.op_type == "Div"):
        return None
    if node.op_type == "BatchNormalization":
        scale, _, _, variance = (array.astype(np.float64) for array in others)
        epsilon = next((helper.get_attribute_value(a) for a in node.attribute if a.name == "epsilon"), 1e-5)
        return scale / np.sqrt(variance + epsilon)
    number = others[0].astype(np.float64)
    if node.op_type in ("Add", "Sub"):
        return np.ones(1)
    with np.errstate(divide="ignore"):
        factor = number if node.op_type == "Mul" else 1 / number
    return factor.reshape(-1) if np.isfinite(factor).all() else None
