"""Layers that move pixels, on the generated Verilog."""

import pytest

from tests.moves import ORDERS, move_graph
from tests.selection import with_full

from .on_rtl import ATTENTION, check_bytes_and_cycles, machines

machine = machines({"attention": ATTENTION})


@pytest.mark.parametrize("name", with_full(ORDERS, *(
    name for name in ORDERS if name not in ("windows", "shifted windows together", "patches together"))))
@pytest.mark.parametrize("added", [False, True], ids=["moved", "added"])
def test_every_order(machine, seed, name, added):
    places, _ = ORDERS[name]
    check_bytes_and_cycles(machine, move_graph(places, 20, int(places.max()) + 1, added=added), seed, slack=0)
