"""What the documents promise exists: commands parse, targets and links are there, the example of the API runs."""

import re
import shlex
from collections import Counter
from pathlib import Path

import pytest

from gen.cli import main, make_parser
from tests import ROOT

DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
CODE = "\n".join(path.read_text() for path in DOCUMENTS).replace("\\\n", " ")     # long commands in two lines


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
