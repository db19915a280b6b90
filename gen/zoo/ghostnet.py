"""GhostNet (Han et al., 2020)."""

from gen.zoo.builder import Builder, Tensor
from gen.zoo.network import Network
from gen.zoo.squeeze import quarter, squeeze_excite

__all__ = ["NETWORKS"]

#: Kernel, channels in the middle and of the result, with squeeze and excitation or without, stride of each block.
_BLOCKS = (
    (3, 16, 16, False, 1), (3, 48, 24, False, 2), (3, 72, 24, False, 1), (5, 72, 40, True, 2), (5, 120, 40, True, 1),
    (3, 240, 80, False, 2), (3, 200, 80, False, 1), (3, 184, 80, False, 1), (3, 184, 80, False, 1),
    (3, 480, 112, True, 1), (3, 672, 112, True, 1), (5, 672, 160, True, 2), (5, 960, 160, False, 1),
    (5, 960, 160, True, 1), (5, 960, 160, False, 1), (5, 960, 160, True, 1))


def _ghost(b: Builder, x: Tensor, channels: int, *, name: str, active: bool = True) -> Tensor:
    """Half of the channels by a pointwise layer, the other half by a depthwise layer of those."""
    y = b.norm(b.conv(x, channels // 2, 1, name=f"{name}.pw"))
    y = b.relu(y) if active else y
    z = b.norm(b.conv(y, y.channels, 3, groups=y.channels, name=f"{name}.dw"))
    return b.node("Concat", y, b.relu(z) if active else z, name=f"{name}.concat", axis=1)


def _depthwise(b: Builder, x: Tensor, kernel: int, stride: int, *, name: str) -> Tensor:
    return b.norm(b.conv(x, x.channels, kernel, stride=stride, groups=x.channels, name=name))


def _block(b: Builder, x: Tensor, kernel: int, middle: int, channels: int, stride: int, *, excited: bool,
           name: str) -> Tensor:
    y = _ghost(b, x, middle, name=f"{name}.ghost1")
    if stride > 1:
        y = _depthwise(b, y, kernel, stride, name=f"{name}.dw")
    if excited:
        y = squeeze_excite(b, y, quarter(middle, 4), name=f"{name}.se", hard=True)
    y = _ghost(b, y, channels, name=f"{name}.ghost2", active=False)
    if (stride, channels) != (1, x.channels):
        x = _depthwise(b, x, kernel, stride, name=f"{name}.down.dw")
        x = b.norm(b.conv(x, channels, 1, name=f"{name}.down.pw"))
    return b.node("Add", y, x, name=f"{name}.add")


def _ghostnet(b: Builder, image: Tensor, classes: int) -> None:
    x = b.relu(b.norm(b.conv(image, 16, 3, stride=2, name="stem")))
    for number, (kernel, middle, channels, excited, stride) in enumerate(_BLOCKS):
        x = _block(b, x, kernel, middle, channels, stride, excited=excited, name=f"b{number}")
    x = b.relu(b.norm(b.conv(x, 960, 1, name="conv_last")))
    x = b.node("GlobalAveragePool", x, name="average")
    x = b.relu(b.biased_conv(x, 1280, 1, name="conv_head"))
    b.output(b.dense(x, classes, name="fc"))


NETWORKS = (Network(name="ghostnet", title="GhostNet", layers=_ghostnet, pictures=24),)
