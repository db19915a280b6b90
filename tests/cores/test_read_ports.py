"""Two ports for one master's reads: see bench_read_ports."""

import pytest

from cores.bus.read_ports import ReadPorts
from tests.bench import run_bench
from tests.selection import with_full

#: Bits of a beat, beats of a piece, places of a port.
SIZES = {"usual": (256, 8, 256), "narrow": (128, 8, 256), "small": (64, 2, 8), "wide": (512, 4, 64)}


@pytest.mark.parametrize("name", with_full(SIZES, "wide", "usual"))
def test_read_ports(name: str):
    bits, piece, depth = SIZES[name]
    run_bench(ReadPorts(address_width=40, data_bits=bits, piece=piece, depth=depth),
              module="tests.cores.bench_read_ports", name=f"read_ports_{name}",
              parameters={"bits": bits, "piece": piece, "depth": depth})


@pytest.mark.parametrize("values, message", [
    ({"data_bits": 32}, r"data_bits must be a power of two in 64\.\.1024, not 32"),
    ({"piece": 12}, r"piece must be a power of two in 2\.\.128, not 12"),
    ({"piece": 256, "depth": 4096}, "not 256"),
    ({"depth": 16}, "depth must be a power of two from 32 on, not 16"),
])
def test_refuses(values: dict[str, int], message: str):
    with pytest.raises(ValueError, match=message):
        ReadPorts(**{"address_width": 32, "data_bits": 256, **values})
