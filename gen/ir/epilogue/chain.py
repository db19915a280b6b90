"""Which operations a store can do at once: the one rule, from the instruction set's chain."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from cores.arch.isa import SECOND_STAGES, Opcode
from gen.ir.epilogue.base import StoreOp
from gen.ir.tensor import Requantize, Tensor

__all__ = ["appended", "chain_problems", "with_stage"]


def _place(op: StoreOp) -> tuple[int, str]:
    """Where a chain has an operation, and what it calls that. One without an opcode comes first, as every STORE has
    it; second stages share a place, as the chain keeps one of them; all others have the order of their opcodes.
    """
    if op.opcode is None:
        return int(Opcode.STORE_REQUANT), op.name
    if op.opcode in SECOND_STAGES:
        return int(min(SECOND_STAGES)), "second stage"
    return int(op.opcode), op.name


def chain_problems(epilogue: Sequence[StoreOp]) -> Iterator[str]:
    """What is wrong with a sequence of operations, in words.

    A chain has one operation at most for each of its places, in their order. One operation at most reads a tensor, as
    there is one stream beside the sums.
    """
    for first, second in zip(epilogue, epilogue[1:], strict=False):
        (place, what), (next_place, _) = _place(first), _place(second)
        if place == next_place:
            yield f"it {first.verb} and {second.verb}; a store has one {what}"
        elif place > next_place:
            yield f"it {first.verb} and then {second.verb}; a store does that the other way round"
    if sum(len(op.others) for op in epilogue) > 1:
        yield "it reads several tensors beside its input; a store reads one"


def appended(epilogue: tuple[StoreOp, ...], op: StoreOp, *, source: Tensor | None, point: int, first: int,
             ) -> tuple[StoreOp, ...] | None:
    """An epilogue with one operation more; None if a store cannot do that.

    The operation is that of a copy whose first stage has the zero point ``point``; ``first``: that of the layer's own.
    ``source``: the tensor that was copied, if the operation is applied to it. What only repeats rows and columns moves
    to the front of operations to which that makes no difference.
    """
    if epilogue:
        before, last = epilogue[:-1], epilogue[-1]
        if (merged := last.absorb(op, point)) is not None:
            return *before, merged
        if op.repeats != (1, 1) and last.repeatable:
            moved = appended(before, op, source=source, point=point, first=first)
            return None if moved is None else (*moved, last)
    applied = op if source is None else op.applied_to(source)
    if applied is None or op.centred and point != first or any(chain_problems(longer := (*epilogue, applied))):
        return None
    return longer


def with_stage(stage: Requantize, epilogue: tuple[StoreOp, ...],
               after: Requantize) -> tuple[Requantize, tuple[StoreOp, ...]] | None:
    """First stage and epilogue of a layer with the first stage ``after`` of a layer that follows, which the last
    operation that changes values takes up; None if it cannot.
    """
    last = next((number for number in reversed(range(len(epilogue))) if not epilogue[number].keeps_values), None)
    if last is None:
        low, high = after.clipped(stage.low, stage.high)
        return (replace(stage, low=low, high=high), epilogue) if after.only_clips else None
    merged = epilogue[last].absorb(after, stage.zero_point)
    return None if merged is None else (stage, (*epilogue[:last], merged, *epilogue[last + 1:]))
