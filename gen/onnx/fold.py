"""Nodes whose inputs are constants, evaluated when the model is compiled: what a model's own weights explain, no more.

Any operator that has no control flow, draws no numbers and keeps no state. What it takes is bounded before: memory by
the bytes of its results, time by those that it reads, which count more than once for operators whose work is more than
to pass over them. What is not evaluated is left to the processor.
"""

import math
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from gen.ir.graph import MAX_VALUES
from gen.onnx.model import MICROSOFT, Budget, Model, Node, NodeError

__all__ = ["Folder", "budget", "evaluate"]

#: Operators whose work is a pass over inputs and results, which NumPy does as a whole.
_LIGHT = frozenset("""
    Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh Cast CastLike Ceil Clip Concat Constant
    ConstantOfShape Cos Cosh CumSum DepthToSpace Div Elu Equal Exp Expand EyeLike Flatten Floor Gather Greater
    GreaterOrEqual HardSigmoid HardSwish Identity IsNaN LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax
    Max Mean Min Mod Mul Neg Not OneHot Or Pad Pow QuantizeLinear Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum
    ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Round Shape
    Sigmoid Sign Sin Sinh Size Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Tan Tanh Tile
    Transpose Trilu Unsqueeze Where Xor
""".split())
#: Products, whose work is known.
_PRODUCTS = ("MatMul", "Gemm")
_INTEGER_PRODUCTS = ("ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul")
#: What a pass of any other operator takes, in passes of NumPy: the reference goes through some value by value.
_SLOW = 64
#: Operators that are left as they are: their work is not bounded by sizes, or what they give is no constant.
_NEVER = frozenset("""
    Attention Bernoulli DFT Det Einsum GRU If LSTM Loop MaxRoiPool Multinomial NonMaxSuppression Optional RNN
    RandomNormal RandomNormalLike RandomUniform RandomUniformLike RoiAlign STFT Scan SequenceMap StringSplit Unique
""".split())
#: Bytes that all results together may have: a fixed part, and one in proportion to the model's own constants.
_FLOOR, _SHARE = 1 << 27, 4
#: Bytes that all nodes together may read, as often as they do: time, as those above are memory.
_READ_FLOOR, _READ_SHARE = 1 << 30, 16
#: Inputs up to this size are known to shape inference with their values.
_SMALL = 1024
#: An operator set that has QuantizeLinear as com.microsoft has it.
_QUANTIZE_OPSET = 13


def _model(node: Node, opsets: Mapping[str, int], values: Mapping[str, np.ndarray], *, inside: int) -> onnx.ModelProto:
    """A model of one node; ``values`` of up to ``inside`` elements are part of it, the others are inputs."""
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    versions = dict(opsets)
    if proto.domain == MICROSOFT:
        proto.domain, versions = "", {"": max(_QUANTIZE_OPSET, opsets.get("", 0))}
    graph = helper.make_graph(
        [proto], "fold",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
         for n, v in values.items() if v.size > inside],
        [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in node.outputs if n],
        [numpy_helper.from_array(v, n) for n, v in values.items() if v.size <= inside])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(d, v) for d, v in versions.items()])


def evaluate(node: Node, opsets: Mapping[str, int], values: Mapping[str, np.ndarray], limit: int) -> list[np.ndarray]:
    """Outputs of a node on ``values``, by the names of its inputs.

    Raises NodeError when they would have more than ``limit`` bytes, or cannot be computed.
    """
    try:
        inferred = shape_inference.infer_shapes(
            _model(node, opsets, values, inside=_SMALL), check_type=True, strict_mode=True)
        size = sum(_bytes(value.type.tensor_type) for value in inferred.graph.output)
    except Exception:  # onnx raises anything for a node that is none
        raise NodeError("its constant inputs do not fit it or each other; export the model again",
                        code="contradiction") from None
    if size > limit:
        raise NodeError(f"its result has {size:,} bytes, of {limit:,} that are left for what is computed when the "
                        "model is compiled (docs/models.md)", code="not-evaluated")
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(_model(node, opsets, values, inside=-1)).run(None, dict(values))
        return [np.asarray(value) for value in results]
    except Exception:  # as above
        raise NodeError("cannot be evaluated on its constant inputs; store its result as an initializer",
                        code="not-evaluated") from None


def _bytes(tensor: onnx.TypeProto.Tensor) -> int:
    """Raises ValueError for a shape that is not known, and for text."""
    if not tensor.HasField("shape") or not all(d.HasField("dim_value") for d in tensor.shape.dim):
        raise ValueError("the shape is not known")
    if tensor.elem_type == TensorProto.STRING:
        raise ValueError("text")
    return math.prod(d.dim_value for d in tensor.shape.dim) * helper.tensor_dtype_to_np_dtype(
        tensor.elem_type).itemsize


def budget(constants: Mapping[str, np.ndarray]) -> Budget:
    """What may be computed for a model of these initializers."""
    size = sum(array.nbytes for array in constants.values())
    return Budget(_FLOOR + _SHARE * size, _READ_FLOOR + _READ_SHARE * size)


def _work(node: Node, values: Mapping[str, np.ndarray]) -> int:
    """What evaluating a node takes of the bytes that may be read."""
    total = sum(array.nbytes for array in values.values())
    if node.op in _LIGHT:
        return total
    if node.op in _INTEGER_PRODUCTS:    # no library of matrix products has them
        return total + _SLOW * max(array.size for array in values.values()) ** 2
    if node.op in _PRODUCTS:
        # Each element of the first operand is multiplied by a row of the second, whichever of its axes that is.
        first, second = (values[name] for name in node.inputs[:2])
        return total + first.size * max(second.shape, default=1)
    window = math.prod(node.attributes.get("kernel_shape") or [1])
    weights = values[node.inputs[1]] if node.op in ("Conv", "ConvTranspose") else None
    return total * _SLOW * (window if weights is None else weights.size)


class Folder:
    """Evaluates constant nodes of one model within its budget; ``budget`` is what is left of that."""

    def __init__(self, model: Model) -> None:
        self._opsets = {o.domain: o.version for o in model.proto.opset_import}
        self.budget = model.budget

    def __call__(self, node: Node, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Raises NodeError for an operator that is not folded, and as `evaluate`."""
        known = node.op not in _NEVER and (not node.domain or node.domain == MICROSOFT and node.op in _LIGHT)
        if not known or any(attribute.g.node or attribute.graphs for attribute in node.proto.attribute):
            raise NodeError(f"operator {node.op} is not evaluated on constants; store its result as an initializer, "
                            "for example by onnxruntime's offline optimisation (docs/models.md)", code="not-evaluated")
        reads = self.budget.reads - _work(node, values)
        if reads < 0:
            raise NodeError("the constants that are read up to here have more bytes than what is computed when the "
                            "model is compiled may read (docs/models.md); store its result as an initializer",
                            code="not-evaluated")
        passes = 1 if node.op in _LIGHT or node.op in _PRODUCTS else _SLOW
        results = evaluate(node, self._opsets, values, self.budget.results // passes)
        self.budget = Budget(self.budget.results - sum(array.nbytes for array in results), reads)
        return results

    def moved(self, node: Node, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The results of a node that only moves elements, for ``values`` that are the elements' places (int64).

        Raises NodeError as `evaluate` does.
        """
        return evaluate(node, self._opsets, values, MAX_VALUES * np.dtype(np.int64).itemsize)
