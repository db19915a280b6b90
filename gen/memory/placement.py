"""Where constants and feature maps lie in the data region."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from cores.config import NpuConfig
from gen.ir.graph import Graph, Requantize
from gen.mapping.pack import PackedWeights, pack_parameters
from gen.program.program import ALIGNMENT, Placement

__all__ = ["Memory"]


@dataclass(frozen=True, eq=False)
class Memory:
    """The data region of a program, in beats: constants from 0 on, feature maps from ``write_start`` to ``end``."""

    constants: np.ndarray
    #: First beats of the layers' weights and channel parameters.
    weight_offsets: Sequence[int]
    parameter_offsets: Sequence[int]
    write_start: int
    tensors: dict[str, Placement]
    end: int

    @classmethod
    def of(cls, graph: Graph, requantizes: Sequence[Requantize], packed: Sequence[PackedWeights | None],
           config: NpuConfig, *, absent: Collection[str] = (), maps: Collection[str] = (),
           interleaved: Collection[str] = ()) -> "Memory":
        """Give every tensor but ``absent`` its own place, ``maps`` as signs alone, ``interleaved`` as rows of bytes.

        ``requantizes``: the layers', as they are computed.
        """
        constants: list[np.ndarray] = []
        offsets: list[int] = []
        beats = 0
        for requantize, weights in zip(requantizes, packed, strict=True):
            for part in (*([weights.data] if weights else []), pack_parameters(requantize, config)):
                constants.append(part)
                beats += len(part)
            offsets += [beats - sum(map(len, constants[-2:])) if weights else 0, beats - len(constants[-1])]
        step = ALIGNMENT // config.beat_bytes
        start = write_start = -(-beats // step) * step
        names = [tensor for tensor, _ in graph.inputs.values()] + [layer.output for layer in graph.layers]
        tensors: dict[str, Placement] = {}
        for name in dict.fromkeys(names):
            if name in absent:
                continue
            tensors[name] = Placement(start, graph.tensors[name].shape, name in maps, name in interleaved)
            start += -(-tensors[name].beats(config.ic_lanes) // step) * step
        return cls(np.concatenate(constants), offsets[::2], offsets[1::2], write_start, tensors, start)
