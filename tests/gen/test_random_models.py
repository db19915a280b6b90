"""Random models as quantisers write them: no layer is more than one unit from onnxruntime."""

import re
from pathlib import Path

import numpy as np
import pytest

from gen.check.compare import compare
from gen.ir.errors import GraphError
from tests.gen.random_models import RandomModel


@pytest.mark.parametrize("count", [30, pytest.param(500, marks=pytest.mark.full)])
def test_every_layer(count: int, seed: int, tmp_path: Path) -> None:
    """At most one in fifty is refused: a branch left unquantised beside an operand of more than three times the sum, or
    an output of which one unit of the sums is many steps."""
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
