"""How a program can fail, on the simulators and on the hardware alike."""

from cores.arch.error_codes import ErrorCode, LimitCode
from cores.errors import NpugenError
from npudriver.errors import fault_code

__all__ = ["HazardError", "MachineError"]


class MachineError(NpugenError):
    """The machine stopped: ``cause`` and the ``index`` of the instruction at fault, as in its register file.

    ``beat``: of the data region, where the burst begins that the limits have held back.
    """

    def __init__(self, cause: ErrorCode | LimitCode, index: int, message: str = "", *,
                 beat: int = 0) -> None:
        self.cause, self.index, self.message, self.beat = cause, index, message, beat
        super().__init__(f"{cause.name} at instruction {index}" + (f": {message}" if message else ""),
                         code=fault_code(cause.name), index=index)


class HazardError(NpugenError):
    """The program's result is left to chance: the instruction at ``index`` uses what may not be there.

    Hardware does not notice; the functional simulator does in strict mode.
    """

    code = "hazard"

    def __init__(self, index: int, message: str, *, code: str = "") -> None:
        self.index, self.message = index, message
        super().__init__(f"hazard at instruction {index}: {message}", code=code, index=index)
