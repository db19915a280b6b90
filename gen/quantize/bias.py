"""The mean error of each layer's output, corrected in its bias.

Rounded weights and clipped activations shift a channel's mean. The shift is a constant, so correcting it costs nothing
(Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", ICCV 2019, section 4.2, in its
empirical form). Layers are corrected in order: a layer's output is computed from the corrected outputs of the layers in
front of it.
"""

import numpy as np
import onnx
from onnx import numpy_helper

from gen.onnx.names import unique
from gen.quantize.plan import Plan
from gen.quantize.prepare import initializers
from gen.quantize.sessions import Progress, Samples, part_of, values_of

__all__ = ["correct_biases", "with_biases"]

#: Samples that means are taken over, which settle soon, and the bytes that they may have at any layer.
_SAMPLES, _BYTES = 64, 1 << 27
_BIASED = ("Conv", "ConvTranspose", "Gemm")


def with_biases(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with a bias, if of zeros, for each layer that can have one."""
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    constants = initializers(copied)
    taken = {name for node in copied.graph.node for name in (*node.input, *node.output)}
    for node in copied.graph.node:
        if node.op_type not in _BIASED or node.input[1] not in constants or (len(node.input) > 2 and node.input[2]):
            continue
        attributes = {a.name: a.i for a in node.attribute}
        dims = constants[node.input[1]].dims
        if node.op_type == "ConvTranspose":
            channels = dims[1] * attributes.get("group", 1)
        else:
            channels = dims[1 if node.op_type == "Gemm" and not attributes.get("transB") else 0]
        name = unique(f"{node.name}/bias", taken)
        taken.add(name)
        copied.graph.initializer.append(numpy_helper.from_array(np.zeros(channels, np.float32), name))
        del node.input[2:]
        node.input.append(name)
    return copied


def correct_biases(model: onnx.ModelProto, reference: onnx.ModelProto, plan: Plan, samples: Samples,
                   progress: Progress) -> onnx.ModelProto:
    """The quantised ``model``, which is changed, with the biases of ``plan``'s layers corrected."""
    layers = [layer for layer in plan.layers if layer.bias]
    if not layers:      # matrix products have none
        return model
    nodes = {node.name: node for node in model.graph.node}
    makers = {name: node for node in model.graph.node for name in node.output}
    constants = initializers(model)
    wanted, count = _means(reference, [layer.output for layer in layers], samples)
    known = {name: array[:count] for name, array in samples.items()}
    outputs = [nodes[layer.node].output[0] for layer in layers]
    last = _last_readers(model, outputs, known)
    for number, (layer, output) in enumerate(zip(layers, outputs, strict=True)):
        progress(number, len(layers), "correcting biases")
        found = np.concatenate([values[output] for values in values_of(model, [output], known)])
        column = (-1,) + (1,) * (found.ndim - 2)
        error = wanted[layer.output] - _mean(found)
        known[output] = found + error.reshape(column).astype(np.float32)
        known = {name: array for name, array in known.items() if last.get(name, -1) > number}
        dequantize, beta = makers[nodes[layer.node].input[2]], _beta(nodes[layer.node])
        bias, scale = (constants[name] for name in dequantize.input[:2])
        steps = numpy_helper.to_array(bias) + np.rint(error / beta / numpy_helper.to_array(scale))
        limit = np.iinfo(np.int32)
        corrected = np.clip(steps, limit.min, limit.max).astype(np.int32)
        bias.CopyFrom(numpy_helper.from_array(corrected, bias.name))
    return model


def _means(model: onnx.ModelProto, names: list[str], samples: Samples) -> tuple[dict[str, np.ndarray], int]:
    """Values -> their means for each channel, and over how many samples."""
    sums: dict[str, np.ndarray] = {}
    count = 0
    for count, values in enumerate(values_of(model, names, samples), 1):
        for name in names:
            sums[name] = sums.get(name, np.zeros(1)) + _mean(values[name])
        if count >= min(_SAMPLES, _BYTES // max(values[name].nbytes for name in names)):
            break
    return {name: total / count for name, total in sums.items()}, count


def _mean(values: np.ndarray) -> np.ndarray:
    """Of each channel, the second axis."""
    return values.mean(axis=tuple(axis for axis in range(values.ndim) if axis != 1), dtype=np.float64)


def _last_readers(model: onnx.ModelProto, outputs: list[str], samples: Samples) -> dict[str, int]:
    """Value that is kept -> the number of the last of ``outputs`` that is computed from it."""
    last: dict[str, int] = {}
    for number, output in enumerate(outputs):
        part, _ = part_of(model, [output], [*samples, *outputs[:number]])
        last.update((value.name, number) for value in part.graph.input)
    return last


def _beta(node: onnx.NodeProto) -> float:
    """What a bias counts in the output of a Gemm."""
    return next((a.f for a in node.attribute if a.name == "beta"), 1.0)
