"""Transformers of tokens alone: ViT-Tiny, DeiT-Tiny, and KWT-1 for keywords."""

from functools import partial

import numpy as np

from gen.zoo.builder import Builder, Tensor, floats
from gen.zoo.network import Network
from gen.zoo.transformer import post_norm, pre_norm, with_token

__all__ = ["NETWORKS"]

#: Of ViT-Tiny and DeiT-Tiny.
_PATCH, _CHANNELS, _HEADS, _BLOCKS = 16, 192, 3, 12


def _patches(b: Builder, image: Tensor) -> Tensor:
    """Tokens (N, T, C) of an image's patches."""
    x = b.biased_conv(image, _CHANNELS, _PATCH, stride=_PATCH, pad=0, name="patches")
    tokens = b.reshape(x, _CHANNELS, x.sample[0, 0].size, name="patches.joined")
    return b.transpose(tokens, 0, 2, 1, name="tokens")


def _positions(height: int, width: int) -> np.ndarray:
    """(1, height * width, channels): sines and cosines of x and of y, a quarter each."""
    frequencies = 10_000.0 ** -np.linspace(0, 1, _CHANNELS // 4)
    y, x = (axis.reshape(-1, 1) * frequencies for axis in np.mgrid[:height, :width])
    return floats(np.concatenate([np.sin(x), np.cos(x), np.sin(y), np.cos(y)], axis=1)[None])


def _blocks(b: Builder, x: Tensor) -> Tensor:
    for number in range(_BLOCKS):
        x = pre_norm(b, x, heads=_HEADS, hidden=4 * _CHANNELS, activation=b.gelu, name=f"b{number}")
    return b.layer_norm(x, name="norm")


def _vit(b: Builder, image: Tensor, classes: int) -> None:
    """Dosovitskiy et al. (2020), simplified by Beyer et al. (2022): positions are fixed, the mean of tokens is classed.
    """
    height, width = image.sample.shape[2:]
    x = b.node("Add", _patches(b, image), _positions(height // _PATCH, width // _PATCH), name="position")
    x = _blocks(b, x)
    b.output(b.dense(b.node("ReduceMean", x, name="mean", axes=[1], keepdims=0), classes, name="head"))


def _first(b: Builder, x: Tensor, classes: int) -> None:
    """Scores of the first token."""
    b.output(b.dense(b.node("Gather", x, np.array(0), name="first", axis=1), classes, name="head"))


def _deit(b: Builder, image: Tensor, classes: int) -> None:
    """Touvron et al. (2020), without the token to distil by."""
    _first(b, _blocks(b, with_token(b, _patches(b, image))), classes)


def _kwt1(b: Builder, image: Tensor, classes: int) -> None:
    """Berg et al. (2021): a token for each moment, of all its frequencies."""
    x = b.reshape(image, *image.sample.shape[2:], name="moments")
    x = with_token(b, b.linear(x, 64, name="embed"))
    for number in range(12):
        x = post_norm(b, x, heads=1, hidden=256, activation=b.gelu, name=f"b{number}")
    _first(b, x, classes)


#: The scores of attention grow with the square of the tokens.
_network = partial(Network, step=_PATCH, largest=512)

NETWORKS = (
    _network(name="vit-tiny", title="ViT-Tiny, mean of its tokens", layers=_vit),
    _network(name="deit-tiny", title="DeiT-Tiny", layers=_deit),
    Network(name="kwt-1", title="KWT-1", layers=_kwt1, size=(98, 40), least=8, largest=512, channels=1, classes=12),
)
