"""Whole programs, written by hand, for the benches of the machine."""

from dataclasses import dataclass

import numpy as np

from cores.config import NpuConfig
from tests.sim.cases import chain, pool_program
from tests.sim.programs import assemble

__all__ = ["Case", "convolutions", "pooled_sum"]


@dataclass(frozen=True, eq=False)
class Case:
    """``code`` works on ``image`` (uint8) from beat ``write_start`` on."""

    code: bytes
    image: np.ndarray
    write_start: int


def convolutions(config: NpuConfig, seed: int) -> Case:
    """A 3x3 and a 1x1 layer of three tiles each, the second reading what the first stored."""
    code, image, write_start, _ = chain(seed, config)
    return Case(code, image, write_start)


def pooled_sum(config: NpuConfig, seed: int, *, maximum: bool) -> Case:
    """Pooled windows, requantised and added to another feature map."""
    instructions, image, write_start, _ = pool_program(
        np.random.default_rng(seed), config, maximum=maximum, add=True, kernel=(3, 2), stride=(2, 2),
    )
    return Case(assemble(*instructions), image, write_start)
