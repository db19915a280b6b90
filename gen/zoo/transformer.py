"""What transformers are made of: attention of tokens, and the layers between."""

from collections.abc import Callable

import numpy as np

from gen.zoo.builder import Builder, Tensor, floats

__all__ = ["attention", "mlp", "post_norm", "pre_norm", "with_token"]

#: Standard deviation of queries and keys, so that a token's scores choose a few others, and of what a branch adds. With
#: 1 for both, a dozen blocks of drawn weights would make all tokens of a picture the same.
_SHARP, _BRANCH = 1.6, 0.5


def attention(b: Builder, x: Tensor, heads: int, *, name: str, bias: bool = True) -> Tensor:
    """Vaswani et al. (2017), of tokens (N, T, C) with themselves; queries, keys and values are one layer."""
    tokens, channels = x.sample.shape[1:]
    size = channels // heads
    joined = b.linear(x, 3 * channels, bias=bias, spread=np.repeat([_SHARP, _SHARP, 1], channels), name=f"{name}.qkv")

    def part(number: int, kind: str, *axes: int) -> Tensor:
        """(N, heads, T, C / heads), or its last axes turned."""
        y = b.slice(joined, number * channels, (number + 1) * channels, 2, name=f"{name}.{kind}")
        y = b.reshape(y, tokens, heads, size, name=f"{name}.{kind}.heads")
        return b.transpose(y, *axes, name=f"{name}.{kind}.turned")

    query = b.node("Mul", part(0, "q", 0, 2, 1, 3), floats(size ** -0.5), name=f"{name}.q.scaled")
    scores = b.product(query, part(1, "k", 0, 2, 3, 1), name=f"{name}.scores")
    chances = b.node("Softmax", scores, name=f"{name}.chances", axis=-1)
    y = b.product(chances, part(2, "v", 0, 2, 1, 3), name=f"{name}.values")
    y = b.reshape(b.transpose(y, 0, 2, 1, 3, name=f"{name}.tokens"), tokens, channels, name=f"{name}.joined")
    return b.linear(y, channels, spread=_BRANCH, name=f"{name}.proj")


def mlp(b: Builder, x: Tensor, hidden: int, activation: Callable[[Tensor], Tensor], *, name: str) -> Tensor:
    """Two layers of each token."""
    return b.linear(activation(b.linear(x, hidden, name=f"{name}.fc1")), x.channels, spread=_BRANCH, name=f"{name}.fc2")


def pre_norm(b: Builder, x: Tensor, *, heads: int, hidden: int, activation: Callable[[Tensor], Tensor], name: str,
             epsilon: float = 1e-6) -> Tensor:
    """A block that normalises what its two branches read."""
    y = attention(b, b.layer_norm(x, epsilon=epsilon, name=f"{name}.norm1"), heads, name=f"{name}.attn")
    x = b.node("Add", x, y, name=f"{name}.add1")
    y = mlp(b, b.layer_norm(x, epsilon=epsilon, name=f"{name}.norm2"), hidden, activation, name=f"{name}.mlp")
    return b.node("Add", x, y, name=f"{name}.add2")


def post_norm(b: Builder, x: Tensor, *, heads: int, hidden: int, activation: Callable[[Tensor], Tensor], name: str,
              epsilon: float = 1e-6) -> Tensor:
    """A block that normalises its sums; queries, keys and values have no bias."""
    y = attention(b, x, heads, bias=False, name=f"{name}.attn")
    x = b.layer_norm(b.node("Add", x, y, name=f"{name}.add1"), epsilon=epsilon, name=f"{name}.norm1")
    y = mlp(b, x, hidden, activation, name=f"{name}.mlp")
    return b.layer_norm(b.node("Add", x, y, name=f"{name}.add2"), epsilon=epsilon, name=f"{name}.norm2")


def with_token(b: Builder, x: Tensor) -> Tensor:
    """Tokens after a learnt one, whose result will stand for all of them, and learnt positions added."""
    tokens, channels = x.sample.shape[1:]
    x = b.prepend(x, b.embedding(1, 1, channels), name="token")
    return b.node("Add", x, b.embedding(1, tokens + 1, channels), name="position")
