"""What the documents promise exists: commands parse, targets and links are there, the example of the API runs."""

import json
import re
import shlex
import subprocess
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from gen.cli import main, make_parser
from tests import ROOT
from tests.bench import need_icarus

DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
CODE = "\n".join(path.read_text() for path in DOCUMENTS).replace("\\\n", " ")     # long commands in two lines

#: Of a program in bringup.json, that the test bench asks for.
_NUMBERS = ("data_beats", "write_start", "output")


@pytest.mark.parametrize("line", sorted(set(re.findall(r"(?:^ +|`)python -m (gen \w+ [^`\n]*)", CODE, re.M))))
def test_commands_parse(line: str):
    words = shlex.split(line)[1:]
    arguments = make_parser(words[0]).parse_args(words)
    for name in ("model", "input"):
        path = getattr(arguments, name, None)
        assert path is None or path.parts[0] in ("build", "$NPUGEN_MODELS") or (ROOT / path).is_file(), (
            f"{path} is not there")


@pytest.mark.slow
def test_the_first_hour_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each of its commands but those that start a tool, in their order."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "first-hour.md").read_text().replace("\\\n", " ")
    lines = re.findall(r"^ +python -m gen ((?:quantize|compile|run|report|explore) .*)$", text, re.M)
    quick = [line for line in lines if "--target rtl" not in line]
    assert len(quick) == 5
    for line in quick:
        assert main([*shlex.split(line), *(["--jobs", "1"] if line.startswith("explore") else [])]) == 0, line
    assert {"first.npu", "first.html", "explore.html"} <= {path.name for path in (tmp_path / "build").iterdir()}


@pytest.mark.rtl
@pytest.mark.cli
@pytest.mark.slow
def test_the_test_bench_of_integration_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """By the lines of the page, on a smaller machine: each of its programs ends with the bytes that are expected."""
    need_icarus()
    monkeypatch.chdir(tmp_path)
    assert main(["build", "--macs", "16", "-o", "."]) == 0
    zipfile.ZipFile("bringup.zip").extractall()
    machine, trials = (json.loads(Path(f"{name}.json").read_text()) for name in ("machine", "bringup"))
    page = (ROOT / "docs" / "integration.md").read_text()
    (compiling,) = re.findall(r"^ +(iverilog .*)$", page, re.M)
    command = shlex.split(compiling.replace("../../", f"{ROOT}/"))
    done = subprocess.run([*command, f"-Pfirst_run_tb.BYTES={machine['beat_bytes']}",
                           f"-Pfirst_run_tb.ADDRESS_BITS={machine['address_bits']}"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(trials["trials"]) > 5
    for trial in trials["trials"]:
        numbers = [f"+{name}={trial[name]}" for name in _NUMBERS]
        said = subprocess.run(["vvp", "first_run", f"+program={trial['name']}", *numbers], capture_output=True,
                              text=True)
        assert re.search(r"status 00000002, 0 of [1-9]\d* bytes differ", said.stdout), said.stdout
        if trial["name"] == "sum":      # on the page for beats of 16 bytes
            assert " ".join(f"+{name}={trial[name] * machine['beat_bytes'] // 16}" for name in _NUMBERS) in page


@pytest.mark.parametrize("target", sorted(set(re.findall(r"^ +make ([\w-]+)|`make ([\w-]+)`", CODE, re.M))))
def test_make_targets_exist(target: tuple[str, str]):
    name = target[0] or target[1]
    assert re.search(rf"^{name}:", (ROOT / "Makefile").read_text(), re.M), f"no target {name}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path):
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.name}: {target} is not there"


def test_files_that_are_named_exist():
    """But for those with a NAME of what is to be added, and what the examples add."""
    added = {name for patch in (ROOT / "docs" / "examples").glob("*.patch")
             for name in re.findall(r"^\+\+\+ b/(\S+)$", patch.read_text(), re.M)}
    for name in set(re.findall(r"`((?:boards|cores|docs|examples|gen|npudriver|sim|tests)/[\w/.]*)`", CODE)):
        assert "NAME" in name or name in added or (ROOT / name).exists(), f"{name} is not there"


@pytest.mark.slow
def test_the_example_of_the_api_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build").mkdir()
    pieces = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "api.md").read_text(), re.M | re.S)
    names: dict[str, object] = {}
    exec("\n".join(pieces), names)
    assert "done" in names, "the example has lost its run on the Verilog"


def test_names_of_the_glossary_are_in_the_code():
    code = "\n".join(path.read_text() for room in ("cores", "gen", "sim") for path in (ROOT / room).rglob("*.py"))
    named = set(re.findall(r"`(?:\w+\.)*(\w+)`", (ROOT / "docs" / "glossary.md").read_text()))
    known = set(re.findall(r"\w+", code))
    assert len(named) > 30 and named - known - {"py"} == set()


def test_terms_of_the_glossary_have_one_meaning():
    lines = re.findall(r"^\| (.+?) \| (.+) \|$", (ROOT / "docs" / "glossary.md").read_text(), re.M)
    terms = [term for terms, _ in lines for term in terms.split(", ") if terms not in ("word", "---")]
    assert len(terms) > 150 and [term for term, count in Counter(terms).items() if count > 1] == []
    assert [meaning for _, meaning in lines if "Also" in meaning] == []
