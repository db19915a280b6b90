"""The row unit: what its passes keep of the rows of a tile."""

import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode
from cores.arch.rows import RowPass

from ..rows import Rows

__all__ = ["RowUnit"]


class RowUnit:
    """Its settings, and of the pixels of a tile what is subtracted and what is multiplied with."""

    def __init__(self) -> None:
        self.pixels, self.rows = 0, Rows(moments=0, channels=0)
        self.centres = self.factors = self.shifts = np.zeros(0, np.int64)

    def set(self, instruction: Instruction) -> None:
        """Take a ROWS_SET or an entry of the table."""
        if instruction.opcode == Opcode.ROWS_TABLE:
            self.rows.table[instruction["place"]] = instruction["entry"]
        else:
            self.pixels, self.rows = instruction["pixels"], Rows.of_fields(instruction.fields, self.rows.table)

    def run(self, row_pass: RowPass, values: np.ndarray) -> np.ndarray | None:
        """A pass over int8 (channels of whole blocks, pixels): its results, int64 of the same shape, if it has any."""
        row = values[:self.rows.channels]
        if row_pass == RowPass.MAXIMUM:
            self.centres = self.rows.centres(row.max(axis=0))
        elif row_pass == RowPass.TOTAL:
            centres = np.zeros(row.shape[1], np.int64) if self.rows.moments else self.centres
            self.centres, self.factors, self.shifts = self.rows.factors(centres, self.rows.totals(row, centres))
        else:
            results = np.zeros(values.shape, np.int64)
            results[:len(row)] = self.rows.results(row, self.centres, self.factors, self.shifts)
            return results
        return None
