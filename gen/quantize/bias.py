"""The mean error of each layer's output, taken out of its bias.

Rounded weights and clipped activations shift a channel's mean; as a constant, that goes into the bias for nothing
(Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", ICCV 2019, section 4.2, in its
empirical form). Layers are corrected in their order, each behind those that are corrected already.
"""

import numpy as np
import onnx
from onnx import numpy_helper

from gen.quantize.plan import Layer, Plan
from gen.quantize.prepare import initializers
from gen.quantize.sessions import Progress, Samples, values_of

__all__ = ["correct_biases", "with_biases"]

#: Samples that means are taken over: they settle soon, and every layer is a run of all that is in front of it.
_SAMPLES = 32
_BIASED = ("Conv", "ConvTranspose", "Gemm")


def with_biases(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with a bias, if of zeros, for each layer that can have one."""
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    constants = initializers(copied)
    for node in copied.graph.node:
        if node.op_type not in _BIASED or node.input[1] not in constants or (len(node.input) > 2 and node.input[2]):
            continue
        attributes = {a.name: a.i for a in node.attribute}
        dims = constants[node.input[1]].dims
        if node.op_type == "ConvTranspose":
            channels = dims[1] * attributes.get("group", 1)
        else:
            channels = dims[1 if node.op_type == "Gemm" and not attributes.get("transB") else 0]
        name = f"{node.name}/bias"
        copied.graph.initializer.append(numpy_helper.from_array(np.zeros(channels, np.float32), name))
        del node.input[2:]
        node.input.append(name)
    return copied


def correct_biases(model: onnx.ModelProto, reference: onnx.ModelProto, plan: Plan, samples: Samples,
                   progress: Progress) -> onnx.ModelProto:
    """The quantised ``model``, which is changed, with the biases of ``plan``'s layers corrected."""
    layers = [layer for layer in plan.layers if layer.bias]
    few = {name: array[:_SAMPLES] for name, array in samples.items()}
    nodes = {node.name: node for node in model.graph.node}
    makers = {name: node for node in model.graph.node for name in node.output}
    constants = initializers(model)
    wanted = _means(reference, {layer.node: layer.output for layer in layers}, few)
    for number, layer in enumerate(layers):
        progress(number, len(layers), "correcting biases")
        node = nodes[layer.node]
        found = _means(model, {layer.node: node.output[0]}, few)
        dequantize = makers[node.input[2]]
        bias, scale = (constants[name] for name in dequantize.input[:2])
        steps = numpy_helper.to_array(bias) + np.rint(
            (wanted[layer.node] - found[layer.node]) / _gain(layer, node) / numpy_helper.to_array(scale))
        limit = np.iinfo(np.int32)
        corrected = np.clip(steps, limit.min, limit.max).astype(np.int32)
        bias.CopyFrom(numpy_helper.from_array(corrected, bias.name))
    return model


def _means(model: onnx.ModelProto, outputs: dict[str, str], samples: Samples) -> dict[str, np.ndarray]:
    """Node -> the mean of its output for each channel."""
    sums: dict[str, np.ndarray] = {}
    for values in values_of(model, list(outputs.values()), samples):
        for node, name in outputs.items():
            value = values[name].astype(np.float64)
            mean = value.mean(axis=tuple(axis for axis in range(value.ndim) if axis != 1))
            sums[node] = sums.get(node, 0.0) + mean
    return {node: total / len(next(iter(samples.values()))) for node, total in sums.items()}


def _gain(layer: Layer, node: onnx.NodeProto) -> float:
    """What a bias counts in the output: beta of a Gemm."""
    return next((a.f for a in node.attribute if a.name == "beta"), 1.0)
