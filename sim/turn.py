"""The corner turn in NumPy: stored pixels as weights of dense steps."""

from collections.abc import Mapping

import numpy as np

from cores.arch.instruction import Instruction
from cores.config import NpuConfig

__all__ = ["turned"]


def turned(config: NpuConfig, turn: Instruction | Mapping[str, int], box: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The weights that a LOAD_TURN's fields make of a box, and the sums of each output lane's.

    ``box``: int8 (blocks, rows, cols, tn). Returns int8 (beats, tn) in the order of the weight ring, int64 (tm,).
    """
    tm, tn, dn, group = config.oc_lanes, config.ic_lanes, config.nnz_lanes, config.groups_dense
    blocks, rows, cols, _ = box.shape
    placed = np.zeros((blocks, tm, tn), np.int8)
    for row in range(rows):
        start = row * -(-cols // tn) * tn
        placed[:, start:start + cols] = box[:, row]
    if turn["by_channels"]:     # (block, lane's block, value, lane in it)
        placed = placed.reshape(blocks, tm // tn, tn, tn).swapaxes(-1, -2).reshape(blocks, tm, tn)
    placed[:, turn["lanes"]:] = 0
    placed[:, :, turn["depth"]:] = 0
    steps = placed.reshape(blocks, tm, dn, group).transpose(0, 3, 1, 2)[:, :turn["steps"]]
    return steps.reshape(-1, tn), steps.astype(np.int64).sum(axis=(0, 1, 3))
