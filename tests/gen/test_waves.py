"""Save files of waveforms: what they name is there, and what values mean is what the machine is at."""

import re
from pathlib import Path

import numpy as np
import pytest

from cores.config import NpuConfig
from cores.npu import TRACE, Npu
from gen.cli import main
from gen.run.application import open_application
from gen.run.waves import SCOPE, save_files
from tests.gen.cli.calls import error_line
from tests.gen.qdq import in_two_parts

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture
def partly(rng: np.random.Generator) -> Path:
    np.save("x.npy", rng.random((1, 4, 6, 6), np.float32))
    return in_two_parts(rng).save(Path())


def signals(save: str) -> set[str]:
    """Of a .gtkw: those that it shows."""
    return {line.rpartition(" ")[2] for line in save.splitlines() if line.startswith("+{")}


def meanings(path: Path) -> dict[int, str]:
    return {int(value, 16): text for value, text in (line.split(" ", 1) for line in path.read_text().splitlines())}


@pytest.mark.slow
def test_what_they_name(partly: Path):
    """All ports by their bits, those of the trace among them; each value of an index has its instruction."""
    config = NpuConfig.preset(16)
    programs = open_application(partly, config).programs()
    assert len(programs) == 2
    files = save_files(Path("folder/w.vcd"), programs)
    ports = {"_".join(path): member.shape.width if hasattr(member.shape, "width") else member.shape
             for path, member, _ in Npu(config).signature.flatten(Npu(config))}
    widths = {"clk": 1, **{name: bits for name, bits in ports.items()}}
    for number, program in enumerate(programs, 1):
        save = files[Path(f"folder/w.{number}.gtkw")]
        shown = signals(save)
        assert {f"{SCOPE}.trace_{name}" for name in TRACE} <= {
            name.partition("[")[0] for name in shown}
        for name in shown:
            port, _, high = name.removeprefix(f"{SCOPE}.").partition("[")
            assert int(high.removesuffix(":0]") or 0) + 1 == widths[port], name
        for file in re.findall(r"^\^\d+ (.*)$", save, re.MULTILINE):
            assert Path(file).relative_to(Path.cwd()) in files
        filters = files[Path(f"folder/w.{number}.instructions.txt")].splitlines()
        assert len(filters) == len(program.instructions)
        assert all(line.split()[1] == one.opcode.name for line, one in zip(filters, program.instructions, strict=True))
        commands = files[Path(f"folder/w.{number}.sucl")]
        assert set(re.findall("^variable_add (.*)$", commands, re.MULTILINE)) == {
            name.partition("[")[0] for name in shown}
        formats = set(re.findall("^item_set_format (.*)$", commands, re.MULTILINE))
        assert len(formats) == 4
        for name in formats:
            text = files[Path("folder/.surfer/mappings") / f"{name}.txt"]
            assert text.startswith(f"Name = {name}\nBits = ") and "#" not in text
        # What an item's letters count is the signal that has the format.
        items = [line for line in commands.splitlines() if line.split()[0] in ("divider_add", "variable_add")]
        for letters, name in re.findall("^item_focus (.*)\nitem_set_format (.*)$", commands, re.MULTILINE):
            item = int("".join(f"{ord(letter) - ord('a'):x}" for letter in letters), 16)
            assert ("_index" in items[item]) == name.endswith("instructions") and "trace_" in items[item]


@pytest.mark.full
def test_of_a_run(partly: Path, capsys: pytest.CaptureFixture):
    """Each signal is in the waveform by that name; an engine that is at work is at an instruction of its own."""
    vcdvcd = pytest.importorskip("vcdvcd")
    assert main(["run", str(partly), "--input", "x.npy", "--macs", "16", "--target", "rtl", "--waves", "w.vcd"]) == 0
    assert "gtkwave w.1.gtkw" in capsys.readouterr().err
    found = vcdvcd.VCDVCD("w.vcd")
    assert max(name.count(".") for name in found.signals) == 2      # the top module's, nothing of its parts
    for number in (1, 2):
        assert signals(Path(f"w.{number}.gtkw").read_text()) <= set(found.signals)
    seen = {}
    for engine in ("load", "compute", "store"):
        state, index = (found[f"{SCOPE}.trace_{engine}_{part}"] for part in ("state[3:0]", "index[23:0]"))
        states = meanings(Path(f"w.1.{engine}-state.txt"))
        seen[engine] = {int(index[time], 2) for time, value in state.tv if states[int(value, 2)] == "busy"}
    first, second = (meanings(Path(f"w.{number}.instructions.txt")) for number in (1, 2))
    for engine, indices in seen.items():
        said = {text.split()[0].partition("_")[0] for index in indices for text in (first[index], second[index])}
        assert said == {engine.upper()}, said


def test_refusals(partly: Path, capsys: pytest.CaptureFixture):
    call = ["run", str(partly), "--input", "x.npy", "--macs", "16"]
    assert "--waves goes with --target rtl" in error_line(capsys, 2, *call, "--waves", "w.vcd")
    assert "written as .vcd" in error_line(capsys, 2, *call, "--target", "rtl", "--waves", "w.fst")
