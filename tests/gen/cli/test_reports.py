"""What people read: the demo, tables and profiles."""

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from gen.cli import main
from gen.program.file import load_program


@pytest.mark.slow
def test_profile_of_the_time_model(model: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    assert main(["profile", model, "--macs", "64", "--clock", "100", "-o", "out", "--json"]) == 0
    profile = json.loads(capsys.readouterr().out)
    assert set(profile) == {"memory", "features", "clock_mhz", "clock", "macs", "total", "layers", "host"}
    assert (profile["macs"], profile["features"]) == (64, []) and profile["host"] is None
    split = {"useful", "idle_pixels", "idle_lanes", "stalls"}
    assert set(profile["total"]) == {"cycles", "macs", "utilisation", "fps", "dram_bytes", "batch",
                                     "cycles_per_sample", "slots_per_mac", "slots_per_lane_mac",
                                     "energy_macs"} | split
    for layer in profile["layers"]:
        assert set(layer) == split | {"name", "op", "mode", "cycles", "macs", "useful_macs", "utilisation",
                                      "dram_bytes", "lane_macs", "slots", "energy_share"}
    total = profile["total"]
    for part in (total, *profile["layers"]):
        work = part["useful"] + part["idle_pixels"] + part["idle_lanes"]
        assert part["cycles"] == work + sum(part["stalls"].values())
    assert total["cycles"] == sum(layer["cycles"] for layer in profile["layers"])
    slots = sum(layer["slots"] for layer in profile["layers"])
    assert total["slots_per_mac"] == slots / sum(layer["useful_macs"] for layer in profile["layers"])
    assert total["slots_per_lane_mac"] == slots / sum(layer["lane_macs"] for layer in profile["layers"])
    low, high = total["energy_macs"]
    # At least the multiplications and a memory that is cheap, and far less than one that is dear.
    assert slots + 38 * total["dram_bytes"] < low < high < slots * 6 + 1100 * total["dram_bytes"]
    assert sum(min(layer["energy_share"]) for layer in profile["layers"]) <= 1 <= sum(
        max(layer["energy_share"]) for layer in profile["layers"])
    assert total["macs"] == pytest.approx(total["utilisation"] * 64 * total["cycles"])
    assert total["fps"] == pytest.approx(100e6 / total["cycles"])
    assert json.loads((tmp_path / "out" / "profile.json").read_text()) == profile
    assert (tmp_path / "out" / "profile.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.rtl
def test_rtl_and_demo(capsys: pytest.CaptureFixture, tmp_path: Path):
    """The demo at its smallest: the Verilog in Verilator gives the bytes of the reference."""
    assert main(["demo", "--macs", "16", "--limit", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["target"], result["samples"], result["mismatches"]) == ("rtl", 2, 0)
    assert result["cycles"] == result["profile"]["total"]["cycles"] == sum(
        layer["cycles"] for layer in result["profile"]["layers"])
    assert load_program(tmp_path / "build" / "demo" / "digits.npu").config.macs == 16


@pytest.mark.rtl
def test_demo_draws(capsys: pytest.CaptureFixture):
    assert main(["demo", "--macs", "16", "--limit", "1"]) == 0
    out = capsys.readouterr().out
    assert "█" in out and "read as" in out
    assert re.search(r" 0 of [\d,]{6,} bytes, in all intermediate tensors, differ from the golden model", out)


def test_tables_for_people(model: str, samples: str, capsys: pytest.CaptureFixture):
    assert main(["run", model, "--features", "none", "--input", samples, "--limit", "25"]) == 0
    out = capsys.readouterr().out
    assert "and 5 more" in out and "25 samples on reference" in out and "accuracy" in out
    assert main(["boards"]) == 0
    assert "zu3eg" in capsys.readouterr().out
    assert main(["profile", model, "--features", "none"]) == 0
    out = capsys.readouterr().out
    assert "inferences a second at 333 MHz, target" in out and "more than 100 %" not in out
    assert main(["profile", model, "--features", "winograd", "--winograd", "narrow"]) == 0
    assert "more than 100 % used: Winograd layers need fewer" in capsys.readouterr().out


def test_a_profile_on_a_boards_memory(model: str, capsys: pytest.CaptureFixture):
    totals = {}
    for memory in ("ideal", "ecp5"):
        assert main(["profile", model, "--macs", "16", "--memory", memory, "--json"]) == 0
        profile = json.loads(capsys.readouterr().out)
        assert profile["memory"] == memory
        totals[memory] = profile["total"]["cycles"]
    assert totals["ecp5"] > 1.2 * totals["ideal"]
    assert main(["profile", model, "--memory", "nosuch"]) == 2
    assert "--memory nosuch: unknown board" in capsys.readouterr().err
    assert main(["run", model, "--input", model, "--memory", "ecp5"]) == 2
    assert "only --target rtl has a memory" in capsys.readouterr().err


@pytest.mark.parametrize("width", [80, 105, 120])
def test_a_profile_fits_a_narrow_terminal(width: int, monkeypatch: pytest.MonkeyPatch):
    """Names of any length are folded; no column is cropped; some are shown only where there is room."""
    from gen.cli import profile

    out = io.StringIO()
    monkeypatch.setattr(profile, "console", Console(file=out, width=width, highlight=False, markup=False))
    total = {"cycles": 12_345_678, "macs": 123_456_789, "utilisation": 0.433, "dram_bytes": 1_234_567,
             "idle_pixels": 1_234_567, "idle_lanes": 2_469_135, "slots_per_mac": 1.25, "slots_per_lane_mac": 1.125,
             "batch": 1, "energy_macs": [4.56e8, 7.89e9], "stalls": {"wait_weights": 1_234_567, "wait_load": 5_308_641}}
    layer = {**total, "name": "resnet/stage2/block1/conv_a/quantized", "mode": "depthwise",
             "energy_share": [0.116, 0.231]}
    profile.show({"layers": [layer], "total": {**total, "fps": 4.86}, "clock_mhz": 60, "clock": "target"}, "ecp5")
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert "1.25; 1.12 with channels rounded" in " ".join(out.getvalue().split())
    assert "energy: as 460 to 7,900 M multiplications of 8 bits" in " ".join(out.getvalue().split())
    assert ("12 to 23" in out.getvalue()) == (width > 110)
    if width > 80:
        assert next(line for line in lines if line.startswith(" resnet")).split()[2:7] == [
            "12,345,678", "43.3", "1.25", "1.12", "10.0"]
        return
    first = next(number for number, line in enumerate(lines) if line.startswith(" resnet"))
    last = next(number for number, line in enumerate(lines) if line.startswith(" total")) - 1
    columns = [lines[first].index("depthw"), lines[first].index("12,345,678")]
    folded = ["".join(line[start:end].strip() for line in lines[first:last])
              for start, end in ((0, columns[0]), (columns[0], columns[1]))]
    assert folded == [layer["name"], "depthwise"]
    assert lines[first].split()[2:] == ["12,345,678", "43.3", "20.0", "load", "43", "%", "1,234,567"]
