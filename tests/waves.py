"""The timing diagrams of docs/integration.md, as a machine on the RTL draws them.

    python -m tests.waves

simulates a program of one layer, cuts the diagrams out of its waveforms, and writes WaveJSON and SVG to docs/waves.
"""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cores.config import NpuConfig
from sim.rtl.machine import Bus, RtlMachine
from sim.rtl.run import run_program
from tests.cores.npu_programs import convolutions

__all__ = ["DIAGRAMS", "FOLDER", "Diagram", "draw", "record", "wave_json"]

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "waves"
_CONFIG = NpuConfig.preset(16)
_LATENCY = 6
#: Of a number, as many hexadecimal digits as a cycle has room for: the low ones.
_DIGITS = 4
#: Of the clock, in units of the waveform file.
_PERIOD = 10
_PAYLOAD = {"ar": ("addr", "len"), "r": ("data", "last"), "aw": ("addr", "len"), "w": ("data", "last")}

#: Port -> its value at every rising edge of the clock, from reset on.
Record = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Diagram:
    """``cycles`` of ``ports``, from ``before`` cycles ahead of the first in which port ``when`` is high."""

    name: str
    title: str
    when: str
    ports: tuple[str, ...]
    cycles: int
    before: int


def _bus(prefix: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{prefix}_{name}" for name in names)


_AR = _bus("m_axi", "arvalid", "arready", "araddr", "arlen")
_R = _bus("m_axi", "rvalid", "rready", "rdata", "rlast")
_AW = _bus("m_axi", "awvalid", "awready", "awaddr", "awlen")
_W = _bus("m_axi", "wvalid", "wready", "wdata", "wlast")
_B = _bus("m_axi", "bvalid", "bready")
_LITE_WRITE = _bus("s_axi", "awvalid", "awready", "awaddr", "wvalid", "wready", "wdata", "bvalid", "bready")
_LITE_READ = _bus("s_axi", "arvalid", "arready", "araddr", "rvalid", "rready", "rdata")

#: Port -> the valid that it goes with.
_VALID = {port: f"{port[:port.index('axi_') + 4]}{channel}valid"
          for bus in ("s_axi", "m_axi") for channel, names in _PAYLOAD.items()
          for port in _bus(bus, *(channel + name for name in names))}

#: Too wide for a diagram: beats are numbered.
_BEATS = ("m_axi_rdata", "m_axi_wdata")

DIAGRAMS = (
    Diagram("start", "START is written: the program is fetched", "m_axi_arvalid", (*_LITE_WRITE, *_AR), 14, 9),
    Diagram("read", "a read: the beats come when the memory has them", "m_axi_arvalid", (*_AR, *_R), 26, 1),
    Diagram("write", "a write: address, data, answer", "m_axi_awvalid", (*_AW, *_W, *_B), 28, 2),
    Diagram("end", "the last answer, the interrupt, and the host that asks why", "irq",
            (*_B, "irq", *_LITE_READ), 20, 11),
)


def record() -> Record:
    """A run of a small program with a short latency, up to the CLEAR after it."""
    case = convolutions(_CONFIG, 1)
    with tempfile.TemporaryDirectory() as folder:
        waves = Path(folder) / "npu.vcd"
        with RtlMachine(_CONFIG, bus=Bus(latency=_LATENCY), waves=waves) as machine:
            run_program(machine, case.code, case.image, write_start=case.write_start)
        return _sampled(waves)


def _sampled(waves: Path) -> Record:
    """The harness dumps every cycle twice: before the rising edge, where ports are settled, and after it."""
    from vcdvcd import VCDVCD

    ports = {port for diagram in DIAGRAMS for port in (*diagram.ports, diagram.when)}
    file = VCDVCD(str(waves), signals=None, store_tvs=True)
    signals = {port: next(file[name] for name in file.signals if name.partition("[")[0] == f"TOP.{port}")
               for port in ports}
    return {port: [int(signal[time] or "0", 2) for time in range(0, file.endtime, _PERIOD)]
            for port, signal in signals.items()}


def wave_json(diagram: Diagram, record: Record) -> dict[str, Any]:
    """``diagram`` in the form that WaveDrom reads. What goes with a valid is shown only while that is high."""
    begin = list(record[diagram.when]).index(1) - diagram.before
    span = range(begin, begin + diagram.cycles)
    rows: list[dict[str, Any]] = [{"name": "clk", "wave": "p" + "." * (diagram.cycles - 1)}]
    for port in diagram.ports:
        valid = _VALID.get(port)
        values = [record[port][cycle] if valid is None or record[valid][cycle] else None for cycle in span]
        rows.append({"name": port, **_wave(values, bits=valid is None or port.endswith("last"))})
        if port in _BEATS:
            rows[-1]["data"] = [f"{number}" for number in range(len(rows[-1]["data"]))]
    return {"signal": rows, "head": {"text": diagram.title}, "config": {"hscale": 1}}


def _wave(values: Sequence[int | None], *, bits: bool) -> dict[str, Any]:
    wave, data, before = "", [], object()
    for value in values:
        if value == before:
            wave += "."
        elif value is None:
            wave += "x"
        elif bits:
            wave += str(value)
        else:
            wave += "="
            data.append(f"{value:x}"[-_DIGITS:])
        before = value
    return {"wave": wave, **({"data": data} if data else {})}


def draw() -> None:
    """Write all diagrams."""
    import wavedrom

    found = record()
    FOLDER.mkdir(exist_ok=True)
    for diagram in DIAGRAMS:
        text = json.dumps(wave_json(diagram, found), indent=1)
        (FOLDER / f"{diagram.name}.json").write_text(text + "\n")
        wavedrom.render(text).saveas(FOLDER / f"{diagram.name}.svg")


if __name__ == "__main__":
    draw()
