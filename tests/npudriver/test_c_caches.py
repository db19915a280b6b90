"""The C library's rules for caches suffice, and each step of them is needed."""

import subprocess
from pathlib import Path

import pytest

from .compiled_c import example_sources, on_rtl
from .small import program, workload

_SYNC = "device->backend.{0}(device->backend.context, {1})"
_DROP = "status = " + _SYNC.format("to_host", "region, begin, tensor_bytes(tensor)")
_CHECK = ";\n    if (status != NPUGEN_OK) return status;\n    "
_PLACE = _SYNC.format("to_device", "buffer, 0, buffer->size")
#: Step -> its text in npugen.c, and what stands there without it.
_STEPS = {
    "program and constants are cleaned": (_PLACE, "((void)device, NPUGEN_OK)"),
    "all of the region is cleaned": (_PLACE, _PLACE.replace("buffer->size", "size")),
    "inputs are invalidated before they are written": (_DROP + _CHECK + "memset", "status = NPUGEN_OK" + _CHECK
                                                       + "memset"),
    "inputs are cleaned": ("return " + _SYNC.format("to_device", "region, begin, tensor_bytes(tensor)"),
                           "return NPUGEN_OK"),
    "outputs are invalidated": (_DROP + _CHECK + "for", "status = NPUGEN_OK" + _CHECK + "for"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return example_sources(tmp_path, program(2, 20), workload(2, 20))


def _outcomes(folder: Path) -> set[str]:
    """What comes out with lines of several lengths, written back or never.

    The compiler places maps at multiples of 4 KiB: only the longest line has an input and an output in it.
    """
    example = on_rtl(folder, "caches.c")
    found = set()
    for line in (32, 64, 16384):
        for evict in (0, 1):
            done = subprocess.run([example, str(line), str(evict)], cwd=folder, capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, "")
            found.add(done.stdout.strip())
    return found


def test_the_rules_suffice(folder):
    assert _outcomes(folder) == {"0"}


@pytest.mark.parametrize("step", _STEPS)
def test_each_step_is_needed(folder, step):
    text, without = (folder / "npugen.c").read_text(), _STEPS[step]
    assert text.count(without[0]) == 1
    (folder / "npugen.c").write_text(text.replace(*without))
    assert _outcomes(folder) != {"0"}
