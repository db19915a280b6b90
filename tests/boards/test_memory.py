"""The memory of a board: rates, latencies, and figures that cannot be."""

from dataclasses import replace

import pytest

from boards.memory import MemoryPort
from boards.registry import BOARDS

PORT = MemoryPort(device="DDR", transfers=1000e6, width_bits=16, efficiency=0.8, efficiency_basis="measured",
                  read_latency_ns=200, latency_basis="assumed", refresh_interval_ns=7800, refresh_ns=260,
                  row_bytes=2048, banks=8, row_miss_ns=26, write_to_read_ns=7.5)


def test_rates():
    assert PORT.peak == 2e9 and PORT.sustained == 1.6e9
    assert PORT.beats_per_cycle(16, 100) == 1.0
    assert PORT.beats_per_cycle(8, 400) == 0.5
    assert PORT.latency_cycles(150) == 30 and PORT.latency_cycles(1) == 1
    assert PORT.to_dict()["peak"] == 2e9


@pytest.mark.parametrize("change, said", [
    ({"efficiency": 1.1}, "efficiency must be in 0..1, not 1.1"),
    ({"efficiency": 0}, "efficiency must be in 0..1, not 0"),
    ({"efficiency_basis": "guessed"}, "efficiency_basis must be one of measured, published, assumed, not 'guessed'"),
    ({"latency_basis": ""}, "latency_basis must be one of"),
    ({"transfers": 0}, "transfers must be positive, not 0"),
    ({"banks": -1}, "banks must be positive, not -1"),
    ({"refresh_ns": -1}, "refresh_ns must not be negative, not -1"),
    ({"refresh_ns": 7800}, "refresh_ns must be less than refresh_interval_ns, not 7800"),
])
def test_figures_that_cannot_be(change: dict, said: str):
    with pytest.raises(ValueError, match=said):
        replace(PORT, **change)


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_losses_that_are_known_leave_room_for_the_efficiency(board):
    """Refreshing is one of the losses in it."""
    memory = board.memory
    assert memory.efficiency <= 1 - memory.refresh_ns / memory.refresh_interval_ns
