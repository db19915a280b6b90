"""What a model makes of samples, by onnxruntime."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from gen.detection.judge import Expected
from gen.detection.precision import Precision
from gen.onnx.light import without_initializers
from gen.onnx.runtime import OnnxruntimeError, RuntimeModel, float_outputs
from gen.onnx.scores import answers, are_scores, why_no_scores
from gen.prune.errors import PruneError

__all__ = ["AccuracyEvaluator", "run_model"]

#: Samples that are computed at once.
_BATCH = 64


def run_model(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray],
              values: Sequence[str] | None = None) -> list[np.ndarray]:
    """The model's float outputs, or ``values`` in it, for samples stacked on axis 0. Raises PruneError."""
    names = float_outputs(model) if values is None else values
    if not names:
        raise PruneError("no output of the model is float, so what is lost cannot be measured", code="no-float-output")
    shown = without_initializers(model)
    if values is not None:
        del shown.graph.output[:]
        shown.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in values)
    first = next(value for value in model.graph.input if value.name in inputs)
    fixed = first.type.tensor_type.shape.dim[0].dim_value
    samples, step = len(next(iter(inputs.values()))), fixed or _BATCH
    try:
        runtime = RuntimeModel(shown, initializers=model.graph.initializer, optimised="all")
        parts = [runtime.run({name: array[start:start + step] for name, array in inputs.items()}, names)
                 for start in range(0, samples, step)]
    except OnnxruntimeError as error:
        raise PruneError.of(error, str(error)) from None
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


@dataclass(frozen=True, eq=False)
class AccuracyEvaluator:
    """How good a changed model is on samples, against the one that it came from.

    ``labels``: (N,), below 0 for none; without any, an answer (`gen.onnx.scores.answers`) is right where it is that of
    ``original``. ``remark``: why there are none, though some were given. ``expected``: of a detector, whose accuracy is
    mAP at an overlap of 0.5. ``outputs``: names of the float ones.
    """

    inputs: Mapping[str, np.ndarray]
    original: Sequence[np.ndarray]
    labels: np.ndarray | None
    remark: str = ""
    expected: Expected | None = None
    outputs: Sequence[str] = ()

    @classmethod
    def of(cls, model: onnx.ModelProto, inputs: Mapping[str, np.ndarray], labels: np.ndarray | None = None,
           expected: Expected | None = None) -> "AccuracyEvaluator":
        original = run_model(model, inputs)
        if expected is not None:
            return cls(inputs, original, None, expected=expected, outputs=float_outputs(model))
        if labels is None or not (labels >= 0).any():
            return cls(inputs, original, None)
        shape = original[0].shape[1:]
        if not are_scores(shape):
            return cls(inputs, original, None, why_no_scores(float_outputs(model)[0], shape))
        return cls(inputs, original, labels)

    def noise(self, model: onnx.ModelProto) -> float:
        """Power of the outputs' change over that of the outputs; SQNR is -10 log10 of it."""
        found = run_model(model, self.inputs)
        return float(np.mean([np.square(new - old, dtype=np.float64).mean()
                              / max(np.square(old, dtype=np.float64).mean(), 1e-30)
                              for new, old in zip(found, self.original, strict=True)]))

    def accuracy(self, model: onnx.ModelProto) -> float:
        """Share of the samples, or of the places of a map, that are right; of a detector mAP at an overlap of 0.5."""
        return self._share(run_model(model, self.inputs))

    @property
    def original_accuracy(self) -> float:
        return self._share(self.original)

    def precisions(self, model: onnx.ModelProto) -> tuple[Precision, Precision] | None:
        """Of the original and of a changed detector; None of other models. Raises HeadError, AnnotationError."""
        if self.expected is None:
            return None
        return self._precision(self.expected, self.original), self._precision(
            self.expected, run_model(model, self.inputs))

    def _precision(self, expected: Expected, outputs: Sequence[np.ndarray]) -> Precision:
        return expected.precision(dict(zip(self.outputs, outputs, strict=True)))

    def _share(self, outputs: Sequence[np.ndarray]) -> float:
        if self.expected is not None:
            return self._precision(self.expected, outputs).map_50
        found = answers(outputs[0])
        if self.labels is None:
            return float((found == answers(self.original[0])).mean())
        known = self.labels >= 0
        return float((found[:, 0] == self.labels)[known].mean())
