"""UIO and u-dma-buf on files that stand for the kernel's."""

import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from npudriver import Device, OutOfMemoryError, TransportError
from npudriver.backends.uio import UioBackend

from .fake_board import ADDRESS, SIZE, FakeBoard, make_files
from .small import CONFIG, expected, machine_of_json, program, samples


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_files(tmp_path)
    return tmp_path


def plain(folder: Path, **options: str) -> UioBackend:
    return UioBackend(**{"sysfs": str(folder / "class"), "dev": str(folder / "dev"), **options})


@pytest.mark.parametrize("kind", ["u-dma-buf", "udmabuf"])
@pytest.mark.parametrize("coherent", [False, True])
def test_inferences(tmp_path, rng, kind, coherent):
    make_files(tmp_path, kind=kind, coherent=coherent)
    wanted = samples(rng, 3)
    with Device(FakeBoard(tmp_path, CONFIG), machine_of_json()) as device:
        for found, inputs in zip(device.load(program()).stream(wanted), wanted, strict=True):
            np.testing.assert_array_equal(next(iter(found.values())), expected(inputs))
    synced = (tmp_path / "class" / kind / "udmabuf0" / "sync_for_device").read_text()
    assert synced.startswith("0" if coherent else "1")


def test_caches_are_written_back_and_dropped(folder):
    backend = plain(folder)
    buffer = backend.allocate(8192, 4096)
    told = folder / "class" / "u-dma-buf" / "udmabuf0"

    def numbers() -> list[int]:
        found = [int((told / name).read_text().split()[0])
                 for name in ("sync_offset", "sync_size", "sync_direction", "sync_for_device", "sync_for_cpu")]
        for name in ("sync_offset", "sync_size", "sync_direction", "sync_for_device", "sync_for_cpu"):
            (told / name).write_text("0\n")
        return found

    second = backend.allocate(100, 4096)
    assert second.address == ADDRESS + 8192
    second.write(5, np.arange(70, dtype=np.uint8))
    assert numbers() == [8192, 128, 1, 1, 0], "whole lines around bytes 5 to 75, to the device"
    np.testing.assert_array_equal(second.read(6, 3), [1, 2, 3])
    assert numbers() == [8192, 64, 2, 0, 1]
    assert (folder / "dev" / "udmabuf0").read_bytes()[8192 + 5:8192 + 8] == bytes([0, 1, 2])
    buffer.free()
    buffer.free()
    assert backend.allocate(4096, 4096).address == ADDRESS
    with pytest.raises(OutOfMemoryError):
        backend.allocate(SIZE, 4096)
    with pytest.raises(ValueError, match="are not in a buffer of 100 bytes"):
        second.write(90, np.zeros(20, np.uint8))
    backend.close()


def test_registers_are_words_of_the_file(folder):
    backend = plain(folder)
    backend.write32(0x44, 0xDEADBEEF)
    assert backend.read32(0x44) == 0xDEADBEEF
    assert (folder / "dev" / "uio3").read_bytes()[0x44:0x48] == bytes.fromhex("efbeadde")
    backend.close()


def test_interrupts(folder):
    """The kernel is told to let the next one through, by a word of 1, and gives a word for each that has come."""
    backend = plain(folder, interrupt=str(folder / "interrupt"))
    device = os.open(folder / "interrupt", os.O_RDWR | os.O_NONBLOCK)
    assert backend.wait_interrupt(0), "in a FIFO, the word that is written is what can be read"
    with pytest.raises(BlockingIOError):
        os.read(device, 4)
    os.close(device)
    backend.close()


def test_one_process_has_it(folder):
    with pytest.raises(TransportError, match="another process uses the device"):
        first = plain(folder)
        try:
            plain(folder)
        finally:
            first.close()
    plain(folder).close()


def test_one_process_has_the_memory(folder):
    """Two devices would hand out the same bytes of one u-dma-buf."""
    shutil.copytree(folder / "class" / "uio" / "uio3", folder / "class" / "uio" / "uio4")
    shutil.copy(folder / "dev" / "uio3", folder / "dev" / "uio4")
    first = plain(folder, device="uio3")
    with pytest.raises(TransportError, match="udmabuf0: another process uses the memory"):
        plain(folder, device="uio4")
    first.close()
    with pytest.raises(TransportError, match="2 UIO devices are called npu: name one of uio3, uio4"):
        plain(folder)
    plain(folder, device="uio4").close()


def test_a_device_without_interrupt_is_polled(tmp_path, rng, monkeypatch):
    """The kernel answers a write with EIO where the device tree names none."""
    make_files(tmp_path)
    written = os.write

    def no_interrupt(file: int, data: bytes) -> int:
        if data == b"\1\0\0\0":
            raise OSError(errno.EIO, "Input/output error")
        return written(file, data)

    monkeypatch.setattr(os, "write", no_interrupt)
    monkeypatch.setattr(FakeBoard, "wait_interrupt", polled)
    with Device(FakeBoard(tmp_path, CONFIG), machine_of_json()) as device:
        (inputs,) = samples(rng, 1)
        (found,) = device.load(program()).run(inputs).values()
    np.testing.assert_array_equal(found, expected(inputs))


def polled(board: FakeBoard, seconds: float) -> bool:
    board.simulated.wait_interrupt(0)
    board._show()
    return UioBackend.wait_interrupt(board, seconds)


def test_memory_out_of_reach(tmp_path):
    """Above the last address that the machine's bus has."""
    make_files(tmp_path)
    (tmp_path / "class" / "u-dma-buf" / "udmabuf0" / "phys_addr").write_text(f"{1 << CONFIG.address_width:#x}\n")
    with Device(FakeBoard(tmp_path, CONFIG), machine_of_json()) as device:
        free = device.backend._memory.arena.free_bytes
        with pytest.raises(OutOfMemoryError, match=f"reach, whose bus has {CONFIG.address_width} address bits"):
            device.load(program())
        assert device.backend._memory.arena.free_bytes == free


@pytest.mark.parametrize("options, message", [
    ({"device": "gpu"}, "no UIO device is called gpu; there are npu"),
    ({"device": "/dev/uio9"}, "uio9: No such file"),
    ({"buffer": "udmabuf7"}, "there is no such u-dma-buf; load its kernel module"),
    ({"interrupt": "/nowhere"}, "/nowhere: No such file"),
])
def test_what_is_not_there(folder, options, message):
    with pytest.raises(TransportError, match=message):
        plain(folder, **options)


def test_no_registers(folder):
    (folder / "class" / "uio" / "uio3" / "maps" / "map0" / "size").unlink()
    with pytest.raises(TransportError, match="has no map0 with the device's registers"):
        plain(folder)


def test_files_are_closed_however_it_ends(folder):
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(TransportError):
        plain(folder, buffer="udmabuf7")
    plain(folder).close()
    assert len(os.listdir("/proc/self/fd")) == before
