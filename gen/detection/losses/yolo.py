"""The loss of YOLOv3 (Redmon and Farhadi, 2018): sums of squares for sizes, binary cross entropy for the rest."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from gen.detection.losses.outputs import by_box

__all__ = ["yolo_loss"]

#: Of the logarithm of a size over its anchor's.
_LARGEST = 12.0


def yolo_loss(found: Mapping[str, Tensor], objects: Tensor, *, anchors: Sequence[Sequence[tuple[float, float]]],
              classes: int, ignore: float) -> Tensor:
    """Of each map's output ``found``; see `gen.detection.heads`: ``Head.loss``, and `YoloHead` for the rest.

    A sum over the boxes, divided by the number of pictures. An object's own anchor is that whose size overlaps its size
    most, of all maps, in the cell of its centre. A box's place and size count 2 - (its share of the picture) times, so
    that small ones count more, as in Darknet.
    """
    each = torch.tensor([anchor for some in anchors for anchor in some])
    sizes = objects[:, 4:6]
    common = torch.minimum(sizes[:, None], each[None]).prod(-1)
    own = (common / (sizes.prod(-1)[:, None] + each.prod(-1)[None] - common)).argmax(1)
    total, first, count = torch.zeros(()), 0, 1
    for some, (name, output) in zip(anchors, found.items(), strict=True):
        mine, count = torch.tensor(some), len(output)
        boxes = by_box(output, name, len(mine), 5 + classes)
        here = (own >= first) & (own < first + len(mine))
        total = total + _map_loss(boxes, mine, objects, own - first, here, ignore)
        first += len(mine)
    return total / count


def _map_loss(boxes: Tensor, anchors: Tensor, objects: Tensor, own: Tensor, here: Tensor, ignore: float) -> Tensor:
    """Of one map: ``boxes`` (N, H, W, anchors, 5 + classes); ``own``: of each object its anchor, if it is ``here``."""
    height, width = boxes.shape[1:3]
    rows, own = objects[here], own[here]
    size = rows.new_tensor([width, height])
    places = rows[:, 2:4] * size
    cells = torch.minimum(places.long().clamp(min=0), size.long() - 1)
    index = rows[:, 0].long(), cells[:, 1], cells[:, 0], own
    answers = boxes[index]
    something = torch.zeros_like(boxes[..., 4])
    something[index] = 1
    counted = (something > 0) | (_largest_overlap(boxes.detach(), anchors, objects) <= ignore)
    logits = boxes[..., 4]
    loss = functional.binary_cross_entropy_with_logits(logits[counted], something[counted], reduction="sum")
    weight = (2 - rows[:, 4] * rows[:, 5])[:, None]
    centre = functional.binary_cross_entropy_with_logits(
        answers[:, :2], (places - cells).clamp(0, 1), reduction="none")
    growth = torch.log(rows[:, 4:6].clamp(min=1e-6) / anchors[own])
    loss = loss + (weight * (centre + 0.5 * (answers[:, 2:4] - growth) ** 2)).sum()
    kinds = functional.one_hot(rows[:, 1].long(), answers.shape[1] - 5).to(answers.dtype)
    found: Tensor = loss + functional.binary_cross_entropy_with_logits(answers[:, 5:], kinds, reduction="sum")
    return found


def _largest_overlap(boxes: Tensor, anchors: Tensor, objects: Tensor) -> Tensor:
    """(N, H, W, anchors): that of what each box says with any object of its picture."""
    count, height, width = boxes.shape[:3]
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    cells = torch.stack([x, y], -1)[None, :, :, None].to(boxes.dtype)
    centre = (torch.sigmoid(boxes[..., :2]) + cells) / boxes.new_tensor([width, height])
    half = boxes[..., 2:4].clamp(max=_LARGEST).exp() * anchors / 2
    low, high = centre - half, centre + half
    number = objects[:, 0].long()
    middle, side = objects[:, None, None, None, 2:4], objects[:, None, None, None, 4:6]
    common = (torch.minimum(high[number], middle + side / 2)
              - torch.maximum(low[number], middle - side / 2)).clamp(min=0).prod(-1)
    shares = common / ((high - low).prod(-1)[number] + side.prod(-1) - common).clamp(min=1e-12)
    index = number[:, None, None, None].expand_as(shares)
    return torch.zeros(count, *shares.shape[1:]).scatter_reduce_(0, index, shares, "amax")
