"""Whether a machine has an optional unit, its rooms ask alone, and the tables that put it in its place."""

import ast
import re
from collections.abc import Iterator

from cores.config import UNITS
from tests import ROOT

#: Fields of `NpuConfig` that are of a unit.
FIELDS = frozenset(name for unit in UNITS for name in unit.settings.__annotations__)
#: Rooms of units.
_ROOMS = re.compile(r"cores/(config/|bus/limits/|load/(gather|turn|winograd)/|compute/(binary|rows|spread|stochastic)/"
                    r"|store/(maximum|narrow|stages)/|timing/(binary|gather|rows|stochastic|winograd)\.py)")
#: Who else asks, as an interface would say no more than the question.
_MAY = {
    "cores/npu.py": {"binary_engine"},                      # two engines, or one
    "cores/buffers/input_buffer.py": {"gather", "local_store"},     # writes of single bytes; the way of local STOREs
    "cores/load/buffer_writer.py": {"local_store"},         # beats of local STOREs go first
    "cores/load/pixel_path.py": {"local_store"},
    "cores/timing/compute.py": {"depthwise"},               # cycles
    "cores/timing/store.py": {"winograd"},
}


def asked(text: str) -> set[str]:
    """Fields of units that a module asks a configuration for."""
    return {node.attr for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute) and node.attr in FIELDS
            and ast.unparse(node.value).rsplit(".")[-1] == "config"}


def broken() -> Iterator[str]:
    """Files that ask, a line each."""
    for path in sorted((ROOT / "cores").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if not _ROOMS.match(name):
            for field in sorted(asked(path.read_text()) ^ _MAY.get(name, set())):
                yield f"{name}: {field!r} is asked for, or no longer: see tests/lint/units.py and docs/extending.md"
