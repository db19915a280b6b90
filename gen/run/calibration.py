"""What samples from files make of float models, and of those that are float in part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import onnx
from onnx import TensorProto

from cores.errors import NpugenError
from gen.onnx.model import Model, ModelInput
from gen.onnx.read import OpenShapeError, Shapes, read
from gen.quantize.calibrate import distributions
from gen.quantize.options import QuantizeError, QuantizeOptions
from gen.quantize.prepare import quantised_node
from gen.quantize.quantize import FEW, Quantized, quantize
from gen.quantize.ranges import range_of
from gen.quantize.sessions import Progress
from gen.run.inputs import InputSpec, Samples, array_shapes, model_specs, read_samples
from gen.run.preprocessing import Preprocessing

__all__ = [
    "Calibrated", "Calibration", "FloatModelError", "SampledRanges", "calibrated", "float_specs", "quantize_file",
]

#: What goes for the range of a single value; the other options are about layers.
_OF_RANGES = ("method", "percentile", "symmetric")


class FloatModelError(NpugenError, ValueError):
    """A float model that cannot be quantised; the message names its file."""


@dataclass(frozen=True)
class Calibration:
    """What a float model is quantised by: a file of samples, or a folder of images; the first ``limit`` of them.

    ``change_by``: what images become first; ``progress`` is told how far that is.
    """

    samples: Path
    options: QuantizeOptions = field(default_factory=QuantizeOptions)
    limit: int | None = None
    change_by: Preprocessing | None = None
    progress: Progress = lambda done, total, what: None

    def read(self, specs: Mapping[str, InputSpec]) -> Samples:
        """The samples. Raises as `read_samples`."""
        return read_samples(self.samples, specs, limit=self.limit, change_by=self.change_by)


@dataclass(frozen=True, eq=False)
class Calibrated:
    """``remarks``: for people."""

    found: Quantized
    samples: Samples
    remarks: tuple[str, ...]

    @property
    def content(self) -> bytes:
        """The quantised model."""
        return bytes(self.found.model.SerializeToString(deterministic=True))


@dataclass(frozen=True, eq=False)
class SampledRanges:
    """`gen.partition.reconstruct.Ranges` of the float values in a model that is quantised in part.

    ``content``: the model, which comes from the file at ``path``; ``found``: the ranges that were asked for;
    ``remarks``: for people.
    """

    path: Path
    content: bytes
    calibration: Calibration
    samples: Samples
    remarks: tuple[str, ...]
    found: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __call__(self, model: onnx.ModelProto, names: Sequence[str]) -> Mapping[str, tuple[float, float]]:
        """Raises FloatModelError for values that are not finite, or a model that onnxruntime does not run."""
        makers = {name: node.name for node in model.graph.node for name in node.output}
        try:
            spread = distributions(model, {name: makers[name] for name in names}, self.samples.inputs,
                                   self.calibration.progress)
        except QuantizeError as error:
            raise FloatModelError(f"{self.path}: {error}") from None
        ranges = {name: range_of(distribution, self.calibration.options) for name, distribution in spread.items()}
        self.found.update(ranges)
        return ranges


def float_specs(inputs: Sequence[ModelInput]) -> dict[str, InputSpec]:
    """What a float model takes. Raises QuantizeError for an input that is no float32."""
    specs = model_specs(inputs)
    wrong = next((i.name for i in inputs if i.elem_type != TensorProto.FLOAT), None)
    if wrong is not None:
        raise QuantizeError(f"input {wrong} is {specs[wrong].dtype}; a model to be quantised takes float32")
    return specs


def quantize_file(path: Path, calibration: Calibration, shapes: Shapes | None = None) -> Calibrated:
    """The float model at ``path``, quantised; ``shapes`` are for `gen.onnx.passes.bind_shapes`.

    What its inputs leave open, and no shape says, is as in the samples.

    Raises FloatModelError, GraphError, InputError or OSError; each names the file.
    """
    return _quantized(path, *_parts(_read(path, calibration, shapes)), calibration)


def calibrated(path: Path, calibration: Calibration, shapes: Shapes | None = None) -> Calibrated | SampledRanges:
    """As `quantize_file`; of a model that is quantised in part the ranges of what is not."""
    proto, inputs = _parts(_read(path, calibration, shapes))
    if quantised_node(proto) is None:
        return _quantized(path, proto, inputs, calibration)
    if any(getattr(calibration.options, f.name) != f.default for f in fields(QuantizeOptions)
           if f.name not in _OF_RANGES):
        raise FloatModelError(f"{path}: the model is quantised already, or a part of it, and its layers stay as they "
                              "are; leave out --per-tensor, --streams, --bias-correction, --equalize and --keep-float")
    samples = calibration.read(model_specs(inputs))
    content = proto.SerializeToString(deterministic=True)
    return SampledRanges(path, content, calibration, samples, _remarks(calibration, samples))


def _remarks(calibration: Calibration, samples: Samples) -> tuple[str, ...]:
    """What there is to say of samples that were calibrated with."""
    few = (f"{calibration.samples}: warning: {len(samples)} samples are few to calibrate with; some hundred, as the "
           "model will see them, give better ranges") if len(samples) < FEW else ""
    return tuple(filter(None, (samples.remark, few)))


def _read(path: Path, calibration: Calibration, shapes: Shapes | None) -> Model:
    try:
        return read(path, shapes)
    except OpenShapeError:
        if shapes or calibration.samples.is_dir():
            raise
        return read(path, array_shapes(calibration.samples))


def _parts(model: Model) -> tuple[onnx.ModelProto, Sequence[ModelInput]]:
    """What is needed of a float model: the weights of large ones are not held as arrays, too, while it is quantised."""
    return model.proto, model.inputs


def _quantized(path: Path, proto: onnx.ModelProto, inputs: Sequence[ModelInput], calibration: Calibration
               ) -> Calibrated:
    try:
        samples = calibration.read(float_specs(inputs))
        found = quantize(proto, samples.inputs, calibration.options, progress=calibration.progress)
    except QuantizeError as error:
        raise FloatModelError(f"{path}: {error}") from None
    return Calibrated(found, samples, _remarks(calibration, samples))
