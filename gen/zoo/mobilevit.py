"""MobileViT-XXS (Mehta and Rastegari, 2021)."""

from gen.zoo.builder import Builder, Tensor
from gen.zoo.network import Network
from gen.zoo.transformer import pre_norm

__all__ = ["NETWORKS", "transformer"]

_EXPANSION, _HEADS, _PATCH = 2, 4, 2
#: Output channels and strides of the inverted residuals of a stage, then channels and number of its transformer blocks.
_STAGES = (
    (16, (1,), 0, 0), (24, (2, 1, 1), 0, 0), (48, (2,), 64, 2), (64, (2,), 80, 4), (80, (2,), 96, 3),
)


def _layer(b: Builder, x: Tensor, channels: int, kernel: int, *, name: str, stride: int = 1, groups: int = 1) -> Tensor:
    return b.silu(b.norm(b.conv(x, channels, kernel, stride=stride, groups=groups, name=name)))


def _inverted(b: Builder, x: Tensor, channels: int, *, stride: int, name: str) -> Tensor:
    wide = x.channels * _EXPANSION
    y = _layer(b, x, wide, 1, name=f"{name}.exp")
    y = _layer(b, y, wide, 3, stride=stride, groups=wide, name=f"{name}.dw")
    y = b.norm(b.conv(y, channels, 1, name=f"{name}.proj"))
    return b.node("Add", y, x, name=f"{name}.add") if (stride, channels) == (1, x.channels) else y


def _unfold(b: Builder, x: Tensor, *, name: str) -> Tensor:
    """(N * 4, T, C): pixels at the same place of all patches are tokens of one sequence."""
    channels, height, width = x.sample.shape[1:]
    area = _PATCH ** 2
    x = b.reshape(x, _PATCH, width // _PATCH, _PATCH, name=f"{name}.rows")
    x = b.transpose(x, 0, 2, 1, 3, name=f"{name}.patches")
    x = b.reshape(x, channels, height * width // area, area, name=f"{name}.places")
    x = b.transpose(x, 0, 3, 2, 1, name=f"{name}.turned")
    return b.reshape(x, height * width // area, channels, name=f"{name}.tokens")


def _fold(b: Builder, x: Tensor, height: int, width: int, *, name: str) -> Tensor:
    """What `_unfold` was given."""
    tokens, channels = x.sample.shape[1:]
    x = b.reshape(x, _PATCH ** 2, tokens, channels, name=f"{name}.places")
    x = b.transpose(x, 0, 3, 2, 1, name=f"{name}.turned")
    x = b.reshape(x, width // _PATCH, _PATCH, _PATCH, name=f"{name}.patches")
    x = b.transpose(x, 0, 2, 1, 3, name=f"{name}.rows")
    return b.reshape(x, channels, height, width, name=f"{name}.pixels")


def transformer(b: Builder, x: Tensor, channels: int, count: int, *, name: str) -> Tensor:
    """Transformer blocks of ``channels`` between convolutions."""
    y = _layer(b, x, x.channels, 3, name=f"{name}.local")
    y = b.conv(y, channels, 1, name=f"{name}.in")
    height, width = y.sample.shape[2:]
    y = _unfold(b, y, name=f"{name}.unfold")
    for number in range(count):
        y = pre_norm(b, y, heads=_HEADS, hidden=2 * channels, activation=b.silu, epsilon=1e-5, name=f"{name}.{number}")
    y = _fold(b, b.layer_norm(y, epsilon=1e-5, name=f"{name}.norm"), height, width, name=f"{name}.fold")
    y = _layer(b, y, x.channels, 1, name=f"{name}.out")
    return _layer(b, b.node("Concat", x, y, name=f"{name}.concat", axis=1), x.channels, 3, name=f"{name}.fusion")


def _mobilevit(b: Builder, image: Tensor, classes: int) -> None:
    x = _layer(b, image, 16, 3, stride=2, name="conv0")
    for stage, (channels, strides, wide, blocks) in enumerate(_STAGES):
        for number, stride in enumerate(strides):
            x = _inverted(b, x, channels, stride=stride, name=f"s{stage}.{number}")
        if blocks:
            x = transformer(b, x, wide, blocks, name=f"s{stage}.vit")
    b.classify(_layer(b, x, 4 * x.channels, 1, name="conv_last"), classes)


#: Of the smallest maps, too, patches are whole.
NETWORKS = (Network(name="mobilevit-xxs", title="MobileViT-XXS", layers=_mobilevit, size=(256, 256), least=64,
                    step=64),)
