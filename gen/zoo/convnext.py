"""ConvNeXt-Atto (Liu et al., 2022; its smallest sizes are Wightman's)."""

from gen.zoo.builder import Builder, Tensor
from gen.zoo.network import Network

__all__ = ["NETWORKS", "convnext_block"]

#: Channels and blocks of the four stages.
_STAGES = ((40, 2), (80, 2), (160, 6), (320, 2))


def _norm(b: Builder, x: Tensor, *, name: str) -> Tensor:
    """A layer norm of each pixel."""
    y = b.layer_norm(b.transpose(x, 0, 2, 3, 1, name=f"{name}.last"), name=name)
    return b.transpose(y, 0, 3, 1, 2, name=f"{name}.first")


def convnext_block(b: Builder, x: Tensor, *, name: str) -> Tensor:
    channels = x.channels
    y = b.biased_conv(x, channels, 7, groups=channels, name=f"{name}.dw")
    y = b.gelu(b.biased_conv(_norm(b, y, name=f"{name}.norm"), 4 * channels, 1, name=f"{name}.fc1"))
    y = b.biased_conv(y, channels, 1, name=f"{name}.fc2")
    y = b.node("Mul", y, b.gains(channels, 1, 1), name=f"{name}.scale")
    return b.node("Add", x, y, name=f"{name}.add")


def _convnext(b: Builder, image: Tensor, classes: int) -> None:
    x = image
    for stage, (channels, blocks) in enumerate(_STAGES):
        if stage:
            x = b.biased_conv(_norm(b, x, name=f"s{stage}.norm"), channels, 2, stride=2, pad=0, name=f"s{stage}.down")
        else:
            x = _norm(b, b.biased_conv(x, channels, 4, stride=4, pad=0, name="stem"), name="stem.norm")
        for number in range(blocks):
            x = convnext_block(b, x, name=f"s{stage}.{number}")
    x = b.node("Flatten", b.node("GlobalAveragePool", x, name="average"), name="average.flat")
    b.output(b.dense(b.layer_norm(x, name="norm"), classes, name="head"))


NETWORKS = (Network(name="convnext-atto", title="ConvNeXt-Atto", layers=_convnext, step=32),)
