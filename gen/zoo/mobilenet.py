"""MobileNets of three versions, and EfficientNet-Lite0."""

from gen.zoo.builder import Builder, Tensor
from gen.zoo.network import Network
from gen.zoo.squeeze import quarter, squeeze_excite

__all__ = ["NETWORKS", "inverted_layers", "separable_layers"]

#: Output channels and stride of MobileNetV1's depthwise and pointwise pairs.
_PAIRS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
#: Expansion, output channels, number and first stride of MobileNetV2's blocks.
_BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

#: MobileNetV3's blocks: kernel, channels in the middle and of the result, with squeeze and excitation or without, with
#: HardSwish or ReLU, stride.
_LARGE = (
    (3, 16, 16, False, False, 1), (3, 64, 24, False, False, 2), (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2), (5, 120, 40, True, False, 1), (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2), (3, 200, 80, False, True, 1), (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1), (3, 480, 112, True, True, 1), (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2), (5, 960, 160, True, True, 1), (5, 960, 160, True, True, 1))
#: Expansion, kernel, output channels, number and first stride of EfficientNet-Lite0's blocks.
_LITE = ((1, 3, 16, 1, 1), (6, 3, 24, 2, 2), (6, 5, 40, 2, 2), (6, 3, 80, 3, 2), (6, 5, 112, 3, 1), (6, 5, 192, 4, 2),
         (6, 3, 320, 1, 1))


def _layer(b: Builder, x: Tensor, channels: int, kernel: int, *, name: str, stride: int = 1, groups: int = 1) -> Tensor:
    return b.relu6(b.norm(b.conv(x, channels, kernel, stride=stride, groups=groups, name=name)))


def separable_layers(b: Builder, image: Tensor) -> list[Tensor]:
    """MobileNetV1 (Howard et al., 2017) without its head: the results of its 13 pairs."""
    x, results = _layer(b, image, 32, 3, stride=2, name="conv0"), []
    for number, (channels, stride) in enumerate(_PAIRS, start=1):
        x = _layer(b, x, x.channels, 3, stride=stride, groups=x.channels, name=f"dw{number}")
        x = _layer(b, x, channels, 1, name=f"pw{number}")
        results.append(x)
    return results


def _mobilenetv1(b: Builder, image: Tensor, classes: int) -> None:
    b.classify(separable_layers(b, image)[-1], classes)


def _inverted(b: Builder, x: Tensor, channels: int, *, expansion: int, stride: int, name: str,
              middles: list[Tensor], kernel: int = 3) -> Tensor:
    """A block that is wide in the middle, which is added to ``middles``; its result has no activation."""
    wide = x.channels * expansion
    y = _layer(b, x, wide, 1, name=f"{name}.exp") if expansion > 1 else x
    middles.append(y)
    y = _layer(b, y, wide, kernel, stride=stride, groups=wide, name=f"{name}.dw")
    y = b.norm(b.conv(y, channels, 1, name=f"{name}.proj"))
    return b.node("Add", y, x, name=f"{name}.add") if (stride, channels) == (1, x.channels) else y


def inverted_layers(b: Builder, image: Tensor) -> tuple[Tensor, list[Tensor]]:
    """MobileNetV2 (Sandler et al., 2018) without its head; and what its 17 blocks have before their depthwise layer."""
    x, middles = _layer(b, image, 32, 3, stride=2, name="conv0"), list[Tensor]()
    for stage, (expansion, channels, count, first) in enumerate(_BLOCKS):
        for number in range(count):
            x = _inverted(b, x, channels, expansion=expansion, stride=1 if number else first, name=f"b{stage}.{number}",
                          middles=middles)
    return _layer(b, x, 1280, 1, name="conv_last"), middles


def _mobilenetv2(b: Builder, image: Tensor, classes: int) -> None:
    b.classify(inverted_layers(b, image)[0], classes)


def _efficientnet_lite0(b: Builder, image: Tensor, classes: int) -> None:
    """EfficientNet-B0 (Tan and Le, 2019) without squeeze and excitation, with ReLU6."""
    x, middles = _layer(b, image, 32, 3, stride=2, name="stem"), list[Tensor]()
    for stage, (expansion, kernel, channels, count, first) in enumerate(_LITE):
        for number in range(count):
            x = _inverted(b, x, channels, expansion=expansion, stride=1 if number else first, name=f"b{stage}.{number}",
                          middles=middles, kernel=kernel)
    b.classify(_layer(b, x, 1280, 1, name="head"), classes)


def _mobilenetv3(b: Builder, image: Tensor, classes: int) -> None:
    """MobileNetV3-Large (Howard et al., 2019)."""
    x = b.hard_swish(b.norm(b.conv(image, 16, 3, stride=2, name="conv0")))
    for number, (kernel, middle, channels, excited, swish, stride) in enumerate(_LARGE):
        name, activation = f"b{number}", b.hard_swish if swish else b.relu
        y = activation(b.norm(b.conv(x, middle, 1, name=f"{name}.exp"))) if middle > x.channels else x
        y = activation(b.norm(b.conv(y, middle, kernel, stride=stride, groups=middle, name=f"{name}.dw")))
        if excited:
            y = squeeze_excite(b, y, quarter(middle, 8), name=f"{name}.se", hard=True)
        y = b.norm(b.conv(y, channels, 1, name=f"{name}.proj"))
        x = b.node("Add", y, x, name=f"{name}.add") if (stride, channels) == (1, x.channels) else y
    x = b.hard_swish(b.norm(b.conv(x, 960, 1, name="conv_last")))
    x = b.hard_swish(b.dense(b.node("GlobalAveragePool", x, name="average"), 1280, name="head"))
    b.output(b.dense(x, classes, name="fc"))


NETWORKS = (
    Network(name="mobilenetv1", title="MobileNetV1", layers=_mobilenetv1),
    Network(name="mobilenetv2", title="MobileNetV2", layers=_mobilenetv2),
    Network(name="mobilenetv3", title="MobileNetV3-Large", layers=_mobilenetv3, pictures=24),
    Network(name="efficientnet-lite0", title="EfficientNet-Lite0", layers=_efficientnet_lite0),
)
