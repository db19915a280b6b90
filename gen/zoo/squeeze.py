"""Squeeze and excitation (Hu et al., 2018)."""

from gen.zoo.builder import Builder, Tensor

__all__ = ["quarter", "squeeze_excite"]


def quarter(channels: int, step: int) -> int:
    """A fourth of ``channels``, to the nearest multiple of ``step`` that leaves out a tenth at the most."""
    nearest = (channels // 4 + step // 2) // step * step
    return nearest if 10 * nearest >= 9 * (channels // 4) else nearest + step


def squeeze_excite(b: Builder, x: Tensor, squeezed: int, *, name: str, hard: bool = False) -> Tensor:
    """``x`` times a factor for each channel, of the channels' averages by way of ``squeezed`` of them.

    ``hard``: the factors are of HardSigmoid, as mobile networks have it, not of Sigmoid.
    """
    y = b.node("GlobalAveragePool", x, name=f"{name}.average")
    y = b.relu(b.biased_conv(y, squeezed, 1, name=f"{name}.reduce"))
    y = b.biased_conv(y, x.channels, 1, name=f"{name}.expand")
    factors = (b.node("HardSigmoid", y, name=f"{name}.factors", alpha=1 / 6) if hard
               else b.node("Sigmoid", y, name=f"{name}.factors"))
    return b.node("Mul", x, factors, name=f"{name}.scaled")
