"""How much each channel matters, and in which order channels go."""

from collections.abc import Collection, Mapping, Sequence
from math import inf

import numpy as np
import onnx

from gen.prune.channels import ChannelMap
from gen.prune.errors import PruneError
from gen.prune.measure import run_model

__all__ = ["apoz_scores", "gamma_scores", "removals"]

#: Root atom -> how much it matters.
Scores = Mapping[int, float]


def gamma_scores(channels: ChannelMap) -> Scores:
    """The mean of |gamma| over the BatchNormalizations of a channel, all those of a residual chain.

    The published score is the sum. It has the same order within a chain, but grows with the number of the chain's
    layers, so that chains would stay whole beside layers on their own.
    """
    found: dict[int, list[float]] = {}
    for norm in channels.gammas:
        for root, gamma in zip(channels.roots(norm.atoms), np.abs(channels.view.array(norm.initializer)), strict=True):
            found.setdefault(int(root), []).append(float(gamma))
    if not found:
        raise PruneError("the model has no BatchNormalization, whose gammas are asked for: it may have been folded "
                         "into the convolutions; take the model before that, or --channels apoz")
    return {root: float(np.mean(gammas)) for root, gammas in found.items()}


def apoz_scores(model: onnx.ModelProto, channels: ChannelMap, inputs: Mapping[str, np.ndarray]) -> Scores:
    """The share of values after a ReLU that are not zero, over samples and positions; the mean over a chain's ReLUs.

    APoZ, the average percentage of zeros, is one minus that.
    """
    if not channels.rectified:
        raise PruneError("the model has no Relu, whose zeros are to be counted; take --channels gamma")
    found: dict[int, list[float]] = {}
    for name, values in zip(channels.rectified, run_model(model, inputs, channels.rectified), strict=True):
        shares = (values > 0).mean(axis=tuple(axis for axis in range(values.ndim) if axis != 1))
        for root, share in zip(channels.roots(channels.atoms[name]), shares, strict=True):
            found.setdefault(int(root), []).append(float(share))
    return {root: float(np.mean(shares)) for root, shares in found.items()}


def removals(channels: ChannelMap, scores: Scores, lanes: int, *,
             least: Sequence[int] = (), nodes: Collection[str] | None = None,
             below: float = inf) -> list[frozenset[int]]:
    """Root atoms to drop, more and more of them: from none to all but one block of each layer or residual chain.

    Each set adds the channels of one layer or chain that matter least by their mean score, so many that a multiple of
    ``lanes`` is left: the machine works on whole blocks. ``least``: how many of each stay, in the
    order of `ChannelMap.coupled`. Layers and chains with a channel without a score stay, and those that are not among
    ``nodes`` with all of their layers. ``below``: channels of this score and above stay.
    """
    runs: list[tuple[float, int, list[int]]] = []
    for number, coupled in enumerate(channels.coupled()):
        if any(int(atom) not in scores for atom in coupled) or (
                nodes is not None and not channels.layers(coupled) <= set(nodes)):
            continue
        order = sorted((int(atom) for atom in coupled), key=lambda atom: (scores[atom], atom))
        start, lowest = 0, 0.0
        while len(order) - start > lanes:
            end = start + ((len(order) - start) % lanes or lanes)
            if least and len(order) - end < least[number]:
                break
            # Coupled channels go in their order, whatever else goes in between.
            lowest = max(lowest, float(np.mean([scores[atom] for atom in order[start:end]])))
            if lowest >= below:
                break
            runs.append((lowest, order[0], order[start:end]))
            start = end
    dropped: list[frozenset[int]] = [frozenset()]
    for *_, run in sorted(runs):
        dropped.append(dropped[-1].union(run))
    return dropped
