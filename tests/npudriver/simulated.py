"""Devices that tests run on: the functional simulator and the Verilog."""

import pytest

from cores.config import NpuConfig
from npudriver import Backend
from sim.devices import FunctionalBackend, RtlBackend
from sim.rtl import Bus

__all__ = ["SIMULATORS", "simulated"]

#: Parameters of a fixture, of which `simulated` makes a device.
SIMULATORS = ["functional", pytest.param("rtl", marks=pytest.mark.rtl)]


def simulated(request: pytest.FixtureRequest, config: NpuConfig, bus: Bus) -> Backend:
    """``bus`` is that of the Verilog, which is the module's fixture ``simulation``, without faults."""
    if request.param == "functional":
        return FunctionalBackend(config)
    simulation = request.getfixturevalue("simulation")
    simulation.set_bus(bus)
    simulation.set_faults()
    return RtlBackend(config, machine=simulation)
