"""Estimated cycles, by hand."""

import pytest

from cores.config import NpuConfig
from gen.stochastic.backbone import Backbone
from gen.stochastic.cycles import estimated_cycles


@pytest.mark.parametrize("length, expected", [
    # 28 rows of 14 words, 9 taps, 1 block, 1 tile, 4 steps; then 10 outputs of 784 taps, 1 block, 1 tile, 1 word.
    (32, 9 * 4 * 28 * 14 * 32 + 784 * 4 * 32), (8, 9 * 4 * 28 * 14 * 8 + 784 * 4 * 8),
    # Dense int8: 4 steps of a block too; 8 beats of weights are more than one word.
    (None, 9 * 4 * 28 * 14 + 784 * 4 * 8)])
def test_a_convolution(length: int | None, expected: int):
    assert estimated_cycles(Backbone("28x28-c6k3-10"), length, NpuConfig.preset(256)) == expected


def test_weights_that_take_longer_than_words():
    """Of 512 output lanes 128 rows' beats are more than 8 bits of the one word."""
    config = NpuConfig.preset(256, oc_lanes=128)
    assert estimated_cycles(Backbone("16-10"), 8, config) == 4 * 32
    assert estimated_cycles(Backbone("16-10"), 64, config) == 4 * 64
