"""Matrix products and the sums with activations after them, which onnxruntime makes one Gemm of.

Its quantiser leaves the weights of such a Gemm float, as the summand is no bias.
"""

from collections.abc import Iterator

from onnx import NodeProto, helper

from gen.quantize.rewriting import Rewriting

__all__ = ["SumsApart"]


class SumsApart(Rewriting):
    """Replaces each Gemm of constant weights whose summand is no constant by a MatMul and an Add."""

    OPERATORS = frozenset(("Gemm",))

    def layers(self, node: NodeProto) -> Iterator[NodeProto]:
        if len(node.input) < 3 or not node.input[2] or node.input[2] in self._constants:
            return
        attributes, weights = self._attributes(node), self._number(node.input[1])
        plain = attributes.get("alpha", 1.0) == attributes.get("beta", 1.0) == 1.0 and not attributes.get("transA", 0)
        if weights is None or not plain:
            return
        turned = self._constant(node.name, weights.T) if attributes.get("transB", 0) else node.input[1]
        product = self._name(f"{node.output[0]}/product")
        yield helper.make_node("MatMul", [node.input[0], turned], [product], name=self._name(f"{node.name}/product"))
        yield helper.make_node("Add", [product, node.input[2]], [node.output[0]], name=node.name)
