"""Random models as quantisers write them: no layer is more than one LSB from onnxruntime."""

import re
from pathlib import Path

import numpy as np
import pytest

from gen.check.compare import compare
from gen.ir.errors import GraphError
from tests.gen.random_models import RandomModel


@pytest.mark.slow
@pytest.mark.parametrize("count", [30, pytest.param(500, marks=pytest.mark.full)])
def test_every_layer(count: int, seed: int, tmp_path: Path) -> None:
    """At most one in fifty is refused: a branch left unquantised beside an operand of more than three times the sum, or
    an output of which one LSB of the sums is many steps."""
    refused = 0
    for number in range(count):
        model = RandomModel(np.random.default_rng([seed, number]))
        path = model.save(tmp_path)
        try:
            largest = compare(path, model.samples(4)).largest
        except GraphError as error:
            assert re.search("too coarse; put QuantizeLinear|scales must be below", str(error)), f"number {number}"
            refused += 1
            continue
        assert largest <= 1, f"number {number}: {path}"
    assert refused <= 1 + count // 50


def test_a_slice_of_a_part_that_is_requantised(tmp_path: Path) -> None:
    """Nobody reads the rest of the concatenation: its rounding and that of the slice are two layers all the same."""
    model = RandomModel(np.random.default_rng([3397015463, 373]))
    comparison = compare(model.save(tmp_path), model.samples(4))
    assert comparison.largest == 1 and [row.op for row in comparison.layers].count("pool") == 2
