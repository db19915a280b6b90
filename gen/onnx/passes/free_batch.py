"""Fixed batches."""

import numpy as np
import onnx
from onnx import numpy_helper, shape_inference

from gen.ir.errors import GraphError
from gen.onnx.names import unique
from gen.onnx.passes.check_types import value_types
from gen.onnx.passes.constants import constant_of
from gen.onnx.passes.report import sentence, title

__all__ = ["free_batch"]

#: The name of the first axis behind this pass.
_SAMPLES = "samples"


def free_batch(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model of a fixed batch -> one of any number of samples, each of which is computed by itself.

    Constant shapes that carry the batch are rewritten. Raises GraphError where samples would be mixed.
    """
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    batches = {value.name: value.type.tensor_type.shape.dim[0].dim_value for value in inputs
               if len(value.type.tensor_type.shape.dim) > 1}
    batch = max(batches.values(), default=0)
    if batch < 2:
        return model
    other = next((name for name in batches if batches[name] != batch), None)
    if other is not None:
        raise GraphError(f"input {other} has not the fixed batch of {batch} that others have; export the model with "
                         "batch 1 or a symbolic one")
    before = _shapes(model, batch)
    fed = _fed(graph, batches)
    _reshape(graph, fed, batch)
    del graph.value_info[:]
    for value in inputs:
        value.type.tensor_type.shape.dim[0].dim_value = 1
    _require_apart(graph, fed, before, _shapes(model, 1), batch)
    for value in (*inputs, *graph.output):
        if value.type.tensor_type.shape.dim:
            value.type.tensor_type.shape.dim[0].dim_param = _SAMPLES
    return model


def _fed(graph: onnx.GraphProto, inputs: dict[str, int]) -> set[str]:
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
            raise GraphError(f"{title(node)}: its shape {shape.tolist()} has the batch and another size to be found; "
                             "export the model with batch 1 or a symbolic one")
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
        raise GraphError(f"{sentence(error)}, with a batch of {batch}; samples are computed one by one") from None
    shapes = {name: value.tensor_type.shape for name, value in types.items() if value.tensor_type.HasField("shape")}
    return {name: tuple(dim.dim_value for dim in shape.dim) for name, shape in shapes.items()
            if all(dim.HasField("dim_value") for dim in shape.dim)}


def _require_apart(graph: onnx.GraphProto, fed: set[str], whole: dict[str, tuple[int, ...]],
                   single: dict[str, tuple[int, ...]], batch: int) -> None:
    """Raises GraphError unless the first axis of all that is computed is that of the samples.

    Then no operator that we take mixes them but one that turns them round.
    """
    for node in graph.node:
        if node.op_type == "Slice" and len(node.input) > 4 and node.input[0] in fed:
            axes, steps = (constant_of(graph, name) for name in node.input[3:5])
            if steps is not None and (steps < 0).any() and (axes is None or 0 in axes):
                raise GraphError(f"{title(node)}: turns the samples of the batch of {batch} round")
        for name in node.output:
            if name not in fed:
                continue
            if name not in whole:
                raise GraphError(f"{title(node)}: the shape of its result is not known, nor whether it mixes samples "
                                 f"of the batch of {batch}; export the model with batch 1 or a symbolic one")
            alone = single.get(name)
            if whole[name][:1] != (batch,) or alone != (1, *whole[name][1:]):
                raise GraphError(f"{title(node)}: makes shape {whole[name]} of a batch of {batch}, and "
                                 f"{alone or 'nothing that is known'} of one sample: it mixes samples, or has "
                                 "constants for each, and the machine computes them one by one")
