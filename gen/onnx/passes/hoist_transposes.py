"""Transposes of inputs in front of what is done to single values of them."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import NodeProto

from gen.onnx.edited import EditedGraph

__all__ = ["ELEMENTWISE", "hoist_transposes", "turned_constants", "turned_inputs"]

#: Operators between an input and a Transpose at most, for time.
_MOST = 16
#: Operators that compute each value from one of their input's in its place, and constants.
ELEMENTWISE = ("Identity", "Add", "Sub", "Mul", "Div", "Relu", "Clip")


def hoist_transposes(model: onnx.ModelProto) -> onnx.ModelProto:
    """A Transpose after the normalisation or the padding of an input -> one that is in front of them.

    Models from frameworks that have channels last begin so. After the Transpose channels lie as the machine has them,
    and constants for each channel go into the first layer.
    """
    graph = EditedGraph(model)
    #: Value that is nothing but an input so far -> the input's axes, and how many operators it is away.
    early = {value.name: (len(value.type.tensor_type.shape.dim), 0) for value in model.graph.input
             if value.name not in graph.constants}
    for node in model.graph.node:
        varying = [name for name in node.input if name in early]
        if node.op_type == "Transpose" and varying:
            _hoist(graph, node, early[varying[0]][0])
        elif len(varying) == len(node.output) == 1 and node.op_type in (*ELEMENTWISE, "Pad"):
            axes, away = early[varying[0]]
            if away < _MOST:
                early[node.output[0]] = axes, away + 1
    graph.finish()
    return model


def _hoist(graph: EditedGraph, transpose: NodeProto, axes: int) -> None:
    """``transpose`` of a value of so many axes in front of what makes that, as often as it can be."""
    perm = next((list(a.ints) for a in transpose.attribute if a.name == "perm"), [])
    while perm[:1] == [0] and len(perm) == axes:
        maker = graph.made(transpose.input[0], *ELEMENTWISE, "Pad")
        arrays = turned_constants(graph, maker, perm) if maker is not None else None
        if maker is None or arrays is None or graph.uses(transpose.input[0]) != 1:
            return
        transpose = _swapped(graph, maker, transpose, arrays)


def turned_constants(graph: EditedGraph, node: NodeProto, perm: Sequence[int]) -> dict[int, np.ndarray] | None:
    """Operand number -> the constant that stands there after a Transpose; None for what cannot be told."""
    arrays = {n: array for n, name in enumerate(node.input)
              if name and (array := graph.number(name)) is not None}
    if sum(bool(name) for name in node.input) != len(arrays) + 1:
        return None
    if node.op_type == "Pad":
        return _turned_pads(arrays, perm) if len(node.input) > 1 and 0 not in arrays else None
    if any(array.ndim > len(perm) for array in arrays.values()):
        return None
    return {n: array if array.size == 1 else array[(None,) * (len(perm) - array.ndim)].transpose(perm)
            for n, array in arrays.items()}


def _turned_pads(arrays: dict[int, np.ndarray], perm: Sequence[int]) -> dict[int, np.ndarray] | None:
    """Those of a Pad: of all axes, or of the ones that it names."""
    pads, axes = arrays.get(1), arrays.get(3)
    if pads is None:
        return None
    if axes is not None:
        return {**arrays, 3: np.array([list(perm).index(int(axis) % len(perm)) for axis in axes], axes.dtype)}
    if pads.size != 2 * len(perm):
        return None
    return {**arrays, 1: pads.reshape(2, -1)[:, list(perm)].reshape(-1)}


def turned_inputs(graph: EditedGraph, node: NodeProto, arrays: dict[int, np.ndarray], source: str, kind: str
                  ) -> list[str]:
    """What a node reads that has `turned_constants`, and ``source`` for its other input."""
    found = []
    for n, name in enumerate(node.input):
        if n not in arrays:
            found.append(source if name else "")
        elif np.array_equal(arrays[n], graph.number(name)):     # type: ignore[arg-type]
            found.append(name)
        else:
            found.append(graph.constant(f"{name}/{kind}", arrays[n]))
    return found


def _swapped(graph: EditedGraph, maker: NodeProto, transpose: NodeProto, arrays: dict[int, np.ndarray]) -> NodeProto:
    """``transpose`` in front of ``maker``; what comes of both keeps its name."""
    source = next(name for n, name in enumerate(maker.input) if name and n not in arrays)
    turned = graph.name(f"{source}/transposed")
    before, after = NodeProto(), NodeProto()
    before.CopyFrom(transpose)
    before.input[0], before.output[0] = source, turned
    after.CopyFrom(maker)
    after.input[:], after.output[:] = turned_inputs(graph, maker, arrays, turned, "transposed"), transpose.output
    graph.remove(maker)
    graph.put(transpose, [before, after])
    return before
