"""Systems of LiteX: the host's part, the files, and with LiteX the system itself."""

import json
import os
import re
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from shutil import which
from threading import Thread

import numpy as np
import pytest

from boards.registry import BOARDS
from cores.arch.registers import COUNTERS, MAGIC, REGISTERS, VERSION, Control, Status, address_of
from cores.bus.axi import Axi4Read, Axi4Write, AxiLite
from cores.config import NpuConfig
from gen.cli import main
from gen.deploy.c_model import ModelPort, c_model
from gen.options import CompileOptions
from gen.run.application import open_application
from gen.run.inputs import read_samples
from gen.run.workload import open_workload
from gen.soc import firmware, image, project, samples
from gen.soc.doctor import examine
from gen.soc.firmware import Firmware, compile_image, firmware_files, image_files
from gen.soc.host import HostError, SystemClient, windows_of
from gen.soc.image import MAILBOX_OFFSET, Mailbox, ProcessorFaultError, Waiting, mailbox_of
from gen.soc.inference import awake_client, infer_all
from gen.soc.processor import IDLE, get_processor
from gen.soc.samples import run_samples, wrong_values
from gen.soc.serve import serve
from gen.soc.simulator import simulate
from gen.soc.targets import TARGETS, get_target
from npudriver.backends.remote import RemoteBackend
from npudriver.errors import WaitTimeoutError
from npudriver.etherbone import Packet, receive, send
from sim import functional
from tests import ROOT
from tests.hollow import hollow_npu

_MEMORY, _NPU, _CSR = 0x4000_0000, 0x9000_0000, 0x1000
_DESCRIPTION = {
    "clock_mhz": 50.0,
    "registers": {name: _CSR + 4 * number for number, name in enumerate((
        "sdram_dfii_control", "sdram_dfii_pi0_command", "sdram_dfii_pi0_command_issue", "sdram_dfii_pi0_address",
        "sdram_dfii_pi0_baddress"))},
    "regions": {"main_ram": {"base": _MEMORY, "size": 1 << 20}, "npu": {"base": _NPU, "size": 4096}},
    "memory": {"kind": "SDR", "leveling": False, "start": [
        {"what": "a command", "address": 1024, "bank": 2, "register": "sdram_dfii_pi0_command", "value": 11,
         "cycles": 0},
        {"what": "the controller", "address": 0, "bank": 0, "register": "sdram_dfii_control", "value": 1,
         "cycles": 0}]},
}


class Bus:
    """Memory, and a machine that is the instruction-level simulator; ``log`` has what is written elsewhere."""

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        self.memory = np.zeros(_DESCRIPTION["regions"]["main_ram"]["size"], np.uint8)
        self.log: list[tuple[int, int]] = []
        lanes = config.oc_lanes | config.ic_lanes << 8 | config.nnz_lanes << 16 | config.pixel_lanes << 24
        fixed = {"id": MAGIC, "version": VERSION, "config": config.digest, "lanes": lanes}
        self.registers = {register.address: fixed.get(register.name, 0) for register in REGISTERS}

    def close(self) -> None:
        """Nothing: it is no connection."""

    def read(self, addr: int, length: int):
        if addr >= _NPU:
            return [self.registers[addr - _NPU]]
        return self.memory[addr - _MEMORY:][:4 * length].view("<u4").tolist()

    def write(self, addr: int, datas: list[int]) -> None:
        if _MEMORY <= addr < _NPU:
            self.memory[addr - _MEMORY:][:4 * len(datas)] = np.array(datas, "<u4").view(np.uint8)
        elif addr >= _NPU:
            self._set(addr - _NPU, *datas)
        else:
            self.log.append((addr, *datas))

    def _get(self, name: str) -> int:
        return self.registers[address_of(name)]

    def _set(self, address: int, value: int) -> None:
        self.registers[address] = value
        if address == address_of("control") and value & Control.CLEAR:
            self.registers[address_of("status")] = 0
        if address == address_of("control") and value & Control.START:
            start = self._get("program_low") - _MEMORY
            code = self.memory[start:start + 16 * self._get("program_length")].tobytes()
            data = self._get("data_low") - _MEMORY
            image = self.memory[data:data + self._get("data_beats") * self.config.beat_bytes]
            functional.run(self.config, code, image, write_start=self._get("write_start"))
            self.registers[address_of("status")] = Status.DONE
            self.registers[address_of(f"counter_{COUNTERS[0]}_low")] = 123


def test_the_memory_is_woken_as_the_description_says():
    bus = Bus(BOARDS["ecp5"].config(16))
    SystemClient(bus, _DESCRIPTION).wake_memory()
    at = _DESCRIPTION["registers"]
    assert bus.log == [
        (at["sdram_dfii_pi0_address"], 1024), (at["sdram_dfii_pi0_baddress"], 2), (at["sdram_dfii_pi0_command"], 11),
        (at["sdram_dfii_pi0_command_issue"], 1), (at["sdram_dfii_pi0_address"], 0), (at["sdram_dfii_pi0_baddress"], 0),
        (at["sdram_dfii_control"], 1)]


@pytest.mark.parametrize("leveling, cause", [(False, "to it$"), (True, "its read delays want training")])
def test_a_memory_that_forgets(leveling: bool, cause: str):
    class Forgetful(Bus):
        def write(self, addr: int, datas: list[int]) -> None:
            super().write(addr, [data & ~0x100 for data in datas])

    description = {**_DESCRIPTION, "memory": {**_DESCRIPTION["memory"], "leveling": leveling}}
    with pytest.raises(HostError, match=f"the memory does not hold what is written to it.*{cause}|{cause}"):
        SystemClient(Forgetful(BOARDS["ecp5"].config(16)), description).wake_memory()


def test_a_word_that_is_lost():
    """The last of what is written to memory; registers are not read back."""
    class Losing(Bus):
        def write(self, addr: int, datas: list[int]) -> None:
            super().write(addr, datas[:-1] if addr < _NPU else datas)

    client = SystemClient(Losing(BOARDS["ecp5"].config(16)), _DESCRIPTION)
    client.write(_NPU + address_of("irq_enable"), [1])
    with pytest.raises(HostError, match="does not hold"):
        client.write(_MEMORY + 64, [1, 2, 3])


@pytest.mark.slow
def test_inferences_one_after_the_other(digits: Path):
    """Each leaves what the simulator makes of its input alone, whatever the one before it was."""
    config = BOARDS["ecp5"].config(16)
    workload = open_workload(digits / "digits_int8.onnx", config, CompileOptions())
    samples = read_samples(digits / "digits_test.npz", workload.inputs, limit=3)
    bus = Bus(config)
    bus.memory[:] = 0x55
    backend = RemoteBackend(SystemClient(bus, _DESCRIPTION), windows_of(_DESCRIPTION))
    outcome = infer_all(backend, workload, samples, clock_mhz=50)
    assert outcome.cycles == [123] * 3 and outcome.right == 3 and outcome.wrong_bytes == 0
    assert outcome.compared == workload.program.image().size


@contextmanager
def litex_server(bus: Bus) -> Iterator[int]:
    """What answers a client's packets as LiteX's server does: its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve_one() -> None:
        connection, _ = listener.accept()
        with connection:
            while (packet := receive(connection)) is not None:
                if packet.writes:
                    bus.write(packet.base, list(packet.writes))
                if packet.reads:
                    send(connection, Packet(writes=bus.read(packet.reads[0], len(packet.reads))))

    thread = Thread(target=serve_one)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()
        thread.join()


def run_on(place: str, digits: Path) -> int:
    return main(["run", str(digits / "digits_int8.onnx"), "--board", "ecp5", "--macs", "16", "--limit", "2", "--input",
                 str(digits / "digits_test.npz"), "--target", f"board:litex:{place}"])


def test_run_on_a_board_behind_litex_server(digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    """Its memory is woken first; every tensor in it is compared."""
    (tmp_path / "system.json").write_text(json.dumps(_DESCRIPTION))
    bus = Bus(BOARDS["ecp5"].config(16))
    with litex_server(bus) as port:
        assert run_on(f"{tmp_path}@127.0.0.1:{port}", digits) == 0
    assert "accuracy 100.00 %" in (said := capsys.readouterr().out) and " 0 of " in said
    assert (_DESCRIPTION["registers"]["sdram_dfii_control"], 1) in bus.log


@pytest.mark.parametrize("text, place, said", [
    (None, "{}", "system.json: is not what `gen soc` writes, or damaged"),
    ("[]", "{}", "system.json: is not what `gen soc` writes, or damaged"),
    ("{}", "{}@here", "must be litex:FOLDER or litex:FOLDER@HOST:PORT"),
    (json.dumps(_DESCRIPTION), "{}@127.0.0.1:1", "127.0.0.1:1: Connection refused"),
])
def test_a_system_that_is_not_there(text, place, said, digits, tmp_path, capsys):
    if text is not None:
        (tmp_path / "system.json").write_text(text)
    assert run_on(place.format(tmp_path), digits) == 1
    error = capsys.readouterr().err.splitlines()
    assert said in error[-1]


@pytest.mark.slow
def test_a_program_that_never_ends(digits: Path):
    class Busy(Bus):
        def _set(self, address: int, value: int) -> None:
            self.registers[address] = value
            if address == address_of("control") and value & Control.START:
                self.registers[address_of("status")] = Status.BUSY

    config = BOARDS["ecp5"].config(16)
    workload = open_workload(digits / "digits_int8.onnx", config, CompileOptions())
    samples = read_samples(digits / "digits_test.npz", workload.inputs, limit=1)
    backend = RemoteBackend(SystemClient(Busy(config), _DESCRIPTION), windows_of(_DESCRIPTION))
    with pytest.raises(WaitTimeoutError, match="no result after"):
        infer_all(backend, workload, samples, clock_mhz=50)


@pytest.mark.parametrize("arguments, message", [
    (["--board", "zu3eg"], "no LiteX system for 'zu3eg'; there are: ecp5, ecpix-5"),
    (["--simulate", "model.onnx"], "--simulate MODEL and --input FILE go together"),
    (["--bitstream", "--serve", "1"], "--bitstream and --serve exclude each other"),
    (["--simulate", "a.onnx", "--input", "a.npz", "-o", "folder"], "-o goes with the system's files"),
    (["--cpu", "z80"], "no processor 'z80'; there are: vexriscv"),
    (["--cpu", "vexriscv", "--serve", "1"], "--cpu and --serve exclude each other"),
    (["--image", "model.onnx"], "--image goes with --cpu NAME"),
    (["--doctor"], "--doctor goes with --cpu NAME"),
    (["--cpu", "vexriscv", "--doctor", "-o", "folder"], "-o goes with the system's files, which --doctor does not"),
    (["--cpu", "vexriscv", "--image", "a.onnx", "--simulate", "a.onnx", "--input", "a.npz"],
     "--image and --simulate exclude each other"),
    (["--serve", "70000"], "must be a port in 0..65535, not 70000"),
    (["--clock", "900"], "must be in 1..400 MHz"),
    (["--clock", "fast"], "must be a number of MHz, not fast"),
])
def test_arguments_that_make_no_sense(arguments: list[str], message: str, capsys: pytest.CaptureFixture):
    assert main(["soc", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_without_litex(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["soc", "-o", str(tmp_path / "out")]) == 1
    assert "migen is not installed, which systems of LiteX need: pip install npugen[litex]" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def _port(name: str, dtype: str, *shape: int) -> ModelPort:
    return ModelPort(name, "", dtype, shape)


def test_what_a_sample_is_in_the_memory_of_a_processor():
    """Record, inputs and outputs, each at 32 bytes; what the processor leaves there is read back."""
    image = bytes(MAILBOX_OFFSET) + Mailbox(*range(13)).to_bytes()
    firmware = Firmware(image, [_port("x", "int8", 1, 5)], [_port("y", "float32", 1, 3), _port("z", "uint8", 1)])
    assert mailbox_of(firmware.image) == Mailbox(*range(13))
    x = np.arange(5, dtype=np.int8)
    sample = bytearray(firmware.sample({"x": x}))
    assert len(sample) == firmware.sample_bytes == 4 * 32 and bytes(sample[32:37]) == x.tobytes()
    sample[:32] = struct.pack("<QQ4I", 1 << 40, 7, 1, 3, 1, 0)
    sample[64:76] = np.float32([1, -2, 3]).tobytes()
    sample[96] = 200
    outputs, cycles, accelerator = firmware.result(bytes(sample))
    assert (cycles, accelerator) == (1 << 40, 7)
    assert outputs["y"].tolist() == [[1, -2, 3]] and outputs["z"].tolist() == [200]
    expected = {"y": np.float32([[1, -2, 3.0001]]), "z": np.uint8([200])}
    assert wrong_values(outputs, expected) == 0
    assert wrong_values(outputs, {"y": np.float32([[1, -2, 3.1]]), "z": np.uint8([201])}) == 2
    assert wrong_values(outputs, {"y": np.float32([[1, -2]]), "z": np.uint8([200])}) == 3


def test_host_and_image_agree():
    """What C and Python state both: mailbox, states and the statuses of the library."""
    folder = ROOT / "npudriver" / "c"
    text = "".join((folder / "vexriscv" / name).read_text() for name in ("firmware.h", "firmware.c"))
    stated = {name: int(value, 0) for name, value in re.findall(r"^#define NPUGEN_(\w+) (\w+?)u?$", text, re.M)}
    assert {name: stated[name] for name in ("MAILBOX_OFFSET", "IDLE", "MAGIC", "FINISHED", "FAILED",
                                            "SAMPLE_ALIGNMENT")} == {
        "MAILBOX_OFFSET": MAILBOX_OFFSET, "IDLE": IDLE, "MAGIC": image.MAGIC, "FINISHED": image.FINISHED,
        "FAILED": image.FAILED, "SAMPLE_ALIGNMENT": firmware._ALIGNMENT}
    (statuses,) = re.findall(r"typedef enum npugen_status \{(.*?)\}", (folder / "npugen.h").read_text(), re.S)
    assert tuple(re.findall(r"\bNPUGEN_[A-Z_]+\b", re.sub(r"/\*.*?\*/", "", statuses, flags=re.S))) == samples._STATUSES


@pytest.mark.slow
@pytest.mark.parametrize("command", [
    ("riscv64-unknown-elf-gcc", "--specs=picolibc.specs", "-misa-spec=2.2"),
    ("clang", "--target=riscv32-unknown-elf", "-isystem", "/usr/lib/picolibc/riscv64-unknown-elf/include")])
def test_nothing_is_said_of_the_processors_sources(command: tuple[str, ...], digits: Path, tmp_path: Path):
    if missing := [name for name in (command[0], "riscv64-unknown-elf-gcc") if which(name) is None]:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{missing[0]} is not installed")
    config = BOARDS["ecp5"].config(16)
    description = {**_DESCRIPTION, "board": "a board", "interrupt": 1, "registers": {
        **_DESCRIPTION["registers"], **dict.fromkeys(
            ("ctrl_scratch", "npu_ev_enable", "timer0_uptime_latch", "timer0_uptime_cycles"), _CSR)}}
    model = c_model(open_application(digits / "digits_int8.onnx", config).file)
    for name, content in firmware_files(model, config, description, get_processor("vexriscv")).items():
        (tmp_path / name).write_bytes(content)
    for source in ("npugen_vexriscv.c", "firmware.c", "doctor.c", "npugen_bare.c"):
        done = subprocess.run([*command, "-march=rv32im", "-mabi=ilp32", "-std=c99", "-O2", "-Wall", "-Wextra",
                               "-Wconversion", "-Wshadow", "-Wpedantic", "-Werror", "-c", "-o", "/dev/null", source],
                              cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), source


class _Waiting:
    """A system whose processor never ends, or has ended before."""

    def __init__(self, scratch: int) -> None:
        self.scratch = scratch

    def read(self, address: int, count: int) -> list[int]:
        return [self.scratch] * count

    def write(self, address: int, words: list[int]) -> None:
        self.scratch = words[-1] if address == 0x1000 else self.scratch


@pytest.mark.parametrize("scratch, memory, message", [
    (IDLE, 1 << 20, "does not end; 0 are done"),
    (5, 1 << 20, "the processor is at work, or there is none"),
    (IDLE, 64, "do not fit into 64 bytes of memory"),
])
def test_processors_that_do_not_do_what_they_are_to(scratch: int, memory: int, message: str):
    image = bytes(MAILBOX_OFFSET) + Mailbox(0, _MEMORY + 128, *[0] * 11).to_bytes()
    firmware = Firmware(image, [_port("x", "int8", 1, 5)], [_port("y", "int8", 1)])
    description = {"registers": {"ctrl_scratch": 0x1000}, "regions": {"main_ram": {"base": _MEMORY, "size": memory}}}
    with pytest.raises(ProcessorFaultError, match=message):
        run_samples(_Waiting(scratch), description, firmware, [{"x": np.zeros(5, np.int8)}],  # type: ignore[arg-type]
                    Waiting(lambda: None, 3))


# -- with LiteX ----------------------------------------------------------------------------------------------------

@pytest.fixture
def litex() -> None:
    for module in ("litex", "litedram", "litex_boards", "liteeth", "pythondata_cpu_vexriscv"):
        pytest.importorskip(module, reason=f"{module} is not installed: pip install '.[litex]'")


def _instance(verilog: str) -> dict[str, str]:
    """Port -> what it is joined to, of the machine in LiteX's Verilog."""
    body = re.search(r"^npu npu\($(.*?)^\);", verilog, re.MULTILINE | re.DOTALL)
    assert body
    return dict(re.findall(r"\.(\w+)\s*\((.*?)\)", body.group(1)))


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_files_of_a_board(name: str, litex, monkeypatch: pytest.MonkeyPatch):
    """The same each time; the machine's ports are joined; the description has what a host asks for."""
    monkeypatch.setattr(project, "emit_verilog", lambda config: "module npu(); endmodule\n")
    target = get_target(name)
    config = target.board.config(16)
    files = project.board_files(target, config, clock_mhz=target.clock_mhz, baud=115_200)
    if name == "ecp5":      # what LiteX makes takes seconds
        assert files == project.board_files(target, config, clock_mhz=target.clock_mhz, baud=115_200)
    ports = _instance(files["soc.v"])
    memory = {"address_width": config.address_width, "data_bits": config.beat_bits}
    assert set(ports) == {"clk", "rst", "irq", *(f"s_axi_{name}" for name in AxiLite().members), *(
        f"m_axi_{name}" for bus in (Axi4Read(**memory), Axi4Write(**memory)) for name in bus.members)}
    assert all(ports.values())
    assert 'LOCATE COMP "serial_tx"' in files["soc.lpf"]
    assert " -top soc" in files["soc.ys"] and "rename -hide" in files["soc.ys"]
    description = json.loads(files["system.json"])
    assert description["board"] == name and description["regions"]["npu"]["size"] == 4096
    assert {"sdram_dfii_control", "npu_ev_status"} <= set(description["registers"])
    assert description["memory"]["start"][-1] == {
        "what": "controller takes over", "address": 0, "bank": 0, "register": "sdram_dfii_control", "value": 1,
        "cycles": 0}
    commands = {step["what"]: step["value"] for step in description["memory"]["start"]}
    assert commands["Precharge All" if name == "ecp5" else "ZQ Calibration"] == {"ecp5": 11, "ecpix-5": 3}[name]


@pytest.mark.slow
def test_files_of_a_board_with_a_processor(litex, monkeypatch: pytest.MonkeyPatch):
    """Its Verilog and read-only memory are there, and read by synthesis; the machine's interrupt is one of its."""
    monkeypatch.setattr(project, "emit_verilog", lambda config: "module npu(); endmodule\n")
    target, processor = get_target("ecp5"), get_processor("vexriscv")
    files = project.board_files(target, target.board.config(16), clock_mhz=50, baud=115_200, processor=processor)
    assert "module VexRiscv (" in files["VexRiscv.v"] and "VexRiscv.v" in files["soc.ys"].splitlines()[0]
    assert [int(word, 16) for word in files["soc_rom.init"].split()] == processor.boot()
    assert "interrupt" in json.loads(files["system.json"])


@pytest.mark.full
@pytest.mark.parametrize("name", TARGETS)
def test_the_boards_device_is_litexs(name: str, litex):
    from gen.soc.system import board_system

    target = get_target(name)
    with project.litex_quiet():
        platform = board_system(target, target.board.config(16), clock_mhz=target.clock_mhz, baud=115_200).platform
    family, size, grade, package = platform.toolchain.nextpnr_ecp5_parse_device(platform.device)
    device = platform.toolchain.nextpnr_ecp5_architectures[f"{family}-{size}"]
    assert target.board.nextpnr == (f"--{device}", "--package", package, "--speed", grade)


@pytest.mark.parametrize("arguments, status, message", [
    (["--address-width", "40"], 2, "address_width must be at most 32 in LiteX, not 40"),
    (["--clock", "399"], 1, "LiteX cannot make this system: a lower --clock may help"),
])
def test_systems_that_litex_cannot_make(arguments: list[str], status: int, message: str, litex, tmp_path: Path,
                                        capsys: pytest.CaptureFixture):
    assert main(["soc", *arguments, "-o", str(tmp_path / "out")]) == status
    assert message in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.full
@pytest.mark.parametrize("name", TARGETS)
def test_digits_on_a_simulated_system(name: str, litex, digits: Path, capsys: pytest.CaptureFixture):
    """Twelve digits over UARTBone and LiteDRAM: all right, every byte of memory as simulated."""
    assert main(["soc", "--board", name, "--simulate", str(digits / "digits_int8.onnx"), "--input",
                 str(digits / "digits_test.npz"), "--limit", "12", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["right"] == 12 and result["wrong_bytes"] == 0 and len(result["cycles"]) == 12
    assert result["compared"] > 50_000
    assert all(cycles >= result["ideal_cycles"] for cycles in result["cycles"])


@pytest.fixture
def compiler(litex) -> None:
    if which("riscv64-unknown-elf-gcc") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("riscv64-unknown-elf-gcc is not installed")


@pytest.mark.full
def test_the_ladder_by_a_processor(compiler):
    """All is well; what is wrong with a back end is named, a data cache that it does not invalidate among it."""
    target, processor = get_target("ecp5"), get_processor("vexriscv")
    config = target.board.config(16)
    serial, description = simulate(target, config, clock_mhz=target.clock_mhz, processor=processor)
    files = image_files(config, description, processor)
    port = files["npugen_vexriscv.c"].decode()

    def findings(line: str, instead: str) -> list[str]:
        assert line in port
        changed = {**files, "npugen_vexriscv.c": port.replace(line, instead).encode()}
        found, well = examine(client, description, compile_image(changed, "doctor.bin"),
                              Waiting(lambda: serial.run(10_000), 20_000))
        assert well == found[-1].startswith("ok ") and all(finding.startswith("ok ") for finding in found[:-1])
        return found

    with serial:
        client = awake_client(serial, description)
        assert len(findings("", "")) > 8
        stale = findings('    __asm__ volatile(".word 0x500f" ::: "memory");\n', "")[-1]
        assert "FAILED maximum" in stale and "its cache is not invalidated before it reads" in stale
        assert "FAILED fetch" in findings("port.memory_address = (uintptr_t)memory;",
                                          "port.memory_address = NPUGEN_SOC_MEMORY;")[-1]


@pytest.mark.full
def test_digits_by_a_processor(compiler, digits: Path, capsys: pytest.CaptureFixture):
    """From memory, without a host."""
    assert main(["soc", "--cpu", "vexriscv", "--simulate", str(digits / "digits_int8.onnx"), "--input",
                 str(digits / "digits_test.npz"), "--limit", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["values"], result["differing"]) == (20, 0)
    assert result["accelerator"] > 300_000 and result["processor"] > 10_000


@pytest.mark.full
def test_a_bitstream(litex, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path):
    """All of LiteX's part, mapped, placed, routed and packed; without the machine, which takes an hour."""
    monkeypatch.setattr(project, "emit_verilog", hollow_npu)
    assert main(["soc", "--board", "ecp5", "-o", str(tmp_path), "--bitstream", "--json"]) == 0
    route = json.loads(capsys.readouterr().out)["route"]
    assert route["mhz"] > 50 and route["used"]["EHXPLLL"] == 1 and route["used"]["TRELLIS_FF"] > 500
    assert (tmp_path / "soc.bit").read_bytes()[:2] == b"\xff\x00"


@pytest.mark.full
def test_litex_server_and_client(litex):
    """LiteX's own server takes the simulated line for a serial port, and its client reads and writes the bus."""
    from litex.tools.litex_client import RemoteClient
    from litex.tools.litex_server import RemoteServer
    from litex.tools.remote.comm_uart import CommUART

    target = get_target("ecp5")
    line, description = simulate(target, target.board.config(16), clock_mhz=target.clock_mhz)
    port: Queue[int] = Queue()
    Thread(target=serve, args=(line, 0), kwargs={"ready": port.put}, daemon=True).start()
    server = RemoteServer(CommUART(f"socket://localhost:{port.get()}"), "localhost", _free_port())
    server.open()
    Thread(target=server._serve_thread, daemon=True).start()
    client = RemoteClient(port=server.bind_port)
    client.open()
    host = SystemClient(client, description)
    host.wake_memory()
    backend = RemoteBackend(host, windows_of(description))
    values = np.arange(4096, dtype=np.uint16).view(np.uint8)
    buffer = backend.allocate(values.size, 4096)
    buffer.write(0, values)
    assert np.array_equal(buffer.read(0, values.size), values)
    assert backend.read32(address_of("id")) == MAGIC
    backend.close()


def _free_port() -> int:
    with socket.create_server(("localhost", 0)) as listener:
        return listener.getsockname()[1]


class TalkingLine:
    """A serial line that always has something to say."""

    def write(self, data: bytes) -> None: ...

    def run(self, cycles: int) -> None: ...

    def inWaiting(self) -> int:     # noqa: N802
        return 1 << 16

    def read(self, count: int) -> bytes:
        return bytes(count)


def test_a_client_that_takes_nothing_does_not_keep_others_out():
    ports: Queue[int] = Queue()
    Thread(target=serve, args=(TalkingLine(), 0), kwargs={"ready": ports.put, "patience": 0.1}, daemon=True).start()
    port = ports.get(timeout=10)
    with socket.create_connection(("localhost", port), 10), socket.create_connection(("localhost", port), 10) as second:
        assert second.recv(1) == b"\0"
