"""The golden layers against loops over Python integers, and the rounding rule at its corners."""

from math import floor

import numpy as np
import pytest

from cores.arch.numerics import MAX_SHIFT, MIN_SHIFT, MULTIPLIER_BITS
from gen.ir.epilogue.add import Add
from gen.ir.epilogue.base import StoreOp
from gen.ir.epilogue.leaky import Leaky
from gen.ir.epilogue.table import Table
from gen.ir.epilogue.upsample import Upsample
from gen.ir.graph import Conv, Pool
from gen.ir.tensor import Requantize, Tensor
from sim import golden
from sim.golden import (
    conv2d_accumulate,
    pool_accumulate,
    quantize_multiplier,
    quantize_product,
    quantize_residual,
    requantize,
    run_layer,
    run_stages,
)
from sim.store_operations import leaky, look_up, product, residual_add
from sim.table import pack_table, unpack_table

Rng = np.random.Generator


def padded(x: np.ndarray, pads: tuple[int, int, int, int], value: int) -> np.ndarray:
    top, left, bottom, right = pads
    return np.pad(x, [(0, 0), (top, bottom), (left, right)], constant_values=value)


def slow_conv(x, weights, depthwise, stride, pads, pad_value) -> np.ndarray:
    """The definition, an output at a time."""
    x, weights = padded(x, pads, pad_value).astype(object), weights.astype(object)
    oc, _, kh, kw = weights.shape
    height, width = (x.shape[1] - kh) // stride[0] + 1, (x.shape[2] - kw) // stride[1] + 1
    acc = np.zeros((oc, height, width), np.int64)
    for o, r, c in np.ndindex(acc.shape):
        window = x[:, r * stride[0]:r * stride[0] + kh, c * stride[1]:c * stride[1] + kw]
        acc[o, r, c] = (window[o] * weights[o, 0]).sum() if depthwise else (window * weights[o]).sum()
    return acc


@pytest.mark.parametrize("unfolded", [True, False])
@pytest.mark.parametrize("depthwise", [True, False])
@pytest.mark.parametrize(("kernel", "stride", "pads"), [
    ((1, 1), (1, 1), (0, 0, 0, 0)), ((3, 3), (1, 1), (1, 1, 1, 1)), ((3, 3), (2, 2), (0, 0, 1, 1)),
    ((2, 5), (3, 2), (1, 0, 2, 3)), ((7, 6), (1, 1), (0, 0, 0, 0)),
])
def test_convolution(kernel: tuple, stride: tuple, pads: tuple, depthwise: bool, unfolded: bool, rng: Rng,
                     monkeypatch: pytest.MonkeyPatch) -> None:
    if not unfolded:
        monkeypatch.setattr(golden, "_UNFOLDED_ELEMENTS", 0)
    x = rng.integers(-128, 128, (2, 5, 7, 6)).astype(np.int8)
    weights = rng.integers(-255, 256, (5, 1, *kernel) if depthwise else (4, 5, *kernel)).astype(np.int16)
    monkeypatch.setattr(golden, "_FLOAT_WEIGHTS", 3 * weights[0].size)      # three rows, and then the fourth
    pad_value = int(rng.integers(-128, 128))
    acc = conv2d_accumulate(x, weights, depthwise, stride, pads, pad_value)
    assert acc.dtype == np.int64
    for sample in range(2):
        assert np.array_equal(acc[sample], slow_conv(x[sample], weights, depthwise, stride, pads, pad_value))
    assert np.array_equal(acc[1], conv2d_accumulate(x[1], weights, depthwise, stride, pads, pad_value))


@pytest.mark.parametrize("channels", [500, 515, 520, 4096])
@pytest.mark.parametrize("unfolded", [True, False])
def test_large_sums_are_exact(channels: int, unfolded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Around 2**24, where float32 would start to lose units."""
    if not unfolded:
        monkeypatch.setattr(golden, "_UNFOLDED_ELEMENTS", 0)
    x = np.full((channels, 1, 2), -128, np.int8)
    x[0, 0, 1] = -127
    weights = np.full((1, channels, 1, 1), 255, np.int16)
    weights[0, 0] = -1
    total = -128 * 255 * (channels - 1)
    assert conv2d_accumulate(x, weights, False, (1, 1), (0, 0, 0, 0), 0).ravel().tolist() == [total + 128, total + 127]


@pytest.mark.parametrize("maximum", [True, False])
@pytest.mark.parametrize(("kernel", "stride", "pads"), [
    ((1, 1), (1, 1), (0, 0, 0, 0)), ((2, 2), (2, 2), (0, 0, 0, 0)), ((3, 2), (2, 3), (1, 0, 1, 1))])
def test_pool(kernel: tuple, stride: tuple, pads: tuple, maximum: bool, rng: Rng) -> None:
    x = rng.integers(-128, 128, (3, 5, 7, 6)).astype(np.int8)
    acc = pool_accumulate(x, maximum, kernel, stride, pads, -100)
    for sample, channel, row, column in np.ndindex(acc.shape):
        plane = padded(x[sample], pads, -100)[channel].astype(int)
        window = plane[row * stride[0]:row * stride[0] + kernel[0], column * stride[1]:column * stride[1] + kernel[1]]
        assert acc[sample, channel, row, column] == (window.max() if maximum else window.sum())


def test_requantise_corners(rng: Rng) -> None:
    acc = np.concatenate([[-(2**31), 2**31 - 1, 0, 1, -1], rng.integers(-(2**26), 2**26, 500)]).reshape(1, 1, -1)
    for multiplier in (0, 1, 2**16, 2**17 - 1):
        for shift in (MIN_SHIFT, 16, 30, MAX_SHIFT):
            for bias in (-(2**31), 0, 12345, 2**31 - 1):
                ours = requantize(acc, [bias], [multiplier], [shift], 7, -100, 99)
                wanted = [min(max(floor((int(a) + bias) * multiplier / 2**shift + 0.5)
                                  if abs((int(a) + bias) * multiplier) < 2**52 else
                                  ((int(a) + bias) * multiplier + 2 ** (shift - 1)) // 2**shift, -107), 92) + 7
                          for a in acc.ravel()]
                assert ours.ravel().tolist() == wanted


def test_halves_go_up() -> None:
    acc = np.array([-3, -1, 1, 3]).reshape(1, 1, -1) << 15
    assert requantize(acc, [0], [1], [16], 0, -128, 127).ravel().tolist() == [-1, 0, 1, 2]


def test_single_rounding() -> None:
    """Rounding twice, as some runtimes do, would give 12."""
    multiplier, shift = quantize_multiplier(np.array([1583594044 / 2**31 * 2.0**-9]))
    assert requantize(np.full((1, 1, 1), 7984), [0], multiplier, shift, 0, -128, 127) == 11


def test_channels_have_their_own_parameters() -> None:
    acc = np.full((2, 3, 1, 1), 1 << 16)
    y = requantize(acc, [0, 1 << 16, 0], [1, 1, 3], [16, 16, 16], 0, -128, 127)
    assert y[:, :, 0, 0].tolist() == [[1, 2, 3]] * 2


def test_multipliers_are_normalised(rng: Rng) -> None:
    scale = np.exp(rng.uniform(np.log(2.0**-25), np.log(31), 2000))
    multiplier, shift = quantize_multiplier(scale)
    assert ((multiplier >= 1 << MULTIPLIER_BITS - 1) & (multiplier < 1 << MULTIPLIER_BITS)).all()
    assert ((shift >= MIN_SHIFT) & (shift <= MAX_SHIFT)).all()
    assert np.abs(multiplier / 2.0**shift / scale - 1).max() <= 2.0**-MULTIPLIER_BITS


def test_multiplier_that_rounds_up_to_the_next_power() -> None:
    multiplier, shift = quantize_multiplier(np.array([1 - 2.0**-30]))
    assert (multiplier[0], shift[0]) == (1 << 16, 16)


def test_smallest_multipliers() -> None:
    multiplier, shift = quantize_multiplier(np.array([2.0**-40, 2.0**-60]))
    assert multiplier.tolist() == [8, 0] and shift.tolist() == [MAX_SHIFT] * 2


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf, 32.0, 1e30])
def test_impossible_scales(scale: float) -> None:
    with pytest.raises(ValueError, match="scales must be"):
        quantize_multiplier(np.array([0.5, scale]))


@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (1.7, 0.01), (0.001, 20.0), (1e-9, 1.0)])
def test_residual_multipliers_share_a_shift(a: float, b: float) -> None:
    multiplier_a, multiplier_b, shift = quantize_residual(a, b)
    assert max(multiplier_a, multiplier_b) < 1 << MULTIPLIER_BITS and MIN_SHIFT <= shift <= MAX_SHIFT
    assert abs(multiplier_a - a * 2**shift) <= 0.5 and abs(multiplier_b - b * 2**shift) <= 0.5


def test_residual_add(rng: Rng) -> None:
    a, b = rng.integers(-128, 128, (2, 4, 5, 6)).astype(np.int8)
    y = residual_add(a, b, 70000, 131071, -1234567, 18, -4, -90, 100)
    for i in np.ndindex(a.shape):
        exact = floor((int(a[i]) * 70000 + int(b[i]) * 131071 - 1234567) / 2**18 + 0.5) - 4
        assert y[i] == min(max(exact, -90), 100)


def test_product(rng: Rng) -> None:
    """Against exact arithmetic, with a vector for all pixels; a real scale to 15 bits."""
    a, b = rng.integers(-256, 256, (3, 4, 5)), rng.integers(-128, 128, (3, 1, 1)).astype(np.int8)
    y = product(a, b, 20000, 20000 * -128, 20, 7, -100, 110)
    for i in np.ndindex(a.shape):
        exact = floor(int(a[i]) * (int(b[i[0], 0, 0]) + 128) * 20000 / 2**20 + 0.5) + 7
        assert y[i] == min(max(exact, -100), 110)
    for scale in (7.99, 1.0, 1 / 256, 0.0123, 1e-9):
        multiplier, shift = quantize_product(scale)
        assert multiplier < 1 << 15 and 12 <= shift <= 43
        assert multiplier / 2**shift == pytest.approx(scale, rel=2**-15, abs=2**-44)
    for scale in (0, -1, 8, np.inf, np.nan):
        with pytest.raises(ValueError, match="scales of products must be above 0 and below 8"):
            quantize_product(scale)


FIRST = Requantize(np.array([10, 20]), np.array([1, 2]), np.array([12, 12]), 3, -50, 60)


def layer(epilogue: tuple[StoreOp, ...] = ()) -> Pool:
    return Pool("l", "x", "y", maximum=False, pads=(1, 0, 0, 0), pad_value=9, requantize=FIRST, epilogue=epilogue)


#: What an operation is applied to, where it does not matter.
MIDDLE = Tensor("middle", (2, 4, 3), 1.0, 0)


def test_stages(rng: Rng) -> None:
    x = rng.integers(-128, 128, (2, 3, 3)).astype(np.int8)
    second = Add(middle=MIDDLE, other="o", multiplier_a=1 << 14, multiplier_b=1 << 15, constant=77, shift=15,
                 zero_point=1, low=-9, high=9)
    other = rng.integers(-128, 128, (2, 4, 3)).astype(np.int8)
    middle, y = run_stages(layer(epilogue=(second,)), x, [other])
    assert np.array_equal(middle, run_layer(layer(), x))
    assert np.array_equal(y, residual_add(middle, other, 1 << 14, 1 << 15, 77, 15, 1, -9, 9))


def test_look_up(rng: Rng) -> None:
    table = rng.integers(-128, 128, 256).astype(np.int8)
    x = np.array([-128, -1, 0, 127], np.int8)
    assert look_up(x, table).tolist() == [table[0], table[127], table[128], table[255]]
    beats = pack_table(table, 16)
    assert beats.shape == (16, 16) and np.array_equal(unpack_table(beats), table)
    assert beats.reshape(-1)[x.view(np.uint8)].view(np.int8).tolist() == look_up(x, table).tolist()
    middle, y = run_stages(layer(epilogue=(Table(MIDDLE, table),)), x.reshape(1, 2, 2))
    assert np.array_equal(y, table[middle.astype(int) + 128])


def test_leaky(rng: Rng) -> None:
    a = np.append(rng.integers(-255, 256, 60), [0, -1, 1, -255, 255])
    y = leaky(a, 70000, 131071, 17, -4, -90, 100)
    for value, found in zip(a.tolist(), y.tolist(), strict=True):
        exact = floor(value * (131071 if value < 0 else 70000) / 2**17 + 0.5) - 4
        assert found == min(max(exact, -90), 100)


def test_a_leaky_stage_counts_from_its_zero_point(rng: Rng) -> None:
    x = rng.integers(-128, 128, (2, 3, 3)).astype(np.int8)
    last = Leaky(middle=MIDDLE, multiplier=1 << 14, negative=1 << 12, shift=14, zero_point=1, low=-100, high=100)
    middle, y = run_stages(layer(epilogue=(last,)), x)
    assert np.array_equal(middle, run_layer(layer(), x))
    above = middle.astype(int) - 3
    assert np.array_equal(y, np.where(above < 0, np.floor(above / 4 + 0.5), above) + 1)


def test_upsampled_in_front_of_the_addition(rng: Rng) -> None:
    x = rng.integers(-128, 128, (2, 3, 3)).astype(np.int8)
    second = Add(middle=MIDDLE, other="o", multiplier_a=1 << 14, multiplier_b=1 << 14, constant=0, shift=14,
                 zero_point=0, low=-128, high=127)
    other = rng.integers(-128, 128, (2, 8, 9)).astype(np.int8)
    _, middle, y = run_stages(layer(epilogue=(Upsample((2, 3)), second)), x, [other])
    small = run_layer(layer(), x)
    for channel, row, col in np.ndindex(y.shape):
        assert middle[channel, row, col] == small[channel, row // 2, col // 3]
    assert np.array_equal(y, np.clip(middle.astype(int) + other, -128, 127))


def test_convolution_pads_with_the_zero_point(rng: Rng) -> None:
    x = np.zeros((1, 2, 2), np.int8)
    conv = Conv("l", "x", "y", weights=np.full((2, 1, 1, 1), 1 << 7, np.int16), pads=(1, 0, 0, 0), requantize=FIRST)
    y = run_layer(conv, x, zero_point=64)
    assert y[1].tolist() == [[7, 7], [3, 3], [3, 3]]


@pytest.mark.parametrize("given", [0, 2])
def test_other_tensors_missing_or_not_wanted(given: int) -> None:
    x = np.zeros((2, 3, 3), np.int8)
    added = Add(middle=MIDDLE, other="o", multiplier_a=1, multiplier_b=1, constant=0, shift=12, zero_point=0, low=0,
                high=0)
    with pytest.raises(ValueError, match=f"layer l: reads 1 tensors beside its input, not {given}"):
        run_layer(layer(epilogue=(added,)), x, [x] * given)
