"""The machine's Verilog for tests of what is made with it, emitted once for all of them and all their processes."""

import functools
import os

from cores.config import NpuConfig
from cores.emit import emit_verilog
from sim.folders import cache_folder
from sim.rtl.build import sources_digest

__all__ = ["emitted"]

#: Not where a test has its commands keep what they find.
_KEPT = cache_folder() / "verilog"


@functools.cache
def emitted(config: NpuConfig) -> str:
    """As `emit_verilog`, whose bytes are the same each time, which tests/cores/test_emit.py holds; that takes seconds.

    Kept beside simulations, by the same digest of all that it is made from.
    """
    kept = _KEPT / f"{sources_digest(config)}.v"
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        scratch = kept.with_name(f"{kept.name}.{os.getpid()}")
        scratch.write_text(emit_verilog(config))
        scratch.replace(kept)
    return kept.read_text()
