"""How networks learn from images."""

from dataclasses import dataclass

__all__ = ["DIGITS", "PHOTOGRAPHS", "Recipe"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Adam with ``decay`` of weights, at ``rate``, which in ``one_cycle`` rises to that and falls to nearly 0.

    ``shift``: pixels by which images are moved at random each time, half of them mirrored; 0: always as they are.
    ``for_relu``: weights begin as values keep their size after ReLU, without which a deep network learns late.
    ``bfloat16``: products of numbers of 8 bits' precision, in half the time; weights are float32 all the same.
    """

    epochs: int
    rate: float
    batch: int
    decay: float = 1e-4
    shift: int = 0
    one_cycle: bool = False
    for_relu: bool = False
    bfloat16: bool = False


DIGITS = Recipe(epochs=12, rate=2e-3, batch=100)
PHOTOGRAPHS = Recipe(epochs=14, rate=1e-3, batch=50, shift=4, one_cycle=True, for_relu=True, bfloat16=True)
