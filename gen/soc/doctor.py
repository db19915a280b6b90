"""The ladder of a new board (docs/bring-up.md), by the processor of a system."""

from collections.abc import Mapping
from typing import Any

from gen.soc.host import SystemClient
from gen.soc.image import FINISHED, ProcessorFaultError, Waiting, read_memory, run_image

__all__ = ["examine"]

#: Bytes that the findings may have.
_ROOM = 1 << 14


def examine(client: SystemClient, description: Mapping[str, Any], image: bytes, waiting: Waiting
            ) -> tuple[list[str], bool]:
    """The findings of ``doctor.bin``, a line for each, and whether all is well. Raises as `run_image` does."""
    mail = run_image(client, description, image, count=_ROOM, room=_ROOM, waiting=waiting)
    if mail.status:
        raise ProcessorFaultError("the machine cannot be opened: the system has no memory left for it")
    findings = read_memory(client, mail.samples, mail.done).decode("ascii", "replace").splitlines()
    return findings, mail.state == FINISHED
