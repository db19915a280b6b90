"""How a program can fail, on the simulators and on the hardware alike."""

from cores.arch.error_codes import ErrorCode
from cores.errors import NpugenError

__all__ = ["HazardError", "MachineError"]


class MachineError(NpugenError):
    """The machine stopped: ``code`` and the ``index`` of the instruction at fault, as in its register file."""

    def __init__(self, code: ErrorCode, index: int, message: str = "") -> None:
        self.code, self.index, self.message = code, index, message
        super().__init__(f"{code.name} at instruction {index}" + (f": {message}" if message else ""))


class HazardError(NpugenError):
    """The program's result is left to chance: the instruction at ``index`` uses what may not be there.

    Hardware does not notice; the functional simulator does in strict mode.
    """

    def __init__(self, index: int, message: str) -> None:
        self.index, self.message = index, message
        super().__init__(f"hazard at instruction {index}: {message}")
