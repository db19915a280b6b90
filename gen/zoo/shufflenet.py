"""ShuffleNetV2 (Ma et al., 2018)."""

from gen.zoo.builder import Builder, Tensor
from gen.zoo.network import Network

__all__ = ["NETWORKS"]

#: Channels and blocks of the three stages, each of which halves the image.
_STAGES = ((116, 4), (232, 8), (464, 4))


def _pointwise(b: Builder, x: Tensor, channels: int, *, name: str) -> Tensor:
    return b.relu(b.norm(b.conv(x, channels, 1, name=name)))


def _depthwise(b: Builder, x: Tensor, stride: int, *, name: str) -> Tensor:
    return b.norm(b.conv(x, x.channels, 3, stride=stride, groups=x.channels, name=name))


def _shuffled(b: Builder, left: Tensor, right: Tensor, *, name: str) -> Tensor:
    """The channels of both, in turns."""
    x = b.node("Concat", left, right, name=f"{name}.concat", axis=1)
    channels, height, width = x.sample.shape[1:]
    x = b.reshape(x, 2, channels // 2, height, width, name=f"{name}.halves")
    return b.reshape(b.transpose(x, 0, 2, 1, 3, 4, name=f"{name}.turns"), channels, height, width, name=f"{name}.out")


def _block(b: Builder, x: Tensor, channels: int, stride: int, *, name: str) -> Tensor:
    """With a stride both branches are of all channels, else one is of half of them and the other half stays."""
    half = channels // 2
    if stride > 1:
        left = _pointwise(b, _depthwise(b, x, stride, name=f"{name}.left.dw"), half, name=f"{name}.left.pw")
    else:
        left, x = (b.slice(x, start, start + half, 1, name=f"{name}.half{start // half}") for start in (0, half))
    y = _depthwise(b, _pointwise(b, x, half, name=f"{name}.pw1"), stride, name=f"{name}.dw")
    return _shuffled(b, left, _pointwise(b, y, half, name=f"{name}.pw2"), name=name)


def _shufflenet(b: Builder, image: Tensor, classes: int) -> None:
    x = b.relu(b.norm(b.conv(image, 24, 3, stride=2, name="conv1")))
    x = b.max_pool(x, 3, pad=1, name="pool")
    for stage, (channels, count) in enumerate(_STAGES, start=2):
        for number in range(count):
            x = _block(b, x, channels, 1 if number else 2, name=f"s{stage}.{number}")
    b.classify(_pointwise(b, x, 1024, name="conv5"), classes)


NETWORKS = (Network(name="shufflenetv2", title="ShuffleNetV2", layers=_shufflenet),)
