"""Models that find objects, by the head that the session describes."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from gen.detection.errors import HeadError
from gen.detection.heads.registry import AnyHead
from gen.detection.precision import require_pycocotools
from gen.train.errors import TrainError
from gen.train.network import Network
from gen.train.pictures import Pictures, read_pictures
from gen.train.session import Data, TrainingSession, TrainingStage

__all__ = ["Detector", "part_of_pictures"]

_EVALUATED = 64


class Detector:
    """A `Task`: the loss of the head, and mean average precision at an overlap of 0.5."""

    measure = "mAP at an overlap of 0.5"

    def __init__(self, session: TrainingSession) -> None:
        self._session, self._head = session, _head_of(session)
        if session.test is not None:
            require_pycocotools()

    def read(self, data: Data, folder: Path, *, name: str, shape: tuple[int, ...]) -> Pictures:
        return read_pictures(data, self._session, self._head, folder, shape=shape)

    def accuracy(self, network: Network, data: Pictures) -> float:
        tally = data.expected.tally()
        with torch.no_grad():
            for start in range(0, len(data), _EVALUATED):
                inputs = torch.from_numpy(data.inputs(data.pixels[start:start + _EVALUATED]))
                found = [value.numpy() for value in self._outputs(network, inputs, norms=False)]
                for place in range(len(inputs)):
                    tally.add({name: value[place] for name, value in zip(self._head.outputs, found, strict=True)})
        return tally.precision().map_50

    def batch(self, data: Pictures, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Parts of pictures, mirrored or not, at random, as the session says."""
        numbers = chosen.numpy()
        pixels = torch.from_numpy(data.inputs(data.pixels[numbers]))
        place = np.full(len(data), -1)
        place[numbers] = np.arange(len(numbers))
        mine = place[data.objects[:, 0].astype(np.int64)]
        objects = torch.from_numpy(data.objects[mine >= 0])
        objects[:, 0] = torch.from_numpy(mine[mine >= 0]).float()
        session = self._session
        if not session.mirror and session.zoom == (1.0, 1.0):
            return pixels, objects
        low, high = session.zoom
        share = 1 / (low + (high - low) * torch.rand(len(pixels)))
        begin = (1 - share)[:, None] * torch.rand(len(pixels), 2)
        mirrored = torch.rand(len(pixels)) < (0.5 if session.mirror else 0.0)
        return part_of_pictures(pixels, objects, begin, share, mirrored)

    def loss(self, stage: TrainingStage, network: Network, inputs: Tensor, wanted: Tensor, teacher: Network) -> Tensor:
        try:
            return self._head.loss(self._outputs(network, inputs, norms=stage.norms), wanted)
        except HeadError as error:
            raise TrainError.of(error, str(error)) from None

    def _outputs(self, network: Network, inputs: Tensor, *, norms: bool) -> list[Tensor]:
        return network.values(inputs, self._head.outputs, norms=norms)


def _head_of(session: TrainingSession) -> AnyHead:
    if session.head is None or isinstance(session.head, str):
        raise TrainError("a detector's session has a head; read_session reads that of a file")
    return session.head


def part_of_pictures(pixels: Tensor, objects: Tensor, begin: Tensor, share: Tensor,
                     mirrored: Tensor) -> tuple[Tensor, Tensor]:
    """Cut a part out of each picture (N, C, H, W), and enlarge it to the size of the whole.

    ``begin``: (N, 2), x and y of the part's corner. ``share``: (N,), of the picture's sides. What is beyond the picture
    is zero. ``mirrored``: (N,), whether left and right change places.

    ``objects`` are rows as `gen.detection.heads.base.Head.loss` takes them. Those whose centre is outside the part are
    dropped, and the others are cut at its edge (Liu and others, SSD, section 2.2).
    """
    way = torch.where(mirrored, -1.0, 1.0)
    # grid_sample counts from -1 to 1: of the output u, the input 2 (begin + share (u + 1) / 2) - 1.
    middle = 2 * begin + share[:, None] - 1
    zero = torch.zeros_like(share)
    turn = torch.stack([torch.stack([way * share, zero, middle[:, 0]], 1),
                        torch.stack([zero, share, middle[:, 1]], 1)], 1)
    grid = functional.affine_grid(turn, list(pixels.shape), align_corners=False)
    changed = functional.grid_sample(pixels, grid, align_corners=False)
    number = objects[:, 0].long()
    centre = (objects[:, 2:4] - begin[number]) / share[number, None]
    centre = torch.stack([torch.where(mirrored[number], 1 - centre[:, 0], centre[:, 0]), centre[:, 1]], 1)
    half = objects[:, 4:6] / share[number, None] / 2
    inside = ((centre > 0) & (centre < 1)).all(1)
    low, high = (centre - half).clamp(0, 1), (centre + half).clamp(0, 1)
    rows = torch.cat([objects[:, :2], (low + high) / 2, high - low], 1)
    return changed, rows[inside]
