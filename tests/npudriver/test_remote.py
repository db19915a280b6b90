"""Devices over a connection: our own server, and what LiteX's remote client offers."""

import socket
import threading

import numpy as np
import pytest

from npudriver import Device, TransportError, open_backend
from npudriver.backends.remote import RemoteBackend
from npudriver.etherbone import EtherboneClient, Packet, receive, send
from npudriver.windows import Windows
from sim.devices import FunctionalBackend, InjectedFault

from .serving import serving
from .small import CONFIG, expected, machine_of_json, program, samples


def check_stream(device: Device, rng: np.random.Generator) -> None:
    wanted = samples(rng, 3)
    for found, inputs in zip(device.load(program()).stream(wanted), wanted, strict=True):
        np.testing.assert_array_equal(next(iter(found.values())), expected(inputs))


def test_our_server(rng):
    """One client after the other; interrupts and resets go through."""
    backend = FunctionalBackend(CONFIG)
    with serving(backend) as url:
        for _ in range(2):
            with Device(open_backend(url), machine_of_json()) as device:
                assert device.backend.has_interrupt
                check_stream(device, rng)
        backend.faults.append(InjectedFault.SILENT)
        with Device(open_backend(url), machine_of_json(), timeout=0.3) as device:
            (inputs,) = samples(rng, 1)
            found = device.load(program()).run(inputs, retries=1)
            np.testing.assert_array_equal(next(iter(found.values())), expected(inputs))


class LitexClient:
    """`read` and `write` as LiteX's RemoteClient has them, in front of a simulated SoC."""

    REGISTERS, MEMORY, SIZE = 0x8200_0000, 0x4000_0000, 1 << 18

    def __init__(self) -> None:
        self.soc = FunctionalBackend(CONFIG)
        self._buffer = self.soc.allocate(self.SIZE, 4096)
        assert self._buffer.address == self.MEMORY
        self.closed = False

    def read(self, addr, length=None, burst="incr"):
        words = [self._word(addr + 4 * number) for number in range(length or 1)]
        return words[0] if length is None else words

    def _word(self, address: int) -> int:
        self.soc.pause(1e-6)
        if address >= self.REGISTERS:
            return self.soc.read32(address - self.REGISTERS)
        return int(self._buffer.read(address - self.MEMORY, 4).view("<u4")[0])

    def write(self, addr, datas):
        datas = datas if isinstance(datas, list) else [datas]
        assert len(datas) <= 255, "longer bursts are refused"
        if addr >= self.REGISTERS:
            (value,) = datas
            self.soc.write32(addr - self.REGISTERS, value)
        else:
            self._buffer.write(addr - self.MEMORY, np.array(datas, "<u4").view(np.uint8))

    def close(self):
        self.closed = True


def test_litex(rng):
    """No interrupt: the driver polls."""
    client = LitexClient()
    windows = Windows(client.REGISTERS, client.MEMORY, client.SIZE, bus=client.MEMORY)
    with Device(RemoteBackend(client, windows), machine_of_json()) as device:
        assert not device.backend.has_interrupt
        check_stream(device, rng)
    assert client.closed


def test_bytes_that_are_no_words():
    client = LitexClient()
    backend = RemoteBackend(client, Windows(client.REGISTERS, client.MEMORY, client.SIZE, bus=client.MEMORY))
    buffer = backend.allocate(1001, 4096)
    wanted = np.full(1001, 7, np.uint8)
    buffer.write(0, wanted)
    for offset, size in ((0, 1), (1, 3), (3, 700), (998, 3), (5, 0)):
        data = np.arange(size, dtype=np.uint16).astype(np.uint8)
        buffer.write(offset, data)
        wanted[offset:offset + size] = data
        np.testing.assert_array_equal(buffer.read(0, 1001), wanted)
        np.testing.assert_array_equal(buffer.read(offset, size), data)


def test_packets_have_the_bytes_of_the_specification():
    """The header, one record, and what its counts say."""
    here, there = socket.socketpair()
    with here, there:
        send(here, Packet(base=0x12345678, writes=[0xCAFEBABE]))
        assert there.recv(100) == bytes.fromhex("4e6f104400000000 000f0100 12345678 cafebabe")
        send(here, Packet(reads=[0x10, 0x14]))
        assert there.recv(100) == bytes.fromhex("4e6f104400000000 000f0002 00000000 00000010 00000014")
        there.sendall(bytes.fromhex("4e6f104400000000 000f0201 00000020 00000001 00000002 00000000 00000040"))
        assert receive(here) == Packet(base=0x20, writes=(1, 2), reads=(0x40,))


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", bytes.fromhex("4e6f104400000000000f0100"), b"\x4e"])
def test_the_server_survives_nonsense(data, rng):
    with serving(FunctionalBackend(CONFIG)) as url:
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(data)
        with Device(open_backend(url), machine_of_json()) as device:
            check_stream(device, rng)


def answering(data: bytes) -> tuple[threading.Thread, int]:
    """A server that says something else, once."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        connection, _ = listener.accept()
        with connection, listener:
            connection.recv(100)
            connection.sendall(data)

    thread = threading.Thread(target=answer)
    thread.start()
    return thread, listener.getsockname()[1]


@pytest.mark.parametrize("data, message", [
    (b"HTTP/1.1 400 Bad Request\r\n", "does not speak Etherbone"),
    (b"", "the connection was closed"),
    (bytes.fromhex("4e6f104400000000000f0200 00000000 00000001 00000002"), "2 words came where 1 were asked"),
    (bytes.fromhex("4e6f104400000000000f0100 00000000 00000001"), "is no server of npudriver; say where"),
    (bytes.fromhex("4e6f104400000000000f01000000"), "closed in the middle of a packet"),
])
def test_others_at_the_other_end(data, message):
    thread, port = answering(data)
    with pytest.raises(TransportError, match=message):
        RemoteBackend(EtherboneClient("127.0.0.1", port))
    thread.join()


@pytest.mark.parametrize("url, message", [
    ("tcp://127.0.0.1:1", "127.0.0.1:1: Connection refused"),
    ("tcp://", "must be followed by a host"),
    ("tcp://here:99999", "Port out of range"),
    ("tcp://here?registers=1&memory=2", "size is missing"),
    ("tcp://here?registers=x&memory=2&size=3", "registers must be a number, not x"),
    ("tcp://here?colour=1", "there is no option colour; there are registers, memory, size, bus"),
    ("gpio:1", "a device is given as uio:..., pynq:..., tcp:..."),
])
def test_urls(url, message):
    with pytest.raises(TransportError, match=message):
        open_backend(url)


def test_an_answer_that_comes_late_is_not_taken_for_another():
    """After a timeout nothing more is read from the connection, whatever comes yet."""
    here, there = socket.socketpair()
    client = EtherboneClient.__new__(EtherboneClient)
    client._where, client._connection = "board:1234", here
    here.settimeout(0.05)
    with there:
        with pytest.raises(TransportError, match="board:1234: timed out"):
            client.read(0x10)
        with pytest.raises((BrokenPipeError, ConnectionError)):
            send(there, Packet(writes=[7]))
            send(there, Packet(writes=[7]))
        with pytest.raises(TransportError, match="board:1234: "):
            client.read(0x14)
        with pytest.raises(TransportError, match="board:1234: "):
            client.write(0x14, [1])


@pytest.mark.parametrize("windows, message", [
    ({"memory": 0xFFFF_0000, "size": 0x2_0000}, "memory at 0xffff0000, 0x20000 bytes: must begin"),
    ({"memory": 0x1_0000_0000, "size": 4}, "and lie below 0x100000000"),
    ({"memory": 2, "size": 4}, "memory at 0x2, 0x4 bytes"),
    ({"registers": 0xFFFF_F004, "memory": 0, "size": 4}, "registers at 0xfffff004"),
    ({"memory": 0, "size": 0}, "memory at 0x0, 0x0 bytes"),
])
def test_windows_that_a_connection_does_not_reach(windows, message):
    """Its addresses have 32 bits; the device may see the memory anywhere."""
    with pytest.raises(TransportError, match=message):
        Windows(**{"registers": 0, "bus": 1 << 35, **windows})
    Windows(registers=0, memory=0, size=1 << 30, bus=1 << 35)
