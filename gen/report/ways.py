"""Why a layer is computed as it is: the ways that the compiler has, and what each would cost."""

from gen.ir.errors import LayerError
from gen.ir.graph import Layer
from gen.mapping.base import MappingContext
from gen.mapping.binary import BinaryLayers
from gen.mapping.registry import MAPPINGS
from gen.report.document import Way
from gen.run.workload import Workload

__all__ = ["meaning_of", "reason_of", "ways_of"]


def ways_of(workload: Workload) -> dict[str, list[Way]]:
    """Output -> the ways to compute the layer that writes it, the cheapest first, refused ones last."""
    whole = MappingContext(workload.graph, workload.config, workload.options)
    packed = whole.analysis(BinaryLayers).packed
    found = {}
    for layer in workload.graph.layers:
        context = whole.context(layer, packed_out=layer.output in packed)
        ways = []
        for kind in MAPPINGS:
            if not isinstance(layer, kind.takes):
                continue
            name = kind.__name__.removesuffix("Mapping").lower()
            try:
                mapping = kind.propose(context)
            except LayerError as error:
                ways.append(Way(mode=name, cost=None, refused=str(error)))
                continue
            if mapping is not None:
                ways.append(Way(mode=mapping.mode, cost=round(float(mapping.cost), 1), refused=""))
        found[layer.output] = sorted(ways, key=lambda way: (way.cost is None, way.cost or 0.0))
    return found


def meaning_of(mode: str, layer: type[Layer]) -> str:
    """What ``mode`` is, in words; "" where it is no way of the compiler's, as "fused", which `reason_of` explains."""
    return next((kind.modes[mode] for kind in MAPPINGS
                 if issubclass(layer, kind.takes) and mode in kind.modes), "")


def reason_of(mode: str, ways: list[Way]) -> str:
    """In words, why ``mode`` of these."""
    possible = [way for way in ways if way.cost is not None]
    if mode == "fused":
        return "its result stays in the input buffer, which is faster than the way through memory"
    others = [way for way in possible if way.mode != mode]
    if not others:
        return "the only way that this machine has for it"
    best = others[0]
    own = next((way for way in possible if way.mode == mode), None)
    if own is None or own.cost is None or best.cost is None or own.cost > best.cost:
        return "taken wherever it can be, or a step of layers that go together"
    return f"about {own.cost:,.0f} cycles by the compiler's estimate; {best.mode} about {best.cost:,.0f}"
