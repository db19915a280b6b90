"""Rows, as the sequencer and the pipeline after it have them."""

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Mux, Value
from amaranth.lib import data

from ...arch.instruction_layout import field_shape, instruction_layout, is_operation
from ...arch.isa import ROW_SETTERS, Opcode
from ..word_kind import Turn, WordKind

__all__ = ["RowWords"]


def _pool(word: Any) -> Any:
    """An instruction seen as a POOL."""
    return data.View(instruction_layout(Opcode.POOL), Value.cast(word))


class RowWords(WordKind):
    """Of each pixel of a row pass which pass it is, and how many blocks that has. Passes keep apart from what is before
    and after them.
    """

    SETS = True

    def members(self) -> Mapping[str, Any]:
        return {name: field_shape(Opcode.POOL, name) for name in ("row_pass", "blocks")}

    def same(self, loops: Any, following: Any) -> list[Value]:
        return [~(loops.pool & _pool(loops.word).row_pass.any()
                  | following.pool & _pool(following.word).row_pass.any())]

    def setters(self, word: Any) -> list[Value]:
        return [is_operation(word, opcode, self.config) for opcode in ROW_SETTERS]

    def issue(self, issue: Any, loops: Any, turn: Turn, *, go: Value) -> list[Any]:
        word = _pool(loops.word)
        return [
            issue.row_pass.eq(Mux(loops.pool, word.row_pass, 0)),
            issue.blocks.eq(word.blocks),
        ]
