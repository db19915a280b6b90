"""Random quantised transformers: RandomModel's calibration, around tokens in place of images."""

from math import sqrt

import numpy as np

from tests.gen.random_models import RandomModel

__all__ = ["RandomTransformer"]

#: Channels of a head, and tokens: no block, no set of lanes has them whole, but for some.
_SIZES, _TOKENS = (4, 7, 16, 20, 24, 32), (3, 5, 16, 17, 33, 49, 197)


class RandomTransformer(RandomModel):
    """One or two steps, each attention, of all tokens or of parts of them, or a perceptron: with or without
    normalisations (before or after), residuals, masks and position embeddings. Tokens are an input, or the pixels of
    one, often of a convolution; at the end there is sometimes their mean.
    """

    def __init__(self, rng: np.random.Generator, *, largest: int = 197, widest: int = 64, windows: bool = True) -> None:
        """``largest``: tokens; ``widest``: channels of all heads; ``windows``: of parts of the tokens, too."""
        self.largest, self.widest, self.windows, self.parts = largest, widest, windows, 1
        super().__init__(rng, opset=23)

    def make(self) -> None:
        self.size = int(self.rng.choice([size for size in _SIZES if size <= self.widest]))
        self.heads = self.between(1, min(3, self.widest // self.size))
        self.width = self.heads * self.size
        x = self.tokens_of_pixels() if self.chance(0.5) else self.tokens_of_input()
        if self.chance(0.5):
            x = self.quantised(self.apply("Add", x, self.map(0.5, self.tokens, self.width)))
        for _ in range(self.between(1, 2)):
            x = self.step(x)
        if self.chance(0.4):
            x = self.quantised(self.apply("ReduceMean", x, self.constant([1]), keepdims=0))
            x = self.linear(x, self.between(2, 12))
        self.output(x, np.float32, rank=self.values[x].ndim)

    def map(self, spread: float, *shape: int) -> str:
        """Random numbers, with an axis of samples or without."""
        return self.number32(spread, (1, *shape) if self.chance(0.5) else shape)

    def tokens_of_input(self) -> str:
        self.tokens = int(self.rng.choice([number for number in _TOKENS if number <= self.largest]))
        return self.linear(self.entrance(self.tokens, self.between(3, 24)), self.width)

    def tokens_of_pixels(self) -> str:
        """Pixels of patches, or of a convolution; they become rows of their own."""
        height, width = self.between(2, 4), self.between(2, max(2, min(12, self.largest // 4)))
        self.tokens, side = height * width, self.between(1, 2)
        x = self.entrance(3, height * side, width * side)
        if self.chance(0.5):
            x = self.convolution(x)
            height, width = self.values[x].shape[2:]
            self.tokens, side = height * width, 1
        weights = self.weights(self.width, self.values[x].shape[1], side, side, per_channel=self.chance(0.5))
        x = self.quantised(self.apply("Conv", x, weights, self.number32(0.3, (self.width,)), strides=[side] * 2))
        return self.apply("Transpose", self.shaped(x, self.width, self.tokens), perm=[0, 2, 1])

    def shaped(self, x: str, *shape: int) -> str:
        return self.apply("Reshape", x, self.constant(np.array([-1, *shape])))

    def linear(self, x: str, channels: int) -> str:
        made = self.apply("MatMul", x, self.weights(self.values[x].shape[-1], channels, axis=1))
        if self.chance(0.7):
            made = self.apply("Add", *self.rng.permutation([made, self.number32(0.3, (channels,))]).tolist())
        return self.quantised(made)

    def normalised(self, x: str) -> str:
        channels = self.values[x].shape[-1]
        numbers = [self.constant(self.rng.uniform(0.3, 2, channels).astype(np.float32))]
        op = self.rng.choice(["LayerNormalization", "RMSNormalization"])
        if op == "LayerNormalization" and self.chance(0.7):
            numbers.append(self.number32(0.3, (channels,)))
        return self.quantised(self.apply(op, x, *numbers, epsilon=float(self.rng.choice([1e-5, 1e-6]))))

    def step(self, x: str) -> str:
        """Attention or a perceptron."""
        before, after, added = self.chance(0.5), self.chance(0.3), self.chance(0.7)
        y = self.normalised(x) if before else x
        if not self.chance(0.7):
            y = self.perceptron(y)
        else:
            y = self.attention_of_parts(y) if self.windows and self.chance(0.5) else self.attention(y)
        y = self.quantised(self.apply("Add", *self.rng.permutation([x, y]).tolist())) if added else y
        return self.normalised(y) if after else y

    def perceptron(self, x: str) -> str:
        y = self.linear(x, self.between(4, self.widest))
        y = self.quantised(self.apply("Gelu", y, approximate=str(self.rng.choice(["none", "tanh"]))))
        return self.linear(y, self.width)

    def attention_of_parts(self, x: str) -> str:
        """Of neighbours, of every so many, or shifted in a circle: each with its own."""
        tokens, parts = self.tokens, [n for n in range(2, 9) if self.tokens % n == 0]
        if not parts:
            return self.attention(x)
        self.parts = int(self.rng.choice(parts))
        self.tokens //= self.parts
        apart, shift = self.chance(0.5), self.between(1, tokens - 1) if self.chance(0.5) else 0
        size = (self.tokens, self.parts) if apart else (self.parts, self.tokens)
        y = self.shaped(self.rolled(x, shift), *size, self.width)
        y = self.apply("Transpose", y, perm=[0, 2, 1, 3]) if apart else y
        y = self.shaped(self.attention(self.shaped(y, self.tokens, self.width)), self.parts, self.tokens, self.width)
        y = self.shaped(self.apply("Transpose", y, perm=[0, 2, 1, 3]) if apart else y, tokens, self.width)
        y, self.tokens, self.parts = self.rolled(y, tokens - shift if shift else 0), tokens, 1
        return y

    def rolled(self, x: str, shift: int) -> str:
        """Tokens from the one at ``shift`` on, then those before."""
        ends = (shift, self.values[x].shape[1]), (0, shift)
        parts = [self.apply("Slice", x, *(self.constant(np.array([n])) for n in (*one, 1))) for one in ends if shift]
        return self.apply("Concat", *parts, axis=1) if shift else x

    def attention(self, x: str) -> str:
        query, key, value = self.packed(x) if self.chance(0.4) else self.apart(x)
        if scaled := self.chance(0.5):
            query = self.quantised(self.apply("Mul", query, self.constant(np.float32(1 / sqrt(self.size)))))
        scores = self.quantised(self.apply("MatMul", query, key))
        if not scaled:
            scores = self.quantised(self.apply("Div", scores, self.constant(np.float32(sqrt(self.size)))))
        if self.chance(0.4):
            scores = self.quantised(self.apply("Add", scores, self.mask(float(abs(self.values[scores]).max()))))
        if self.parts > 1 and self.chance(0.4):
            inner = self.heads, self.tokens, self.tokens
            mask = self.number32(2, (self.parts, 1, *inner[1:]))
            masked = self.quantised(self.apply("Add", self.shaped(scores, self.parts, *inner), mask))
            scores = self.shaped(masked, *inner)
        shares = self.quantised(self.apply("Softmax", scores, axis=-1))
        mixed = self.apply("Transpose", self.quantised(self.apply("MatMul", shares, value)), perm=[0, 2, 1, 3])
        return self.linear(self.shaped(mixed, self.tokens, self.width), self.width)

    def mask(self, largest: float) -> str:
        """Of keys to come, or of some; numbers are as low as keeps steps small."""
        shape = (self.tokens, self.tokens)
        taken = np.tri(*shape, dtype=bool) if self.chance(0.5) else self.rng.random(shape) < 0.8
        values = np.where(taken, 0, np.float32(-2 * largest)).astype(np.float32)
        return self.constant(values[(None,) * self.between(0, 2)])

    def apart(self, x: str) -> tuple[str, str, str]:
        """Three layers; queries and values (N, heads, tokens, size), keys (N, heads, size, tokens)."""
        made = [self.shaped(self.linear(x, self.width), self.tokens, self.heads, self.size) for _ in range(3)]
        query, key, value = (self.apply("Transpose", y, perm=perm) for y, perm in zip(
            made, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True))
        return query, key, value

    def packed(self, x: str) -> tuple[str, str, str]:
        """The same of one layer."""
        y = self.shaped(self.linear(x, 3 * self.width), self.tokens, 3, self.heads, self.size)
        y = self.apply("Transpose", y, perm=[2, 0, 3, 1, 4])
        query, key, value = (self.apply("Gather", y, self.constant(np.int64(number)), axis=0) for number in range(3))
        return query, self.apply("Transpose", key, perm=[0, 1, 3, 2]), value
