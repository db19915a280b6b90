"""What can be asked of the compiler."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sim.stochastic.streams import Streams

__all__ = ["CompileOptions"]


@dataclass(frozen=True, kw_only=True)
class CompileOptions:
    """How a graph is compiled. The defaults take the faster of the ways that change no value."""

    #: Share of each block's weights that is kept, the largest (`gen.passes.prune`), above 0 and at most 1; None: all.
    #: Layers that are sparse already are found without it.
    density: float | None = None
    #: Depthwise layers: the faster way of each, or with one channel a lane whatever the configuration.
    depthwise: Literal["auto", "plain"] = "auto"
    #: Whether layers hand their result on through the input buffer: where that is faster, or never. What they hand on
    #: has no place in memory.
    fusion: Literal["auto", "off"] = "auto"
    #: Layers of few channels that read the model's input: the faster way of each, or tap by tap. An input that a
    #: gathering layer reads is interleaved.
    gather: Literal["auto", "plain"] = "auto"
    #: Dense 3x3 layers of stride 1 on a machine that has Winograd. auto: in tiles where that is faster, as long as no
    #: value changes, so only in an exact machine; off: never; exact: wherever an exact machine can; narrow: where it is
    #: faster, although values change.
    winograd: Literal["auto", "off", "exact", "narrow"] = "auto"
    #: The layers that take the narrow Winograd form, whatever they cost, and its shifts.
    winograd_shifts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    #: The layers whose sums are made of streams of bits, which changes values: those named, or with one for all those
    #: that can be, but for what reads the model's inputs (`gen.passes.streams`); None: none.
    stochastic: Streams | Mapping[str, Streams] | None = None
    #: Every tensor that is in memory at all has a place of its own, so that all are there when the program has ended;
    #: otherwise those that nobody reads any more make room for others.
    keep_all: bool = False
    #: Samples that a program computes at once (`gen.passes.batch`): fully connected layers read their weights once.
    batch: int = 1
    #: Model input -> shape, for models that leave some of it open (`gen.onnx.passes.bind_shapes`).
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
