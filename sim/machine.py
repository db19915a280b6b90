"""State of the functional simulator: memories, queues and tokens, and what every engine does with them."""

from collections import deque
from collections.abc import Callable, Generator, Iterator

import numpy as np

from cores.arch.error_codes import ErrorCode, LimitCode
from cores.arch.instruction import Instruction, decode
from cores.arch.isa import INSTRUCTION_BYTES, OPERATIONS, Opcode, Queue
from cores.arch.isa_features import missing
from cores.config import NpuConfig

from .errors import HazardError, MachineError
from .hazards import Clock, Hazards, Stage
from .standstill import tokens_of
from .stochastic.streams import shortened
from .storage import Accumulators, Ring

__all__ = ["TOKEN_MAXIMUM", "Machine", "Steps"]

#: Tokens that a counter holds; one more is the error TOKEN. Stores are counted over whole layers.
TOKEN_MAXIMUM = 255
STORE_TOKEN_MAXIMUM = 65535

#: A coroutine's report: None after a piece of work, else what it waits for.
Steps = Iterator[str | None]

_ENGINE_QUEUES = (Queue.LOAD, Queue.COMPUTE, Queue.STORE)
#: The counter after each token flag: (poster, taker).
_WAITS = {"wait_load": Queue.LOAD, "wait_compute": Queue.COMPUTE, "wait_store": Queue.STORE}
_POSTS = {"post_load": Queue.LOAD, "post_compute": Queue.COMPUTE, "post_store": Queue.STORE}


class Machine:
    """State of one run: memories, queues, tokens. `sim.functional.run` is the way in."""

    def __init__(self, config: NpuConfig, code: bytes, memory: np.ndarray, *, write_start: int, strict: bool,
                 stream_shift: int = 0, reach: range | None = None) -> None:
        self.config, self.stream_shift = config, stream_shift
        self.code = code
        #: int8 (data_beats, beat_bytes): the data region.
        self.memory = memory.reshape(-1, config.beat_bytes).view(np.int8)
        self.write_start = write_start
        #: Beats of the data region that are inside of the machine's limits.
        self.reach = range(len(self.memory)) if reach is None else reach
        #: (banks * input_depth, beat_bytes), int8 or as wide as activations are: the banks one after the other.
        self.input = np.zeros((config.banks * config.input_depth, config.beat_bytes),
                              np.int8 if config.activation_bits == 8 else np.int16)
        #: bool (banks * input_depth, 2): which halves of the entry are padding that counts as zero. Each goes with its
        #: half's first byte.
        self.zeros = np.zeros((len(self.input), 2), bool)
        if strict:      # what is never written may be anything
            noise = np.random.default_rng(0)
            self.input[:] = noise.integers(-128, 128, self.input.shape)
            self.zeros[:] = noise.integers(0, 2, self.zeros.shape)
        self.accumulators = Accumulators(config)
        self.weights = Ring(config.weight_depth, config.beat_bytes)
        self.side = Ring(config.side_depth, config.beat_bytes)
        #: Pixels that the store engine would take from the pool unit now; those on their way, and what is done by then.
        self.pool_demand: Callable[[], int] = lambda: 0
        self.pool_pixels: deque[tuple[np.ndarray, Clock]] = deque()
        #: What the pool unit has of a window that is still open: whether it is a maximum, and its values.
        self.pool_part: tuple[bool, np.ndarray] | None = None
        self.queues: dict[Queue, deque[tuple[int, Instruction]]] = {queue: deque() for queue in _ENGINE_QUEUES}
        self.in_hand: dict[Queue, int | None] = dict.fromkeys(_ENGINE_QUEUES)
        #: Operations that were taken so far.
        self.taken: set[Opcode] = set()
        self.tokens: dict[tuple[Queue, Queue], deque[Clock]] = {
            (source, sink): deque() for source in _ENGINE_QUEUES for sink in _ENGINE_QUEUES if source != sink
        }
        self.hazards = Hazards(config, len(self.memory))
        self.strict = strict
        self.instructions = self.read_beats = self.write_beats = 0
        self.done = False

    # -- what the engines use --------------------------------------------------------------------------------------

    def fetch(self, queue: Queue) -> Generator[str | None, None, tuple[int, Instruction]]:
        """Take the next instruction of a queue and the tokens it waits for; returns (index, instruction).

        Raises ILLEGAL for one whose SET is not in front of it.
        """
        if self.in_hand[queue] is not None:
            self.in_hand[queue] = None
            yield None
        while not self.queues[queue]:
            yield "an instruction"
        index, instruction = self.queues[queue].popleft()
        self.in_hand[queue] = index
        yield None  # the queue has room again
        wanted = {source: instruction[flag] for flag, source in _WAITS.items()}
        wanted[Queue.STORE] += instruction["stores"]
        for source, count in wanted.items():
            if count:
                available = self.tokens[source, queue]
                while len(available) < count:
                    yield tokens_of(source.name.lower(), count, len(available))
                for _ in range(count):
                    self.hazards.taken(queue, available.popleft())
        for needed in OPERATIONS[instruction.opcode].after:
            if needed not in self.taken:
                raise MachineError(ErrorCode.ILLEGAL, index, f"no {needed.name} is in front of it")
        self.taken.add(instruction.opcode)
        return index, shortened(instruction, self.stream_shift)

    def post(self, queue: Queue, index: int, instruction: Instruction, flag: str, *done: Stage) -> None:
        """Give the token of ``flag`` if the instruction has it set; ``done``: the stages that have ended by then.

        Raises MachineError (TOKEN) where the counter is full.
        """
        if not instruction[flag]:
            return
        sink = _POSTS[flag]
        tokens = self.tokens[queue, sink]
        if len(tokens) == (STORE_TOKEN_MAXIMUM if (queue, sink) == (Queue.STORE, Queue.LOAD) else TOKEN_MAXIMUM):
            raise MachineError(ErrorCode.TOKEN, index, f"{flag} overflows a counter of {len(tokens)} tokens")
        tokens.append(self.hazards.posted(queue, index, *done))

    def require(self, condition: bool, index: int, message: str) -> None:
        """Raise HazardError in strict mode unless ``condition``."""
        if self.strict and not condition:
            raise HazardError(index, message)

    def check_read(self, index: int, starts: np.ndarray, beats: int) -> None:
        """Raise READ_RANGE unless rows of ``beats`` from ``starts`` on are in the data region; LOAD_LIMIT unless they
        are inside of the limits.
        """
        if (end := int(starts[-1]) + beats) > len(self.memory):
            raise MachineError(ErrorCode.READ_RANGE, index,
                               f"reads beats {starts[0]}..{end - 1} of {len(self.memory)}")
        self.check_reach(LimitCode.LOAD_LIMIT, index, starts, beats)

    def check_reach(self, code: LimitCode, index: int, starts: np.ndarray, beats: int) -> None:
        """Raise ``code`` unless rows of ``beats`` from ``starts`` on are inside of the limits.

        The first burst outside begins with its row, or where the limits end.
        """
        reach = self.reach
        outside = (starts < reach.start) | (starts + beats > reach.stop)
        if outside.any():
            first = int(starts[np.argmax(outside)])
            beat = first if first not in reach else reach.stop
            raise MachineError(code, index, f"beat {beat} of the data region is not within the limits", beat=beat)

    def check_entries(self, index: int, last: int) -> None:
        """Raise BUFFER unless entry ``last`` is in the input buffer's banks."""
        if last >= self.config.input_depth:
            raise MachineError(ErrorCode.BUFFER, index, f"input-buffer entry {last} of {self.config.input_depth}")

    def check_words(self, index: int, words: int) -> None:
        """Raise BUFFER unless a bank has as many accumulator words."""
        if words > self.config.acc_depth:
            raise MachineError(ErrorCode.BUFFER, index, f"{words} accumulator words of {self.config.acc_depth}")

    def put(self, index: int, places: np.ndarray, values: np.ndarray, padding: np.ndarray | bool = False, *,
            first: int = 0) -> None:
        """Write into entries of the input buffer, for instruction ``index``.

        ``places``: any shape; ``values``: that shape and a last axis of the bytes from byte ``first`` of each entry on.
        ``padding``: whether they count as zero, for the two halves of each entry (a last axis of 2) or for all; it
        matters to halves whose first byte is written.
        """
        width = values.shape[-1]
        if width == self.config.ic_lanes:       # nearly always, and twice as fast
            self.input[places] = values
            self.zeros[places] = padding
            return
        self.input[places, first:first + width] = values
        flags = np.broadcast_to(padding, (*places.shape, 2))
        for half in range(2):
            if first <= half * self.config.sign_bytes < first + width:
                self.zeros[places, half] = flags[..., half]

    def write(self, index: int, beats: np.ndarray, values: np.ndarray) -> None:
        """Write ``values`` (a last axis of the bytes of a beat) to ``beats`` of memory, for instruction ``index``."""
        self.memory[beats] = values
        self.write_beats += beats.size

    # -- dispatcher ------------------------------------------------------------------------------------------------

    def idle(self) -> bool:
        return not any(self.queues.values()) and all(index is None for index in self.in_hand.values())

    def dispatch(self) -> Steps:
        """Hand the program's instructions to the queues, in order."""
        for index in range(len(self.code) // INSTRUCTION_BYTES):
            try:
                instruction = decode(self.code[index * INSTRUCTION_BYTES:(index + 1) * INSTRUCTION_BYTES])
            except ValueError as error:
                raise MachineError(ErrorCode.ILLEGAL, index, str(error)) from None
            if lack := missing(instruction, self.config):
                raise MachineError(ErrorCode.ILLEGAL, index, lack)
            if instruction.opcode.queue == Queue.CONTROL:
                while not self.idle():
                    yield f"all engines to be idle ({instruction.opcode.name} at {index})"
                self.hazards.synchronised(index)
                if instruction.opcode == Opcode.END:
                    self.instructions += 1
                    self._check_end(index)
                    self.done = True
                    return
            else:
                queue = self.queues[instruction.opcode.queue]
                while len(queue) >= self.config.queue_depth:
                    yield f"room in the {instruction.opcode.queue.name.lower()} queue (instruction {index})"
                queue.append((index, instruction))
            self.instructions += 1
            yield None
        raise MachineError(ErrorCode.NO_END, len(self.code) // INSTRUCTION_BYTES, "the program has no END")

    def _check_end(self, index: int) -> None:
        self.require(self.weights.level == 0, index, f"{self.weights.level} beats are left in the weight ring at END")
        self.require(self.side.level == 0, index, f"{self.side.level} beats are left in the side ring at END")
        self.require(self.pool_part is None, index, "a window is still open at END")
