"""Float model -> quantised model, stage by stage."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import onnx

from gen.quantize.balance_norms import balance_norms
from gen.quantize.bias import correct_biases, with_biases
from gen.quantize.calibrate import distributions
from gen.quantize.equalize import equalize
from gen.quantize.insert import insert
from gen.quantize.joins import balance_joins, kept_alike, unlike_parts
from gen.quantize.masks import bound_masks
from gen.quantize.options import QuantizeError, QuantizeOptions
from gen.quantize.plan import Plan, plan_quantisation
from gen.quantize.prepare import prepare
from gen.quantize.ranges import Distribution, entropy_misleads, ranges_of
from gen.quantize.reciprocals import bound_reciprocals
from gen.quantize.saturation import bound_saturated, saturation
from gen.quantize.sessions import Progress, Samples
from gen.quantize.streams import correct_for_streams, stream_layers

__all__ = ["FEW", "Quantized", "quantize"]

#: Fewer samples than these rarely have all that a model sees.
FEW = 16
#: Tensors that a line names at most.
_NAMED = 3


@dataclass(frozen=True, eq=False)
class Quantized:
    """``reference`` is the float model that ``model`` was made of: batch norms folded, channels equalised; ``remarks``:
    for people, on what it costs. ``whole``: the lowest and highest value of tensors, over all samples, which another
    range has to do better than; not of those whose range is for streams. ``limits``: beyond those of a tensor, nothing
    depends on how far a value is.
    """

    model: onnx.ModelProto
    reference: onnx.ModelProto
    plan: Plan
    remarks: tuple[str, ...] = ()
    whole: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def quantize(model: onnx.ModelProto, samples: Samples, options: QuantizeOptions | None = None, *,
             progress: Progress = lambda done, total, what: None) -> Quantized:
    """``model``, which stays as it is, quantised for what ``samples`` (input -> (N, ...) float32) show.

    Raises QuantizeError for a model or samples that it cannot be done with.
    """
    options = options or QuantizeOptions()
    _check_samples(model, samples)
    reference = balance_norms(prepare(model, options.keep_float), samples, options.keep_float)
    if options.bias_correction or options.streams is not None:
        reference = with_biases(reference)
    if options.equalize:
        reference = equalize(reference, samples, options)
    reference, products = balance_joins(reference, samples, options)
    plan = plan_quantisation(reference, options.keep_float)
    found = distributions(reference, plan.tensors, samples, progress)
    ends = {name: (of.low, of.high) for name, of in found.items()}
    limits = saturation(reference)
    bounded = bound_saturated(limits, found) | bound_masks(reference, ends) | bound_reciprocals(reference, found)
    streamed = {layer.source for layer in stream_layers(reference, plan)}
    ranges, whole = (
        ends | bounded | {name: ends[of] for name, of in products.items() if {name, of} <= ends.keys()}
        for ends in (kept_alike(reference, ranges_of(plan, found, options, streamed)),
                     kept_alike(reference, ranges_of(plan, found, replace(options, method="minmax")))))
    if options.streams is not None:
        whole = {name: ends for name, ends in whole.items() if name not in streamed}
    quantized = insert(reference, plan, ranges, options)
    if options.bias_correction:
        quantized = correct_biases(quantized, reference, plan, samples, progress)
    if options.streams is not None:
        quantized = correct_for_streams(quantized, plan, samples, options.streams, progress)
    remarks = (*plan.remarks, *unlike_parts(reference, plan, found), *_misled(found, options))
    return Quantized(quantized, reference, plan, remarks, whole, limits)


def _misled(found: Mapping[str, Distribution], options: QuantizeOptions) -> tuple[str, ...]:
    """What to say of ranges that are not those of the method."""
    if options.method != "entropy":
        return ()
    names = [name for name, distribution in found.items() if entropy_misleads(distribution, options)]
    if not names:
        return ()
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    line = (f"warning: --method entropy clips more than it gains at {', '.join(names[:_NAMED])}{more}, so "
            f"{len(names)} of {len(found)} ranges include all values; --method mse may be better everywhere")
    return (line,)


def _check_samples(model: onnx.ModelProto, samples: Samples) -> None:
    constants = {tensor.name for tensor in model.graph.initializer}
    missing = [value.name for value in model.graph.input if value.name not in constants | samples.keys()]
    if missing:
        raise QuantizeError(f"input {missing[0]} has no samples to calibrate with", code="bad-samples",
                            input=missing[0])
    counts = {len(array) for array in samples.values()}
    if len(counts) != 1 or not min(counts):
        raise QuantizeError("every input needs the same number of samples to calibrate with, at least one",
                            code="bad-samples")
    for name, array in samples.items():
        if not np.isfinite(array).all():
            raise QuantizeError(f"input {name} has samples that are infinite or no numbers", code="not-finite",
                                input=name)
