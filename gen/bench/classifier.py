"""A float classifier with samples, quantised, and how many of the samples it has right."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from gen.ir import reference
from gen.ir.graph import Graph
from gen.onnx.importer import load_model
from gen.quantize.options import QuantizeOptions
from gen.quantize.quantize import quantize
from npudriver.arrays import read_arrays

__all__ = ["Classifier", "digits_classifier"]

#: Of the digits' samples the first are to calibrate with.
_CALIBRATED = 239


@dataclass(frozen=True, eq=False)
class Classifier:
    """A ``model`` with one input, float32 ``calibration`` (m, ...) and ``images`` (n, ...) for it, ``labels`` (n,) of
    the latter and ``learnt`` (m,) of the former.
    """

    model: onnx.ModelProto
    calibration: np.ndarray
    images: np.ndarray
    labels: np.ndarray
    learnt: np.ndarray

    @property
    def digest(self) -> str:
        """Of the model and all samples; 64 hexadecimal digits."""
        state = hashlib.sha256(self.model.SerializeToString(deterministic=True))
        for values in (self.calibration, self.images, self.labels):
            state.update(np.ascontiguousarray(values).data)
        return state.hexdigest()

    @property
    def input(self) -> str:
        (name,) = (value.name for value in self.model.graph.input)
        return name

    def quantised(self, options: QuantizeOptions) -> Graph:
        """Raises what `quantize` and the importer do."""
        return load_model("model", self.quantised_model(options).SerializeToString()).graph

    def quantised_model(self, options: QuantizeOptions) -> onnx.ModelProto:
        """Raises what `quantize` does."""
        return quantize(self.model, {self.input: self.calibration}, options).model

    def right(self, graph: Graph, count: int | None = None) -> float:
        """Share of right answers of a graph made of the model, of the first ``count`` images (None: all)."""
        labels = self.labels[:count]
        outputs, _ = reference.run(graph, {self.input: self.images[:count]})
        (scores,) = outputs.values()
        return float((scores.reshape(len(labels), -1).argmax(axis=1) == labels).mean())


def digits_classifier(root: Path) -> Classifier:
    """The example of a checkout at ``root``."""
    folder = root / "examples/digits"
    samples = read_arrays(folder / "digits_test.npz")
    images, labels = samples["image"], samples["label"]
    return Classifier(onnx.load(folder / "digits_float.onnx"), images[:_CALIBRATED], images[_CALIBRATED:],
                      labels[_CALIBRATED:], labels[:_CALIBRATED])
