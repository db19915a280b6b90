"""Plots as files: of three kinds, the same bytes each time, and text that stays text."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gen.cli import bench_datapaths as datapaths
from gen.cli import main
from gen.files.colours import CAUSES, COMPARED, colour_of
from gen.files.figure import KINDS, drawn, new_figure, write_figure
from tests import ROOT

_MAGIC = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


def figure():
    made = new_figure(3, 2)
    made.subplots().plot([0, 1], [1, 0], label="a line")
    made.suptitle("a title")
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_kinds(kind: str, tmp_path: Path):
    assert drawn(figure(), kind).startswith(_MAGIC[kind])
    assert drawn(figure(), kind) == drawn(figure(), kind)
    write_figure(tmp_path / f"x.{kind.upper()}", figure())
    assert (tmp_path / f"x.{kind.upper()}").read_bytes() == drawn(figure(), kind)


def test_another_suffix(tmp_path: Path):
    with pytest.raises(ValueError, match=r"x\.jpg: must end in \.png, \.svg, \.pdf"):
        write_figure(tmp_path / "x.jpg", figure())


def test_text_of_svg_is_text():
    assert b">a title<" in drawn(figure(), "svg")


@pytest.mark.slow
def test_plots_of_a_command(tmp_path: Path, digits: Path, capsys: pytest.CaptureFixture[str]):
    model = str(digits / "digits_int8.onnx")
    assert main(["profile", model, "--macs", "16", "-o", str(tmp_path), "--plots", "svg,pdf"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"profile.json", "profile.svg", "profile.pdf"}
    assert "profile.json, profile.svg, profile.pdf" in capsys.readouterr().err
    text = (tmp_path / "profile.svg").read_text()
    assert "machine: zu3eg, 16 MACs, features none; 333 MHz, target, memory: ideal" in text
    assert main(["profile", model, "--plots", "gif"]) == 2
    assert "must be of png, svg, pdf, separated by commas, not gif" in capsys.readouterr().err


def test_colours_are_those_of_the_page():
    """A part of a layer's cycles has one colour, in the plot and on the page."""
    page = (ROOT / "gen" / "report" / "report.js").read_text()
    causes = dict(re.findall(r'(\w+): \["[^"]*", "(#\w+)"\]', page))
    assert {name: causes[name] for name in CAUSES} == CAUSES
    assert len(set(CAUSES.values())) == len(CAUSES)
    assert len({*COMPARED, *causes.values()}) == len(COMPARED) + len({*causes.values()})
    page = (ROOT / "gen" / "report" / "beside.js").read_text()
    assert f'const MACHINES = ["{COMPARED[0]}", "{COMPARED[1]}"]' in page


def test_a_part_of_a_bench_has_one_colour():
    rows = [{"part": part, "layer": part, "times": 2.0} for part in ("winograd exact", "fusion")]
    both, one = (datapaths.plot(some).axes[0] for some in (rows, rows[:1]))
    assert both.patches[0].get_facecolor() == one.patches[0].get_facecolor() != both.patches[1].get_facecolor()
    with pytest.raises(ValueError, match="other"):
        colour_of("other", ["depthwise"])


@pytest.mark.parametrize("vary, said", [
    (("macs=64,128",), "digits_int8 on zu3eg\n333 MHz, target, 2 points"),
    (("macs=64", "features=none,gather"), "digits_int8 on zu3eg\n64 MACs, 333 MHz, target, 2 points")])
def test_titles_of_explore(vary: tuple[str, ...], said: str, tmp_path: Path, digits: Path):
    call = ["explore", str(digits / "digits_int8.onnx"), "--jobs", "1", "-o", str(tmp_path), "--plots", "svg"]
    assert main([*call, *(word for axis in vary for word in ("--vary", axis))]) == 0
    text = (tmp_path / "explore.svg").read_text()
    assert all(f">{line}<" in text for line in said.split("\n"))


@pytest.mark.cli
def test_the_same_bytes_of_another_process():
    """Where hashes of words are others."""
    code = ("import sys; from tests.gen.test_figure_files import figure; from gen.files.figure import drawn; "
            "sys.stdout.buffer.write(drawn(figure(), 'svg'))")
    made = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout
    assert made == drawn(figure(), "svg")
