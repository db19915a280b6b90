"""Losses against sums that were calculated by hand, and what they teach."""

import math

import numpy as np
import pytest

from gen.detection.errors import HeadError
from gen.detection.heads.decoded import DecodedHead
from gen.detection.heads.registry import AnyHead
from gen.detection.heads.ssd import SsdHead, SsdMap
from gen.detection.heads.yolo import YoloHead, YoloMap

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install '.[train]'")
torch.set_num_threads(1)

YOLO = YoloHead(classes=("a", "b"), maps=(YoloMap(output="o", anchors=((0.25, 0.25), (0.5, 0.5))),
                                          YoloMap(output="p", anchors=((1.0, 1.0),))))
SSD = SsdHead(classes=("a", "b"), maps=(SsdMap(boxes="b", scores="s", sizes=((0.5, 0.5),)),
                                        SsdMap(boxes="c", scores="t", sizes=((1.0, 1.0), (0.2, 0.2)))))
LOG2, EVEN = math.log(2), 0.5


def cross_entropy(logit: float, share: float) -> float:
    return math.log1p(math.exp(-logit)) * share + math.log1p(math.exp(logit)) * (1 - share)


def yolo_outputs(count: int) -> list:
    """Zeros: each box has the anchor's size, in the middle of its cell; three maps' places: 2 x 2 x 2 and 1."""
    return [torch.zeros(count, 14, 2, 2), torch.zeros(count, 7, 1, 1)]


def test_yolo_without_objects():
    """Every place is taught that there is nothing: log 2 each, divided by the pictures."""
    assert YOLO.loss(yolo_outputs(3), torch.zeros(0, 6)).item() == pytest.approx(9 * LOG2, rel=1e-6)


def test_yolo_with_an_object():
    """Of the anchor 0.5, as that is most like it, in the cell of its centre; what overlaps it is left alone."""
    outputs = yolo_outputs(2)
    x, y, width, height = 0.7, 0.2, 0.4, 0.6
    objects = torch.tensor([[1, 1, x, y, width, height]])
    # Cell 1, 0 of 2 x 2; its box is 0.5, 0.0 .. 1.0, 0.5. Only that of the 0.5 anchor overlaps the object by 0.3.
    answers = [0.3, -0.2, 0.1, 0.4, 1.5, 2.0, -1.0]
    outputs[0][1, 7:, 0, 1] = torch.tensor(answers)
    weight = 2 - width * height
    wanted = cross_entropy(1.5, 1) + cross_entropy(2, 0) + cross_entropy(-1, 1)
    wanted += weight * (cross_entropy(0.3, 0.4) + cross_entropy(-0.2, 0.4))
    wanted += weight / 2 * ((0.1 - math.log(width / 0.5)) ** 2 + (0.4 - math.log(height / 0.5)) ** 2)
    for ignore, nothing in ((1.0, 17), (0.2, 16)):      # the whole picture's anchor overlaps it by 0.24
        head = YoloHead(classes=YOLO.classes, maps=YOLO.maps, ignore=ignore)
        assert head.loss(outputs, objects).item() == pytest.approx((wanted + nothing * LOG2) / 2, rel=1e-6), ignore


def test_a_centre_on_the_border_is_in_the_last_cell():
    objects = torch.tensor([[0, 0, 1.0, 1.0, 0.5, 0.5]])
    assert torch.isfinite(YOLO.loss(yolo_outputs(1), objects))


def test_ssd_by_hand():
    """Two objects of the second of two pictures: the prior in the middle is matched by its overlap, the small one as it
    is the object's best; of six others the hardest three for each of both count, all.
    """
    boxes, scores = torch.zeros(2, 4, 1, 1), torch.zeros(2, 3, 1, 1)
    more, others = torch.zeros(2, 8, 1, 1), torch.zeros(2, 6, 1, 1)
    objects = torch.tensor([[1, 0, 0.55, 0.5, 0.5, 0.45], [1, 1, 0.5, 0.5, 0.1, 0.1]])
    boxes[1, :, 0, 0] = torch.tensor([0.5, 0.0, 3.0, 0.0])
    scores[1, :, 0, 0] = torch.tensor([0.0, 2.0, 0.0])
    more[1, 4:, 0, 0] = torch.tensor([0.0, 0.0, -3.0, -3.0])
    smooth = [0.5 - 0.05 / 0.5 / 0.1, 0, 3, -math.log(0.45 / 0.5) / 0.2, 0, 0, *[-3 - math.log(0.5) / 0.2] * 2]
    wanted = sum(x * x / 2 if abs(x) < 1 else abs(x) - 0.5 for x in smooth)
    wanted += math.log(2 + math.exp(2)) - 2 + math.log(3)       # the two that are matched
    wanted += math.log(3)       # the one that is not, of the second picture; the first one has no object
    assert SSD.loss([boxes, scores, more, others], objects).item() == pytest.approx(wanted / 2, rel=1e-5)


def test_the_hardest_negatives_count():
    """Of four priors without an object, one for each with one: that whose background is the least likely."""
    head = SsdHead(classes=("a",), maps=(SsdMap(boxes="b", scores="s", sizes=((0.2, 0.2),)),), negatives=1.0)
    scores = torch.zeros(1, 2, 1, 5)
    scores[0, 1, 0] = torch.tensor([9.0, 1.0, 3.0, 2.0, 0.0])      # for an object, against 0 for the background
    objects = torch.tensor([[0, 0, 0.1, 0.5, 0.2, 0.2]])            # the first prior
    wanted = cross_entropy(9, 1) + cross_entropy(3, 0)
    assert head.loss([torch.zeros(1, 4, 1, 5), scores], objects).item() == pytest.approx(wanted, rel=1e-5)


def test_ssd_without_objects():
    outputs = [torch.randn(2, 4, 1, 1), torch.randn(2, 3, 1, 1), torch.randn(2, 8, 1, 1), torch.randn(2, 6, 1, 1)]
    assert SSD.loss(outputs, torch.zeros(0, 6)).item() == 0


@pytest.mark.parametrize("head", [YOLO, SSD], ids=["yolo", "ssd"])
def test_what_is_taught_is_what_is_decoded(head: AnyHead):
    """Outputs that have the least loss are detected where the objects are."""
    objects = torch.tensor([[0, 1, 0.5, 0.4, 0.3, 0.2], [1, 0, 0.2, 0.3, 0.3, 0.25], [1, 1, 0.75, 0.75, 0.5, 0.5]])
    shapes = ((14, 4, 4), (7, 2, 2)) if head is YOLO else ((4, 4, 4), (3, 4, 4), (8, 2, 2), (6, 2, 2))
    outputs = [torch.zeros(2, *shape, requires_grad=True) for shape in shapes]
    optimizer = torch.optim.Adam(outputs, 0.3)
    for _ in range(80):
        optimizer.zero_grad()
        loss = head.loss(outputs, objects)
        loss.backward()
        optimizer.step()
    for picture, wanted in enumerate((objects[:1], objects[1:])):
        found = head.detect({name: value[picture].detach().numpy()
                             for name, value in zip(head.outputs, outputs, strict=True)})
        sure = found.scores > 0.3
        order = np.argsort(found.classes[sure])
        assert found.classes[sure][order].tolist() == sorted(wanted[:, 1].int().tolist())
        rows = wanted[wanted[:, 1].argsort()].numpy()
        boxes = np.concatenate([rows[:, 2:4] - rows[:, 4:] / 2, rows[:, 2:4] + rows[:, 4:] / 2], axis=1)
        np.testing.assert_allclose(found.boxes[sure][order], boxes, atol=0.02)


def test_other_models():
    with pytest.raises(HeadError, match="output o must have 2 x 7 channels of a map, as the head says, not the shape"):
        YOLO.loss([torch.zeros(1, 15, 2, 2), torch.zeros(1, 7, 1, 1)], torch.zeros(0, 6))
    with pytest.raises(HeadError, match="output s must have 1 x 3 channels"):
        SSD.loss([torch.zeros(1, 4, 1, 1), torch.zeros(1, 4), torch.zeros(1, 8, 1, 1), torch.zeros(1, 6, 1, 1)],
                 torch.zeros(0, 6))
    with pytest.raises(HeadError, match="a head of the kind decoded cannot be trained"):
        DecodedHead(classes=("a",), boxes="b", scores="s").loss([], torch.zeros(0, 6))
