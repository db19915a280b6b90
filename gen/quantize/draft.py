"""A float model of which it is settled what is quantised, and the ranges of its tensors by each method."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import onnx

from gen.quantize.bias import correct_biases, with_biases
from gen.quantize.equalize import equalize
from gen.quantize.insert import insert
from gen.quantize.joins import balance_joins, kept_alike
from gen.quantize.magnitudes import magnitudes
from gen.quantize.masks import bound_masks
from gen.quantize.options import Method, QuantizeOptions
from gen.quantize.plan import Plan, plan_quantisation
from gen.quantize.ranges import Distribution, ranges_of
from gen.quantize.reciprocals import bound_reciprocals
from gen.quantize.saturation import bound_saturated, saturation
from gen.quantize.sessions import Progress, Samples
from gen.quantize.streams import correct_for_streams, stream_layers

__all__ = ["Draft", "Ranges", "draft_of"]

#: Value -> lowest and highest value that is represented.
Ranges = dict[str, tuple[float, float]]


@dataclass(frozen=True, eq=False)
class Draft:
    """``reference``: the float model, equalised and with biases as ``options`` ask. ``products``: results of a factor
    in front of a Concat -> that Concat's, whose range they have. ``streamed``: tensors that layers of streams read.
    ``magnitudes``: nodes that stay float with the squares in front of them.
    """

    reference: onnx.ModelProto
    plan: Plan
    products: Mapping[str, str]
    streamed: Collection[str]
    options: QuantizeOptions
    magnitudes: tuple[str, ...] = ()

    def limits(self, found: Mapping[str, Distribution]) -> Ranges:
        """Of a tensor: beyond them nothing depends on how far a value is."""
        return saturation(self.reference, found)

    def bounds(self, found: Mapping[str, Distribution]) -> Ranges:
        """Ranges that no method has a say in. To be called once: masks of ``reference`` become what these allow."""
        ends = {name: (of.low, of.high) for name, of in found.items()}
        return (bound_saturated(self.reference, self.limits(found), found) | bound_masks(self.reference, ends)
                | bound_reciprocals(self.reference, found))

    def ranges(self, found: Mapping[str, Distribution], bounded: Ranges, methods: Mapping[str, Method] | None = None
               ) -> Ranges:
        """The range of each tensor by the method of ``options``, or of single ones by ``methods``; of those ``bounded``
        as they are.
        """
        made = ranges_of(self.plan, found, self.options, self.streamed)
        for method in dict.fromkeys((methods or {}).values()):
            other = ranges_of(self.plan, found, replace(self.options, method=method), self.streamed)
            made |= {name: other[name] for name, asked in (methods or {}).items() if asked == method}
        made = kept_alike(self.reference, made)
        joined = {name: made[of] for name, of in self.products.items() if {name, of} <= made.keys()}
        return made | bounded | joined

    def corrected(self) -> "Draft":
        """The same with biases, to be corrected; the model is a copy."""
        options = replace(self.options, bias_correction=True)
        reference = with_biases(self.reference)
        return replace(self, reference=reference, plan=plan_quantisation(reference, options.keep_float),
                       options=options)

    def copied(self) -> "Draft":
        """The same with a copy of the model."""
        reference = onnx.ModelProto()
        reference.CopyFrom(self.reference)
        return replace(self, reference=reference)

    def by(self, **changes: object) -> "Draft":
        """The same with other options, which are of ranges alone."""
        return replace(self, options=replace(self.options, **changes))  # type: ignore[arg-type]

    def made(self, ranges: Ranges, samples: Samples, progress: Progress) -> onnx.ModelProto:
        """The quantised model; biases are corrected on ``samples`` where options ask for it."""
        quantized = insert(self.reference, self.plan, ranges, self.options)
        if self.options.bias_correction:
            quantized = correct_biases(quantized, self.reference, self.plan, samples, progress)
        if self.options.streams is not None:
            quantized = correct_for_streams(quantized, self.plan, samples, self.options.streams, progress)
        return quantized


def draft_of(reference: onnx.ModelProto, samples: Samples, options: QuantizeOptions) -> Draft:
    """Of a model as `gen.quantize.prepare` makes it."""
    if options.bias_correction or options.streams is not None:
        reference = with_biases(reference)
    if options.equalize:
        reference = equalize(reference, samples, options)
    reference, products = balance_joins(reference, samples, options)
    apart = magnitudes(reference)
    options = replace(options, keep_float=options.keep_float.union(*apart.values()))
    plan = plan_quantisation(reference, options.keep_float)
    return Draft(reference, plan, products, {layer.source for layer in stream_layers(reference, plan)}, options,
                 tuple(apart))
