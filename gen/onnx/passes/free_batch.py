"""Fixed batches."""

from collections.abc import Collection, Sequence
from math import prod

import numpy as np
import onnx
from onnx import numpy_helper, shape_inference

from gen.ir.errors import GraphError
from gen.onnx.held import constant_of
from gen.onnx.model import PRODUCTS
from gen.onnx.names import unique
from gen.onnx.passes.check_types import value_types
from gen.onnx.passes.enclose import enclosed
from gen.onnx.passes.hoist_quantisation import MOVING
from gen.onnx.passes.report import sentence, title
from gen.onnx.passes.whole_inputs import whole_inputs

__all__ = ["free_batch"]

#: What helps where a model is within a branch.
_BRANCH = ("; or, where an integer input without axes decides which branch is taken, make that a constant: --shape "
           "INPUT=NUMBER")
#: The name of the first axis after this pass.
_SAMPLES = "samples"
#: Operators that may work on values whose samples are not along the first axis: they move these, or work one by one.
_MOVES = (*MOVING, "Split", "Cast", "Relu", "Clip", "Sigmoid", "Tanh", "Sqrt", "Neg", "Abs", "Exp")
#: Of those, what leaves the order of the values.
_RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
#: Operators for which an axis is nothing that they work along.
_ALONG_NOTHING = ("QuantizeLinear", "DequantizeLinear", "Concat", "Gather", "Split", "Flatten")


def free_batch(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model of a fixed batch -> one of any number of samples, each of which is computed by itself.

    Constant shapes that carry the batch are rewritten. Inputs that have 1 where others have a batch are those of one
    sample already; several batches are freed one by one. Where samples would be mixed the first axis of what is larger
    than 1 is none of samples: such an input is taken whole (`whole_inputs`), as is one of fewer than two axes. Raises
    GraphError where nothing that the machine could compute would be of one sample then.
    """
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    inputs = {value.name: value.type.tensor_type.shape.dim for value in graph.input if value.name not in constants
              and value.type.tensor_type.HasField("shape")}
    model = whole_inputs(model, [name for name, dims in inputs.items() if _is_small(dims)])
    batches = {name: dims[0].dim_value for name, dims in inputs.items()}
    sizes = {size for size in batches.values() if size > 1}
    mixed: GraphError | None = None
    for batch in sorted(sizes):
        names = {name for name in batches if batches[name] == batch}
        freed = onnx.ModelProto()
        freed.CopyFrom(model)
        try:
            model = _freed(freed, names, batch)
        except GraphError as error:
            mixed = mixed or error
            model = whole_inputs(model, names)
    if mixed is not None and not _has_products_of_one(model):
        raise mixed
    return model


def _is_small(dims: Sequence[onnx.TensorShapeProto.Dimension]) -> bool:
    """Whether an input is a number, or a row of a fixed length: nothing of it is an axis of samples."""
    return not dims or len(dims) == 1 and dims[0].dim_value > 0


def _has_products_of_one(model: onnx.ModelProto) -> bool:
    """Whether there is a convolution or a matrix product of an input whose first axis is 1, or not known yet: shapes
    that nodes of constants compute are known later.
    """
    types = value_types(model)
    constants = {tensor.name for tensor in model.graph.initializer}
    return any(dims[0].dim_value == 1 or not dims[0].HasField("dim_value")
               for node in model.graph.node if node.op_type in PRODUCTS
               for name in node.input[:1] if name in types and name not in constants
               for dims in [types[name].tensor_type.shape.dim] if dims)


def _freed(model: onnx.ModelProto, names: Collection[str], batch: int) -> onnx.ModelProto:
    """``model``, which is changed: the inputs ``names`` have one sample in place of ``batch``. Raises GraphError."""
    graph = model.graph
    inputs = [value for value in graph.input if value.name in names]
    before = _shapes(model, batch)
    fed = _fed(graph, names)
    _reshape(graph, fed, batch)
    del graph.value_info[:]
    for value in inputs:
        value.type.tensor_type.shape.dim[0].dim_value = 1
    _require_apart(graph, fed, before, _shapes(model, 1), batch)
    for value in (*inputs, *(output for output in graph.output if output.name in fed)):
        if value.type.tensor_type.shape.dim:
            value.type.tensor_type.shape.dim[0].dim_param = _SAMPLES
    return model


def _fed(graph: onnx.GraphProto, inputs: Collection[str]) -> set[str]:
    """What depends on an input, but for shapes, which are computed with it."""
    fed = set(inputs)
    for node in graph.node:
        if node.op_type not in ("Shape", "Size") and not fed.isdisjoint(node.input):
            fed.update(name for name in node.output if name)
    return fed


def _reshape(graph: onnx.GraphProto, fed: set[str], batch: int) -> None:
    """Reshapes and Expands to ``batch`` samples keep the samples that there are."""
    taken = {name for node in graph.node for name in (*node.input, *node.output)}
    for node in graph.node:
        if node.op_type not in ("Reshape", "Expand") or len(node.input) < 2 or node.input[0] not in fed:
            continue
        shape = constant_of(graph, node.input[1])
        if shape is None or not shape.size or shape.flat[0] != batch:
            continue
        # 0 is the axis of the input; where that is taken literally, the size that is left.
        literal = any(attribute.name == "allowzero" and attribute.i for attribute in node.attribute)
        if literal and -1 in shape:
            raise GraphError(f"{title(node)}: its shape {shape.tolist()} has the batch and another open size; "
                             "export the model with batch 1 or a symbolic one", code="fixed-batch")
        name = unique(f"{node.input[1]}/{_SAMPLES}", taken)
        taken.add(name)
        kept = 1 if node.op_type == "Expand" else -1 if literal else 0
        free = np.array([kept, *shape.flat[1:]], np.int64)
        graph.initializer.append(numpy_helper.from_array(free, name))
        node.input[1] = name


def _shapes(model: onnx.ModelProto, batch: int) -> dict[str, tuple[int, ...]]:
    """The shapes that are known as a whole, of a model of so many samples. Raises GraphError if there cannot be any."""
    try:
        types = value_types(model)
    except (shape_inference.InferenceError, ValueError, RuntimeError) as error:
        raise GraphError(f"{sentence(error)}, with a batch of {batch}; samples are computed one by one",
                         code="fixed-batch") from None
    shapes = {name: value.tensor_type.shape for name, value in types.items() if value.tensor_type.HasField("shape")}
    return {name: tuple(dim.dim_value for dim in shape.dim) for name, shape in shapes.items()
            if all(dim.HasField("dim_value") for dim in shape.dim)}


def _require_apart(graph: onnx.GraphProto, fed: set[str], whole: dict[str, tuple[int, ...]],
                   single: dict[str, tuple[int, ...]], batch: int) -> None:
    """Raises GraphError unless all that is computed has an axis of the samples, which is the first one, but in front of
    operators that only move values.

    Then no operator mixes them but one that turns them round, works along that axis, or tears it apart.
    """
    places = {name: 0 for name in fed}      # of the axis
    ends = {value.name for value in graph.output}
    for node in graph.node:
        read = {places[name] for name in node.input if name in fed}
        if not read:
            continue
        if read != {0} and node.op_type not in _MOVES:
            raise GraphError(f"{title(node)}: reads values whose samples of the batch of {batch} are not along the "
                             "first axis: it mixes samples; export the model with batch 1 or a symbolic one",
                             code="fixed-batch")
        _require_not_along(graph, node, read, len(whole.get(node.input[0], ())), batch)
        for name in node.output:
            if name not in fed:
                continue
            if name not in whole:
                advice = _BRANCH if enclosed(node) == "If" else ""
                raise GraphError(f"{title(node)}: the shape of its result is not known, nor whether it mixes samples "
                                 f"of the batch of {batch}; export the model with batch 1 or a symbolic one{advice}",
                                 code="fixed-batch")
            place = _place(whole[name], single.get(name), batch)
            # A Reshape may move the axis to where other values lie: what is in front of it has to stay.
            torn = node.op_type in _RESHAPES and place is not None and (
                prod(whole[name][:place]) != prod(whole.get(node.input[0], ())[:places.get(node.input[0], 0)]))
            if place is None or torn or place and name in ends:
                raise GraphError(f"{title(node)}: makes shape {whole[name]} of a batch of {batch}, and "
                                 f"{single.get(name) or 'nothing that is known'} of one sample: it mixes samples, or "
                                 "has constants for each, and the machine computes them one by one", code="fixed-batch")
            places[name] = place


def _place(whole: tuple[int, ...], single: tuple[int, ...] | None, batch: int) -> int | None:
    """The axis of the samples, in which alone the shape of ``batch`` samples differs from that of one."""
    if single is None or len(single) != len(whole):
        return None
    axes = [axis for axis, sizes in enumerate(zip(whole, single, strict=True)) if sizes[0] != sizes[1]]
    return axes[0] if len(axes) == 1 and (whole[axes[0]], single[axes[0]]) == (batch, 1) else None


def _require_not_along(graph: onnx.GraphProto, node: onnx.NodeProto, places: Collection[int], rank: int, batch: int
                       ) -> None:
    """Raises GraphError for a node that works along the axis of the samples, and leaves its length."""
    if node.op_type == "Slice" and len(node.input) > 4:
        axes, steps = (constant_of(graph, name) for name in node.input[3:5])
        if steps is not None and (steps < 0).any() and (axes is None or not {axis % rank if rank else axis
                                                                            for axis in axes.flat}.isdisjoint(places)):
            raise GraphError(f"{title(node)}: turns the samples of the batch of {batch} round", code="fixed-batch")
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), None)
    if node.op_type == "CumSum":
        known = constant_of(graph, node.input[1])
        axis = min(places) if known is None else int(known.flat[0])
    if node.op_type == "ReverseSequence":
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "time_axis"), 0)
    if node.op_type not in _ALONG_NOTHING and axis is not None and rank and axis % rank in places:
        raise GraphError(f"{title(node)}: works along the axis of the samples: it mixes those of the batch of {batch}",
                         code="fixed-batch")
