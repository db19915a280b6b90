"""The memory with rows and refreshes: by itself, against the harness's in C++, and under a program."""

import ctypes
import random
import subprocess
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from sim.rtl.build import build_library
from sim.timing.dram import TICKS, Dram, DramTiming

#: 40 cycles of latency, a beat in half a cycle, rows of 1 KiB in four banks.
TIMING = DramTiming(latency=40, beat=TICKS // 2, row_bytes=1024, banks=4, row_miss=8 * TICKS,
                    refresh_interval=1300 * TICKS, refresh=90 * TICKS, turn=3 * TICKS)
BEAT = 16


def test_latency_of_a_closed_row():
    # After the first refresh, which is under way at the beginning.
    assert Dram(TIMING).read(200, 0, 1, BEAT).tolist() == [240]
    assert Dram(replace(TIMING, refresh=0)).read(0, 0, 1, BEAT).tolist() == [40]


def test_open_rows_and_banks():
    dram = Dram(replace(TIMING, refresh=0))
    dram.read(0, 0, 1, BEAT)
    assert dram.read(100, 16, 1, BEAT).tolist() == [132]            # the same row: no miss
    assert dram.read(200, 4096, 1, BEAT).tolist() == [240]          # another one of its bank
    assert dram.read(300, 4096 + 1024, 1, BEAT).tolist() == [340]   # another bank
    assert dram.read(400, 4096, 1, BEAT).tolist() == [432]          # still open


def test_rows_are_opened_beside_data():
    dram = Dram(replace(TIMING, refresh=0))
    first, second = dram.read(0, 0, 64, BEAT), dram.read(0, 1024, 64, BEAT)
    assert first[-1] == 40 + 31 and second[-1] - first[-1] == 32
    # A row of a bank whose data are still under way waits for their end.
    assert dram.read(0, 4096 + 1024, 64, BEAT)[-1] == second[-1] + 8 + 32


def test_refreshes_take_their_share():
    dram, cycle = Dram(TIMING), 0
    beats = 20_000
    for number in range(beats // 64):
        cycle = int(dram.read(0, 1024 * number, 64, BEAT)[-1])
    assert cycle == pytest.approx(beats / 2 / (1 - 90 / 1300), rel=0.02)


def test_reads_and_writes_share_the_pins():
    def last(shared: bool) -> int:
        dram = Dram(replace(TIMING, refresh=0, shared=shared))
        for number in range(20):
            end = dram.read(0, 1024 * number, 64, BEAT)[-1]
            dram.write(0, 1024 * (number + 2), 64, BEAT)
        return int(end)
    assert last(shared=False) < 20 * 32 + 60
    assert last(shared=True) > 39 * 32 + 19 * 3


def test_a_write_is_answered_when_it_is_served():
    dram = Dram(replace(TIMING, refresh=0))
    assert dram.write(10, 0, 4, BEAT) == 50
    for _ in range(10):
        dram.read(10, 0, 256, BEAT)
    assert dram.write(11, 0, 4, BEAT) > 10 * 128


@pytest.mark.parametrize("wrong", [{"beat": 0}, {"latency": 0}, {"banks": -1}, {"refresh_interval": 90 * TICKS}])
def test_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        replace(TIMING, **wrong)


_SHIM = """
#include "dram.hpp"
extern "C" void serve(const DramTiming* timing, int count, const int64_t* bursts, int64_t* answers) {
    Dram dram(*timing);
    for (int i = 0; i < count; ++i) {
        const int64_t* b = bursts + 4 * i;  // cycle, address, beats, write
        const int64_t start = dram.serve(b[0], b[1], b[2], 16, b[3]);
        answers[i] = b[3] ? dram.write_cycle(b[0]) : dram.read_cycle(start, b[2] - 1);
    }
}
"""


def test_the_harness_has_the_same(tmp_path: Path, seed: int):
    (tmp_path / "shim.cpp").write_text(_SHIM)
    rtl = Path(build_library.__code__.co_filename).parent
    subprocess.run(["g++", "-std=c++17", "-shared", "-fPIC", f"-I{rtl}", "shim.cpp", "-o", "shim.so"],
                   cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "shim.so"))
    chance = random.Random(seed)
    for _ in range(40):
        timing = DramTiming(
            latency=chance.randint(1, 80), beat=chance.randint(1, 3000), row_bytes=chance.choice([1024, 2048, 8192]),
            banks=chance.choice([1, 4, 8, 16]), row_miss=chance.randint(0, 30_000),
            refresh_interval=chance.randint(100_000, 3_000_000), refresh=chance.randint(0, 90_000),
            turn=chance.randint(0, 9000), shared=chance.random() < 0.7)
        bursts, cycle = np.empty((200, 4), np.int64), 0
        for burst in bursts:
            cycle += chance.choice([0, 1, 30, 3000])
            beat = chance.randrange(1 << chance.choice([8, 16]))
            burst[:] = cycle, BEAT * beat, chance.randint(1, 64), chance.random() < 0.3
        dram = Dram(timing)
        expected = [dram.write(*burst[:3].tolist(), 16) if burst[3] else int(dram.read(*burst[:3].tolist(), 16)[-1])
                    for burst in bursts]
        fields = (ctypes.c_int64 * 11)(*(int(value) for value in asdict(timing).values()))
        answers = np.empty(len(bursts), np.int64)
        library.serve(fields, len(bursts), bursts.ctypes.data_as(ctypes.c_void_p),
                      answers.ctypes.data_as(ctypes.c_void_p))
        assert answers.tolist() == expected
