"""Program files: round trip, identical bytes, and every way to be damaged."""

import dataclasses
import tracemalloc
import zipfile

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.compiler import compile_graph
from gen.program.assembler import AssemblyError, assemble, disassemble_code, disassemble_program, encode_all
from gen.program.file import load_program, save_program
from gen.program.program import Program, ProgramError
from tests.npu_files import changed, resealed, write_files
from tests.random_layers import random_graph, random_inputs

CONFIG = NpuConfig.preset(256)


@pytest.fixture(scope="module")
def program() -> Program:
    return compile_graph(random_graph(3, layers=3), CONFIG, model=b"the model")[0]


def test_round_trip(program, tmp_path):
    save_program(program, tmp_path / "a.npu")
    loaded = load_program(tmp_path / "a.npu")
    for field in dataclasses.fields(Program):
        assert getattr(loaded, field.name) == getattr(program, field.name), field.name
    assert loaded.instructions == program.instructions
    assert np.array_equal(loaded.image(), program.image())


def test_same_program_same_bytes(program, tmp_path):
    save_program(program, tmp_path / "a.npu")
    save_program(load_program(tmp_path / "a.npu"), tmp_path / "b.npu")
    again = compile_graph(random_graph(3, layers=3), CONFIG, model=b"the model")[0]
    save_program(again, tmp_path / "c.npu")
    assert (tmp_path / "a.npu").read_bytes() == (tmp_path / "b.npu").read_bytes() == (tmp_path / "c.npu").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npu", "b.npu", "c.npu"]


def test_tensors_in_and_out(program):
    image = program.image()
    for tensor, values in random_inputs(random_graph(3, layers=3), 1).items():
        program.pack_input(image, tensor, values)
        assert np.array_equal(program.unpack_tensor(image, tensor), values)
        place, beat = program.tensors[tensor], CONFIG.beat_bytes
        channels, height, width = place.shape
        # Channel c of pixel (y, x) is byte c % tn of beat (block, y, x).
        at = ((channels - 1) // beat * height + height - 1) * width + width - 1
        assert image.view(np.int8)[(place.offset + at) * beat + (channels - 1) % beat] == values[-1, -1, -1]
    with pytest.raises(ProgramError, match="is int8"):
        program.pack_input(image, tensor, values.astype(np.uint8))
    with pytest.raises(ProgramError, match="is int8"):
        program.pack_input(image, tensor, values[:, :, :0])


def test_other_configuration(program):
    program.require_config(CONFIG)
    with pytest.raises(ProgramError, match=r"compiled for another configuration: side_depth 512 \(program\) / 1024; "):
        program.require_config(NpuConfig.preset(256, side_depth=1024))


def test_board(program, tmp_path):
    program.require_board("ecp5")       # compiled for none in particular
    save_program(dataclasses.replace(program, board="ecp5"), tmp_path / "a.npu")
    loaded = load_program(tmp_path / "a.npu")
    assert loaded.board == "ecp5"
    loaded.require_board("ecp5")
    with pytest.raises(ProgramError, match="compiled for the board ecp5, not zu3eg; leave --board out"):
        loaded.require_board("zu3eg")
    changed(tmp_path / "a.npu", tmp_path / "b.npu", lambda header: header.update(board=""), "model.json")
    assert load_program(tmp_path / "b.npu").board is None


def test_truncated_anywhere(program, tmp_path):
    save_program(program, tmp_path / "a.npu")
    content = (tmp_path / "a.npu").read_bytes()
    for size in [0, 1, 30, len(content) // 2, len(content) - 1]:
        (tmp_path / "b.npu").write_bytes(content[:size])
        with pytest.raises(ProgramError, match=r"b\.npu: .*(compile|the file is empty)"):
            load_program(tmp_path / "b.npu")


def test_every_flipped_byte_is_found_or_harmless(program, tmp_path, rng):
    save_program(program, tmp_path / "a.npu")
    content = bytearray((tmp_path / "a.npu").read_bytes())
    # Members have checksums; their names and number, at the end, do not.
    names = range(content.rindex(b"model.onnx") - 50, len(content))
    for position in (*rng.integers(0, len(content), 60), *names):
        damaged = content.copy()
        damaged[position] ^= 1 << int(rng.integers(8))
        (tmp_path / "b.npu").write_bytes(damaged)
        try:
            loaded = load_program(tmp_path / "b.npu")
        except ProgramError as error:
            assert "\n" not in str(error)
        else:  # a bit of a time stamp or the like
            for field in dataclasses.fields(Program):
                assert getattr(loaded, field.name) == getattr(program, field.name), (position, field.name)


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04" + bytes(100)])
def test_foreign_file(content, tmp_path):
    (tmp_path / "a.npu").write_bytes(content)
    with pytest.raises(ProgramError, match=r"a\.npu: (not a program|the file is empty)"):
        load_program(tmp_path / "a.npu")


def test_missing_file_and_folder(program, tmp_path):
    with pytest.raises(ProgramError, match="No such file"):
        load_program(tmp_path / "none.npu")
    save_program(program, tmp_path / "new" / "a.npu")
    with pytest.raises(ProgramError, match="Is a directory"):
        save_program(program, tmp_path / "new")
    assert [path.name for path in tmp_path.rglob("*")] == ["new", "a.npu"]


PROGRAM, MODEL = "program0/program.json", "model.json"


@pytest.mark.parametrize("name, change, message", [
    ("program0/compiled.json", lambda h: h.update(version=0), "version 0 of the instruction set"),
    ("program0/compiled.json", lambda h: h.pop("format"), "not a program"),
    ("program0/compiled.json", lambda h: h.pop("tensors"), "damaged"),
    ("program0/compiled.json", lambda h: h["config"].update(ic_lanes=3), "ic_lanes must be"),
    ("program0/compiled.json", lambda h: h["config"].update(colour=3), "unknown configuration field"),
    ("program0/compiled.json", lambda h: h["config"].update(side_depth=1024), "of another configuration"),
    ("machine.json", lambda h: h.update(macs=h["macs"] * 2), "not of one machine"),
    ("machine.json", lambda h: h["operations"].popitem(), "written by another version of npugen; compile it again"),
    (PROGRAM, lambda h: h["instruction_layers"].pop(), "is damaged"),
    (PROGRAM, lambda h: h.update(instruction_layers=[]), "code and header differ"),
    (PROGRAM, lambda h: h.update(digest=h["digest"] ^ 1), "of another configuration"),
    ("machine.json", lambda h: h.update(macs=0), "machine.json: macs must be .*; compile it again"),
    ("machine.json", lambda h: h["registers"].update(control=2), "between two words; compile it again"),
    (PROGRAM, lambda h: h.update(data_beats=1), "must be a whole number"),
    (PROGRAM, lambda h: h["layers"].append("more"), "its layers are not those"),
    (PROGRAM, lambda h: h["inputs"][0].update(tensor="nowhere"), "has no place"),
    (PROGRAM, lambda h: h["inputs"][0].update(offset=h["inputs"][0]["offset"] + 1), "is not where tensor"),
    ("program0/compiled.json", lambda h: next(iter(h["tensors"].values())).update(offset=0), "is not where tensor"),
    ("program0/compiled.json", lambda h: list(h["tensors"].values())[1].update(offset=0), "outside the data region"),
    ("program0/compiled.json", lambda h: h["layers"][0].pop("name"), "damaged"),
    ("program0/compiled.json", lambda h: h.update(winograd={"nothing": [2] * 16}), "a layer that is not there"),
    ("program0/compiled.json", lambda h: h.update(winograd={h["layers"][0]["name"]: [2] * 15}),
     "array` of length >= 16 - at"),
    ("program0/compiled.json", lambda h: h.update(winograd={h["layers"][0]["name"]: [3] * 16}),
     "Expected `int` <= 2 - at"),
    (MODEL, lambda h: h.update(board="atari"), "unknown board 'atari'"),
    (MODEL, lambda h: h.update(segments=h["segments"] * 300), "damaged"),
    (MODEL, lambda h: h.update(segments=[]), "has no segments"),
], ids=range(26))
def test_damaged_header(program, tmp_path, name, change, message):
    save_program(program, tmp_path / "a.npu")
    changed(tmp_path / "a.npu", tmp_path / "b.npu", change, name)
    with pytest.raises(ProgramError, match=message):
        load_program(tmp_path / "b.npu")


# -- text ------------------------------------------------------------------------------------------------------------

def test_text_round_trip(program):
    lines = list(disassemble_program(program))
    assert len(lines) == len(program.instruction_layers)
    assert assemble(lines) == list(program.instructions)
    assert encode_all(assemble(disassemble_code(program.code))) == program.code
    assert "layer0" in lines[0] and "load" in lines[0]


@pytest.mark.parametrize("line, message", [
    ("jump", "line 2: unknown operation 'jump'"),
    ("load_wgt offset=1", "line 2: beats is missing"),
    ("load_wgt offset=1 beats=0", "line 2: LOAD_WGT.beats must be in 1.."),
    ("load_wgt offset=1 beats=1 beats=2", "line 2: beats is given twice"),
    ("load_wgt offset=1 beats=1 rows=2", "line 2: LOAD_WGT has no field 'rows'"),
    ("load_wgt offset=1 beats=x", "line 2: invalid literal"),
    ("load_wgt offset=1 beats=1 post_compute", "line 2: post_compute belongs after the bar"),
    ("load_wgt offset=1 beats=1 | rows=1", "line 2: rows belongs before the bar"),
    ("load_wgt offset=1 beats=1 | wait_load", "line 2: wait_load must be 0"),
    ("load_wgt offset beats=1", "line 2: expected name=value, not 'offset'"),
])
def test_assembly_errors(line, message):
    with pytest.raises(AssemblyError) as caught:
        assemble(["sync  # first", line])
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(("field", "value", "message"), [
    (("layers", 0, "mode"), None, r"Expected `str`, got `null` - at `\$\.layers\[0\]\.mode`"),
    (("layers", 0, "macs"), -1, r"Expected `int` >= 0 - at `\$\.layers\[0\]\.macs`"),
    (("layers",), [], r"Expected `array` of length >= 1 - at `\$\.layers`"),
    (("density",), 1.5, "Expected `float` <= 1"),
    (("model",), 1, "Expected `bool`, got `int`"),
    (("config", "acc_width"), 10 ** 4000, "Expected `int` <= 9007199254740992"),
    (("config", "acc_width"), 27.0, "Expected `int`, got `float`"),
], ids=range(7))
def test_headers_that_make_no_sense(field, value, message, program, tmp_path):
    """Those of the driver's files: tests/npudriver/test_packages.py."""
    def change(header):
        for key in field[:-1]:
            header = header[key]
        header[field[-1]] = value

    save_program(program, tmp_path / "a.npu")
    changed(tmp_path / "a.npu", tmp_path / "b.npu", change)
    with pytest.raises(ProgramError, match=rf"b\.npu: damaged \({message}"):
        load_program(tmp_path / "b.npu")


def test_a_region_that_is_too_large(program, tmp_path):
    save_program(program, tmp_path / "a.npu")
    changed(tmp_path / "a.npu", tmp_path / "b.npu", lambda header: header.update(data_beats=1 << 20), PROGRAM)
    with pytest.raises(ProgramError, match="a data region of 1,048,576 beats for what takes [0-9,]{3,6}"):
        load_program(tmp_path / "b.npu")


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b'{"files": null, "sha256": ""}', b'{"files": {}}'])
def test_headers_without_digests_get_none(content):
    """Tests change what they like of a header, and write digests where there were some."""
    assert resealed({"model.json": content}) == {"model.json": content}


def test_files_of_earlier_versions(program, tmp_path):
    for name in ("program.json", "segments.json"):
        write_files(tmp_path / "a.npu", {name: b"{}"})
        with pytest.raises(ProgramError, match="made by another version of the compiler; compile it again"):
            load_program(tmp_path / "a.npu")
    write_files(tmp_path / "a.npu", {"other": b""})
    with pytest.raises(ProgramError, match="not a program"):
        load_program(tmp_path / "a.npu")


@pytest.mark.parametrize("name", ["program0/data.bin", "program0/model.onnx", "program0/code.bin",
                                  "program0/program.json", "program0/compiled.json", "model.json", "machine.json"])
def test_members_that_are_larger_than_the_file(name, program, tmp_path):
    """They are not even read: a small file must not take memory that it has no use for."""
    save_program(program, tmp_path / "a.npu")
    with zipfile.ZipFile(tmp_path / "a.npu") as source, zipfile.ZipFile(tmp_path / "b.npu", "w") as archive:
        for member in source.namelist():
            archive.writestr(member, bytes(1 << 25) if member == name else source.read(member), zipfile.ZIP_DEFLATED)
    tracemalloc.start()
    try:
        with pytest.raises(ProgramError, match=rf"b\.npu: damaged \(member {name} has 33,554,432 bytes where "):
            load_program(tmp_path / "b.npu")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
