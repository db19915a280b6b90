"""Attention, as ONNX and onnxruntime have it: products, a factor, masks and a Softmax.

The factor is that of the scores, once, where ONNX's function body has its root in two places.
"""

from math import sqrt

import numpy as np

from gen.onnx.fused.spread import Fused, Spreads, UnsupportedError
from gen.onnx.model import MICROSOFT

__all__ = ["SPREADS"]

#: What hides a score, where the model names no number; far below any score, and finite.
_HIDDEN = -1e4


def _attend(fused: Fused, query: str, keys: str, values: str, masks: list[str], head: int) -> str:
    """Of (N, heads, tokens, channels) each, but ``keys`` (N, heads, channels, tokens)."""
    scale, bound = fused.attributes.get("scale") or 1 / sqrt(head), fused.attributes.get("softcap", 0.0)
    scores = fused.make("Mul", fused.make("MatMul", query, keys, what="scores"),
                        fused.constant(scale / bound if bound else scale, "scale"), what="scaled")
    if bound:
        scores = fused.make("Mul", fused.make("Tanh", scores, what="bent"), fused.constant(bound, "bound"),
                            what="bounded")
    for mask in masks:
        scores = fused.make("Add", scores, mask, what="masked")
    return fused.make("MatMul", fused.make("Softmax", scores, axis=-1, what="softmax"), values, what="mixed")


def _heads(fused: Fused, value: str, heads: int, what: str) -> str:
    """(N, tokens, heads * channels) -> (N, heads, tokens, channels)."""
    shape = fused.constant(np.array([0, 0, heads, -1]), f"{what}_shape")
    return fused.make("Transpose", fused.make("Reshape", value, shape, what=f"{what}_split"), perm=[0, 2, 1, 3],
                      what=f"{what}_heads")


def _past(fused: Fused, place: int) -> tuple[str, str]:
    """Inputs ``place`` and following: keys and values of earlier tokens, "" each where there are none."""
    keys, values = fused.given(place), fused.given(place + 1)
    if bool(keys) != bool(values):
        raise UnsupportedError("has past keys or values alone, with which it is not taken apart")
    return keys, values


def _tokens_before(fused: Fused, past: tuple[str, str]) -> int:
    if not past[0]:
        return 0
    shape = fused.shape(past[0])
    if len(shape) != 4 or not shape[2]:
        raise UnsupportedError("has past keys of a number that is not known; give the model's inputs fixed shapes")
    return shape[2]


def _present(fused: Fused, past: str, new: str, place: int) -> str:
    """Keys or values (N, heads, tokens, channels) after those of earlier tokens, if there are any: the node's result
    ``place``, if it has that.
    """
    result = fused.node.output[place] if place < len(fused.node.output) else ""
    if past:
        return fused.make("Concat", past, new, axis=2, result=result, what="present")
    return fused.make("Identity", new, result=result, what="present") if result else new


def _joined(fused: Fused, mixed: str) -> None:
    """The node's result: heads side by side."""
    beside = fused.make("Transpose", mixed, perm=[0, 2, 1, 3], what="beside")
    fused.make("Reshape", beside, fused.constant(np.array([0, 0, -1]), "shape"), result=fused.node.output[0],
               what="joined")


def _causal(fused: Fused, queries: int, keys: int, before: int, hidden: float) -> str:
    """No token sees those after it, of which the first has ``before`` others in front."""
    if not queries or not keys:
        raise UnsupportedError("hides later tokens of a number that is not known; give the model's inputs fixed shapes")
    seen = np.tri(queries, keys, before, dtype=bool)
    return fused.constant(np.where(seen, 0, hidden).astype(np.float32), "causal")


def _masks(fused: Fused, queries: int, keys: int, before: int) -> list[str]:
    """What ONNX's node adds to its scores: the numbers of its mask, and what hides those that the mask does, later
    tokens, and those beyond a window. ``queries``, ``keys``: how many there are, 0 where that is not known; of the
    latter ``before`` are in front of the queries' own.
    """
    attributes, name = fused.attributes, fused.given(3)
    left, right = (int(attributes.get(f"{side}_window_size", -1)) for side in ("left", "right"))
    if attributes.get("is_causal"):
        right = 0
    total = np.zeros((1, 1))
    if name:
        array = fused.array(name)
        if array is None:
            raise UnsupportedError("has a mask that is no constant, with which it is not taken apart")
        total = np.where(array, 0, -np.inf) if array.dtype == bool else array.astype(np.float64)
        beyond = keys - total.shape[-1] if total.ndim and total.shape[-1] != 1 else 0
        total = np.pad(total, [(0, 0)] * (total.ndim - 1) + [(0, max(0, beyond))], constant_values=-np.inf)
    if left >= 0 or right >= 0:
        if not queries or not keys:
            raise UnsupportedError("hides tokens by their places among a number that is not known; give the model's "
                                   "inputs fixed shapes")
        after = np.arange(keys) - np.arange(queries)[:, None] - before
        hidden = (left >= 0) & (after < -left) | (right >= 0) & (after > right)
        total = total + np.where(hidden, -np.inf, 0)
    if np.isneginf(total).all(axis=-1).any():
        raise UnsupportedError("hides all keys from a token, with which it is not taken apart")
    hidden = total <= _HIDDEN
    parts = {"mask": np.where(hidden, 0, total), "hidden": np.where(hidden, _HIDDEN, 0.0)}
    return [fused.constant(numbers.astype(np.float32), what) for what, numbers in parts.items() if numbers.any()]


def attention(fused: Fused) -> None:
    """Of ONNX."""
    fused.refuse({6: "a number of tokens that count"}, {3: "a result of scores"})
    query, key, value = (fused.given(n) for n in range(3))
    past = _past(fused, 4)
    shape, keys = fused.shape(query), fused.shape(key)
    flat = len(shape) == 3
    heads, of_keys = ((int(fused.attributes.get(f"{what}_num_heads", 0)) for what in ("q", "kv")) if flat
                      else (shape[1], keys[1]))
    if not heads or not of_keys or heads % of_keys:
        raise UnsupportedError("has heads of a number that is not known, or keys of which no whole number of queries "
                               "shares one")
    if not shape[-1]:
        raise UnsupportedError("has heads of a size that is not known; give the model's inputs fixed shapes")
    before = _tokens_before(fused, past)
    masks = _masks(fused, shape[-2], keys[-2] and keys[-2] + before, before)
    if flat:
        query, key, value = (_heads(fused, name, number, what) for name, number, what in (
            (query, heads, "query"), (key, of_keys, "key"), (value, of_keys, "value")))
    key, value = (_present(fused, *both, place) for place, both in enumerate(zip(past, (key, value), strict=True), 1))
    if heads > of_keys:
        shared = fused.constant(np.repeat(np.arange(of_keys), heads // of_keys), "shared")
        key, value = (fused.make("Gather", name, shared, axis=1, what=f"{what}_shared") for name, what in (
            (key, "key"), (value, "value")))
    turned = fused.make("Transpose", key, perm=[0, 1, 3, 2], what="keys")
    mixed = _attend(fused, query, turned, value, masks, shape[-1] // (heads if flat else 1))
    if flat:
        _joined(fused, mixed)
    else:
        fused.make("Identity", mixed, result=fused.node.output[0], what="result")


def _runtime(fused: Fused, projected: list[str], tokens: tuple[int, int, int] | None, head: int, bias: str,
             past: tuple[str, str] = ("", "")) -> None:
    """Of onnxruntime, with queries, keys and values of all heads; ``tokens``: of queries, of keys, and of those that
    came before, for a mask.
    ``bias``: what is added to the scores; ``past``: keys and values (N, heads, tokens, channels) of earlier tokens.
    """
    heads = int(fused.attributes["num_heads"])
    masks = [bias] if bias else []
    if tokens:
        masks.append(_causal(fused, *tokens, float(fused.attributes.get("mask_filter_value", _HIDDEN))))
    query, key, value = (_heads(fused, name, heads, what) for name, what in zip(
        projected, ("query", "key", "value"), strict=True))
    key, value = (_present(fused, *both, place) for place, both in enumerate(zip(past, (key, value), strict=True), 1))
    turned = fused.make("Transpose", key, perm=[0, 1, 3, 2], what="keys")
    _joined(fused, _attend(fused, query, turned, value, masks, head))


def _parts(fused: Fused, name: str, sizes: list[int], what: str) -> list[str]:
    """A constant of queries, keys and values side by side, as one of each."""
    array = fused.array(name)
    if array is None:
        raise UnsupportedError(f"has {what} that are no constants, with which it is not taken apart")
    parts = np.split(array, np.cumsum(sizes)[:-1], axis=-1)
    return [fused.constant(part, f"{of}_{what}") for part, of in zip(parts, ("query", "key", "value"), strict=True)]


def projecting_attention(fused: Fused) -> None:
    """com.microsoft's Attention, which has the layers in front, too."""
    fused.refuse({3: "a mask of tokens", 4: "past keys and values", 6: "a length of past tokens"},
                 {1: "a result of present keys and values"})
    if fused.attributes.get("do_rotary"):
        raise UnsupportedError("turns its queries and keys (do_rotary), with which it is not taken apart")
    weights, source = fused.array(fused.given(1)), fused.given(0)
    width = 0 if weights is None else weights.shape[-1]
    sizes = [int(size) for size in fused.attributes.get("qkv_hidden_sizes", [width // 3] * 3)]
    projected = [fused.make("MatMul", source, part, what=f"{what}_product") for part, what in zip(
        _parts(fused, fused.given(1), sizes, "weights"), ("query", "key", "value"), strict=True)]
    if fused.given(2):
        projected = [fused.make("Add", name, part, what=f"{what}_sum") for name, part, what in zip(
            projected, _parts(fused, fused.given(2), sizes, "biases"), ("query", "key", "value"), strict=True)]
    tokens = (fused.shape(source)[1], fused.shape(source)[1], 0) if fused.attributes.get("unidirectional") else None
    _runtime(fused, projected, tokens, sizes[0] // int(fused.attributes["num_heads"]), fused.given(5))


def several_heads(fused: Fused) -> None:
    """com.microsoft's MultiHeadAttention."""
    fused.refuse({4: "a mask of tokens", 8: "a length of past tokens", 9: "a table of cached keys"},
                 {3: "a result of scores"})
    past = _past(fused, 6)
    projected = [fused.given(n) for n in range(3)]
    if not all(projected) or any(len(fused.shape(name)) != 3 for name in projected):
        raise UnsupportedError("has queries, keys and values packed in one, or keys in heads, with which it is not "
                               "taken apart")
    sizes = [fused.shape(name)[2] for name in projected]
    if not all(sizes):
        raise UnsupportedError("has heads of a size that is not known; give the model's inputs fixed shapes")
    if fused.given(3):
        projected = [fused.make("Add", name, part, what=f"{what}_sum") for name, part, what in zip(
            projected, _parts(fused, fused.given(3), sizes, "biases"), ("query", "key", "value"), strict=True)]
    tokens = None
    if fused.attributes.get("unidirectional"):
        before, keys = _tokens_before(fused, past), fused.shape(fused.given(1))[1]
        tokens = fused.shape(fused.given(0))[1], keys and keys + before, before
    _runtime(fused, projected, tokens, sizes[0] // int(fused.attributes["num_heads"]), fused.given(5), past)


SPREADS: Spreads = {("", "Attention"): attention, (MICROSOFT, "Attention"): projecting_attention,
                    (MICROSOFT, "MultiHeadAttention"): several_heads}
