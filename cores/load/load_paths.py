"""The hardware of the ways into the input buffer."""

from ..config import NpuConfig
from ..lib.hardware import hardware_of
from ..timing import load_paths
from .load_path import LoadPath

__all__ = ["path_of"]


def path_of(config: NpuConfig) -> type[LoadPath]:
    """That of a machine; `cores.timing.load_paths` registers them."""
    path = load_paths.path_of(config)
    return hardware_of(path, path.HARDWARE, LoadPath)
