"""A compiled program: code, constants, and the place of every tensor."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Annotated

import numpy as np
from msgspec import Meta

from cores.arch.instruction import Instruction, decode
from cores.arch.isa import INSTRUCTION_BYTES
from cores.config import NpuConfig
from cores.errors import ArgumentError, NpugenError
from gen.memory.placement import Placement
from npudriver import DeployedProgram, layout
from npudriver.program import Port
from sim.stochastic.streams import Streams

__all__ = ["MAX_BATCH", "ConflictError", "LayerInfo", "Natural", "Program", "ProgramError"]

#: Samples of a run at most.
MAX_BATCH = 16
#: In a file, numbers that nothing else bounds.
Natural = Annotated[int, Meta(ge=0, le=1 << 53)]


class ProgramError(NpugenError, ValueError):
    """A file that is not a program, or a program that does not fit what it is used with."""

    code = "damaged-program"


class ConflictError(ProgramError, ArgumentError):
    """A program that was not compiled as asked for now."""

    code = "fixed-program"


@dataclass(frozen=True)
class LayerInfo:
    """What a profile needs of a layer. ``macs`` are the dense network's, ``useful_macs`` those left after pruning
    and computed, ``lane_macs`` these with channels rounded up to lanes, or 0 where the model asks for none of them.
    """

    name: str
    op: str
    mode: str
    input: str
    output: str
    macs: Natural
    useful_macs: Natural
    lane_macs: Natural = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class Program:
    """Everything that a run needs. Offsets are beats of the data region."""

    name: str
    config: NpuConfig
    code: bytes
    #: Packed weights and parameters, from the region's first beat on.
    constants: bytes
    data_beats: int
    #: First beat that stores may write.
    write_start: int
    tensors: Mapping[str, Placement]
    #: Inputs and outputs of the model, and the tensors that they are.
    input_ports: tuple[Port, ...]
    output_ports: tuple[Port, ...]
    layers: tuple[LayerInfo, ...]
    #: The layer of every instruction; -1 for those of none.
    instruction_layers: tuple[int, ...]
    #: Block density to which the compiler pruned, if it did.
    density: float | None = None
    #: Layers in the narrow Winograd form, and their shifts.
    winograd: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    #: Layers whose sums are made of streams, and these.
    streams: Mapping[str, Streams] = dataclasses.field(default_factory=dict)
    #: The ONNX file that was compiled, if kept.
    model: bytes | None = None
    #: Samples of a run, each with inputs and outputs of its own (`gen.passes.batch`).
    batch: int = 1
    #: Name of the board that it was compiled for, if one was.
    board: str | None = None

    @property
    def inputs(self) -> Mapping[str, str]:
        """Model input -> tensor."""
        return {port.name: port.tensor for port in self.input_ports}

    @property
    def outputs(self) -> Mapping[str, str]:
        """Model output -> tensor."""
        return {port.name: port.tensor for port in self.output_ports}

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """Raises ProgramError for code that is none."""
        decoded = []
        for index, start in enumerate(range(0, len(self.code), INSTRUCTION_BYTES)):
            try:
                decoded.append(decode(self.code[start:start + INSTRUCTION_BYTES]))
            except ValueError as error:
                raise ProgramError(f"program {self.name}: instruction {index}: {error}") from None
        return tuple(decoded)

    @cached_property
    def written(self) -> tuple[str, ...]:
        """The tensors in memory that the host or a layer writes: of parts and wholes, each value once."""
        names = (*self.inputs.values(), *(layer.output for layer in self.layers))
        return tuple(name for name in names if name in self.tensors)

    def holds(self, tensor: str) -> bool:
        """Whether a tensor is in memory when the program has ended: some never are, others make room."""
        place = self.tensors.get(tensor)
        if place is None:
            return False
        # Inputs are written before all layers' outputs, in order.
        names, first, end = self._outputs
        over = np.flatnonzero((place.offset < end) & (first < place.offset + place.beats(self.config.ic_lanes)))
        if not over.size:
            return True
        name = names[over[-1]]
        return (self.tensors[name].whole or name) == (place.whole or tensor)

    @cached_property
    def _outputs(self) -> tuple[list[str], np.ndarray, np.ndarray]:
        """Of layers, in order: those in memory, their first beats, and the beats after their last ones."""
        names = [layer.output for layer in self.layers if layer.output in self.tensors]
        places = [self.tensors[name] for name in names]
        first = np.array([place.offset for place in places], np.int64)
        return names, first, first + [place.beats(self.config.ic_lanes) for place in places]

    # -- data region ---------------------------------------------------------------------------------------------

    def image(self) -> np.ndarray:
        """A fresh data region: uint8 (data_beats * beat_bytes,), constants filled in, the rest zero."""
        image = np.zeros(self.data_beats * self.config.beat_bytes, np.uint8)
        image[:len(self.constants)] = np.frombuffer(self.constants, np.uint8)
        return image

    def _bytes(self, image: np.ndarray, tensor: str) -> np.ndarray:
        """A tensor's bytes in an image."""
        place, beat = self.tensors[tensor], self.config.beat_bytes
        return image[place.offset * beat:(place.offset + place.beats(beat)) * beat]

    def pack_input(self, image: np.ndarray, tensor: str, values: np.ndarray) -> None:
        """Write an int8 (C, H, W) feature map into an image. Raises ProgramError for another shape or dtype."""
        place = self.tensors[tensor]
        if place.signs:
            raise ProgramError(f"tensor {tensor!r} is stored as packed bits, which only the machine writes",
                               code="bad-tensor")
        if values.shape != place.shape or values.dtype != np.int8:
            raise ProgramError(f"tensor {tensor!r} is int8 {place.shape}, not {values.dtype} {values.shape}",
                               code="bad-tensor")
        self._bytes(image, tensor)[:] = layout.pack(values, self.config.beat_bytes, interleaved=place.interleaved)

    def unpack_tensor(self, image: np.ndarray, tensor: str) -> np.ndarray:
        """The int8 (C, H, W) feature map in an image; what lies beyond C in its last block is dropped."""
        place = self.tensors[tensor]
        return layout.unpack(self._bytes(image, tensor), place.shape, self.config.beat_bytes, signs=place.signs,
                             interleaved=place.interleaved)

    def require_config(self, config: NpuConfig) -> None:
        """Raises ConflictError unless the program was compiled for ``config``."""
        if config.digest != self.config.digest:
            different = [f"{key} {value} (program) / {config.to_dict()[key]}"
                         for key, value in self.config.to_dict().items() if config.to_dict()[key] != value]
            raise ConflictError(f"program {self.name!r} was compiled for another configuration: "
                                f"{', '.join(different)}; leave the options of the machine out, or compile it again",
                                code="other-machine")

    def require_board(self, board: str) -> None:
        """Raises ConflictError if the program was compiled for another board."""
        if self.board not in (None, board):
            raise ConflictError(f"program {self.name!r} was compiled for the board {self.board}, not {board}; "
                                "leave --board out, or compile it again", code="other-machine")

    def packed_inputs(self, tensors: Mapping[str, np.ndarray]) -> dict[int, np.ndarray]:
        """Of int8 (C, H, W) ``tensors`` the program's inputs, as `npudriver.ResidentProgram.submit_packed` takes them.
        """
        places = {self.tensors[name]: tensors[name] for name in self.inputs.values()}
        return {place.offset: layout.pack(values, self.config.beat_bytes, interleaved=place.interleaved)
                for place, values in places.items()}

    # -- for the driver ------------------------------------------------------------------------------------------

    @cached_property
    def deployed(self) -> DeployedProgram:
        """As the driver has it."""
        return DeployedProgram(
            name=self.name, digest=self.config.digest, data_beats=self.data_beats, write_start=self.write_start,
            inputs=self.input_ports, outputs=self.output_ports, layers=[layer.name for layer in self.layers],
            instruction_layers=[(layer, len(list(run))) for layer, run in groupby(self.instruction_layers)],
            code=self.code, constants=self.constants)
