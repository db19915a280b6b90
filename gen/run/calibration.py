"""What samples from files make of float models, and of those that are float in part.

A fifth of the samples are held out: a model is as good as it is on what its ranges were not taken from. They are the
same ones each time, chosen by chance, as a file may have its classes in turn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from cores.errors import NpugenError
from gen.detection.judge import Judge
from gen.onnx.model import Model, ModelInput
from gen.onnx.read import OpenShapeError, Shapes, read
from gen.onnx.written import content_of
from gen.quantize.calibrate import distributions
from gen.quantize.options import QuantizeError, QuantizeOptions
from gen.quantize.prepare import quantised_node
from gen.quantize.quantize import FEW, Quantized, quantize
from gen.quantize.ranges import range_of
from gen.quantize.report import Report, agreements, measure
from gen.quantize.sessions import Progress
from gen.run.inputs import InputSpec, Samples, array_shapes, model_specs, read_samples
from gen.run.preprocessing import Preprocessing

__all__ = [
    "Calibrated", "Calibration", "FloatModelError", "SampledRanges", "calibrated", "quality", "quantize_file",
]

#: What goes for the range of a single value; the other options are about layers.
_OF_RANGES = ("method", "percentile", "symmetric")
#: Samples of which one is held out, and those that a model is judged by on the way, for time.
_HELD, _JUDGED = 5, 16


class FloatModelError(NpugenError, ValueError):
    """A float model that cannot be quantised; the message names its file."""

    code = "quantised-already"


@dataclass(frozen=True)
class Calibration:
    """What a float model is quantised by: a file of samples, or a folder of images; the first ``limit`` of them.

    ``change_by``: what images become first; ``hold_out``: whether some are left to judge the result by, a detector by
    ``judge``; ``progress`` is told how far that is.
    """

    samples: Path
    options: QuantizeOptions = field(default_factory=QuantizeOptions)
    limit: int | None = None
    change_by: Preprocessing | None = None
    progress: Progress = lambda done, total, what: None
    hold_out: bool = True
    judge: Judge | None = None
    #: What `calibrated` has made by it.
    made: dict[Any, "Calibrated | SampledRanges"] = field(default_factory=dict, init=False, compare=False, repr=False)

    def read(self, specs: Mapping[str, InputSpec]) -> Samples:
        """The samples. Raises as `read_samples`."""
        return read_samples(self.samples, specs, limit=self.limit, change_by=self.change_by).judged_by(self.judge)


@dataclass(frozen=True, eq=False)
class Calibrated:
    """``samples``: that ranges were taken from; ``held``: those that were not, None where all were; ``remarks``: for
    people.
    """

    found: Quantized
    samples: Samples
    held: Samples | None
    remarks: tuple[str, ...]

    @property
    def content(self) -> bytes:
        """The quantised model, in plain ONNX."""
        return content_of(self.found.model)


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
            spread = distributions(model, {name: makers.get(name, "") for name in names}, self.samples.inputs,
                                   self.calibration.progress)
        except QuantizeError as error:
            raise FloatModelError.of(error, f"{self.path}: {error}") from None
        ranges = {name: range_of(distribution, self.calibration.options) for name, distribution in spread.items()}
        self.found.update(ranges)
        return ranges


def quantize_file(path: Path, calibration: Calibration, shapes: Shapes | None = None) -> Calibrated:
    """The float model at ``path``, quantised; ``shapes`` are for `gen.onnx.passes.bind_shapes`.

    What its inputs leave open, and no shape says, is as in the samples.

    Raises FloatModelError, GraphError, InputError or OSError; each names the file.
    """
    return _quantized(path, *_parts(_read(path, calibration, shapes)), calibration)


def calibrated(path: Path, calibration: Calibration, shapes: Shapes | None = None) -> Calibrated | SampledRanges:
    """As `quantize_file`, with a remark on what it has cost; of a model that is quantised in part the ranges of what is
    not. What is asked for again is not made again.
    """
    key = path, tuple(sorted((shapes or {}).items()))
    if key not in calibration.made:
        calibration.made[key] = _calibrated(path, calibration, shapes)
    return calibration.made[key]


def _calibrated(path: Path, calibration: Calibration, shapes: Shapes | None) -> Calibrated | SampledRanges:
    proto, inputs = _parts(_read(path, calibration, shapes))
    if quantised_node(proto) is None:
        return _judged(path, _quantized(path, proto, inputs, calibration), calibration)
    if any(getattr(calibration.options, f.name) != f.default for f in fields(QuantizeOptions)
           if f.name not in _OF_RANGES):
        raise FloatModelError(f"{path}: the model is quantised already, or a part of it, and its layers stay as they "
                              "are; leave out --per-tensor, --streams, --bias-correction, --equalize, --keep-float and "
                              "--int4")
    samples = calibration.read(model_specs(inputs))
    content = proto.SerializeToString(deterministic=True)
    return SampledRanges(path, content, calibration, samples, _remarks(calibration, samples))


def _remarks(calibration: Calibration, samples: Samples) -> tuple[str, ...]:
    """What there is to say of samples that were calibrated with."""
    few = (f"{calibration.samples}: warning: {len(samples)} samples are few to calibrate with; some hundred, as the "
           "model will see them, give better ranges") if len(samples) < FEW else ""
    same = (f"{calibration.samples}: warning: nothing can be held out of a single sample; the loss is measured on the "
            "sample that ranges were taken from, and is too low") if calibration.hold_out and len(samples) == 1 else ""
    return tuple(filter(None, (samples.remark, few, same)))


def _split(samples: Samples) -> tuple[Samples, Samples | None]:
    """Those to calibrate with, and those that are held out."""
    count = len(samples)
    if count == 1:
        return samples, None
    held = np.zeros(count, bool)
    held[np.random.default_rng(0).permutation(count)[:max(1, count // _HELD)]] = True
    return samples.chosen(~held), samples.chosen(held)


def _judged(path: Path, result: Calibrated, calibration: Calibration) -> Calibrated:
    """``result`` with a remark on what it has cost, on some of the samples that were held out."""
    judges = result.held or result.samples
    judges = judges.chosen(np.arange(len(judges)) < _JUDGED)
    warnings: Sequence[str] = ()
    try:
        report = measure(result.found, judges.inputs, judges.labels, progress=calibration.progress)
        found, warnings = quality(report), report.warnings
    except QuantizeError as error:
        if error.code != "no-float-output":
            return result
        found = [f"{name} {share:.1%} of the values alike"
                 for name, share in agreements(result.found, judges.inputs).items()]
    where = "held out" if result.held else "the same"
    line = (f"{path}: quantised on {len(result.samples):,} samples; on {len(judges):,} {where}: "
            + "; ".join([*found, *filter(None, [result.found.chosen])]))
    return replace(result, remarks=(*result.remarks, line, *(f"{path}: {text}" for text in warnings)))


def quality(report: Report) -> list[str]:
    """Each output's SQNR, and that of the group of channels that is far below it."""
    def level(sqnr: float | None) -> str:
        return "exact" if sqnr is None else f"{sqnr:.1f} dB"

    found = []
    for name, sqnr in report.outputs.items():
        worst = report.worst(name)
        found.append(f"{name} {level(sqnr)}" + (f" ({worst}: {level(worst.sqnr_db)})" if worst else ""))
    return found


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
        samples = calibration.read(model_specs(inputs))
        used, held = _split(samples) if calibration.hold_out else (samples, None)
        found = quantize(proto, used.inputs, calibration.options, labels=used.labels, progress=calibration.progress)
    except QuantizeError as error:
        raise FloatModelError.of(error, f"{path}: {error}") from None
    remarks = (*_remarks(calibration, samples), *(f"{path}: {remark}" for remark in found.remarks))
    return Calibrated(found, used, held, remarks)
