"""The weight stream of a COMPUTE, unpacked."""

import numpy as np

from cores.arch.isa import StepKind
from cores.config import NpuConfig
from cores.config.units.int4 import INT4_BITS

__all__ = ["dense_weights", "step_lanes"]


def step_lanes(config: NpuConfig, steps: np.ndarray, kind: StepKind) -> tuple[np.ndarray, np.ndarray | None]:
    """Weights, signed (n, oc_lanes, nnz_lanes), and channels, int64, of n steps of the multiplier array; ``steps``:
    uint8 (n, bytes of a step).

    The channels are None where steps have no indices: they then follow from the step's number.
    """
    count = config.oc_lanes * config.nnz_lanes
    shape = (len(steps), config.oc_lanes, config.nnz_lanes)
    indices = np.empty_like(steps[:, :0])
    if kind.has_indices:
        indices, steps = np.split(steps, [config.index_beats * config.beat_bytes], axis=1)
    if kind.is_int4:
        halves = steps[:, :count // 2, None] << np.array([INT4_BITS, 0], np.uint8)      # of a byte, the low one first
        weights = halves.view(np.int8).reshape(shape) >> INT4_BITS
    elif config.weight_bits == 8:
        weights = np.ascontiguousarray(steps[:, :count]).view(np.int8).reshape(shape)
    else:
        stream = np.unpackbits(steps, axis=1, bitorder="little", count=count * config.weight_bits)
        places = 1 << np.arange(config.weight_bits)
        places[-1] *= -1
        weights = (stream.reshape(*shape, config.weight_bits) @ places).astype(np.int16)
    if not kind.has_indices:
        return weights, None
    channels = np.array([config.window_base(lane) for lane in range(config.nnz_lanes)]) + np.zeros(shape, np.int64)
    if config.select_fanin > 1:
        bits = np.unpackbits(indices, axis=1, bitorder="little", count=count * config.index_bits)
        channels += bits.reshape(*shape, config.index_bits) @ (1 << np.arange(config.index_bits))
    return weights, channels


def dense_weights(config: NpuConfig, steps: np.ndarray, first_group: int, groups: int, kind: StepKind) -> np.ndarray:
    """What consecutive steps multiply, as (taps, ic_lanes, oc_lanes) integers: tap by tap, channel by channel.

    ``first_group``: the group that the first step is of its tap. A channel chosen more than once gets the sum.
    """
    weights, channels = step_lanes(config, steps, kind)
    numbers = first_group + np.arange(len(steps))
    taps, group = np.divmod(numbers, groups)
    wide = np.int16 if config.weight_bits == 8 else np.int32
    dense = np.zeros((taps[-1] + 1, config.ic_lanes, config.oc_lanes), wide)
    if channels is None:
        # Lane j of group n is channel j * tn/dn + n: no two of a tap meet.
        wired = np.arange(config.nnz_lanes) * config.groups_dense + group[:, None]
        dense[taps[:, None], wired % config.ic_lanes] = weights.transpose(0, 2, 1)
        return dense
    outputs = np.arange(config.oc_lanes)
    for number in range(min(groups, len(steps))):
        of_group = group == group[number]
        for lane in range(config.nnz_lanes):
            chosen = channels[of_group, :, lane]
            dense[taps[of_group][:, None], chosen, outputs] += weights[of_group, :, lane]
    return dense
