"""Instruction streams with named dependencies, turned into counted tokens at the end.

The lowering says "this LOAD comes after that COMPUTE"; tokens follow from it. Within a queue instructions finish in
order, so of a queue's dependencies on another only those count that reach further than all before them: each of these
becomes one post and one take, and every counter ends at zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cores.arch.instruction import Instruction
from cores.arch.isa import SETTERS, Opcode, Queue

__all__ = ["Emitter"]

#: (posting queue, taking queue): the flag of the one who posts, the field of the one who takes.
_TOKENS = {
    (Queue.LOAD, Queue.COMPUTE): ("post_compute", "wait_load"),
    (Queue.COMPUTE, Queue.LOAD): ("post_load", "wait_compute"),
    (Queue.COMPUTE, Queue.STORE): ("post_store", "wait_compute"),
    (Queue.STORE, Queue.COMPUTE): ("post_compute", "wait_store"),
    (Queue.STORE, Queue.LOAD): ("post_load", "stores"),
}

#: A dependency further back than this many instructions of its queue is moved up to there. Queues are short, so it
#: would hardly ever have to wait; and it keeps the number of tokens on their way small.
_HORIZON = {Queue.COMPUTE: 48, Queue.STORE: 12}


@dataclass(eq=False)
class _Emitted:
    opcode: Opcode
    layer: int
    fields: dict[str, int]
    #: Queue -> index in it of the last instruction that must be done.
    after: dict[Queue, int] = field(default_factory=dict)
    #: A STORE to the input buffer.
    local: bool = False


class Emitter:
    """Collects a program in order. Indices count the working instructions of one queue (SETs do not count)."""

    def __init__(self) -> None:
        self.layer = -1
        self._program: list[_Emitted] = []
        self._queues: dict[Queue, list[_Emitted]] = {queue: [] for queue in Queue}
        self._settings: dict[Opcode, dict[str, int]] = {}
        #: What is done to results.
        self._chain: dict[Opcode, dict[str, int]] = {}
        #: What loads do since the last LOAD_SET.
        self._load_state: dict[str, int] = {"opcode": -1}
        #: What of the row unit's table is set.
        self._row_table: dict[int, int] = {}
        self._reached: dict[tuple[Queue, Queue], int] = {}

    def count(self, queue: Queue) -> int:
        """Working instructions so far in a queue."""
        return len(self._queues[queue])

    def recent(self, queue: Queue, index: int, *, taker: Queue = Queue.LOAD) -> int:
        """The index that ``taker`` waits for instead of ``index``, if that is beyond the horizon; -1 (nothing) stays.
        """
        if index < 0:
            return -1
        at = max(index, self.count(queue) - _HORIZON[queue])
        # A local STORE has no token for loads.
        while taker is Queue.LOAD and at > index and self._queues[queue][at].local:
            at -= 1
        return at

    def waits(self, queue: Queue, after: Queue, index: int) -> bool:
        """Whether an instruction emitted now would have to take a token for this dependency."""
        return index > self._reached.get((after, queue), -1)

    def set(self, opcode: Opcode, **fields: int) -> None:
        """Emit a SET unless its queue already holds these values."""
        assert opcode in SETTERS
        if self._settings.get(opcode) != fields:
            self._settings[opcode] = fields
            self._program.append(_Emitted(opcode, self.layer, fields))

    def set_chain(self, operations: Mapping[Opcode, dict[str, int]]) -> None:
        """Emit the operations of a chain, STORE_REQUANT first, unless the store engine has them. Constants that are
        loaded (``load``) stay what they are.
        """
        assert next(iter(operations)) == Opcode.STORE_REQUANT
        if self._chain != operations:
            self._program += [_Emitted(opcode, self.layer, fields) for opcode, fields in operations.items()]
        self._chain = {opcode: {**fields, "load": 0} if "load" in fields else fields
                       for opcode, fields in operations.items()}

    def set_load(self, fields: dict[str, int], modifier: Opcode | None = None,
                 modifier_fields: dict[str, int] | None = None) -> None:
        """Emit LOAD_SET and ``modifier``, the operation after it that changes what loads do.

        Neither is emitted if the queue is in that state.
        """
        wanted = {"opcode": -1 if modifier is None else int(modifier), **(modifier_fields or {})}
        if self._load_state != wanted:
            self._settings.pop(Opcode.LOAD_SET, None)
        before = len(self._program)
        self.set(Opcode.LOAD_SET, **fields)
        if modifier is not None and len(self._program) > before:
            self._program.append(_Emitted(modifier, self.layer, modifier_fields or {}))
        self._load_state = wanted

    def set_rows(self, fields: dict[str, int], table: list[int]) -> None:
        """Emit ROWS_SET, and the entries of the row unit's table that it does not hold."""
        self.set(Opcode.ROWS_SET, **fields)
        for place, entry in enumerate(table):
            if self._row_table.get(place) != entry:
                self._program.append(_Emitted(Opcode.ROWS_TABLE, self.layer, {"place": place, "entry": entry}))
                self._row_table[place] = entry

    def emit(self, opcode: Opcode, *, after: dict[Queue, int] | None = None, **fields: int) -> int:
        """Emit a working instruction that runs after the given ones of other queues. Returns its own index."""
        queue = opcode.queue
        local = opcode is Opcode.STORE and bool(self._settings[Opcode.STORE_SET].get("local"))
        emitted = _Emitted(opcode, self.layer, fields, local=local)
        for source, wanted in (after or {}).items():
            if not self.waits(queue, source, wanted):
                continue
            assert wanted < self.count(source), "a dependency lies ahead in the program: it could never be met"
            self._reached[source, queue] = wanted
            emitted.after[source] = wanted
        self._program.append(emitted)
        self._queues[queue].append(emitted)
        return self.count(queue) - 1

    def finish(self) -> tuple[list[Instruction], list[int]]:
        """The instructions, END included, and the layer of each.

        Raises ValueError when a field does not fit its bits.
        """
        self._program.append(_Emitted(Opcode.END, -1, {}))
        flags: dict[int, dict[str, int]] = {id(emitted): {} for emitted in self._program}
        for emitted in self._program:
            for source, index in emitted.after.items():
                post, take = _TOKENS[source, emitted.opcode.queue]
                flags[id(self._queues[source][index])][post] = 1
                flags[id(emitted)][take] = 1
        instructions = [Instruction(emitted.opcode, **emitted.fields, **flags[id(emitted)])
                        for emitted in self._program]
        return instructions, [emitted.layer for emitted in self._program]
