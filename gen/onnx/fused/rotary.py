"""Rotary embeddings, as ONNX and onnxruntime have them: products with cosines and sines, and a sum."""

import numpy as np

from gen.onnx.fused.spread import Fused, Spreads, UnsupportedError
from gen.onnx.model import MICROSOFT

__all__ = ["SPREADS"]


def rotary(fused: Fused) -> None:
    """Of (N, tokens, heads * channels) or (N, heads, tokens, channels), all of whose channels turn."""
    shape, attributes = fused.shape(fused.given(0)), fused.attributes
    if len(shape) not in (3, 4) or not all(shape[1:]):
        raise UnsupportedError("has an input of a shape that is not known; give the model's inputs fixed shapes")
    tokens = shape[-2]
    cosines, sines = _angles(fused, tokens)
    size = 2 * cosines.shape[-1]
    if (attributes.get("rotary_embedding_dim", 0) or size) != (shape[3] if len(shape) == 4 else size) or (
            len(shape) == 3 and shape[2] != size * (attributes.get("num_heads", 0) or shape[2] // size)):
        raise UnsupportedError("turns some of the channels of a head, with which it is not taken apart")
    if attributes.get("scale", 1.0) != 1.0 or attributes.get("is_packed_batching", 0):
        raise UnsupportedError("has a scale or packed samples, with which it is not taken apart")
    x, result = fused.given(0), fused.node.output[0]
    if len(shape) == 3:
        split = fused.constant(np.array([0, 0, -1, size]), "split_shape")
        x = fused.make("Transpose", fused.make("Reshape", x, split, what="split"), perm=[0, 2, 1, 3], what="heads")
    interleaved = bool(attributes.get("interleaved", 0))
    spread = [fused.constant(np.repeat(numbers, 2, -1) if interleaved else np.tile(numbers, 2), what)
              for numbers, what in ((cosines, "cosines"), (sines, "sines"))]
    turned = _pairs(fused, x) if interleaved else _halves(fused, x, size)
    sum_ = fused.make("Add", fused.make("Mul", x, spread[0], what="straight"),
                      fused.make("Mul", turned, spread[1], what="across"), what="sum",
                      result=result if len(shape) == 4 else "")
    if len(shape) == 3:
        joined = fused.make("Transpose", sum_, perm=[0, 2, 1, 3], what="beside")
        fused.make("Reshape", joined, fused.constant(np.array([0, 0, shape[2]]), "shape"), what="joined", result=result)


def _angles(fused: Fused, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines (tokens, channels / 2)."""
    cosine, sine, position = (2, 3, 1) if fused.node.domain == MICROSOFT else (1, 2, 3)
    cosines, sines = (fused.array(fused.given(place)) for place in (cosine, sine))
    given = fused.given(position)
    positions = fused.array(given) if given else None
    if cosines is None or sines is None or given and positions is None:
        raise UnsupportedError("has angles or positions that are no constants, with which it is not taken apart")
    if cosines.shape != sines.shape or cosines.ndim < 2 or not cosines.size:
        raise UnsupportedError("has cosines and sines of different shapes")
    places = np.arange(cosines.size // cosines.shape[-1]) if positions is None else positions
    if places.size == 1:
        places = places.reshape(()) + np.arange(tokens)
    cosines, sines = (numbers.reshape(-1, numbers.shape[-1]) for numbers in (cosines, sines))
    if not places.size or places.size % tokens or places.min() < 0 or places.max() >= len(cosines):
        raise UnsupportedError("has positions that its angles are not of")
    rows = places.reshape(-1, tokens)
    found = cosines[rows], sines[rows]
    if any((numbers != numbers[:1]).any() for numbers in found):
        raise UnsupportedError("has positions of their own for samples, with which it is not taken apart")
    return found[0][0], found[1][0]


def _halves(fused: Fused, x: str, size: int) -> str:
    """The second half of the channels with the other sign, and the first."""
    ends = [fused.constant(np.array([number]), f"at_{number}") for number in (0, size // 2, size)]
    axis = fused.constant(np.array([3]), "axis")
    first, second = (fused.make("Slice", x, begin, end, axis, what=what)
                     for begin, end, what in ((*ends[:2], "first"), (*ends[1:], "second")))
    return fused.make("Concat", fused.make("Neg", second, what="negated"), first, axis=3, what="turned")


def _pairs(fused: Fused, x: str) -> str:
    """Of each two neighbours the second with the other sign, and the first."""
    axis, step = (fused.constant(np.array([number]), what) for number, what in ((3, "axis"), (2, "step")))
    end = fused.constant(np.array([1 << 31]), "end")
    column, row = (fused.constant(np.array(numbers), what) for numbers, what in (
        ([0, 0, 0, -1, 1], "column"), ([0, 0, 0, -1], "row")))
    first, second = (fused.make("Slice", x, fused.constant(np.array([begin]), f"from_{begin}"), end, axis, step,
                                what=what) for begin, what in ((0, "first"), (1, "second")))
    parts = [fused.make("Reshape", part, column, what=what) for part, what in (
        (fused.make("Neg", second, what="negated"), "left"), (first, "right"))]
    return fused.make("Reshape", fused.make("Concat", *parts, axis=4, what="pairs"), row, what="turned")


SPREADS: Spreads = {("", "RotaryEmbedding"): rotary, (MICROSOFT, "RotaryEmbedding"): rotary}
