"""Program files: round trip, identical bytes, and every way to be damaged."""

import dataclasses
import json
import tracemalloc
import zipfile

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.compiler import compile_graph
from gen.program.assembler import AssemblyError, assemble, disassemble_code, disassemble_program, encode_all
from gen.program.program import Program, ProgramError
from tests.random_layers import random_graph, random_inputs

CONFIG = NpuConfig.preset(256)


@pytest.fixture(scope="module")
def program() -> Program:
    return compile_graph(random_graph(3, layers=3), CONFIG, model=b"the model")[0]


def test_round_trip(program, tmp_path):
    program.save(tmp_path / "a.npu")
    loaded = Program.load(tmp_path / "a.npu")
    for field in dataclasses.fields(Program):
        assert getattr(loaded, field.name) == getattr(program, field.name), field.name
    assert loaded.instructions == program.instructions
    assert np.array_equal(loaded.image(), program.image())


def test_same_program_same_bytes(program, tmp_path):
    program.save(tmp_path / "a.npu")
    Program.load(tmp_path / "a.npu").save(tmp_path / "b.npu")
    again = compile_graph(random_graph(3, layers=3), CONFIG, model=b"the model")[0]
    again.save(tmp_path / "c.npu")
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
    dataclasses.replace(program, board="ecp5").save(tmp_path / "a.npu")
    loaded = Program.load(tmp_path / "a.npu")
    assert loaded.board == "ecp5"
    loaded.require_board("ecp5")
    with pytest.raises(ProgramError, match="compiled for the board ecp5, not zu3eg; leave --board out"):
        loaded.require_board("zu3eg")
    rewritten(tmp_path / "a.npu", tmp_path / "b.npu", lambda header: header.pop("board"))
    assert Program.load(tmp_path / "b.npu").board is None


def test_truncated_anywhere(program, tmp_path):
    program.save(tmp_path / "a.npu")
    content = (tmp_path / "a.npu").read_bytes()
    for size in [0, 1, 30, len(content) // 2, len(content) - 1]:
        (tmp_path / "b.npu").write_bytes(content[:size])
        with pytest.raises(ProgramError, match=r"b\.npu: .*(compile|the file is empty)"):
            Program.load(tmp_path / "b.npu")


def test_every_flipped_byte_is_found_or_harmless(program, tmp_path, rng):
    program.save(tmp_path / "a.npu")
    content = bytearray((tmp_path / "a.npu").read_bytes())
    # Members have checksums; their names and number, at the end, do not.
    names = range(content.rindex(b"model.onnx") - 50, len(content))
    for position in (*rng.integers(0, len(content), 60), *names):
        damaged = content.copy()
        damaged[position] ^= 1 << int(rng.integers(8))
        (tmp_path / "b.npu").write_bytes(damaged)
        try:
            loaded = Program.load(tmp_path / "b.npu")
        except ProgramError as error:
            assert "\n" not in str(error)
        else:  # a bit of a time stamp or the like
            for field in dataclasses.fields(Program):
                assert getattr(loaded, field.name) == getattr(program, field.name), (position, field.name)


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04" + bytes(100)])
def test_foreign_file(content, tmp_path):
    (tmp_path / "a.npu").write_bytes(content)
    with pytest.raises(ProgramError, match=r"a\.npu: (not a program|the file is empty)"):
        Program.load(tmp_path / "a.npu")


def test_missing_file_and_folder(program, tmp_path):
    with pytest.raises(ProgramError, match="No such file"):
        Program.load(tmp_path / "none.npu")
    program.save(tmp_path / "new" / "a.npu")
    with pytest.raises(ProgramError, match="Is a directory"):
        program.save(tmp_path / "new")
    assert [path.name for path in tmp_path.rglob("*")] == ["new", "a.npu"]


def rewritten(path, target, change) -> None:
    """Copy a program with ``change`` applied to its header."""
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(target, "w") as archive:
        for name in source.namelist():
            content = source.read(name)
            if name == "program.json":
                header = json.loads(content)
                change(header)
                content = json.dumps(header).encode()
            archive.writestr(name, content)


@pytest.mark.parametrize("change, message", [
    (lambda h: h.update(version=0), "version 0 of the instruction set"),
    (lambda h: h.pop("format"), "not a program"),
    (lambda h: h.pop("tensors"), "damaged"),
    (lambda h: h["config"].update(ic_lanes=3), "ic_lanes must be"),
    (lambda h: h["config"].update(colour=3), "unknown configuration field"),
    (lambda h: h["instruction_layers"].pop(), "code and header differ"),
    (lambda h: h.update(data_beats=1), "do not fit"),
    (lambda h: h["inputs"].update(input="nowhere"), "has no place"),
    (lambda h: next(iter(h["tensors"].values())).update(offset=0), "outside the data region"),
    (lambda h: h["layers"][0].pop("name"), "damaged"),
    (lambda h: h.update(winograd={"nothing": [2] * 16}), "a layer that is not there"),
    (lambda h: h.update(winograd={h["layers"][0]["name"]: [2] * 15}), "array` of length >= 16 - at"),
    (lambda h: h.update(winograd={h["layers"][0]["name"]: [3] * 16}), "Expected `int` <= 2 - at"),
], ids=range(13))
def test_damaged_header(program, tmp_path, change, message):
    program.save(tmp_path / "a.npu")
    rewritten(tmp_path / "a.npu", tmp_path / "b.npu", change)
    with pytest.raises(ProgramError, match=message):
        Program.load(tmp_path / "b.npu")


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
    (("board",), ["ecp5"], "Expected `str | null`, got `array`"),
    (("name",), 5, "Expected `str`, got `int`"),
    (("data_beats",), 10 ** 30, "Expected `int` <= 9007199254740992"),
    (("data_beats",), 10 ** 4000, "Expected `int` <= 9007199254740992"),
    (("data_beats",), 1 << 28, "a data region of 268,435,456 beats for what takes [0-9,]{3,6}"),
    (("data_beats",), True, "Expected `int`, got `bool`"),
    (("write_start",), 64.0, "Expected `int`, got `float`"),
    (("instruction_layers", 0, 1), 10 ** 30, "Expected `int` <= 2097152"),
    (("instruction_layers", 0, 1), 1 << 20, "code and header differ in length"),
    (("instruction_layers", 0, 1), 0, "Expected `int` >= 1"),
    (("instruction_layers", 0, 0), -2, "Expected `int` >= -1"),
    (("instruction_layers", 0, 0), 99, "an instruction belongs to a layer that is not there"),
    (("config", "acc_width"), 10 ** 4000, "Expected `int` <= 9007199254740992"),
    (("config", "acc_width"), 27.0, "Expected `int`, got `float`"),
], ids=range(18))
def test_headers_that_make_no_sense(field, value, message, program, tmp_path):
    program.save(tmp_path / "a.npu")
    with zipfile.ZipFile(tmp_path / "a.npu") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    entry = header = json.loads(members["program.json"])
    for key in field[:-1]:
        entry = entry[key]
    entry[field[-1]] = value
    members["program.json"] = json.dumps(header).encode()
    with zipfile.ZipFile(tmp_path / "b.npu", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(ProgramError, match=rf"b\.npu: damaged \({message}"):
        Program.load(tmp_path / "b.npu")


@pytest.mark.parametrize(("name", "content", "message"), [
    ("data.bin", bytes(1 << 25), "member data.bin has 33,554,432 bytes where "),
    ("model.onnx", bytes(1 << 25), "member model.onnx has 33,554,432 bytes where "),
    ("code.bin", bytes((1 << 25) + 16), "member code.bin has 33,554,448 bytes where 33,554,432 are the most"),
    ("program.json", b" " * ((1 << 24) + 1), "member program.json has 16,777,217 bytes where 16,777,216 are the most"),
])
def test_members_that_are_larger_than_needed(name, content, message, program, tmp_path):
    """They are not even read: a small file must not take memory that it has no use for."""
    program.save(tmp_path / "a.npu")
    with zipfile.ZipFile(tmp_path / "a.npu") as source, zipfile.ZipFile(tmp_path / "b.npu", "w") as archive:
        for member in source.namelist():
            archive.writestr(member, content if member == name else source.read(member), zipfile.ZIP_DEFLATED)
    tracemalloc.start()
    try:
        with pytest.raises(ProgramError, match=rf"b\.npu: .*{message}"):
            Program.load(tmp_path / "b.npu")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
