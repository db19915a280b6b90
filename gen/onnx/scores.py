"""What outputs answer: classes, of samples or of the places of a map, and whether labels can be compared with them."""

from collections.abc import Sequence

import numpy as np

__all__ = ["answers", "are_scores", "why_no_scores"]


def are_scores(shape: Sequence[int]) -> bool:
    """Whether an output of one sample, without their axis, is a vector with a score for each class."""
    return sum(size != 1 for size in shape) == 1


def answers(output: np.ndarray) -> np.ndarray:
    """Where the largest number is, (N, places), of an output (N, ...), or a single number: of a map (N, C, ...) among
    the C of each place, of any other among all of a sample.
    """
    output = np.atleast_1d(output)
    if are_scores(output.shape[1:]) or output.ndim < 3 or output.shape[1] == 1:
        return output.reshape(len(output), -1).argmax(1)[:, None]
    return output.argmax(1).reshape(len(output), -1)


def why_no_scores(name: str, shape: Sequence[int]) -> str:
    """What to say of labels that an output is not compared with."""
    return (f"labels are not used: output {name} has the shape {tuple(shape)} for each sample, and no single score for "
            "each class")
