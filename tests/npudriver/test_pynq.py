"""PYNQ on a stub of its interface, and the stub against pynq's own sources.

pynq does not install without its board; NPUGEN_PYNQ names the folder of its sources, which `pip download --no-deps
--no-binary :all: pynq` and tar give.
"""

import ast
import asyncio
import inspect
import os
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npudriver import Device, OutOfMemoryError, TransportError, open_backend
from npudriver.backends.pynq import PynqBackend

from . import pynq_stub
from .pynq_stub import Stub
from .small import CONFIG, expected, machine_of_json, program, samples


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Stub:
    stub = Stub(CONFIG)
    monkeypatch.setitem(sys.modules, "pynq", stub.module)
    return stub


@pytest.mark.parametrize("interrupt", [True, False])
def test_inferences(monkeypatch, rng, interrupt):
    stub = Stub(CONFIG, interrupt=interrupt)
    monkeypatch.setitem(sys.modules, "pynq", stub.module)
    wanted = samples(rng, 4)
    with Device(open_backend("pynq:npu.bit"), machine_of_json()) as device:
        assert device.backend.has_interrupt == interrupt
        with device.load(program()) as loaded:
            for found, inputs in zip(loaded.stream(wanted), wanted, strict=True):
                np.testing.assert_array_equal(next(iter(found.values())), expected(inputs))
        assert not stub.memories, "memory is given back"


def test_in_a_notebook_the_driver_polls(stub, rng):
    """There is an event loop already, in which one cannot wait."""
    (inputs,) = samples(rng, 1)

    async def cell() -> dict[str, np.ndarray]:
        with Device(PynqBackend("npu.bit"), machine_of_json()) as device:
            assert not device.backend.has_interrupt
            return device.load(program()).run(inputs)

    np.testing.assert_array_equal(next(iter(asyncio.run(cell()).values())), expected(inputs))


def test_a_reset_loads_the_overlay_again(stub, rng):
    with Device(PynqBackend("npu.bit"), machine_of_json()) as device:
        loaded, (inputs,) = device.load(program()), samples(rng, 1)
        device.reset()
        assert stub.overlays == 2
        np.testing.assert_array_equal(next(iter(loaded.run(inputs).values())), expected(inputs))


def test_another_thread_resets_and_waits(stub):
    """As a server's, which has one for each client; threads but the first have no event loop of their own."""
    backend = PynqBackend("npu.bit")
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(backend.reset).result() and stub.overlays == 2
        assert not thread.submit(backend.wait_interrupt, 0.01).result()
    backend.close()


def test_waits_end(stub):
    backend = PynqBackend("npu.bit")
    assert not backend.wait_interrupt(0.01)
    backend.close()


def test_addresses_are_multiples(stub):
    backend = PynqBackend("npu.bit")
    buffer = backend.allocate(100, 4096)
    assert buffer.address % 4096 == 0 and buffer.size == 100
    buffer.write(3, np.arange(5, dtype=np.uint8))
    np.testing.assert_array_equal(stub.view(buffer.address + 3, 5), range(5))
    with pytest.raises(OutOfMemoryError, match="give Linux more CMA"):
        backend.allocate(1 << 25, 4096)
    buffer.free()
    buffer.free()
    backend.close()


@pytest.mark.parametrize("url, message", [
    ("pynq:missing.bit", "missing.bit: the overlay cannot be loaded"),
    ("pynq:npu.bit?ip=conv", "npu.bit: has no cell conv; it has npu, gpio"),
    ("pynq:", "pynq: must be followed by the file of the bitstream"),
])
def test_what_is_not_there(stub, url, message):
    with pytest.raises(TransportError, match=message):
        open_backend(url)


def test_no_pynq(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynq", None)
    with pytest.raises(TransportError, match="the package pynq is missing: this is no PYNQ board"):
        PynqBackend("npu.bit")


def pynq_definition(file: str, *names: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    """A function, or a class's method, of pynq's own."""
    folder = os.environ.get("NPUGEN_PYNQ")
    if not folder:
        pytest.skip("no sources of pynq: set NPUGEN_PYNQ to their folder")
    with warnings.catch_warnings(action="ignore"):  # of pynq's
        node: Any = ast.parse((Path(folder) / "pynq" / file).read_text())
    for name in names:
        node = next(child for child in node.body if getattr(child, "name", None) == name)
    return node


@pytest.mark.parametrize("ours, file, names", [
    (Stub.allocate, "buffer.py", ["allocate"]),
    (pynq_stub.PynqBuffer.flush, "buffer.py", ["PynqBuffer", "flush"]),
    (pynq_stub.PynqBuffer.invalidate, "buffer.py", ["PynqBuffer", "invalidate"]),
    (pynq_stub.PynqBuffer.freebuffer, "buffer.py", ["PynqBuffer", "freebuffer"]),
    (pynq_stub.DefaultIP.read, "overlay.py", ["DefaultIP", "read"]),
    (pynq_stub.DefaultIP.write, "overlay.py", ["DefaultIP", "write"]),
    (pynq_stub.Interrupt.wait, "interrupt.py", ["Interrupt", "wait"]),
    (Stub._overlay, "overlay.py", ["Overlay", "__init__"]),
])
def test_the_stub_is_like_pynq(ours: Callable[..., Any], file: str, names: list[str]):
    """Our parameters are the first of pynq's, by the same names; the others there have defaults."""
    theirs = pynq_definition(file, *names)
    arguments = [argument.arg for argument in theirs.args.args if argument.arg != "self"]
    mine = [name for name in inspect.signature(ours).parameters if name != "self"]
    assert arguments[:len(mine)] == mine
    assert len(arguments) - len(mine) <= len(theirs.args.defaults)
    assert isinstance(theirs, ast.AsyncFunctionDef) == inspect.iscoroutinefunction(ours)


def test_pynq_has_the_attributes():
    text = ast.unparse(pynq_definition("buffer.py", "PynqBuffer", "__array_finalize__"))
    assert "self.device_address = obj.device_address + offset" in text
    assert "self.ip_dict" in ast.unparse(pynq_definition("overlay.py", "Overlay", "__init__"))
    assert "setattr(self, interrupt, Interrupt(details['fullpath']))" in ast.unparse(
        pynq_definition("overlay.py", "DefaultIP", "__init__"))
