"""A density for each layer: what is lost and gained in every one, measured, and the best of both along the way."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import onnx

from cores.config import NpuConfig
from gen.prune.blocks import prune_blocks
from gen.prune.layers import find_layers
from gen.prune.measure import AccuracyEvaluator
from gen.prune.timing import QuantisedCounterpart, Times

__all__ = ["Sensitivity", "descent", "first_that", "last_that", "sensitivities"]

T = TypeVar("T")


@dataclass(frozen=True)
class Sensitivity:
    """Of one layer at each density that the machine has: output noise (`AccuracyEvaluator.noise`) and its cycles."""

    noise: Mapping[float, float]
    cycles: Mapping[float, int]


def sensitivities(model: onnx.ModelProto, counterpart: QuantisedCounterpart, config: NpuConfig,
                  evaluator: AccuracyEvaluator, chosen: Collection[str],
                  progress: Callable[[str], None] = lambda text: None) -> dict[str, Sensitivity]:
    """Every ``chosen`` layer that can be pruned, by its node's name: the only one that is, at each density below 1."""
    nodes = [layer.node for layer in find_layers(model)
             if not layer.left and layer.node in chosen and layer.node in counterpart.layers]
    steps = [groups / config.groups_dense for groups in range(config.groups_dense, 0, -1)]
    times: dict[float, Times] = {}
    for density in steps:
        progress(f"cycles at density {density:g}")
        times[density] = counterpart.times(config, dict.fromkeys(nodes, density))
    found = {}
    for number, node in enumerate(nodes, 1):
        progress(f"layer {number} of {len(nodes)}, {node}")
        noise = {density: evaluator.noise(prune_blocks(model, {node: density}, config)) for density in steps[1:]}
        found[node] = Sensitivity({1.0: 0.0, **noise}, {density: times[density].nodes[node] for density in steps})
    return found


def descent(found: Mapping[str, Sensitivity]) -> list[dict[str, float]]:
    """Densities of all layers from dense to sparse, each state of the list with one layer sparser than before.

    Of all layers and densities the next one is that with the most cycles saved for the noise added, as if the noises of
    layers added up. Densities that save nothing are not taken.
    """
    state = dict.fromkeys(found, 1.0)
    states = [dict(state)]
    while True:
        best, gain = None, 0.0
        for node, layer in found.items():
            now = state[node]
            for density in layer.noise:
                saved = layer.cycles[now] - layer.cycles[density]
                if density >= now or saved <= 0:
                    continue
                added = max(layer.noise[density] - layer.noise[now], 1e-12)
                if saved / added > gain:
                    best, gain = (node, density), saved / added
        if best is None:
            return states
        state[best[0]] = best[1]
        states.append(dict(state))


def first_that(items: Sequence[T], holds: Callable[[T], bool]) -> T | None:
    """The first item for which ``holds``, if it does for all after that one too; None if it does not for the last."""
    if not holds(items[-1]):
        return None
    low, high = 0, len(items) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(items[middle]) else (middle + 1, high)
    return items[low]


def last_that(items: Sequence[T], holds: Callable[[T], bool]) -> T:
    """The last item for which ``holds``, if it does for all in front of that one; the first one if for no other."""
    low, high = 0, len(items) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(items[middle]) else (low, middle - 1)
    return items[low]
