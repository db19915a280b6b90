"""What a client of the server can do to the board and to other clients, which is nothing."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

import npudriver.__main__ as commands
from npudriver import Deployment, Device, TransportError, open_backend
from npudriver.access import answer, read_token
from npudriver.backends.remote import RemoteBackend
from npudriver.etherbone import EtherboneClient, Packet, receive, send
from npudriver.server import Limits, Server
from npudriver.session import Session
from npudriver.windows import ANSWER, CHALLENGE, INFO, STATE, State, Windows
from sim.devices import FunctionalBackend, InjectedFault
from tests.conftest import ROOT

from .serving import serving
from .small import CONFIG, MACHINE, expected, machine_of_json, program, samples

TOKEN = b"0123456789abcdef"
#: Short, so that tests are; nothing is asserted about how long anything takes.
SHORT = Limits(packet=0.4, idle=1.0, greeting=1.0, turn=4.0, guests=4)
BEAT = MACHINE.beat_bytes


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


@contextmanager
def client(url: str) -> Iterator[tuple[EtherboneClient, Windows]]:
    with closing(EtherboneClient("127.0.0.1", port_of(url))) as it:
        assert it.read(STATE) == [State.YOURS]
        yield it, Windows.found(lambda address: it.read(address)[0])


def check_works(url: str, rng: np.random.Generator) -> None:
    """The next client gets the device, and what it computes is right."""
    (inputs,) = samples(rng, 1)
    with Device(open_backend(url), machine_of_json()) as device:
        found = device.load(program()).run(inputs)
    np.testing.assert_array_equal(next(iter(found.values())), expected(inputs))


# -- memory ----------------------------------------------------------------------------------------------------------


def tell(it: EtherboneClient, **values: int) -> None:
    for name, value in values.items():
        it.write(MACHINE.registers[name], [value])


def ended(it: EtherboneClient) -> bool:
    try:
        it.read(MACHINE.registers["status"])
    except TransportError:
        return True
    return False


def regions(bus: int, size: int) -> list[tuple[str, dict[str, int]]]:
    """What a job may not be, beside one that may: 4 KiB of program at ``bus`` and all of the buffer as data."""
    page = 4096
    return [
        ("program", {"program_low": bus - page}),
        ("program", {"program_low": bus + size}),
        ("program", {"program_low": 0}),
        ("program", {"program_high": 1}),
        ("program", {"program_low": bus + size - page, "program_length": page // MACHINE.instruction_bytes + 1}),
        ("program", {"program_length": (1 << 24) - 1}),
        ("data", {"data_low": bus - page}),
        ("data", {"data_low": bus + page}),
        ("data", {"data_low": 0xFFFF_F000}),
        ("data", {"data_high": 1}),
        ("data", {"data_high": 0xFFFF_FFFF}),
        ("data", {"data_beats": size // BEAT + 1}),
        ("data", {"data_beats": 0xFFFF_FFFF}),
        # The sum wraps at 64 bits, if anybody computes it in so many.
        ("data", {"data_low": 0xFFFF_F000, "data_high": 0xFFFF_FFFF}),
    ]


@pytest.mark.parametrize("number", range(14))
def test_a_start_reaches_the_clients_memory_alone(number, rng):
    backend = FunctionalBackend(CONFIG)
    below = backend.allocate(1 << 16, 4096)
    said: list[str] = []
    with serving(backend, said=said) as url:
        with client(url) as (it, windows):
            allowed = {"program_low": windows.bus, "program_high": 0, "program_length": 16, "data_low": windows.bus,
                       "data_high": 0, "data_beats": windows.size // BEAT, "write_start": 0}
            assert windows.bus > below.address
            what, wrong = regions(windows.bus, windows.size)[number]
            tell(it, **allowed, control=MACHINE.control["START"])
            assert not ended(it) and backend.starts == 1
            tell(it, control=MACHINE.control["ABORT"])
            tell(it, **{**allowed, **wrong}, control=MACHINE.control["START"] | MACHINE.control["CLEAR"])
            assert ended(it) and backend.starts == 1
        assert len(said) == 1 and f"START with a {what} region of " in said[0] and "\n" not in said[0]
        check_works(url, rng)


def test_a_running_machine_is_not_told_of_other_memory():
    """Nor is one that has ended in between: what it is told is looked at at each START."""
    backend = FunctionalBackend(CONFIG)
    backend.faults += [InjectedFault.ENDLESS]
    with serving(backend) as url, client(url) as (it, windows):
        tell(it, program_low=windows.bus, program_length=16, data_low=windows.bus, data_beats=16,
             control=MACHINE.control["START"])
        tell(it, data_low=0, data_high=1, data_beats=1 << 31, control=MACHINE.control["START"])
        assert it.read(MACHINE.registers["data_low"]) == [windows.bus]
        assert it.read(MACHINE.registers["data_high"]) == [0]
        assert it.read(MACHINE.registers["data_beats"]) == [16] and backend.starts == 1
        tell(it, control=MACHINE.control["ABORT"])
        tell(it, data_high=1, control=MACHINE.control["START"])
        assert ended(it) and backend.starts == 1


@pytest.mark.parametrize("address, words", [
    (MACHINE.registers["control"] + 1, [1]),        # a back end that drops low bits would take it for a START
    (MACHINE.registers["control"] - 2, [0x10000, 1]),
    (0x1000 + MACHINE.registers["control"], [1]),   # a port that drops high bits, too
    (0x2C, [0]),
    (0x1000_0000 - 4, [0, 0]),
    (0x1000_0000 + (1 << 20) - 4, [0, 0]),
    (0x1000_0002, [0]),
    (0xFFFF_FFFC, [0, 1, 2, 3, 4, 1]),              # goes round to `control`
    (INFO, [1]),
])
def test_writes_to_where_nothing_is(address, words, rng):
    backend = FunctionalBackend(CONFIG)
    said: list[str] = []
    with serving(backend, said=said) as url:
        with client(url) as (it, _):
            it.write(address, words)
            assert ended(it)
        assert backend.starts == 0 and len(said) == 1 and f"a write to {address & ~3:#x}"[:-1] in said[0]
        check_works(url, rng)


def test_the_next_client_finds_nothing(rng):
    """Neither data nor a program that runs, which ABORT stops where that helps."""
    backend = FunctionalBackend(CONFIG)
    reset = backend.reset
    with serving(backend) as url:
        for fault in (InjectedFault.ENDLESS, InjectedFault.SILENT):
            backend.faults.append(fault)
            backend.reset = reset if fault is InjectedFault.SILENT else lambda: False
            with client(url) as (it, windows):
                it.write(windows.memory + 4096, [0xCAFEBABE] * 4)
                it.write(windows.memory + windows.size - 4, [0xCAFEBABE])
                tell(it, program_low=windows.bus, program_length=16, data_low=windows.bus, data_beats=16, irq_enable=1,
                     timeout=5, control=MACHINE.control["START"])
                assert it.read(MACHINE.registers["status"]) == [MACHINE.status["BUSY"]]
            with client(url) as (it, windows):
                buffer = RemoteBackend(it, windows).allocate(windows.size, 4096)
                assert not buffer.read(0, windows.size).any()
                assert [it.read(MACHINE.registers[name])[0] for name in (
                    "status", "program_low", "program_length", "data_low", "data_beats", "irq_enable", "timeout")
                ] == [0, 0, 0, 0, 0, 0, 1 << 20]
        check_works(url, rng)


def test_a_device_that_does_not_stop_is_lent_to_nobody(rng):
    """Until it has: what it still writes would be in the next client's memory."""
    backend = FunctionalBackend(CONFIG)
    backend.faults.append(InjectedFault.SILENT)
    reset = backend.reset
    said: list[str] = []
    with serving(backend, said=said) as url:
        backend.reset = lambda: False
        with client(url) as (it, windows):
            tell(it, program_low=windows.bus, program_length=16, data_low=windows.bus, data_beats=16,
                 control=MACHINE.control["START"])
        with pytest.raises(TransportError, match="the device does not stop, as its bus owes answers"):
            open_backend(url)
        backend.reset = reset
        check_works(url, rng)
    assert sum("the device does not stop" in line for line in said) == 2


# -- the token -------------------------------------------------------------------------------------------------------


def test_only_who_has_the_token_gets_the_device(tmp_path, monkeypatch, rng):
    file = tmp_path / "token"
    file.write_bytes(TOKEN + b"\n")
    file.chmod(0o600)
    said: list[str] = []
    with serving(FunctionalBackend(CONFIG), token=TOKEN, said=said) as url:
        with pytest.raises(TransportError, match="wants a token: set NPUDRIVER_TOKEN or"):
            open_backend(url)
        monkeypatch.setenv("NPUDRIVER_TOKEN", "fedcba9876543210")
        with pytest.raises(TransportError, match="the server has another token"):
            open_backend(url)
        check_works(f"{url}?token-file={file}", rng)
        monkeypatch.setenv("NPUDRIVER_TOKEN_FILE", str(file))       # before the other variable
        check_works(url, rng)
        monkeypatch.delenv("NPUDRIVER_TOKEN_FILE")
        monkeypatch.setenv("NPUDRIVER_TOKEN", TOKEN.decode())
        check_works(url, rng)
    assert "has another token" in said[-1] and not any(TOKEN.decode() in line for line in said)


@pytest.mark.parametrize("packet", [
    Packet(reads=[0]), Packet(base=0x1000_0000, writes=[1]), Packet(reads=[INFO + 4 * number for number in range(8)]),
    Packet(base=ANSWER, writes=[1], reads=[0]), Packet(), Packet(base=0x10, writes=[1], reads=[STATE]),
    Packet(reads=[INFO, 0]), Packet(reads=[INFO + 0x1004]),
])
def test_without_it_nothing_is_answered(packet):
    backend = FunctionalBackend(CONFIG)
    with serving(backend, token=TOKEN) as url, socket.create_connection(("127.0.0.1", port_of(url)), 5) as it:
        send(it, packet)
        assert receive(it) is None and backend.starts == 0


def test_an_answer_is_good_for_one_connection_and_one_try():
    with serving(FunctionalBackend(CONFIG), token=TOKEN) as url:
        def begin() -> tuple[EtherboneClient, list[int]]:
            it = EtherboneClient("127.0.0.1", port_of(url))
            return it, it.read(CHALLENGE, 8)

        first, words = begin()
        second, others = begin()
        assert words != others and first.read(CHALLENGE, 8) == words
        second.write(ANSWER, answer(TOKEN, words))
        assert second.read(STATE) == [State.LOCKED] and ended(second)
        first.write(ANSWER, answer(TOKEN, others))
        first.write(ANSWER, answer(TOKEN, words))
        assert ended(first)


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::"])
def test_an_address_that_others_reach_wants_a_token(host):
    try:
        socket.create_server(("::" if ":" in host else "127.0.0.1", 0),
                             family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError:
        pytest.skip("there is no IPv6 here")
    with pytest.raises(TransportError, match="others can reach this address, so that clients must show a token"):
        Server(FunctionalBackend(CONFIG), MACHINE, host=host, port=0, memory=1 << 16)


def test_tokens(tmp_path, monkeypatch):
    for name in ("NPUDRIVER_TOKEN", "NPUDRIVER_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert read_token() is None
    monkeypatch.setenv("NPUDRIVER_TOKEN", "short")
    with pytest.raises(TransportError, match="NPUDRIVER_TOKEN: a token has 16 bytes at least"):
        read_token()
    file = tmp_path / "token"
    with pytest.raises(TransportError, match=f"{file}: the token cannot be read .No such file"):
        read_token(file)
    file.write_bytes(TOKEN)
    file.chmod(0o644)
    with pytest.raises(TransportError, match=f"everybody here can read this token: chmod o-r {file}"):
        read_token(file)
    file.chmod(0o620)
    with pytest.raises(TransportError, match=f"others here can write this token: chmod go-w {file}"):
        read_token(file)
    file.chmod(0o600)
    assert read_token(file) == TOKEN
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(TransportError, match="the token cannot be read .not a regular file"):
        read_token(tmp_path / "pipe")
    for url, message in (("tcp://secret@here", "no token goes into it"),
                         (f"tcp://here?token-file={file}&size=4", "is of our own server")):
        with pytest.raises(TransportError, match=message):
            open_backend(url)


def test_memory_is_read_in_any_order():
    session = Session(FunctionalBackend(CONFIG), MACHINE, 4096)
    memory = 0x1000_0000
    session.write(memory, list(range(1, 9)))
    assert session.read([memory + 4 * place for place in (3, 0, 7)]) == [4, 1, 8]
    assert session.read([memory + 4092, memory + 4096, memory]) == [0, 0, 1]


# -- slow clients ----------------------------------------------------------------------------------------------------

BEGINNING = bytes.fromhex("4e6f104400000000 000f0002 00000000 00000010 00000014")[:20]


def silent(it: socket.socket) -> None:
    """Never says anything."""


def one_byte(it: socket.socket) -> None:
    it.sendall(BEGINNING[:1])


def half_a_packet(it: socket.socket) -> None:
    it.sendall(BEGINNING)


def one_that_holds_the_device(it: socket.socket) -> None:
    send(it, Packet(reads=[STATE]))
    assert receive(it) == Packet(writes=(0,))


def half_a_packet_with_the_device(it: socket.socket) -> None:
    one_that_holds_the_device(it)
    it.sendall(BEGINNING)


def drops(it: socket.socket) -> None:
    """A byte now and then: the packet as a whole is late."""
    one_that_holds_the_device(it)

    def drip() -> None:
        with pytest.raises(OSError):
            for byte in bytes.fromhex("4e6f104400000000 000fff00") + bytes(1024):
                it.sendall(bytes([byte]))
                threading.Event().wait(SHORT.packet / 4)

    threading.Thread(target=drip, daemon=True).start()


def takes_no_answers(it: socket.socket) -> None:
    it.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one_that_holds_the_device(it)

    def ask() -> None:
        with pytest.raises(OSError):
            while True:
                send(it, Packet(reads=[0x1000_0000 + 4 * number for number in range(255)]))

    threading.Thread(target=ask, daemon=True).start()


@pytest.mark.parametrize("slow", [silent, one_byte, half_a_packet, one_that_holds_the_device,
                                  half_a_packet_with_the_device, drops, takes_no_answers])
def test_a_slow_client_does_not_keep_others_out(slow, rng):
    said: list[str] = []
    with serving(FunctionalBackend(CONFIG), limits=SHORT, said=said) as url:
        with socket.create_connection(("127.0.0.1", port_of(url)), 5) as it:
            slow(it)
            check_works(url, rng)
    assert len(said) <= 1


def test_silent_clients_are_not_kept(rng):
    """However many: the oldest goes for the newest; and those that stay are not there for good."""
    said: list[str] = []
    with serving(FunctionalBackend(CONFIG), limits=SHORT, said=said) as url:
        crowd = [socket.create_connection(("127.0.0.1", port_of(url)), 5) for _ in range(20)]
        check_works(url, rng)
        for it in crowd:
            with it:
                try:
                    assert it.recv(1) == b""
                except ConnectionResetError:
                    pass


def test_those_that_wait_for_their_turn_give_way_too(rng):
    """Twice as many as there may be, and all want the device; nobody who comes then is turned away at the door."""
    with serving(FunctionalBackend(CONFIG), limits=SHORT) as url:
        with client(url):
            crowd = [socket.create_connection(("127.0.0.1", port_of(url)), 5) for _ in range(2 * SHORT.guests)]
            for it in crowd:
                send(it, Packet(reads=[STATE]))
            for it in crowd[:SHORT.guests]:
                with it:
                    assert receive(it) is None
        for it in crowd[SHORT.guests:]:
            it.close()
        check_works(url, rng)


def test_a_second_client_is_told(rng):
    limits = Limits(turn=0.1)
    with serving(FunctionalBackend(CONFIG), limits=limits) as url:
        with client(url):
            with pytest.raises(TransportError, match="another client has the device; try again"):
                open_backend(url)
        check_works(url, rng)


# -- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Deployment(name="small", board="b", device="uio:", machine=MACHINE, inputs={"x": ("uint8", [4, 6, 6])},
               outputs=["y"], segments=[program()]).save(tmp_path)
    return tmp_path


@pytest.mark.parametrize("argv, message", [
    (["--listen", "0.0.0.0:0"], "0.0.0.0:0: others can reach this address, so that clients must show a token"),
    (["--listen", "127.0.0.1:99999"], "must be ADDRESS:PORT"),
    (["--listen", "no.such.host.invalid:1"], "no.such.host.invalid:1: "),
    (["--token-file", "/nowhere"], "/nowhere: the token cannot be read (No such file or directory)"),
    (["/nowhere"], "/nowhere: No such file or directory [unreadable-file]"),
])
def test_errors_are_one_line(folder, monkeypatch, capsys, argv, message):
    monkeypatch.setattr(commands, "open_backend", lambda url: FunctionalBackend(CONFIG))
    monkeypatch.delenv("NPUDRIVER_TOKEN", raising=False)
    monkeypatch.chdir(folder)
    assert commands.main(["serve", *argv]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_the_wrong_machine(folder, monkeypatch, capsys):
    """A map of other registers or beats would check other memory than the machine reaches."""
    from cores.config import NpuConfig

    monkeypatch.setattr(commands, "open_backend", lambda url: FunctionalBackend(NpuConfig.preset(64)))
    assert commands.main(["serve", str(folder)]) == 1
    assert "the device was built from another configuration" in capsys.readouterr().err


_SERVE = """
import sys
import npudriver.__main__ as commands
from sim.devices import FunctionalBackend
from tests.npudriver.small import CONFIG

commands.open_backend = lambda url: FunctionalBackend(CONFIG)
sys.exit(commands.main(["serve", *sys.argv[1:]]))
"""


def test_the_command(folder, rng, monkeypatch):
    """With a token from the environment, to the end by SIGTERM."""
    monkeypatch.setenv("NPUDRIVER_TOKEN", TOKEN.decode())
    with subprocess.Popen([sys.executable, "-c", _SERVE, str(folder), "--listen", "127.0.0.1:0"], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        line = process.stdout.readline()
        assert line.startswith("serving at tcp://127.0.0.1:") and line.endswith(", with a token\n")
        url = line.split()[2].rstrip(",")
        check_works(url, rng)
        with Device(open_backend(url), machine_of_json()):
            process.terminate()
            assert process.wait(30) == 130
        assert process.stderr.read() == ""
