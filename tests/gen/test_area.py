"""What machines take without synthesis: near what the table's machines take, and what is done with it."""

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from boards.registry import BOARDS, get_board
from cores.config import PRESET_MACS
from cores.errors import NpugenError
from gen.cli import main
from gen.hw import area
from gen.hw.area import area_of, exceeded, from_others, machines
from gen.hw.area_table import MACHINES, components, listed, measure
from gen.hw.fit import largest_of
from gen.hw.synth import Report

MACHINE_IDS = [f"{one.family} {one.config.macs} {number}" for number, one in enumerate(machines())]


@pytest.mark.parametrize("number", range(len(machines())), ids=MACHINE_IDS)
def test_a_machine_is_reckoned_within_a_tenth_of_its_synthesis(number: int):
    """By the factors that fit the table, without looking the machine up in it."""
    one = machines()[number]
    totals = area._sum(area._reckoned(one.config, one.family), one.family)
    for name, count in one.totals.items():
        assert totals[name] == pytest.approx(count, rel=0.1, abs=2), name


def test_factors_are_those_of_the_best_choice_of_terms(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch):
    """As trying each choice by itself has them, to the bit, of which few are tried; terms may be 0 or alike."""
    solve, solved = np.linalg.lstsq, []
    monkeypatch.setattr(np.linalg, "lstsq", lambda *args, **options: solved.append(1) or solve(*args, **options))
    tried = 0
    for number in range(20):
        rows = rng.integers(1, 100, (14, 7)).astype(float)
        rows[:, 2], rows[:, 4] = 0, rows[:, 1] * (number % 2)
        wanted = rows @ np.maximum(rng.normal(size=7), 0) * rng.uniform(0.9, 1.1, 14)
        weights = 1 / np.maximum(wanted, 1)
        scaled, target = rows * weights[:, None], wanted * weights
        best, least = np.zeros(7), np.inf
        for count in range(1, 8):
            for chosen in combinations(range(7), count):
                factors = solve(scaled[:, chosen], target, rcond=None)[0]
                left, tried = float(np.sum((scaled[:, chosen] @ factors - target) ** 2)), tried + 1
                if (factors >= 0).all() and left < least * 0.999 - 1e-9:
                    best, least = np.zeros(7), left
                    best[list(chosen)] = factors
        np.testing.assert_array_equal(area._fitted(rows, wanted), best)
    assert len(solved) < tried / 4


def test_a_machine_of_the_table_is_as_synthesised():
    one = machines()[0]
    found = area_of(one.config, one.family)
    assert found.totals == one.totals and found.error == 0
    assert str(replace(found, now=True)).endswith("as synthesised")
    assert str(replace(found, now=False)).endswith("as synthesised of an earlier state")


def test_a_machine_like_those_of_the_table_says_its_error():
    found = area_of(get_board("zu3eg").config(256), "xcup")
    assert found.error is None or 0 < found.error < 0.25
    assert set(found.components) == {component for one in machines() for component in one.components}
    assert str(replace(found, error=None, now=True)).endswith("its error unknown")
    assert str(replace(found, totals={"lut": 23505.2, "dsp": 144}, error=0.081, now=True)
               ) == "lut 23,505, dsp 144, within 8 % of synthesis"


@pytest.mark.parametrize("board, macs, nearest", [("zu3eg", 1024, 512), ("zynq7020", 512, 256), ("cyclonev", 16, 64)])
def test_a_machine_beyond_those_of_the_table_names_the_nearest(board: str, macs: int, nearest: int):
    found = replace(area_of(get_board(board).config(macs), get_board(board).family), now=True)
    assert found.error is None and found.known == (
        f"extrapolated, its error unknown: the nearest machine that was synthesised is of {nearest} MACs")
    assert found.to_dict()["known"] == found.known and str(found).endswith(found.known)


def test_a_unit_of_which_no_machine_was_synthesised_has_no_known_error(monkeypatch: pytest.MonkeyPatch):
    board = get_board("zu3eg")
    having = board.config(128, **board.config(128).feature_fields(["table"]))
    without = tuple(one for one in machines() if not one.config.table)
    monkeypatch.setattr(area, "machines", lambda: without)
    found, plain = area_of(having, "xcup"), area_of(board.config(128), "xcup")
    assert found.error is None and plain.error is not None
    # Its memories are counted all the same, one of half a block for each two lanes.
    assert found.totals["bram36"] == plain.totals["bram36"] + having.ic_lanes / 4


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_more_macs_take_more(board):
    """Of logic and multipliers, and no fewer memories if a beat has as many channels."""
    configs = [board.config(macs) for macs in PRESET_MACS if macs >= 64]
    found = [area_of(config, board.family).totals for config in configs]
    for smaller, larger, *lanes in zip(found, found[1:], configs, configs[1:], strict=False):
        lut, ff, dsp, ram = [larger[name] - smaller[name] for name in smaller]
        assert lut > 0 and ff > 0 and dsp > 0
        assert ram >= 0 or lanes[0].ic_lanes < lanes[1].ic_lanes


@pytest.mark.parametrize("name", ["fusion", "gather", "binary", "winograd"])
def test_features_take_more(name: str):
    board = get_board("zynq7020")
    plain = board.config(128)
    more = area_of(board.config(128, **plain.feature_fields([name])), board.family).totals
    assert more["lut"] > area_of(plain, board.family).totals["lut"]


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_the_largest_fits_and_the_next_does_not(board):
    largest = largest_of(board)
    assert largest is not None and exceeded(largest.area.on(board), board) == []
    config = board.config(largest.config.macs)
    assert board.config(config.macs, **config.feature_fields(largest.features)) == largest.config
    for macs in PRESET_MACS[PRESET_MACS.index(config.macs) + 1:]:
        assert exceeded(area_of(board.config(macs), board.family).on(board), board)
    assert largest_of(replace(board, resources={**board.resources, "lut": 1000})) is None


def test_what_cannot_fit_is_refused_before_anything_is_written(tmp_path: Path, capsys: pytest.CaptureFixture,
                                                               monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cores.emit.emit_verilog", lambda config: "")
    argv = ["build", "--board", "ecp5", "--macs", "512", "-o", str(tmp_path / "out")]
    assert main(argv) == 1
    said = capsys.readouterr().err
    assert "gen build: error: ecp5: the machine is larger than the device of ULX3S-85F" in said
    assert "dsp 576 of 156 (estimated); --macs 64 fits, also with --features" in said and "or --force" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()
    assert main([*argv, "--force", "--json"]) == 0
    said = capsys.readouterr()
    assert "warning: the machine is larger than the device of ULX3S-85F" in said.err
    assert json.loads(said.out)["estimate"]["totals"]["dsp"] == 576
    assert (tmp_path / "out" / "npu.v").is_file()


def test_read_ports_are_counted_beside_the_machine(capsys: pytest.CaptureFixture, tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch):
    """By the sum a machine may be too large, as synthesised; a narrow one has one port, and so has one without."""
    board, ecp5 = get_board("zynq7020"), get_board("ecp5")
    found = area_of(board.config(256), board.family)
    ports = found.ports(board)
    assert ports == {"lut": 404, "ff": 415, "dsp": 0, "bram36": 4}
    assert found.on(board) == {name: total + ports[name] for name, total in found.totals.items()}
    assert found.error == 0
    just = replace(board, resources={**board.resources, "bram36": int(found.totals["bram36"]) + 3})
    assert exceeded(found.totals, just) == [] and found.too_much(just) == ["bram36 90 of 89"]
    assert found.too_much(replace(just, read_ports=1)) == []
    assert not any(area_of(board.config(16), board.family).ports(board).values())
    assert not any(area_of(ecp5.config(64), ecp5.family).ports(ecp5).values())
    assert area.read_ports_of("xcup", 512)["lut"] == 2 * area.read_ports_of("xcup", 256)["lut"]
    monkeypatch.setattr("cores.emit.emit_verilog", lambda config: "")
    monkeypatch.setattr("gen.hw.export.read_ports_verilog", lambda address_width, beat_bits: "")
    assert main(["build", "--board", "zynq7020", "--macs", "64", "-o", str(tmp_path / "out"), "--json"]) == 0
    said = capsys.readouterr()
    assert "beside it 2 ports for reads, as synthesised: lut 404, ff 415, bram36 4" in said.err
    assert json.loads(said.out)["ports"] == ports


def test_what_is_counted_is_let_off_less_than_logic():
    """10 % too many LUTs may be an error; 10 % too many multipliers are too many."""
    board = get_board("cyclonev")
    found = area_of(board.config(16), "cyclonev")
    assert found.error is None or found.error > 0.03
    for name, said in (("lut", []), ("dsp", ["dsp"])):
        total = found.totals[name]
        small = replace(board, resources={**board.resources, name: total / 1.05})
        assert [text.split()[0] for text in found.too_much(small)] == said


def test_what_may_not_fit_is_built_with_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture,
                                                  monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cores.emit.emit_verilog", lambda config: "")
    board = get_board("zu3eg")
    luts = area_of(board.config(128), board.family).totals["lut"]
    small = replace(board, resources={**board.resources, "lut": round(luts) - 1})
    monkeypatch.setattr("gen.cli.build.chosen_board", lambda arguments: small)
    assert main(["build", "--board", "zu3eg", "--macs", "128", "-o", str(tmp_path / "out")]) == 0
    assert "warning: the machine may be larger than the device of Ultra96-V2: lut" in capsys.readouterr().err


@pytest.mark.slow
def test_the_boards_are_listed_with_memory_and_largest_machine(capsys: pytest.CaptureFixture):
    assert main(["boards", "--json"]) == 0
    listed = {board["name"]: board for board in json.loads(capsys.readouterr().out)["boards"]}
    assert set(listed) == set(BOARDS)
    for name, board in listed.items():
        assert board["largest"]["macs"] == largest_of(BOARDS[name]).config.macs
        assert board["largest"]["clock"] in ("target", "estimated", "placed and routed")
        assert board["memory"]["sustained"] <= board["memory"]["peak"]
    assert main(["boards"]) == 0
    assert "GB/s" in capsys.readouterr().out


@pytest.mark.slow
def test_components_of_a_machine_in_the_table():
    (row,) = components(["zynq7020:64"])
    (whole,) = (one for one in listed() if one["machine"] == "zynq7020:64")
    assert sum(taken["lut"] for name, taken in row.items() if name != "machine") == whole["lut"]
    with pytest.raises(NpugenError, match="zynq7020:32 is not in area.json: `python -m gen.hw.area_table zynq7020:32`"):
        components(["zynq7020:32"])


def test_the_script_of_the_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """It knows its machines, and replaces what is there."""
    components = dict(machines()[0].components)
    monkeypatch.setattr("gen.hw.area_table.emit_verilog", lambda config: "")
    monkeypatch.setattr("gen.hw.area_table.synthesis_key", lambda verilog, top, family: "key")
    monkeypatch.setattr("gen.hw.area_table.synthesize",
                        lambda verilog, top, family, cache: Report(family, {}, {}, components))
    entries = [measure(name) for name in MACHINES]
    assert len({json.dumps([one["family"], one["config"]]) for one in entries}) == len(MACHINES)
    in_table = {json.dumps([one.family, one.config.to_dict()]) for one in machines()}
    assert in_table <= {json.dumps([one["family"], one["config"]]) for one in entries}
    table = tmp_path / "area.json"
    monkeypatch.setattr("gen.hw.area_table.TABLE", table)
    from gen.hw.area_table import main as make
    make(["ecp5:16", "zu3eg:256"])
    make(["ecp5:16"])
    assert [one["family"] for one in json.loads(table.read_text())["machines"]] == ["ecp5", "xcup"]
    # What nothing has changed of is not synthesised again; what something has, is.
    monkeypatch.setattr("gen.hw.area_table.synthesize", lambda *_, cache: pytest.fail("not needed"))
    make(["ecp5:16"])
    monkeypatch.setattr("gen.hw.area_table.synthesis_key", lambda verilog, top, family: "another")
    with pytest.raises(pytest.fail.Exception, match="not needed"):
        make(["ecp5:16"])


@pytest.mark.full
def test_the_table_is_of_this_hardware():
    """One machine, synthesised again: area changes with the hardware, and the table must follow."""
    board = get_board("zynq7020")
    found = measure("zynq7020:64")["components"]
    known = next(one for one in machines() if (one.family, one.config) == (board.family, board.config(64)))
    for name, count in known.totals.items():
        assert sum(one[name] for one in found.values()) == pytest.approx(count, rel=0.03), name


@pytest.mark.parametrize("machine", ["ecp5:16::tiny", "ecp5:16", "ecp5:64", "ecp5:128", "cyclonev:64", "cyclonev:256"])
def test_tables_of_another_fabric_grow_with_the_width(machine: str):
    """With one factor for all widths machines of ECP5 would be more than a tenth off."""
    assert abs({row["machine"]: row for row in listed()}[machine]["error_%"]["lut"]) < 5


def test_the_list_of_the_table_has_all_that_is_measured_and_how_near_the_others_come():
    rows = {row["machine"]: row for row in listed()}
    assert list(rows) == list(MACHINES)
    one = rows["zynq7020:64"]
    assert one["of_device_%"]["lut"] == pytest.approx(100 * one["lut"] / get_board("zynq7020").resources["lut"])
    number = next(number for number, other in enumerate(machines()) if other.totals == {
        kind: one[kind] for kind in ("lut", "ff", "dsp", "bram36")})
    reckoned = from_others(number)
    assert reckoned is not None
    assert one["error_%"]["lut"] == pytest.approx(100 * (reckoned["lut"] / one["lut"] - 1))
    assert abs(one["error_%"]["lut"]) > 0       # without the others' help it would be as synthesised
    assert rows["zynq7020:64:product"]["error_%"] is None      # the only one with that unit
