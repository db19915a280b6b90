"""Parts of today's architectures: none refused, their layers on the accelerator, the bytes of the reference."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.coverage.measure import measure
from tests.gen.architecture_parts import PARTS


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_on_the_accelerator(part: str, rng: np.random.Generator, tmp_path: Path) -> None:
    """All its convolutions and matrix products with weights, and no value other than the reference's."""
    model, products = PARTS[part](rng)
    onnx.save(model, tmp_path / "part.onnx")
    found = measure(tmp_path / "part.onnx", ("--macs", "64", "--features", "all", "--method", "minmax"))
    assert not found.refused
    assert found.macs >= products, found.reasons
    assert found.compared and not found.different


@pytest.mark.slow
def test_windows_take_the_corner_turn(rng: np.random.Generator, tmp_path: Path) -> None:
    """Other machines leave all their products of activations to the processor, and say what would bring them over."""
    onnx.save(PARTS["shifted_windows"](rng)[0], tmp_path / "part.onnx")
    found = measure(tmp_path / "part.onnx", ("--macs", "64", "--features", "gather,rows,table", "--method", "minmax"))
    why = "multiplies activations in parts of their pixels; --features turn does that on the accelerator"
    assert found.reasons[why] == found.host_products == 2
    assert found.compared and not found.different
