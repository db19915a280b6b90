"""Normalisations whose results a product takes in an order that the machine cannot make.

The processor moves what it has computed: if it has these, the accelerator can have the product.
"""

from collections.abc import Iterator, Sequence

from cores.errors import Reason
from gen.onnx.model import PRODUCTS, Model, Node
from gen.onnx.passes.hoist_quantisation import MOVING

__all__ = ["in_the_way"]

#: What only moves values, or says what stands for them.
_MOVES = {*MOVING, "Concat", "Slice", "Split", "Gather", "Pad", "QuantizeLinear", "DequantizeLinear"}
_NORMALISATIONS = ("LayerNormalization", "RMSNormalization")


def in_the_way(model: Model, product: str) -> dict[str, Reason]:
    """Those that a node refused for the order of its input reads alone, and why each is left to the processor."""
    makers = {name: node for node in model.nodes for name in node.outputs}

    def computed(names: Sequence[str]) -> Iterator[Node]:
        for name in names:
            if (maker := makers.get(name)) is not None:
                yield from computed(maker.inputs) if maker.op in _MOVES else (maker,)

    node = next((one for one in model.nodes if one.name == product), None)
    if node is None or node.op not in PRODUCTS:
        return {}
    before = list(computed(node.inputs))
    if any(one.op not in _NORMALISATIONS for one in before):
        return {}
    return {one.name: Reason(f"node {product}, a product, takes its result in another order, and the machine "
                             "moves whole pixels alone", code="rearranged") for one in before}
