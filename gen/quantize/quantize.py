"""Float model -> quantised model, stage by stage."""

from dataclasses import dataclass

import numpy as np
import onnx

from gen.quantize.bias import correct_biases, with_biases
from gen.quantize.calibrate import distributions
from gen.quantize.equalize import equalize
from gen.quantize.insert import insert
from gen.quantize.joins import balance_joins, unlike_parts
from gen.quantize.options import QuantizeError, QuantizeOptions
from gen.quantize.plan import Plan, plan_quantisation
from gen.quantize.prepare import prepare
from gen.quantize.ranges import ranges_of
from gen.quantize.sessions import Progress, Samples
from gen.quantize.streams import correct_for_streams, stream_layers

__all__ = ["FEW", "Quantized", "quantize"]

#: Fewer samples than these rarely have all that a model sees.
FEW = 16


@dataclass(frozen=True, eq=False)
class Quantized:
    """``reference`` is the float model that ``model`` was made of: batch norms folded, channels equalised; ``remarks``:
    for people, on what it costs.
    """

    model: onnx.ModelProto
    reference: onnx.ModelProto
    plan: Plan
    remarks: tuple[str, ...] = ()


def quantize(model: onnx.ModelProto, samples: Samples, options: QuantizeOptions | None = None, *,
             progress: Progress = lambda done, total, what: None) -> Quantized:
    """``model``, which stays as it is, quantised for what ``samples`` (input -> (N, ...) float32) show.

    Raises QuantizeError for a model or samples that it cannot be done with.
    """
    options = options or QuantizeOptions()
    _check_samples(model, samples)
    reference = prepare(model)
    if options.bias_correction or options.streams is not None:
        reference = with_biases(reference)
    if options.equalize:
        reference = equalize(reference, samples, options)
    reference, products = balance_joins(reference, samples, options)
    plan = plan_quantisation(reference, options.keep_float)
    found = distributions(reference, plan.tensors, samples, progress)
    streamed = {layer.source for layer in stream_layers(reference, plan)}
    ranges = ranges_of(plan, found, options, streamed)
    ranges |= {name: ranges[whole] for name, whole in products.items() if {name, whole} <= ranges.keys()}
    quantized = insert(reference, plan, ranges, options)
    if options.bias_correction:
        quantized = correct_biases(quantized, reference, plan, samples, progress)
    if options.streams is not None:
        quantized = correct_for_streams(quantized, plan, samples, options.streams, progress)
    return Quantized(quantized, reference, plan, (*plan.remarks, *unlike_parts(reference, plan, found)))


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
