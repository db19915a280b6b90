"""Results that are functions of one quantised tensor, value by value: what a table of 256 entries stands for.

The importer notes of each node that computes element by element what its results are functions of. Where a node has no
layer, or not this one, such a function takes its place (`PendingTable`), up to the QuantizeLinear after it. The table
is what onnxruntime makes of all 256 values with the model's own nodes: quantised nodes in between as well, so a Sigmoid
with a quantisation of its own and the product after it are one table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from cores.arch.numerics import TABLE_BYTES
from gen.onnx.machine import Units
from gen.onnx.model import MICROSOFT, Model, Node, NodeError
from gen.onnx.runtime import OnnxruntimeError, RuntimeModel
from gen.onnx.values import (
    Constant,
    PendingTable,
    Quantisation,
    Quantised,
    QuantisedConstant,
    RawInput,
    Real,
    Value,
)

__all__ = ["ELEMENTWISE", "Functions"]

#: Quantised values that a result is known to be a function of, and nodes of such a function, for time.
_NEAREST, _LONGEST = 8, 64
#: Bytes of the values of a node, the result of which is kept for others that do the same.
_KEPT = 1 << 16
#: Operators whose constants may be infinite.
_BOUNDED = ("Clip", "Max", "Min")
_QUANTISING = ("QuantizeLinear", "DequantizeLinear")
#: Operators of one tensor, or of several of one shape, that compute each element from those in its place: (domain, op).
ELEMENTWISE = frozenset(("", op) for op in """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh Cast Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater
    GreaterOrEqual HardSigmoid HardSwish Identity LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mul Neg Not Or PRelu
    Pow Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh
    ThresholdedRelu Where Xor
""".split()) | frozenset((MICROSOFT, op) for op in ("FastGelu", "Gelu", "QuickGelu"))


@dataclass(frozen=True, eq=False)
class _Step:
    """A node that computes element by element, and its constant inputs."""

    number: int
    node: Node
    constants: Mapping[str, np.ndarray]


class Functions:
    """What is known of the values of one model, for a machine of these ``units``."""

    def __init__(self, model: Model, units: Units) -> None:
        self._units = units
        self._opsets = [helper.make_opsetid(o.domain, o.version) for o in model.proto.opset_import]
        #: Value -> quantised ones that it is a function of, the nearest first; and what makes it.
        self._sources: dict[str, tuple[str, ...]] = {}
        self._steps: dict[str, _Step] = {}
        #: Quantised value, or dequantised one that is none of another -> what it stands for; the first of both.
        self._reals: dict[str, Real] = {}
        self._quantised: set[str] = set()
        self._evaluated: dict[tuple[str, str], np.ndarray] = {}

    def note(self, node: Node, inputs: Sequence[Value | None], result: Value | None) -> None:
        """What a node's first result is a function of; ``result`` is None for one that there is no layer for."""
        name = node.outputs[0]
        if node.op == "DequantizeLinear" and isinstance(inputs[0], Quantised) and isinstance(result, Real):
            self._reals.setdefault(node.inputs[0], result)
            self._quantised.add(node.inputs[0])
            self._sources.setdefault(node.inputs[0], (node.inputs[0],))
        sources = self._common(node, inputs)
        if not sources:
            return
        self._sources[name] = (name, *sources)[:_NEAREST] if node.op == "QuantizeLinear" else sources
        self._steps[name] = _Step(len(self._steps), node, {n: array for n, v in zip(node.inputs, inputs, strict=True)
                                                  if (array := _array(v)) is not None})

    def moved(self, node: Node, results: Sequence[Value]) -> None:
        """Results of a node that are quantised values in another order, or a part of them, have functions, too."""
        for name, result in zip(node.outputs, results, strict=False):
            if (isinstance(result, Real) and name not in self._sources
                    and np.bincount(result.order.ravel()).max(initial=0) == 1):
                self._reals[name], self._sources[name] = result, (name,)

    def _common(self, node: Node, inputs: Sequence[Value | None]) -> tuple[str, ...]:
        """The quantised values that all of a node's inputs are functions of."""
        if (node.domain, node.op) not in ELEMENTWISE and node.op not in _QUANTISING:
            return ()
        varying = [n for n, v in zip(node.inputs, inputs, strict=True) if n and _array(v) is None]
        if not varying or not all(name in self._sources for name in varying):
            return ()
        first, *others = (self._sources[name] for name in varying)
        found = tuple(source for source in first
                      if source in self._reals and all(source in other for other in others))
        rank = self._reals[found[0]].order.ndim if found else 0
        # Constants of more elements are not the same everywhere, of more axes change the shape.
        single = all(array.size == 1 and array.ndim <= rank and (node.op in _BOUNDED or np.isfinite(array).all())
                     for v in inputs if (array := _array(v)) is not None)
        return found if single else ()

    def may_be(self, node: Node, inputs: Sequence[Value | None]) -> bool:
        """Whether a table could be what a node computes, in a machine that has tables."""
        return node.op not in _QUANTISING and bool(self._common(node, inputs))

    def has(self, node: Node, inputs: Sequence[Value | None]) -> bool:
        """Whether a table can be what a node computes."""
        return self.may_be(node, inputs) and self._units.have("table")

    def instead(self, node: Node, inputs: Sequence[Value | None], refused: NodeError) -> PendingTable:
        """The function that a node is which was ``refused``. Raises NodeError if it is none, or there are no tables."""
        sources = self._common(node, inputs)
        if not sources or node.op in _QUANTISING:
            raise refused
        self.note(node, inputs, None)
        if not self._units.have("table"):
            # Of what the processor makes only because that is a function, too: quantising it there would not help.
            maker = next((v.maker for v in inputs if isinstance(v, RawInput) and v.maker), "")
            why = f"its input is float, and made by node {maker}, which the processor has" if maker else str(refused)
            raise NodeError(f"{why}; it is a function of each value by itself, which --features table puts on the "
                            "accelerator", at=refused.at, code="needs-unit", unit="table", maker=maker)
        real = self._reals[sources[0]]
        return PendingTable(name=node.name, nodes=self._nodes(node.outputs[0], sources[0]), order=real.order,
                            moved_by=real.moved_by, real=real, value=node.outputs[0], source=sources[0])

    def carried(self, node: Node, op: str, inputs: Sequence[Value | None], reals: Sequence[Real],
                refused: NodeError | None = None) -> PendingTable | None:
        """The function that a node is which carries its scales: ``op`` of ``reals``, each by three of its ``inputs``.

        None for one that is none; with ``refused`` that is raised then, and where there are no tables.
        """
        result, made = f"{node.outputs[0]}/{op}", [f"{node.outputs[0]}/real{n}" for n in range(len(reals))]
        end = 3 * len(reals)
        for n, real in enumerate(reals):
            operand = slice(3 * n, 3 * n + 3)
            self.note(_plain("DequantizeLinear", node, node.inputs[operand], made[n]), inputs[operand], real)
        plain = _plain(op, node, tuple(made), result)
        if refused is None and not self.has(plain, reals):
            return None
        value = self.instead(plain, reals, refused or NodeError("is a function", code="needs-unit", unit="table"))
        self.note(_plain("QuantizeLinear", node, (result, *node.inputs[end:]), node.outputs[0]),
                  [value, *inputs[end:]], None)
        return value

    def range_of(self, value: PendingTable) -> tuple[float, float]:
        """The least and the largest number that a function has. Raises NodeError where that is not finite."""
        results = self._values(value.value, value.source)
        if not np.isfinite(results).all():
            raise NodeError(f"adds the result of {value.name}, which is not finite for every value of its input; put "
                            f"QuantizeLinear and DequantizeLinear after {value.name}", code="not-quantised")
        return float(results.min()), float(results.max())

    def table(self, value: PendingTable, quantisation: Quantisation) -> np.ndarray:
        """int8 (256,), of -128 first: what becomes of each value of the tensor that ``value`` is a function of."""
        results = self._values(value.value, value.source).reshape(-1)
        scale = np.float32(quantisation.scale)
        point = np.array(quantisation.zero_point, np.uint8 if quantisation.unsigned else np.int8)
        node = helper.make_node("QuantizeLinear", ["x", "scale", "point"], ["y"])
        quantised = _evaluate(node, [helper.make_opsetid("", 13)],
                                 {"x": results.astype(np.float32), "scale": np.asarray(scale), "point": point})
        return (quantised ^ 128).view(np.int8) if quantisation.unsigned else quantised

    def _made(self, name: str, source: str) -> list[str]:
        """What leads from a source to a value, in order."""
        found, waiting = {name}, [name]
        while waiting:
            step = self._steps[waiting.pop()]
            more = {n for n in step.node.inputs if n and n != source and n not in step.constants} - found
            found |= more
            waiting += more
            if len(found) > _LONGEST:
                raise NodeError(f"is a function of more than {_LONGEST} nodes; put QuantizeLinear and DequantizeLinear "
                                "into it", code="not-quantised")
        return sorted(found, key=lambda made: self._steps[made].number)

    def _nodes(self, name: str, source: str) -> tuple[str, ...]:
        """The nodes that a table stands for."""
        steps = [self._steps[made].node for made in self._made(name, source)]
        return tuple(node.name for node in steps if node.op not in _QUANTISING)

    def _values(self, name: str, source: str) -> np.ndarray:
        """A value, for each that the source can have."""
        real = self._reals[source]
        numbers: np.ndarray = np.arange(-TABLE_BYTES // 2, TABLE_BYTES // 2)
        if source not in self._quantised:
            numbers = (numbers - real.zero_point).astype(np.float32) * np.float32(real.scale)
        else:
            numbers = (numbers + 128).astype(np.uint8) if real.quantised.unsigned else numbers.astype(np.int8)
        known = {source: numbers.reshape((1,) * (real.order.ndim - 1) + (-1,))}
        for made in self._made(name, source):
            step = self._steps[made]
            if (made, source) not in self._evaluated:
                values = {**step.constants, **{n: known[n] for n in step.node.inputs if n in known}}
                self._evaluated[made, source] = _evaluate(step.node.proto, self._opsets, values)
            known[made] = self._evaluated[made, source]
        return known[name]


def _plain(op: str, node: Node, inputs: tuple[str, ...], output: str) -> Node:
    """An operator of ONNX that is a part of what ``node`` does."""
    return Node("", op, node.name, inputs, (output,), {}, helper.make_node(op, inputs, [output], name=node.name))


def _array(value: Value | None) -> np.ndarray | None:
    """A constant as the numbers that it stands for."""
    if isinstance(value, QuantisedConstant):
        return value.real.astype(np.float32)
    return value.array if isinstance(value, Constant) else None


def _evaluate(node: onnx.NodeProto, opsets: Sequence[onnx.OperatorSetIdProto],
              values: Mapping[str, np.ndarray]) -> np.ndarray:
    """The first result of a node, which nobody may change: the same for all nodes that do the same to such values."""
    same = onnx.NodeProto()
    same.CopyFrom(node)
    names = {name: f"x{place}" for place, name in enumerate(dict.fromkeys(node.input)) if name}
    same.name = same.doc_string = ""
    same.input[:], same.output[:] = [names.get(name, "") for name in node.input], ["y"]
    known = tuple((names[name], numpy_helper.from_array(array).SerializeToString())
                  for name, array in values.items())
    # Those of large values come once; they would only take memory.
    result = _result if sum(array.nbytes for array in values.values()) <= _KEPT else _result.__wrapped__
    return result(same.SerializeToString(), tuple((o.domain, o.version) for o in opsets), known)


@lru_cache(maxsize=1 << 12)
def _result(node: bytes, imported: tuple[tuple[str, int], ...], known: tuple[tuple[str, bytes], ...]) -> np.ndarray:
    """By onnxruntime, or where that does not know the node by ONNX's own reference."""
    proto, opsets = onnx.NodeProto.FromString(node), [helper.make_opsetid(*each) for each in imported]
    values = {name: numpy_helper.to_array(onnx.TensorProto.FromString(tensor)) for name, tensor in known}
    inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
              for name, array in values.items()]
    model = helper.make_model(helper.make_graph([proto], "function", inputs, [onnx.ValueInfoProto(name="y")]),
                              opset_imports=opsets,
                              ir_version=helper.find_min_ir_version_for([o for o in opsets if not o.domain]))
    try:
        result = RuntimeModel(model, threads=1).run(values)[0]
    except OnnxruntimeError:
        try:
            with np.errstate(all="ignore"):
                results: list[Any] = list(ReferenceEvaluator(model).run(None, values))
                result = np.asarray(results[0])
        except Exception:   # onnx raises anything
            raise NodeError("its constants do not fit it; export the model again", code="contradiction") from None
    result.setflags(write=False)
    return result
