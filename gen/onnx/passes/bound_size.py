"""Refuses models that would become enormous once their functions are inlined."""

from collections import Counter
from graphlib import CycleError, TopologicalSorter

import onnx

from gen.ir.errors import GraphError
from gen.onnx.passes.report import nested

__all__ = ["bound_size"]

#: Nodes of a model at most, its functions inlined: many times what a machine of a few MiB can hold.
_MAX_NODES = 20_000
#: Bytes of its functions' bodies, as often as they are inlined: constants in them are copied with them.
_MAX_INLINED = 1 << 28


def bound_size(model: onnx.ModelProto) -> onnx.ModelProto:
    """Functions that call each other can stand for more nodes, and more bytes, than there are atoms."""
    functions = {(f.domain, f.name): f for f in model.functions}
    calls = {name: Counter((n.domain, n.op_type) for n in nested(f.node)) for name, f in functions.items()}
    nodes: dict[tuple[str, str], int] = {}
    size: dict[tuple[str, str], int] = {}

    def total(called: Counter[tuple[str, str]], each: dict[tuple[str, str], int], other: int) -> int:
        return sum(times * each.get(name, other) for name, times in called.items())

    try:
        for name in TopologicalSorter({name: called.keys() & calls.keys() for name, called in calls.items()}
                                      ).static_order():
            nodes[name] = total(calls[name], nodes, 1)
            size[name] = functions[name].ByteSize() + total(calls[name], size, 0)
    except CycleError:
        raise GraphError("not a valid ONNX model: a function of it calls itself", code="invalid-model") from None
    called = Counter((n.domain, n.op_type) for n in nested(model.graph.node))
    if (found := total(called, nodes, 1)) > _MAX_NODES:
        raise GraphError(f"the model has {found:,} nodes, functions inlined; at most {_MAX_NODES:,} are supported",
                         code="model-too-large", limit=_MAX_NODES)
    if (found := total(called, size, 0)) > _MAX_INLINED:
        raise GraphError(f"the model's functions have {found:,} bytes, inlined; at most {_MAX_INLINED:,} are "
                         "supported: make their constants initializers", code="model-too-large", limit=_MAX_INLINED)
    return model
