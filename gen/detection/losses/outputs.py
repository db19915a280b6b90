"""Outputs of a batch, box by box."""

from torch import Tensor

from gen.detection.errors import HeadError

__all__ = ["by_box"]


def by_box(output: Tensor, name: str, boxes: int, numbers: int) -> Tensor:
    """(N, boxes * numbers, H, W) -> (N, H, W, boxes, numbers). Raises HeadError, with the output's ``name``."""
    if output.ndim != 4 or output.shape[1] != boxes * numbers:
        raise HeadError(f"output {name} must have {boxes} x {numbers} channels of a map, as the head says, not the "
                        f"shape {tuple(output.shape)}")
    count, _, height, width = output.shape
    return output.reshape(count, boxes, numbers, height, width).permute(0, 3, 4, 1, 2)
