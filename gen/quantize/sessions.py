"""Runs of ONNX models on samples, by onnxruntime."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import onnx
from onnx import TensorProto, helper

from gen.onnx.runtime import OnnxruntimeError, RuntimeModel
from gen.quantize.options import QuantizeError

__all__ = ["Progress", "Samples", "part_of", "values_of"]

#: Model input -> (N, ...).
Samples = Mapping[str, np.ndarray]
#: Called with the samples done, of how many, and what is being done.
Progress = Callable[[int, int, str], None]


def values_of(model: onnx.ModelProto, names: Sequence[str], samples: Samples) -> Iterable[dict[str, np.ndarray]]:
    """The values ``names`` of a model on each sample by itself, so that no more than one is in memory; computed once
    more each time that they are gone through. ``samples`` may also be of values inside the model, which are not
    computed then.

    Those of a quantised model are computed as ONNX defines them, in float32: kernels for integers, which onnxruntime
    may put in their place, saturate on some processors. Raises QuantizeError for what onnxruntime does not run.
    """
    return _Values(model, names, samples)


class _Values:
    """One session for all times: large weights are packed when it is made, which takes longer than to run a sample."""

    def __init__(self, model: onnx.ModelProto, names: Sequence[str], samples: Samples) -> None:
        self._model, self._names, self._samples = model, names, samples

    @cached_property
    def _runtime(self) -> RuntimeModel:
        part, constants = part_of(self._model, self._names, self._samples)
        return RuntimeModel(part, initializers=constants, threads=1)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        made = [name for name in self._names if name not in self._samples]
        try:
            for number in range(len(next(iter(self._samples.values())))):
                feed = {name: np.ascontiguousarray(array[number:number + 1]) for name, array in self._samples.items()}
                results = self._runtime.run(feed, made) if made else []
                yield {**feed, **{name: np.asarray(array, np.float32) for name, array in zip(
                    made, results, strict=True)}}
        except OnnxruntimeError as error:
            raise QuantizeError.of(error, str(error)) from None


def part_of(model: onnx.ModelProto, names: Sequence[str], known: Collection[str]
            ) -> tuple[onnx.ModelProto, list[TensorProto]]:
    """The part of a model that ``names``, which are float, depend on, from the ``known`` values to them; and its
    initializers, which are not in it.

    Those values are float, too, but for inputs and outputs of the model, which are what they are.
    """
    types = {value.name: value.type.tensor_type.elem_type or TensorProto.FLOAT
             for value in (*model.graph.output, *model.graph.input)}
    needed, given, nodes = set(names), set(known), []
    for node in reversed(model.graph.node):
        if any(name in needed and name not in given for name in node.output):
            nodes.append(node)
            needed.update(node.input)
    inputs = [helper.make_tensor_value_info(name, types.get(name, TensorProto.FLOAT), None)
              for name in known if name in needed]
    outputs = [helper.make_tensor_value_info(name, types.get(name, TensorProto.FLOAT), None)
               for name in names if name not in given]
    constants = [tensor for tensor in model.graph.initializer if tensor.name in needed]
    graph = helper.make_graph(nodes[::-1], "part", inputs, outputs)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version,
                             functions=model.functions), constants
