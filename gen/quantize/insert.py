"""QuantizeLinear and DequantizeLinear where a plan has them, by `onnxruntime.quantization`."""

from collections.abc import Mapping

import numpy as np
import onnx
from onnxruntime.quantization import QuantType
from onnxruntime.quantization.calibrate import TensorData
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
from onnxruntime.quantization.quant_utils import add_infer_metadata

from gen.quantize.fit import fit_ranges, fit_weights
from gen.quantize.options import QuantizeOptions
from gen.quantize.plan import Plan

__all__ = ["insert"]


def insert(model: onnx.ModelProto, plan: Plan, ranges: Mapping[str, tuple[float, float]],
           options: QuantizeOptions) -> onnx.ModelProto:
    """``model`` with the tensors of ``plan`` in int8, for these ranges, and its layers' weights and biases in integers.
    It has the types and shapes of its values. What is zero in all samples or weights gets a scale that fits what is
    beside it (`gen.quantize.fit`).

    What to quantise is told tensor by tensor: onnxruntime's own choice, operator by operator, also quantises between a
    layer and the clip after it.
    """
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    add_infer_metadata(copied)      # or it would write the model to a file and read it again, to infer what is there
    outputs = _without_inputs(copied)
    ranges = fit_ranges(model, plan, ranges)
    largest = fit_weights(model, plan, ranges, options)
    data = {name: TensorData(lowest=np.float32(low), highest=np.float32(high)) for name, (low, high) in ranges.items()}
    quantizer = QDQQuantizer(
        copied, per_channel=options.per_channel, reduce_range=False, weight_qType=QuantType.QInt8,
        activation_qType=QuantType.QInt8, tensors_range=data, nodes_to_quantize=[], nodes_to_exclude=[],
        op_types_to_quantize=[], extra_options={
            "ActivationSymmetric": options.symmetric, "TensorQuantOverrides": _overrides(plan, largest, options)})
    for name in plan.tensors:
        quantizer.quantize_activation_tensor(name)
    for name, (source, node) in plan.like.items():
        quantizer.quantize_output_same_as_input(name, source, node)
    for layer in plan.layers:
        if options.per_channel:
            quantizer.quantize_weight_tensor_per_channel(layer.weights, layer.axis)
        else:
            quantizer.quantize_weight_tensor(layer.weights)
        if layer.bias:
            quantizer.quantize_bias_tensor(layer.node, layer.bias, layer.source, layer.weights)
    quantizer.quantize_model()
    quantizer.model.topological_sort()
    quantized: onnx.ModelProto = quantizer.model.model
    del quantized.graph.output[:]
    quantized.graph.output.extend(outputs)
    return quantized


def _without_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Takes outputs from a model that are its inputs: the quantiser would make such a value after it is read. Returns
    all that there were.
    """
    outputs = list(model.graph.output)
    inputs = {value.name for value in model.graph.input}
    del model.graph.output[:]
    model.graph.output.extend(value for value in outputs if value.name not in inputs)
    return outputs


def _overrides(plan: Plan, largest: Mapping[str, np.ndarray], options: QuantizeOptions
               ) -> dict[str, list[dict[str, object]]]:
    """Ranges of weights, where they are not those of their values: as of `fit_weights`."""
    axes = {layer.weights: layer.axis for layer in plan.layers}
    found: dict[str, list[dict[str, object]]] = {}
    for name, channels in largest.items():
        found[name] = [{"rmin": -end, "rmax": end} for end in channels]
        if options.per_channel:
            found[name][0]["axis"] = axes[name]
    return found
