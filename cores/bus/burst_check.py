"""What is asked of a burst before its address goes out."""

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Module, Value
from amaranth.lib import wiring

from ..config import NpuConfig

__all__ = ["BurstCheck"]


class BurstCheck:
    """Nothing. A unit that holds bursts back derives from this.

    `ReadEngine`, `WriteEngine` and `LoadEngine` ask for what they have beside their parts, `RegisterFile` for
    registers, `Npu` for what joins these.
    """

    #: Bits that go with a read request, beside whose it is.
    READ_TAG_BITS = 0
    #: Sources of errors beside the engines.
    SOURCES = 0

    def __init__(self, config: NpuConfig):
        self.config = config

    def read_ports(self) -> Mapping[str, wiring.Member]:
        """Of `ReadEngine`."""
        return {}

    def write_ports(self) -> Mapping[str, wiring.Member]:
        """Of `WriteEngine`."""
        return {}

    def load_ports(self) -> Mapping[str, wiring.Member]:
        """Of `LoadEngine`."""
        return {}

    def register_ports(self) -> Mapping[str, wiring.Member]:
        """Of `RegisterFile`."""
        return {}

    def connect_load(self, m: Module, engine: Any, requester: Any) -> None:
        """In `LoadEngine`: what of its asking half is told."""

    def read_tag(self, m: Module, engine: Any, from_load: Value) -> Value:
        """What goes with a request; its lowest bit is ``from_load``."""
        return from_load

    def of_load(self, tag: Value) -> Value:
        """``from_load`` of a burst's tag."""
        return tag

    def passes_read(self, m: Module, engine: Any, splitter: Any, issue: Value) -> list[Value]:
        """In `ReadEngine`: what has to hold for the burst that the splitter offers to ``issue``."""
        return []

    def passes_write(self, m: Module, engine: Any, splitter: Any, issue: Value, index: Value) -> list[Value]:
        """In `WriteEngine`, as `passes_read`; ``index``: of the burst's instruction."""
        return []

    def stored(self, registers: Any) -> dict[str, list[Any]]:
        """Of `RegisterFile`: register -> the bits that it writes."""
        return {}

    def shown(self, registers: Any) -> dict[str, Value]:
        """Register -> what it reads as, for registers of `RegisterFile` that do not read as they were written."""
        return {}

    def open(self, registers: Any, name: str, idle: Value) -> Value:
        """Whether a register of `RegisterFile` that is fixed during a run can be written; ``idle``: there is no run."""
        return idle

    def join(self, m: Module, *, registers: Any, read: Any, write: Any, fetch: Any, load: Any,
             begins: Value) -> list[Any]:
        """In `Npu`: connect the above; `SOURCES` of errors. ``begins``: a run does."""
        return []
