"""What the parts of `gen bench` are, and what several of them need."""

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gen.cli.common import messages, status
from gen.cli.errors import UsageError
from sim.folders import checkout

if TYPE_CHECKING:
    from cores.config import NpuConfig
    from sim.rtl.machine import RtlMachine

__all__ = ["Part", "Rows", "has_torch", "models_folder", "named_folder", "simulated"]

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Part:
    """``measure`` gives rows of figures by name, none where something is missing that it has said. They are shown as a
    table under ``title``; without one, it has shown them itself. ``plot``: the name of what it draws with ``-o``.
    """

    name: str
    title: str
    measure: Callable[[argparse.Namespace], Rows]
    plot: str = ""


def simulated(config: "NpuConfig") -> "RtlMachine":
    """The machine in Verilator."""
    from sim.rtl.machine import RtlMachine

    with status("building the simulation (once, a minute or two)"):
        return RtlMachine(config)


def has_torch() -> bool:
    """Whether networks can be trained; if not, that is said."""
    found = find_spec("torch") is not None
    if not found:
        messages.print("no PyTorch, so no network is trained: pip install 'npugen[train]'", soft_wrap=True)
    return found


def models_folder(arguments: argparse.Namespace) -> Path | None:
    """Of the networks; None where there is none, which is said. Raises UsageError where one is named that is not."""
    folder = named_folder(arguments.models)
    if folder is not None and folder.is_dir():
        return folder
    messages.print(f"no networks{f' in {folder}' if folder else ''}: give --models DIR", soft_wrap=True)
    return None


def named_folder(given: Path | None, option: str = "--models") -> Path | None:
    """Of the networks: the one of an option, else NPUGEN_MODELS, else the usual one, whether it is there or not.

    Raises UsageError where the option names none.
    """
    if given is not None and not given.is_dir():
        raise UsageError(f"{option} {given}: no such folder", code="unreadable-file")
    root = checkout()
    usual = None if root is None else root.parent / "shared" / "models"
    named = os.environ.get("NPUGEN_MODELS")
    return given or (Path(named) if named else usual)
