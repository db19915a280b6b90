"""Transposed convolutions in groups: a scale for each output channel, and a bias that fits it."""

from pathlib import Path

import numpy as np
import pytest

from gen.quantize.prepare import prepare
from tests.gen.float_models import FloatBuilder
from tests.gen.quantizing import outputs_of, quantized
from tests.gen.test_never_refused import compiled, host

Rng = np.random.Generator


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("groups", [2, 4, 8])
def test_groups(groups: int, bias: bool, rng: Rng, tmp_path: Path) -> None:
    """Output channels of very different sizes; 8 groups are depthwise, 4 have an output channel each."""
    b = FloatBuilder(rng, ["n", 3, 6, 6])
    outputs = {2: 6, 4: 4, 8: 8}[groups]
    sizes = np.exp(rng.permutation(np.linspace(-2, 2, outputs)))
    weights = rng.normal(size=(groups, 8 // groups, outputs // groups, 4, 4)) * sizes.reshape(
        groups, 1, outputs // groups, 1, 1)
    inputs = [b.constant(weights.reshape(8, outputs // groups, 4, 4))]
    inputs += [b.constant(sizes * rng.normal(size=outputs))] if bias else []
    y = b.node("ConvTranspose", b.node("Relu", b.same_conv("x", 3, 8)), *inputs, strides=[2, 2], pads=[1] * 4,
               group=groups)
    y = b.node("Mul", y, b.constant(1 / sizes.reshape(-1, 1, 1)))
    model = b.model(b.same_conv(y, outputs, 4, kernel=1), rank=4)
    x = rng.normal(size=(8, 3, 6, 6)).astype(np.float32)
    expected = outputs_of(model, x)
    np.testing.assert_allclose(outputs_of(prepare(model), x), expected, rtol=0, atol=1e-4 * np.abs(expected).max())
    found = outputs_of(quantized(model, x).model, x)
    assert 10 * np.log10((expected**2).sum() / ((found - expected)**2).sum()) > 28
    assert not host(compiled(model, tmp_path))
