"""Errors of stochastic dot products are the published ones."""

import numpy as np
import pytest

from cores.arch.stochastic import Circuit
from gen.bench.stochastic import PUBLISHED, dot_products, rmse
from sim.stochastic.streams import Streams
from tests.cores.simulation import log_seed

_COUNT = 600


@pytest.mark.parametrize("circuit", [circuit for circuit in Circuit if circuit is not Circuit.AND_ACC])
@pytest.mark.parametrize("inputs, length", [(16, 32), (16, 128), (16, 256), (16, 1024), (64, 256)])
def test_errors_are_those_published(circuit, inputs, length):
    """Within a quarter; from 128 bits on a uGEMM or an AND-LOOP may be better, as int8 operands are not rounded."""
    rng = np.random.default_rng(log_seed())
    found = rmse(circuit, *dot_products(rng, _COUNT, inputs), Streams(length))
    least = 0.5 if length >= 128 and circuit in (Circuit.UGEMM, Circuit.AND_LOOP) else 0.75
    assert least < found / PUBLISHED[circuit][inputs, length] < 1.25


@pytest.mark.parametrize("length", [32, 256])
def test_and_acc_is_between_and_loop_and_the_published(length):
    """What is left over is lost; the published circuit loses more."""
    operands = dot_products(np.random.default_rng(log_seed()), _COUNT, 16)
    loop, acc = (rmse(circuit, *operands, Streams(length)) for circuit in (Circuit.AND_LOOP, Circuit.AND_ACC))
    assert 0.9 * loop < acc < PUBLISHED[Circuit.AND_ACC][16, length]
