"""Noise of quantisation of each layer: the reference's values against those of the model with nothing rounded."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from gen.ir import reference
from gen.onnx.model import Model
from gen.onnx.runtime import OnnxruntimeError, RuntimeModel
from gen.report.document import Noise
from gen.run.application import Application
from gen.run.inputs import arbitrary_samples, read_samples
from gen.run.workload import Workload

__all__ = ["noise_of", "without_rounding"]

#: Samples that are taken of a file.
_SAMPLES = 8
_QUANTISE, _DEQUANTISE = "QuantizeLinear", "DequantizeLinear"


def noise_of(application: Application, samples: Path | None) -> tuple[list[Noise], str]:
    """Of each layer whose result is a quantised tensor of the model, and what it is, in words; ([], why not) where it
    cannot be computed. Raises InputError, OSError for ``samples``."""
    whole = application.segments[0]
    if len(application.segments) != 1 or not isinstance(whole, Workload):
        return [], "Not computed: a part of the model runs on the processor."
    limit = _SAMPLES if samples else 1
    given = (read_samples(samples, application.inputs, limit=limit) if samples
             else arbitrary_samples(application.inputs, 0)).inputs
    try:
        layers = _layers(whole)
        if not layers:
            return [], "Not computed: no layer's result is a quantised tensor of the model."
        runtime = RuntimeModel(without_rounding(whole.imported.model, [name for _, name in layers.values()]))
        ratios = _ratios(whole, layers, runtime, given)
    except (ValueError, OnnxruntimeError) as error:
        return [], f"Not computed: {error}."
    count = len(next(iter(given.values())))
    what = f"{count} sample{'s' * (count > 1)} of {samples.name}" if samples else "a random sample"
    return ratios, ("Against the same model with nothing rounded between layers, its values clipped as they are here; "
                    f"of {what}. All layers before a layer are quantised, too.")


def _layers(whole: Workload) -> dict[int, tuple[str, str]]:
    """Layer by number -> its tensor, and the quantised ONNX tensor that it stands for."""
    found = {}
    for number, info in enumerate(whole.program.layers):
        tensor = whole.graph.tensors[info.output]
        if tensor.onnx_name and not tensor.signs and info.output in whole.imported.orders:
            found[number] = info.output, tensor.onnx_name
    return found


def _ratios(whole: Workload, layers: Mapping[int, tuple[str, str]], runtime: RuntimeModel,
            given: Mapping[str, np.ndarray]) -> list[Noise]:
    signal, noise = dict.fromkeys(layers, 0.0), dict.fromkeys(layers, 0.0)
    names = list(dict.fromkeys(name for _, name in layers.values()))
    for at in range(len(next(iter(given.values())))):
        one = {name: array[at:at + 1] for name, array in given.items()}
        _, tensors = reference.run(whole.graph, one, keep=True)
        assert tensors is not None
        values = dict(zip(names, runtime.run(one, names), strict=True))
        for number, (tensor, name) in layers.items():
            if tensor not in tensors:
                continue
            known = whole.graph.tensors[tensor]
            ours = (tensors[tensor][0].ravel()[whole.imported.orders[tensor]].astype(np.float64)
                    - known.zero_point) * known.scale
            exact = values[name].astype(np.float64)
            signal[number] += float(np.square(exact).sum())
            noise[number] += float(np.square(exact.ravel() - ours.ravel()).sum())
    return [Noise(layer=number, sqnr_db=float(10 * np.log10(signal[number] / noise[number])) if noise[number] else None)
            for number in layers if signal[number]]


def without_rounding(model: Model, outputs: list[str]) -> onnx.ModelProto:
    """The model with a Clip in place of every QuantizeLinear of activations, and nothing in place of the
    DequantizeLinear after it; its outputs are the quantised tensors ``outputs``.

    Raises ValueError for quantised operators of other kinds, which have no float form.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    made = set()
    nodes = []
    for node in proto.graph.node:
        if node.op_type == _QUANTISE and node.input[0] not in model.constants:
            nodes += _clip(node, model)
            made.add(node.output[0])
        elif node.op_type == _DEQUANTISE and node.input[0] in made:
            nodes.append(helper.make_node("Identity", node.input[:1], node.output))
        elif node.op_type.startswith("QLinear") or "Integer" in node.op_type:
            raise ValueError(f"node {node.name or node.output[0]} is a {node.op_type}, which has no float form")
        else:   # what moves values takes them as they come
            if made.intersection(node.input):
                made.update(node.output)
            nodes.append(node)
    if unknown := [name for name in outputs if name not in made]:
        raise ValueError(f"{unknown[0]} is quantised by no node of the model")
    del proto.graph.node[:], proto.graph.output[:], proto.graph.value_info[:]
    proto.graph.node.extend(nodes)
    proto.graph.output.extend(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
                              for name in dict.fromkeys(outputs))
    return proto


def _clip(node: onnx.NodeProto, model: Model) -> list[onnx.NodeProto]:
    """To the values that the node's type holds; its limits are constants of their own."""
    try:
        scale = np.asarray(model.constants[node.input[1]], np.float64)
        zero = model.constants[node.input[2]] if len(node.input) > 2 and node.input[2] else np.uint8(0)
    except KeyError:
        raise ValueError(f"node {node.name or node.output[0]} has no constant scale") from None
    zero = np.asarray(zero)
    if scale.size != 1:
        raise ValueError(f"node {node.name or node.output[0]} quantises by channel")
    info = np.iinfo(zero.dtype)
    names, found = [], []
    for ending, bound in (("low", info.min), ("high", info.max)):
        value = np.float32((bound - int(zero.item())) * scale.item())
        names.append(f"{node.output[0]}/{ending}")
        found.append(helper.make_node("Constant", [], names[-1:], value=numpy_helper.from_array(np.array(value))))
    return [*found, helper.make_node("Clip", [node.input[0], *names], node.output)]
