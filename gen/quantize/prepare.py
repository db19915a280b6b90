"""A float model made ready: batch norms and constants folded, in an opset that knows scales for each channel."""

import tempfile
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from gen.onnx.fused import QUANTISED_SPREADS
from gen.onnx.light import inferred, light, without_initializers
from gen.onnx.names import unique
from gen.onnx.passes import (
    as_shaped,
    disclose,
    drop_casts,
    drop_unused,
    enclose,
    find_prelus,
    hoist_transposes,
    merge_pool_padding,
    name_nodes,
    sink_transposes,
    spread_fused,
)
from gen.onnx.runtime import OnnxruntimeError, RuntimeModel
from gen.quantize.averages import CountedPadding
from gen.quantize.dynamic import of_running, undo_running
from gen.quantize.float_weights import float_weights, of_weights
from gen.quantize.heads import HeadMatrices, SharedFactors
from gen.quantize.layer_norms import find_layer_norms
from gen.quantize.linear_attention import LinearAttention
from gen.quantize.masks import ExpandedMasks, make_masks_finite
from gen.quantize.maxima import Maxima
from gen.quantize.means import Means
from gen.quantize.norms import PixelNorms
from gen.quantize.operators import Operators
from gen.quantize.opsets import converted, opset_of
from gen.quantize.options import QuantizeError
from gen.quantize.quotients import Quotients
from gen.quantize.repeats import RepeatedOperands
from gen.quantize.rewriting import rewritten
from gen.quantize.shifts import fold_shifts, move_shifts
from gen.quantize.single import in_single
from gen.quantize.sums_apart import SumsApart
from gen.quantize.ungroup import Ungrouping
from gen.quantize.wide import of_wide, undo_wide

__all__ = ["initializers", "prepare", "quantised_node"]

#: The first opset whose DequantizeLinear has a scale for each channel.
_OPSET = 13
_BIASED = ("Conv", "ConvTranspose", "Gemm")
#: How names end of what onnxruntime's quantiser adds to that of a value.
_ADDED = ("_QuantizeLinear_Input", "_QuantizeLinear_Output", "_DequantizeLinear_Output", "_quantized", "_scale",
          "_zero_point")
_QUANTISED = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinear", "QGemm", "ConvInteger",
              "MatMulInteger")


def initializers(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    return {tensor.name: tensor for tensor in model.graph.initializer}


def quantised_node(model: onnx.ModelProto) -> onnx.NodeProto | None:
    """The first node of a model that belongs to one whose activations are quantised."""
    undone = {node.output[0] for node in (
        *of_weights(model.graph), *of_running(model), *of_wide(model))}
    return next((node for node in model.graph.node
                 if node.op_type.startswith(_QUANTISED) and node.output[0] not in undone), None)


def prepare(model: onnx.ModelProto, whole: Collection[str] = ()) -> onnx.ModelProto:
    """A copy of ``model`` with the same results, of float32 layers that can be quantised. Types and shapes of its
    values are in ``value_info``. Nodes of the names ``whole`` are not taken apart.

    Integer weights, activations of 16 bits, and those that are quantised while the model runs become the float numbers
    that they stand for. All float numbers become float32. onnxruntime's basic optimisations fold constants; they also
    fold batch norms and constant operands into the layers in front of them. Raises QuantizeError for a model that is
    quantised already, or that onnxruntime does not take.
    """
    if (node := quantised_node(model)) is not None:
        raise QuantizeError(f"node {node.name} ({node.op_type}): the model is quantised already, or a part of it; give "
                            "the float model it was made from", code="quantised-already")
    model = float_weights(undo_wide(undo_running(in_single(model))))
    if (opset := opset_of(model)) < _OPSET:
        older = _without_defaults(model)
        older.graph.initializer.extend(model.graph.initializer)
        try:
            model = converted(older, _OPSET)
        except Exception as error:      # a converter in C++ raises anything
            raise QuantizeError(f"cannot be converted from opset {opset} to {_OPSET}, in which weights have a scale "
                                f"for each channel ({_first_line(error)}); export it in a newer opset",
                                code="unsupported-opset") from None
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    model = rewritten(drop_unused(copy), Operators)
    if any(node.op_type == "GroupNormalization" for node in model.graph.node):
        # onnxruntime makes nodes of its definition of it, with sizes to be computed.
        model = rewritten(model, PixelNorms)
    # onnxruntime moves Transposes into the steps of a normalisation.
    model = drop_casts(_optimised(find_layer_norms(rewritten(_spread(model, whole), Means))))
    # Some of it once more, as there are more constants now.
    model = find_layer_norms(make_masks_finite(rewritten(drop_unused(model), SumsApart, HeadMatrices, SharedFactors)))
    model = rewritten(model, PixelNorms, LinearAttention, Quotients, Maxima, ExpandedMasks, RepeatedOperands,
                      CountedPadding)
    for apply in (hoist_transposes, sink_transposes, merge_pool_padding, find_prelus, move_shifts, fold_shifts):
        model = apply(model)
    model = drop_unused(rewritten(model, Ungrouping))
    graph = inferred(as_shaped(light(model)))
    for name in ("output", "value_info"):
        del getattr(model.graph, name)[:]
        getattr(model.graph, name).extend(getattr(graph, name))
    model = name_nodes(model)
    used = {node.domain for node in model.graph.node} | {""}
    imports = [entry for entry in model.opset_import if entry.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(imports)
    _flatten_biases(model)
    _free_names(model)
    return model


def _spread(model: onnx.ModelProto, kept: Collection[str]) -> onnx.ModelProto:
    """What stands for several operators as those, but nodes ``kept``; onnxruntime would look into none of it."""
    if not any((node.domain, node.op_type) in QUANTISED_SPREADS for node in model.graph.node):
        return model
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    return drop_unused(spread_fused(whole, QUANTISED_SPREADS, kept))


def _without_defaults(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy without initializers, nor inputs that they stand for: onnxruntime folds only what cannot be replaced."""
    result, constants = without_initializers(model), initializers(model)
    inputs = [value for value in result.graph.input if value.name not in constants]
    del result.graph.input[:]
    result.graph.input.extend(inputs)
    return result


def _optimised(model: onnx.ModelProto) -> onnx.ModelProto:
    # A Dense on each pixel would become a Gemm of all of them, as if they were samples.
    without = ["MatMulAddFusion"] if _multiplies_pixels(model) else []
    with tempfile.TemporaryDirectory(prefix="npugen.") as folder:
        path = Path(folder) / "optimised.onnx"
        try:
            RuntimeModel(disclose(_without_defaults(model)), initializers=model.graph.initializer, optimised="basic",
                         save_to=path, without=without)
        except OnnxruntimeError as error:
            raise QuantizeError.of(error, str(error)) from None
        return enclose(onnx.load(path))


def _multiplies_pixels(model: onnx.ModelProto) -> bool:
    """Whether a MatMul has more axes than those of samples and channels."""
    graph = inferred(model)
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in (*graph.input, *graph.value_info)}
    constants = initializers(model)
    return any(node.op_type == "MatMul" and node.input[1] in constants and ranks.get(node.input[0], 0) > 2
               for node in graph.node)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:300]


def _flatten_biases(model: onnx.ModelProto) -> None:
    """Each layer gets a constant bias of its own, as its scale depends on the layer's; a Gemm one with a number
    for each output, so that they can have as many.
    """
    constants, taken = initializers(model), _names(model)
    readers = Counter(name for node in model.graph.node for name in node.input)
    for node in model.graph.node:
        bias = constants.get(node.input[2]) if node.op_type in _BIASED and len(node.input) > 2 else None
        if bias is None:
            continue
        array = numpy_helper.to_array(bias)
        if node.op_type == "Gemm" and node.input[1] in constants:
            transposed = any(a.name == "transB" and a.i for a in node.attribute)
            outputs = constants[node.input[1]].dims[0 if transposed else 1]
            array = np.ascontiguousarray(np.broadcast_to(array.reshape(-1), outputs))
        if array.shape == tuple(bias.dims) and readers[bias.name] == 1:
            continue
        readers[bias.name] -= 1
        node.input[2] = unique(f"{node.name}/bias", taken)
        taken.add(node.input[2])
        model.graph.initializer.append(numpy_helper.from_array(array, node.input[2]))


def _free_names(model: onnx.ModelProto) -> None:
    """Other names for values that are called as those are that the quantiser adds (`gen.quantize.insert`)."""
    graph, taken = model.graph, _names(model)
    fixed = {value.name for value in (*graph.input, *graph.output)}
    renamed: dict[str, str] = {}
    for name in sorted(taken - fixed):
        if name.endswith(_ADDED):
            renamed[name] = unique(f"{name}/value", taken)
            taken.add(renamed[name])
    for node in graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                names[place] = renamed.get(name, name)
    for value in (*graph.initializer, *graph.value_info):
        value.name = renamed.get(value.name, value.name)


def _names(model: onnx.ModelProto) -> set[str]:
    """Those of all values."""
    graph = model.graph
    return {name for node in graph.node for name in (*node.input, *node.output) if name} | {
        value.name for value in (*graph.input, *graph.output, *graph.initializer, *graph.value_info)}
