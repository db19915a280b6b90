"""What quantising has changed: each tensor's noise, and the answers."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from gen.detection.judge import Expected
from gen.detection.precision import Precision
from gen.onnx.runtime import float_outputs
from gen.onnx.scores import answers, are_scores, why_no_scores
from gen.quantize.groups import ChannelGroup, ChannelNoise, decibels
from gen.quantize.options import QuantizeError
from gen.quantize.prepare import initializers
from gen.quantize.quantize import Quantized
from gen.quantize.ranges import WORSE
from gen.quantize.sessions import Progress, Samples, values_of

__all__ = ["agreements", "LayerNoise", "Report", "measure"]

#: An output, or a group of its channels, of an SQNR below this is little more than noise: in dB.
_POOR = 10.0
#: A tensor whose own noise is less has as many steps as it needs: in dB.
_FINE = 40.0
#: What is exact in another range is as good as this share of noise.
_EXACT = 1e-16
#: Tensors that a line names at most, and values of a tensor that its own noise is reckoned from in a sample, about.
_NAMED, _VALUES = 3, 1 << 16
#: Differences of a group from its output that are worth a line, in dB.
_APART = 6.0


@dataclass(frozen=True)
class LayerNoise:
    """A quantised tensor and the node that computes it, "" for an input of the model.

    ``sqnr_db``: energy of the float model's values over that of the differences, all layers before it quantised too;
    None where nothing differs. ``own_db`` is of its own rounding and clipping alone, ``whole_db`` that of a range of
    all values that the samples of calibration have, None where the range is for streams.
    """

    layer: str
    op: str
    tensor: str
    scale: float
    zero_point: int
    sqnr_db: float | None
    own_db: float | None = None
    whole_db: float | None = None

    @property
    def clipped_db(self) -> float:
        """What the range loses against that of all values; 0 where it gains, or has next to no noise."""
        if self.own_db is None or self.whole_db is None or self.own_db > _FINE:
            return 0.0
        return max(0.0, self.whole_db - self.own_db)


#: Accuracy of a float model below which its samples are not taken to be what it was trained on; of how many.
_HARDLY_EVER, _ENOUGH = 0.2, 50


@dataclass(frozen=True)
class Report:
    """Of the model's float outputs ``outputs`` has the SQNR in dB. ``agreement``: share of the answers of the first one
    (`gen.onnx.scores.answers`) that are the same; the others are shares of those with a label, None without labels, or
    without scores of classes. ``scores``: whether the first output is such. ``remark``: why labels that there are were
    not used, "" if they were. ``groups``: of each output whose channels differ in size, with the SQNR of each group;
    ``warnings``: for people, a line each. ``precision_float``, ``precision_quantized``: of detectors.
    """

    samples: int
    layers: tuple[LayerNoise, ...]
    outputs: dict[str, float | None]
    agreement: float
    accuracy_float: float | None
    accuracy_quantized: float | None
    remark: str = ""
    scores: bool = False
    groups: dict[str, tuple[ChannelGroup, ...]] = field(default_factory=dict)
    precision_float: Precision | None = None
    precision_quantized: Precision | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(filter(None, (
            *map(self._warning_of, self.outputs), self._warning_of_ranges(), self._warning_of_samples())))

    @property
    def clipped(self) -> tuple[LayerNoise, ...]:
        """Tensors whose range clips more than it gains, the worst first."""
        return tuple(sorted((row for row in self.layers if row.clipped_db > 10 * math.log10(WORSE)),
                            key=lambda row: -row.clipped_db))

    def _warning_of_samples(self) -> str:
        """Where the float model itself is hardly ever right."""
        if self.accuracy_float is None or self.accuracy_float >= _HARDLY_EVER or self.samples < _ENOUGH:
            return ""
        return (f"warning: the float model itself is right on {100 * self.accuracy_float:.0f} % of the samples: images "
                "may have to be scaled as in its training (--mean, --std, --bgr), or the labels be numbered otherwise")

    def _warning_of_ranges(self) -> str:
        rows = self.clipped
        if not rows:
            return ""
        more = f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
        names = ", ".join(f"{row.tensor} of {row.layer or 'the input'} ({row.own_db:.1f} dB, {row.whole_db:.1f} with "
                          "all values)" for row in rows[:_NAMED])
        return f"warning: ranges clip more than they gain at {names}{more}; --method minmax is better there"

    def worst(self, output: str) -> ChannelGroup | None:
        """The group of channels that is furthest below its output, if it is so far below that it is worth a line."""
        whole = self.outputs[output]
        below = [(group.sqnr_db, group) for group in self.groups.get(output, ()) if group.sqnr_db is not None]
        if whole is None or not below:
            return None
        least, group = min(below, key=lambda pair: pair[0])
        return group if least < whole - _APART else None

    def _warning_of(self, output: str) -> str:
        whole, worst = self.outputs[output], self.worst(output)
        if whole is not None and whole < _POOR:
            return (f"warning: output {output} is at {whole:.1f} dB, little more than noise: more samples, --equalize "
                    "with --bias-correction, or another --method may help; the table of `quantize` says where it is "
                    "lost")
        if worst is None or worst.sqnr_db is None or worst.sqnr_db >= _POOR:
            return ""
        return (f"warning: {worst} of output {output} are at {worst.sqnr_db:.1f} dB, and all together at {whole:.1f}, "
                "as the others are much larger: more samples, --equalize with --bias-correction, or --keep-float with "
                "a node that makes both may help")

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "warnings": list(self.warnings)}


def measure(found: Quantized, samples: Samples, labels: np.ndarray | None = None, *, expected: Expected | None = None,
            progress: Progress = lambda done, total, what: None) -> Report:
    """Both models on ``samples``, by onnxruntime; ``labels`` (N,), below 0 for none, or what is ``expected`` of a
    detector. Raises QuantizeError; HeadError, AnnotationError.
    """
    quantized = _quantised_tensors(found.model)
    outputs = float_outputs(found.model)
    if not outputs:
        raise QuantizeError("no output of the model is float, so there is nothing to compare", code="no-float-output")
    names = {name: name for name in outputs} | {name: quantized[name].result for name in found.plan.tensors}
    signal, noise = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    channels = {name: ChannelNoise() for name in outputs}
    own = {name: _OwnNoise(quantized[name], found.whole.get(name)) for name in found.plan.tensors}
    limits = {name: ends for name, ends in found.limits.items() if name in found.plan.tensors}
    both: list[np.ndarray] = []      # (2, places) each
    tallies = [] if expected is None else [expected.tally(), expected.tally()]
    total = len(next(iter(samples.values())))
    pairs = zip(values_of(found.reference, list(names), samples),
                values_of(found.model, list(names.values()), samples), strict=True)
    for number, (exact, rounded) in enumerate(pairs):
        progress(number, total, "comparing")
        exact |= {name: np.clip(exact[name], *ends) for name, ends in limits.items()}
        for name, result in names.items():
            difference = exact[name] - rounded[result]
            signal[name] += float(np.vdot(exact[name], exact[name]))
            noise[name] += float(np.vdot(difference, difference))
        for name, noise_of in own.items():
            noise_of.add(exact[name])
        for name, noises in channels.items():
            noises.add(exact[name], rounded[name])
        for tally, values in zip(tallies, (exact, rounded), strict=False):
            tally.add({name: values[name][0] for name in outputs})
        shape = exact[outputs[0]].shape[1:]
        both.append(np.concatenate([answers(exact[outputs[0]]), answers(rounded[outputs[0]])]))
    sqnr = {name: decibels(signal[name], noise[name]) for name in names}
    ops = {node.name: node.op_type for node in found.reference.graph.node}
    layers = tuple(LayerNoise(node, ops.get(node, "input"), name, quantized[name].scale, quantized[name].zero_point,
                              sqnr[name], *own[name].decibels()) for name, node in found.plan.tensors.items())
    right: list[float | None] = [None, None]
    labelled = np.zeros(total, bool) if labels is None else labels >= 0
    remark = why_no_scores(outputs[0], shape) if labelled.any() and not are_scores(shape) else ""
    precisions: list[Precision | None] = [tally.precision() for tally in tallies] or [None, None]
    if labels is not None and labelled.any() and not remark:
        right = [float(share) for share in (np.stack(both)[:, :, 0] == labels[:, None])[labelled].mean(axis=0)]
    agreement = float(np.mean([(one[0] == one[1]).mean() for one in both]))
    return Report(total, layers, {name: sqnr[name] for name in outputs}, agreement, right[0], right[1], remark,
                  are_scores(shape), {name: groups for name, noises in channels.items() if (groups := noises.groups())},
                  *precisions)


def agreements(found: Quantized, samples: Samples) -> dict[str, float]:
    """Of each output, such as the classes of an ArgMax, the share of values that both models have alike."""
    names = [output.name for output in found.model.graph.output]
    shares: dict[str, list[float]] = {name: [] for name in names}
    for exact, rounded in zip(*(values_of(model, names, samples) for model in (found.reference, found.model)),
                              strict=True):
        for name in names:
            alike = exact[name].shape == rounded[name].shape and exact[name].size
            shares[name].append(float(np.mean(exact[name] == rounded[name])) if alike else float(
                exact[name].size == rounded[name].size == 0))
    return {name: float(np.mean(found)) for name, found in shares.items()}


@dataclass(frozen=True)
class _Place:
    result: str
    scale: float
    zero_point: int


class _OwnNoise:
    """Of rounding and clipping a tensor, in its place of the quantised model and with another range (low, high)."""

    def __init__(self, place: _Place, whole: tuple[float, float] | None) -> None:
        self._grids = [(place.scale, place.zero_point)]
        if whole is not None and whole[0] < whole[1]:
            scale = (whole[1] - whole[0]) / 255
            self._grids.append((scale, round(-128 - whole[0] / scale)))
        self._signal, self._noise = 0.0, np.zeros(2)

    def add(self, values: np.ndarray) -> None:
        """Values of one sample; of large tensors a part."""
        part = values.reshape(-1)[::values.size // _VALUES | 1].astype(np.float64)
        self._signal += float(part @ part)
        for number, (scale, point) in enumerate(self._grids):
            error = part - (np.clip(np.rint(part / scale) + point, -128, 127) - point) * scale
            self._noise[number] += error @ error

    def decibels(self) -> tuple[float | None, float | None]:
        """(of the place, with the other range), as `LayerNoise` has them."""
        own, whole = self._noise[0], max(self._noise[1], _EXACT * self._signal)
        return decibels(self._signal, own), decibels(self._signal, whole) if len(self._grids) > 1 else None


def _quantised_tensors(model: onnx.ModelProto) -> dict[str, _Place]:
    """Value of the float model -> what has become of it: its name after the pair, and the pair's parameters."""
    constants = initializers(model)
    results = {node.input[0]: node.output[0] for node in model.graph.node if node.op_type == "DequantizeLinear"}
    outputs = {value.name for value in model.graph.output}
    places = {}
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear":
            result = results[node.output[0]]
            scale, point = (numpy_helper.to_array(constants[name]).item() for name in node.input[1:3])
            # A quantised output keeps its name, and what is quantised gets another.
            places[result if result in outputs else node.input[0]] = _Place(result, scale, point)
    return places
