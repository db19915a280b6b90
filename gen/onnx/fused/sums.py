"""onnxruntime's operators that add before they do what another operator does alone."""

from gen.onnx.fused.spread import Fused, Spreads, UnsupportedError
from gen.onnx.model import MICROSOFT

__all__ = ["SPREADS"]


def skip_normalisation(fused: Fused) -> None:
    """A normalisation of a sum; the sum may be a result, too."""
    plain = fused.node.op_type == "SkipSimplifiedLayerNormalization"
    bias = 3 if plain else 4
    fused.refuse({}, {1: "a result of means", 2: "a result of deviations"})
    result = fused.node.output[3] if len(fused.node.output) > 3 else ""
    skip, extra = (fused.given(0), fused.given(1)), fused.given(bias)
    if extra:
        skip = fused.make("Add", skip[0], extra, what="biased"), skip[1]
    total = fused.make("Add", *skip, result=result, what="sum")
    parameters = [name for name in (fused.given(2), "" if plain else fused.given(3)) if name]
    fused.make("SimplifiedLayerNormalization" if plain else "LayerNormalization", total, *parameters,
               result=fused.node.output[0], what="normalised", axis=-1,
               epsilon=float(fused.attributes.get("epsilon", 1e-12 if not plain else 1e-5)))


def biased_function(fused: Fused) -> None:
    """A function of a sum; FastGelu alone is known as it is."""
    op = "Gelu" if fused.node.op_type == "BiasGelu" else fused.node.op_type
    if not fused.given(1):
        raise UnsupportedError("has no bias")
    fused.make(op, fused.make("Add", fused.given(0), fused.given(1), what="sum"), result=fused.node.output[0],
               what="function", domain=MICROSOFT)


SPREADS: Spreads = {
    **{(MICROSOFT, op): skip_normalisation for op in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")},
    **{(MICROSOFT, op): biased_function for op in ("BiasGelu", "FastGelu")},
}
