"""Values of a float model that are functions of one other, value by value: what a machine with tables looks up.

Quantised are what such a function reads and what it gives, and nothing in between: neither the Sigmoid of a SiLU, nor
the sum and the Clip of x * Clip(x + 3, 0, 6) / 6.
"""

from collections.abc import Iterable
from math import prod

import onnx
from onnx import NodeProto, TensorProto

from gen.onnx.functions import ELEMENTWISE
from gen.onnx.handlers.function import HANDLERS as FUNCTIONS
from gen.quantize.prepare import initializers

__all__ = ["functions", "leading_to"]

#: Values further back that one is known to be a function of, for time.
_NEAREST = 8


def functions(model: onnx.ModelProto, weighted: Iterable[str]) -> dict[str, str]:
    """Value -> the one that it is a function of, of values that lead to one of the nodes ``weighted``.

    Not those that layers without a table make: an activation that a layer clips, or to which it adds a constant.
    """
    constants, wanted = initializers(model), leading_to(model, frozenset(weighted))
    # What a comparison gives, or a Cast, is no number that is quantised.
    wanted -= {value.name for value in model.graph.value_info
               if value.type.tensor_type.elem_type not in (TensorProto.FLOAT, TensorProto.UNDEFINED)}
    found: dict[str, str] = {}
    #: Value -> what it is a function of, the nearest first; itself if it is to be quantised at all.
    sources: dict[str, tuple[str, ...]] = {}

    def common(node: NodeProto, varying: list[str]) -> tuple[str, ...]:
        single = all(prod(constants[name].dims) == 1 for name in node.input if name in constants)
        if not varying or not single or _key(node) not in ELEMENTWISE:
            return ()
        first, *others = (sources.get(name, (name,)) for name in varying)
        return tuple(source for source in first if all(source in other for other in others))[:_NEAREST]

    for node in model.graph.node:
        varying = [name for name in node.input if name and name not in constants]
        shared = common(node, varying)
        name = node.output[0]
        if shared and (_key(node) in FUNCTIONS or len(varying) > 1 or varying[0] in found):
            found[name], sources[name] = shared[0], shared
        else:
            sources[name] = (name, *shared)
    return {name: source for name, source in found.items() if name in wanted}


def _key(node: NodeProto) -> tuple[str, str]:
    return "" if node.domain == "ai.onnx" else node.domain, node.op_type


def leading_to(model: onnx.ModelProto, weighted: frozenset[str]) -> set[str]:
    """Values that some of the nodes depend on."""
    wanted: set[str] = set()
    for node in reversed(model.graph.node):
        if node.name in weighted or not wanted.isdisjoint(node.output):
            wanted.update(node.input)
    return wanted
