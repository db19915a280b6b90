"""The Verilog beside the functional simulator, instruction by instruction: which one differs first, and where.

`compare_program` runs a program on both. Either side records (`sim.rtl.observed`, `RecordingMachine`) what is written
to the input buffer, the accumulators, the rings and memory, and what the pool unit hands over. The records are
compared, so a difference names its instruction and the component in which it is seen first.
"""

from .compare import Difference, compare_program

__all__ = ["Difference", "compare_program"]
