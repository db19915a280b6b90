"""Float model -> quantised model, stage by stage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx

from gen.quantize.auto import choose
from gen.quantize.balance_norms import balance_norms
from gen.quantize.calibrate import distributions
from gen.quantize.draft import draft_of
from gen.quantize.joins import unlike_parts
from gen.quantize.options import QuantizeError, QuantizeOptions
from gen.quantize.plan import Plan
from gen.quantize.prepare import prepare
from gen.quantize.ranges import Distribution, entropy_misleads
from gen.quantize.sessions import Progress, Samples

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
    depends on how far a value is. ``chosen``: what the method auto has taken, and why, for people; "" of others.
    """

    model: onnx.ModelProto
    reference: onnx.ModelProto
    plan: Plan
    remarks: tuple[str, ...] = ()
    whole: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    chosen: str = ""


def quantize(model: onnx.ModelProto, samples: Samples, options: QuantizeOptions | None = None, *,
             labels: np.ndarray | None = None,
             progress: Progress = lambda done, total, what: None) -> Quantized:
    """``model``, which stays as it is, quantised for what ``samples`` (input -> (N, ...) float32) show. By the method
    auto some of them judge, by ``labels`` (N,), below 0 for none, too.

    Raises QuantizeError for a model or samples that it cannot be done with.
    """
    options = options or QuantizeOptions()
    _check_samples(model, samples)
    reference = balance_norms(prepare(model, options.keep_float), samples, options.keep_float)
    chosen = None
    if options.method == "auto":
        if options.streams is None:
            chosen = choose(reference, samples, options, labels, progress)
        options = replace(options, method="mse")
    draft = draft_of(reference, samples, options) if chosen is None else chosen.draft
    found = distributions(draft.reference, draft.plan.tensors, samples, progress)
    bounded = draft.bounds(found)
    ranges = draft.ranges(found, bounded, {} if chosen is None else chosen.methods)
    whole = draft.by(method="minmax").ranges(found, bounded)
    if options.streams is not None:
        whole = {name: ends for name, ends in whole.items() if name not in draft.streamed}
    quantized = draft.made(ranges, samples, progress)
    remarks = (*draft.plan.remarks, *_kept(draft.magnitudes), *unlike_parts(draft.reference, draft.plan, found),
               *(_misled(found, options) if chosen is None else ()))
    return Quantized(quantized, draft.reference, draft.plan, remarks, whole, draft.limits(found),
                     "" if chosen is None else chosen.line)


def _kept(magnitudes: Sequence[str]) -> tuple[str, ...]:
    """What to say of squares that stay float."""
    if not magnitudes:
        return ()
    more = f" and {len(magnitudes) - _NAMED} more" if len(magnitudes) > _NAMED else ""
    line = (f"the squares that {', '.join(magnitudes[:_NAMED])}{more} reads stay float, and so does that: eight bits "
            "of a square are four of its root, so small values would be lost")
    return (line,)


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
