"""RegNetY-400MF (Radosavovic et al., 2020): grouped convolutions of eight channels, squeeze and excitation."""

from gen.zoo.builder import Builder, Tensor
from gen.zoo.network import Network
from gen.zoo.squeeze import squeeze_excite

__all__ = ["NETWORKS"]

#: Channels and blocks of the four stages, each of which halves the image.
_STAGES = ((48, 1), (104, 3), (208, 6), (440, 6))
#: Channels of a group.
_WIDTH = 8


def _block(b: Builder, x: Tensor, channels: int, stride: int, *, name: str) -> Tensor:
    y = b.relu(b.norm(b.conv(x, channels, 1, name=f"{name}.conv1")))
    y = b.conv(y, channels, 3, stride=stride, groups=channels // _WIDTH, name=f"{name}.conv2")
    y = squeeze_excite(b, b.relu(b.norm(y)), round(x.channels / 4), name=f"{name}.se")
    y = b.norm(b.conv(y, channels, 1, name=f"{name}.conv3"))
    if (stride, channels) != (1, x.channels):
        x = b.norm(b.conv(x, channels, 1, stride=stride, name=f"{name}.down"))
    return b.relu(b.node("Add", x, y, name=f"{name}.add"))


def _regnety(b: Builder, image: Tensor, classes: int) -> None:
    x = b.relu(b.norm(b.conv(image, 32, 3, stride=2, name="stem")))
    for stage, (channels, count) in enumerate(_STAGES, start=1):
        for number in range(count):
            x = _block(b, x, channels, 1 if number else 2, name=f"s{stage}.{number}")
    b.classify(x, classes)


NETWORKS = (Network(name="regnety-400mf", title="RegNetY-400MF", layers=_regnety, pictures=24),)
