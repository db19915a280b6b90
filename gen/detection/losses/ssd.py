"""The loss of SSD (Liu and others, 2016): smooth L1 of offsets, cross entropy with the hardest negatives."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from gen.detection.boxes import corners
from gen.detection.losses.outputs import by_box
from gen.detection.matching import match
from gen.detection.priors import VARIANCES, priors

__all__ = ["ssd_loss"]


def ssd_loss(found: Mapping[str, Tensor], objects: Tensor, *, sizes: Sequence[Sequence[tuple[float, float]]],
             classes: int, matched: float, negatives: float) -> Tensor:
    """Of each map's two outputs ``found``; see `gen.detection.heads`: ``Head.loss``, and `SsdHead` for the rest.

    Divided by the number of prior boxes that answer for an object.
    """
    offsets, logits, places = [], [], []
    outputs = list(found.items())
    for some, (place, boxes), (score, scores) in zip(sizes, outputs[::2], outputs[1::2], strict=True):
        offsets.append(by_box(boxes, place, len(some), 4).flatten(1, 3))
        logits.append(by_box(scores, score, len(some), 1 + classes).flatten(1, 3))
        places.append(priors(some, *boxes.shape[2:]))
    prior, offset, logit = np.concatenate(places), torch.cat(offsets, 1), torch.cat(logits, 1)
    owners = _matched(prior, objects, len(offset), matched)
    positive = owners >= 0
    rows, prior_of = objects[owners[positive]], torch.from_numpy(prior).expand(*positive.shape, 4)[positive]
    wanted = torch.cat([(rows[:, 2:4] - prior_of[:, :2]) / prior_of[:, 2:] / VARIANCES[0],
                        torch.log(rows[:, 4:6].clamp(min=1e-6) / prior_of[:, 2:]) / VARIANCES[1]], 1)
    places_loss = functional.smooth_l1_loss(offset[positive], wanted, reduction="sum")
    kinds = torch.zeros_like(owners)
    kinds[positive] = rows[:, 1].long() + 1
    each = functional.cross_entropy(logit.flatten(0, 1), kinds.flatten(), reduction="none").view_as(kinds)
    # The rank of each prior without an object, by its loss.
    rank = each.detach().masked_fill(positive, -1).argsort(1, descending=True).argsort(1)
    hard = ~positive & (rank < negatives * positive.sum(1, keepdim=True))
    result: Tensor = (places_loss + each[positive | hard].sum()) / positive.sum().clamp(min=1)
    return result


def _matched(prior: np.ndarray, objects: Tensor, count: int, least: float) -> Tensor:
    """(N, priors): the row of the object that each answers for, -1 for none."""
    boxes, number = corners(objects[:, 2:6].numpy()), objects[:, 0].numpy().astype(np.int64)
    places, found = corners(prior), np.full((count, len(prior)), -1, np.int64)
    for picture in range(count):
        mine = np.flatnonzero(number == picture)
        own = match(places, boxes[mine], least)
        found[picture, own >= 0] = mine[own[own >= 0]]
    return torch.from_numpy(found)
