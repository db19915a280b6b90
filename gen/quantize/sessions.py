"""Runs of ONNX models on samples, by onnxruntime."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from gen.quantize.options import QuantizeError

__all__ = ["Progress", "Samples", "part_of", "values_of"]

#: Model input -> (N, ...).
Samples = Mapping[str, np.ndarray]
#: Called with the samples done, of how many, and what is being done.
Progress = Callable[[int, int, str], None]


def values_of(model: onnx.ModelProto, names: Sequence[str], samples: Samples) -> Iterator[dict[str, np.ndarray]]:
    """The values ``names`` of a model on each sample by itself, so that no more than one is in memory. ``samples`` may
    also be of values inside the model, which are not computed then.

    Those of a quantised model are computed as ONNX defines them, in float32: kernels for integers, which onnxruntime
    may put in their place, saturate on some processors. Raises QuantizeError for what onnxruntime does not run.
    """
    session = _session(part_of(model, names, samples))
    made = [name for name in names if name not in samples]
    taken = {value.name for value in session.get_inputs()}
    for number in range(len(next(iter(samples.values())))):
        feed = {name: np.ascontiguousarray(array[number:number + 1]) for name, array in samples.items()}
        try:
            results = session.run(made, {name: value for name, value in feed.items() if name in taken})
        except Exception as error:      # onnxruntime's own exception types are not public
            raise QuantizeError(f"onnxruntime does not run the model: {str(error).splitlines()[0]}") from None
        yield {**feed, **dict(zip(made, results, strict=True))}


def part_of(model: onnx.ModelProto, names: Sequence[str], known: Collection[str]) -> onnx.ModelProto:
    """The part of a model that ``names`` depend on, from the ``known`` float values to them."""
    needed, nodes = set(names), []
    for node in reversed(model.graph.node):
        if not (needed - set(known)).isdisjoint(node.output):
            nodes.append(node)
            needed.update(node.input)
    inputs, outputs = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in values]
                       for values in ((name for name in known if name in needed),
                                      (name for name in names if name not in known)))
    constants = [tensor for tensor in model.graph.initializer if tensor.name in needed]
    graph = helper.make_graph(nodes[::-1], "part", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def _session(model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4      # what goes wrong is raised
    options.intra_op_num_threads = 1        # several wait for each other in loops that take the processor's time
    try:
        return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:          # as above
        raise QuantizeError(f"onnxruntime does not take the model: {str(error).splitlines()[0]}") from None
