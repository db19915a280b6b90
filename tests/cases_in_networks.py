"""Cases that ship with onnx as parts of float networks: a layer in front of each activation, and one after it.

So are operators of which quantised models have several in the place of one, or which are layers only beside others:
`quantize` makes the quantised model, with ranges from the case's own data.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.test_case import TestCase

__all__ = ["IN_NETWORKS", "Network", "network_of"]

#: Operators -> the inputs that are activations; the others are constants.
IN_NETWORKS = {
    "Attention": (0, 1, 2), "GroupNormalization": (0,), "InstanceNormalization": (0,), "LayerNormalization": (0,),
    "MatMul": (0, 1), "RMSNormalization": (0,), "Softmax": (0,),
}
#: Of these, those whose activations are heads of tokens, and those of which the second axis is that of the channels.
_HEADS, _PIXELS = {"Attention", "MatMul"}, {"GroupNormalization", "InstanceNormalization"}
#: The layer after it has so many times its input's channels, as one of a few multiplications is left to the processor.
_REPEATED = 5


@dataclass(frozen=True)
class Network:
    """``feeds``: (N, ...) of each input of a model of one sample; ``expected``: (N, ...) float32."""

    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    expected: np.ndarray


class _Maker:
    def __init__(self, op: str) -> None:
        self.op = op
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[TensorProto] = []

    def constant(self, array: np.ndarray, name: str) -> str:
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op: str, *inputs: str, name: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def layer(self, source: str, channels: int, name: str, times: int = 1) -> str:
        """One that keeps the values, or repeats them all."""
        weights = np.tile(np.eye(channels, dtype=np.float32), (1, times))
        if self.op in _PIXELS:
            return self.node("Conv", source, self.constant(weights.T[..., None, None], f"{name}.weights"), name=name)
        return self.node("MatMul", source, self.constant(weights, f"{name}.weights"), name=name)


def _tokens(array: np.ndarray) -> np.ndarray:
    """(N, heads, tokens, channels) -> (N, tokens, heads * channels)."""
    return array.swapaxes(1, 2).reshape(len(array), array.shape[2], -1)


def _channels(op: str, array: np.ndarray) -> int:
    return array.shape[1 if op in _PIXELS else -1]


def network_of(case: TestCase) -> Network:
    """The first result of a case on float32, of as many samples as its constants allow.

    Raises ValueError for one whose activations are no samples of channels.
    """
    assert case.model is not None and case.data_sets is not None
    (node,), (arrays, (expected, *_)) = case.model.graph.node, case.data_sets[0]
    given = dict(zip((n.name for n in case.model.graph.input), map(np.asarray, arrays), strict=True))
    active = [node.input[position] for position in IN_NETWORKS[node.op_type]]
    samples, maker = _samples(node, given, active), _Maker(node.op_type)
    names, inputs, feeds = {}, [], {}
    for name in active:
        array = given[name][:samples]
        split = array.ndim == 4 and node.op_type in _HEADS
        feeds[name] = _tokens(array) if split else array
        inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, *feeds[name].shape[1:])))
        made = maker.layer(name, _channels(node.op_type, feeds[name]), f"{name}.front")
        if split:
            heads = maker.constant(np.array([1, array.shape[2], array.shape[1], array.shape[3]]), f"{name}.shape")
            made = maker.node("Transpose", maker.node("Reshape", made, heads, name=f"{name}.split"),
                              perm=[0, 2, 1, 3], name=f"{name}.heads")
        names[name] = made
    for name, array in given.items():
        if name not in names:
            names[name] = maker.constant(array[:1] if _is_of_samples(node, array, given) else array, name)
    inner = onnx.NodeProto()
    inner.CopyFrom(node)
    inner.name = case.name
    inner.ClearField("input")
    inner.input.extend(names.get(name, "") for name in node.input)
    del inner.output[1:]
    maker.nodes.append(inner)
    result, target = node.output[0], np.asarray(expected)[:samples]
    if target.ndim == 4 and node.op_type in _HEADS:
        target = _tokens(target)
        beside = maker.node("Transpose", result, perm=[0, 2, 1, 3], name="beside")
        result = maker.node("Reshape", beside, maker.constant(np.array([1, *target.shape[1:]]), "joined.shape"),
                            name="joined")
    result = maker.layer(result, _channels(node.op_type, target), "behind", _REPEATED)
    target = np.concatenate([target] * _REPEATED, axis=1 if node.op_type in _PIXELS else -1)
    graph = helper.make_graph(maker.nodes, case.name, inputs, [
        helper.make_tensor_value_info(result, TensorProto.FLOAT, (1, *target.shape[1:]))], maker.initializers)
    version = max(opset.version for opset in case.model.opset_import if not opset.domain)
    since = onnx.defs.get_schema(node.op_type, version).since_version
    opset = helper.make_opsetid("", max(17, since))
    return Network(helper.make_model(graph, opset_imports=[opset], ir_version=10), feeds, target)


def _samples(node: onnx.NodeProto, given: dict[str, np.ndarray], active: Sequence[str]) -> int:
    """How many a case has: one where any constant is of one."""
    arrays = [given[name] for name in active]
    if any(array.dtype != np.float32 or array.ndim < 2 for array in arrays):
        raise ValueError(f"has inputs of {arrays[0].dtype} and {arrays[0].ndim} axes")
    others = [array for name, array in given.items() if name not in active]
    if "Normalization" in node.op_type and any(array.ndim == arrays[0].ndim for array in others):
        raise ValueError("normalises all samples together")
    if any(_is_of_samples(node, array, given) for name, array in given.items() if name not in active):
        return 1
    return min(map(len, arrays))


def _is_of_samples(node: onnx.NodeProto, array: np.ndarray, given: dict[str, np.ndarray]) -> bool:
    """Whether a constant of attention has a mask for each sample, or of each their past."""
    return node.op_type == "Attention" and array.ndim == 4 and len(array) == len(given[node.input[0]])
