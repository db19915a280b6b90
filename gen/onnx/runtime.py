"""Models in onnxruntime."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, numpy_helper

from gen.ir.errors import GraphError
from gen.onnx.light import add_light, is_large, without_initializers

__all__ = ["OnnxruntimeError", "RuntimeModel", "float_outputs"]

#: How far onnxruntime may change a model before it runs it.
_LEVELS = {
    "none": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
#: Types of floating point, and that of what says none.
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.UNDEFINED)
_FATAL = 4
#: Characters of a message of onnxruntime's.
_LONGEST = 300


class OnnxruntimeError(GraphError):
    """A model that onnxruntime does not take, or does not run on what it is given."""

    code = "onnxruntime"


class RuntimeModel:
    """A model that is ready to run.

    ``initializers``: further ones of it, which need not be copied into it. Of large ones, its own or these,
    onnxruntime has the arrays (`gen.onnx.light`); a model in bytes it copies.
    ``optimised``: "none" computes each node as ONNX defines it, "basic" leaves out what is redundant, "all" takes what
    comes close and is faster: kernels for integers, which saturate on some processors, in place of quantised nodes.
    ``threads``: 0 for as many as the processor has; of several that wait for each other each takes the time of a core.
    ``save_to``: a file for the optimised model; ``without``: onnxruntime's names of optimisations to be left out.

    Raises OnnxruntimeError.
    """

    def __init__(self, model: onnx.ModelProto | bytes, *, initializers: Sequence[TensorProto] = (),
                 optimised: Literal["none", "basic", "all"] = "none", threads: int = 0, save_to: Path | None = None,
                 without: Sequence[str] = ()) -> None:
        options = ort.SessionOptions()
        options.log_severity_level = _FATAL     # what goes wrong is raised
        options.graph_optimization_level = _LEVELS[optimised]
        options.intra_op_num_threads = threads
        if save_to is not None:
            options.optimized_model_filepath = str(save_to)
        try:
            if isinstance(model, bytes):
                content = model
            else:
                initializers = [*model.graph.initializer, *initializers]
                model = without_initializers(model)
                add_light(model, initializers)
                content = model.SerializeToString()
            #: What the session reads in place, as long as it is there.
            self._arrays = _arrays(initializers)
            options.add_external_initializers(list(self._arrays), list(self._arrays.values()))
            self._session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"],
                                                 disabled_optimizers=list(without))
        except Exception as error:      # onnxruntime's own exception types are not public
            raise OnnxruntimeError(f"onnxruntime does not take the model: {_line(error)}") from None
        self.inputs = tuple(value.name for value in self._session.get_inputs())
        #: Output -> its shape; no number where that is open.
        self.outputs = {value.name: tuple(value.shape) for value in self._session.get_outputs()}

    def run(self, values: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None) -> list[np.ndarray]:
        """The ``outputs``, all of them by default; of ``values`` those are taken that the model reads."""
        try:
            found: list[np.ndarray] = self._session.run(
                list(self.outputs if outputs is None else outputs), {name: values[name] for name in self.inputs})
        except Exception as error:      # as above
            raise OnnxruntimeError(f"onnxruntime does not run the model: {_line(error)}") from None
        return found


def float_outputs(model: onnx.ModelProto) -> list[str]:
    """The outputs that are float, or say nothing else: what two forms of a model can be compared by. Indices, such as
    those of NonMaxSuppression, differ in number from one to the other.
    """
    return [value.name for value in model.graph.output
            if value.type.tensor_type.elem_type in _FLOATS]


def _arrays(initializers: Iterable[TensorProto]) -> dict[str, ort.OrtValue]:
    """The large ones."""
    return {tensor.name: ort.OrtValue.ortvalue_from_numpy(numpy_helper.to_array(tensor))
            for tensor in initializers if is_large(tensor)}


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:_LONGEST]
