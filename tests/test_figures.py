"""Figures of the documents: all are of records, and a typed one, a stale one and a wrong table are found."""

import json
import shlex
import sys
from pathlib import Path

import msgspec
import pytest

from gen.cli import make_parser
from tests.figures.__main__ import complaints, known_constants, pages
from tests.figures.compare import FiguresError, differences, figures_of
from tests.figures.page import Page
from tests.figures.record import FOLDER, Record, digest, load, measure, numbers, save

PAGES = list(pages())
NAMES = sorted(path.stem for path in FOLDER.glob("*.json") if path.stem != "constants")
DEPENDS = ["gen/name.py"]
COMMANDS = {"": "python -m gen boards"}


def record(figures: dict[str, int | float], **fields) -> Record:
    return Record(commands=COMMANDS, depends=DEPENDS, figures=figures,
                  **{"state": digest(DEPENDS), "commit": "1234567", "date": "2030-01-02"} | fields)


def page(text: str, **records: Record) -> Page:
    """A page whose only section has all records."""
    region = f"<!-- figures: {', '.join(records)} -->\n<!-- end of figures -->\n"
    made = Page("docs/x.md", f"# X\n\n{text}\n\n{region}", records.__getitem__)
    return Page("docs/x.md", made.written(), records.__getitem__)


@pytest.mark.parametrize("one", PAGES, ids=lambda one: one.name)
def test_all_figures_are_of_records(one: Page):
    assert complaints(one, known_constants()) == []


def test_the_time_model_is_the_verilog_s():
    """Of every network that was run on both."""
    figures = load("networks").figures
    models = {name: cycles for name, cycles in figures.items() if name.endswith(".time_model")}
    assert len(models) > 15
    far = {name: cycles for name, cycles in models.items()
           if cycles != pytest.approx(figures[name.replace(".time_model", ".cycles")], rel=0.005)}
    assert not far, f"over 0.5 % from the Verilog: {far}"


def test_every_record_is_on_a_page():
    assert set(NAMES) == {name for one in PAGES for name in one.records}


@pytest.mark.parametrize("name", NAMES)
def test_commands_of_records_parse(name: str):
    assert digest(load(name).depends)
    for command in load(name).commands.values():
        words = shlex.split(command)
        assert words[0] == "python"
        if words[1:3] == ["-m", "gen"]:
            make_parser(words[3]).parse_args([*words[3:], "--json"])


def test_constants_are_still_on_their_pages():
    for pattern, constants in known_constants().items():
        text = "\n".join(one.text for one in PAGES if Path(one.name).match(pattern))
        if pattern != "*":
            assert [number for number in constants if number.strip("*") not in text] == [], pattern


def test_a_typed_figure_is_found():
    known = record({"cycles": 71536, "used": 0.98271, "mhz": 323.4, "rate": 2.72e9})
    good = "It takes 71,536 cycles, 98.27 % or 98 % of them; 323 MHz, 2.72 GB/s, ResNet-18, 224x224, `--macs 12345`."
    assert complaints(page(good, known=known), {}) == []
    for wrong in ("71,537", "98.28 %", "97 %", "324 MHz", "2.73 GB/s", "-1.8 %", "7.1"):
        (found,) = complaints(page(f"{good}\n\nThen {wrong}.", known=known), {})
        assert found.startswith(f"docs/x.md:5: {wrong.lstrip('-').split()[0]}: in no record")
        assert complaints(page(f"{good}\n\nThen {wrong}.", known=known), {"docs/*": {
            wrong.lstrip("-").split()[0]: "not a figure"}}) == []


def test_a_figure_that_is_typed_into_a_table_is_found():
    known = record({"cycles": 71536})
    outside = page("It takes 71,536 cycles.\n\n| x | cycles |\n|---|---|\n| net | 71,536 |", known=known)
    (found,) = complaints(outside, {})
    assert found == "docs/x.md:7: 71,536: typed into a table, where figures have names (docs/figures/README.md)"
    inside = page(f"It takes 71,536 cycles.\n\n{TYPED_TABLE}", known=known)
    assert [one.split(": ")[1] for one in complaints(inside, {})] == ["71,536"]
    assert complaints(inside, {"docs/*": {"71,536": "not a figure"}}) == []


def test_a_record_that_was_never_measured_is_found():
    (found,) = complaints(page("71,536 cycles", known=record({"cycles": 71536}, state="")), {})
    assert found == "docs/x.md: record known was never measured: run `python -m tests.figures record known`"
    facts = msgspec.structs.replace(record({"cycles": 71536}, state=""), commands={})
    assert complaints(page("71,536 cycles", others=facts), {}) == []


def test_records_hold_below_their_heading_only():
    text = ("# A\n\n## B\n\n123 ns\n\n<!-- figures: known -->\n<!-- end of figures -->\n\n### C\n\n123 ns\n\n"
            "## D\n\n123 ns\n")
    one = Page("docs/x.md", text, {"known": record({"ns": 123})}.__getitem__)
    assert [found.split(":")[1] for found in complaints(one, {})] == ["16"]


def test_a_stale_record_is_found_if_it_is_quick_and_said_if_not():
    stale = record({"cycles": 71536}, state="0" * 16)
    one = page("71,536 cycles", known=stale)
    assert complaints(one, {}) == []
    assert "* Of an earlier state (1234567, 2030-01-02): `python -m gen boards`.\n" in one.text
    quick = page("71,536 cycles", known=msgspec.structs.replace(stale, quick=True))
    (found,) = complaints(quick, {})
    assert found == "docs/x.md: record known is of an earlier state: run `python -m tests.figures record known`"

    # The remark is demanded, and goes when the record is of the state at hand.
    other = one.text.replace("* Of an earlier state", "* Of some state")
    unsaid = Page("docs/x.md", other, {"known": stale}.__getitem__)
    assert "run `python -m tests.figures write`" in complaints(unsaid, {})[0]
    assert "earlier" not in Page("docs/x.md", one.text, {"known": record({"cycles": 71536})}.__getitem__).written()


def test_without_the_trained_networks_a_quick_record_may_be_of_an_earlier_state(monkeypatch: pytest.MonkeyPatch):
    stale = record({"cycles": 71536}, state="0" * 16, quick=True)
    stale.commands = {"": "python -m gen bench models --models $NPUGEN_MODELS"}
    monkeypatch.setenv("NPUGEN_MODELS", "build")
    assert stale.due
    monkeypatch.delenv("NPUGEN_MODELS")
    assert not stale.due and complaints(page("71,536 cycles", known=stale), {}) == []


def test_a_changed_source_makes_a_record_stale(monkeypatch: pytest.MonkeyPatch):
    one = record({"cycles": 1})
    assert one.age == "now" and record({}, state="").age == "unknown"
    monkeypatch.setattr("tests.figures.record.sources_digest", lambda *paths: "another")
    assert one.age == "earlier"


def test_a_word_for_no_sources_is_refused():
    with pytest.raises(ValueError, match="'compilre' is no word for sources"):
        digest(["compilre"])
    assert len({digest(["compiler"]), digest(["time model"]), digest(["hardware:xcup"]), digest(["delays:xcup"])}) == 4


TABLE = ("<!-- table: known\n| a | {net.cycles} | {.used:.1%} | {1e3 * other/s:.2f} "
         "| {1e-3 * net.cycles * other/s:.2f} | {other/s / net.used:.4f} |\n-->\n<!-- end of table -->")


TYPED_TABLE = "<!-- table: known\n| a | {cycles} | 71,536 |\n-->\n<!-- end of table -->"


def test_tables_are_made_of_records():
    records = {"known": record({"net.cycles": 71536, "net.used": 0.98271}), "other": record({"s": 0.00512})}
    one = page(TABLE, **records)
    assert "| a | 71,536 | 98.3 % | 5.12 | 0.37 | 0.0052 |\n" in one.text
    assert complaints(one, {}) == []
    typed = Page("docs/x.md", one.text.replace("71,536", "71,537"), records.__getitem__)
    assert complaints(typed, {}) == [
        "docs/x.md: tables or remarks are not the records': run `python -m tests.figures write`"]
    inside = page(TABLE.replace("| a |", "| a | 1,234 |"), **records)
    assert [found.split(": ")[1] for found in complaints(inside, {})] == ["1,234"]
    with pytest.raises(ValueError, match="docs/x.md: record known has no figure net.cycle$"):
        page(TABLE.replace("cycles", "cycle"), **records)


def test_a_new_figure_goes_into_the_text():
    old = record({"a": 71536, "b": 12.5, "c": 12.5, "d": 0.5})
    new = record({"a": 1071630, "b": 12.5, "c": 13.5, "d": 0.25})
    text, unclear = page("71,536 cycles, 50.0 %, `71,536`; 12.5 ms is b or c.", known=new).replaced("known", old)
    assert "1,071,630 cycles, 25.0 %, `71,536`; 12.5 ms" in text
    assert unclear == []        # 12.5 is still a figure
    _, unclear = page("12.5 ms", known=record({"b": 1.5, "c": 13.5})).replaced("known", old)
    assert unclear == ["docs/x.md:3: 12.5 may be b, c"]


def test_a_region_without_an_end_is_refused():
    with pytest.raises(ValueError, match="do not go in pairs"):
        Page("docs/x.md", "# X\n\n<!-- figures: known -->\n", {"known": record({})}.__getitem__)


def test_figures_are_measured(tmp_path: Path):
    script = tmp_path / "print.py"
    printed = json.dumps({"rows": [{"name": "A b", "n": 1}, {"name": "c", "n": 2.5}], "ok": True})
    script.write_text(f"print({printed!r})")
    asked = record({}, state="", source="a text", keep=["p.rows.*"])
    asked = msgspec.structs.replace(asked, commands={"p": f"{sys.executable} {script}"})
    found = measure(asked)
    assert found.figures == {"p.rows.a-b.n": 1, "p.rows.c.n": 2.5}
    assert (found.age, found.source) == ("now", "") and found.commit and found.date
    save("x", found, tmp_path)
    assert load("x", tmp_path) == found
    script.write_text("raise SystemExit('no such thing')")
    with pytest.raises(RuntimeError, match="ended with 1: no such thing"):
        measure(asked)


def test_rows_are_called_by_what_tells_them_apart():
    rows = [{"net": "a", "macs": 64, "c": 1}, {"net": "a", "macs": 128, "c": 2}]
    assert numbers(rows) == {"a-64.macs": 64, "a-64.c": 1, "a-128.macs": 128, "a-128.c": 2}
    assert numbers([1, 2]) == {"0": 1, "1": 2}
    points = [{"parameters": {"macs": macs, "density": 0.25}, "cycles": macs} for macs in (64, 128)]
    assert numbers(points) == {
        "64-0_25.parameters.macs": 64, "64-0_25.parameters.density": 0.25, "64-0_25.cycles": 64,
        "128-0_25.parameters.macs": 128, "128-0_25.parameters.density": 0.25, "128-0_25.cycles": 128}


def test_a_damaged_record_is_named(tmp_path: Path):
    (tmp_path / "x.json").write_text('{"commands": {}, "depends": [], "figures": {"a": "1"}}')
    with pytest.raises(ValueError, match=r"x\.json: Expected `int \| float`, got `str`"):
        load("x", tmp_path)


def test_figures_of_two_commits_are_compared():
    before = {"models": {"cycles": 200, "gone": 1, "same": 5}}
    after = {"models": {"cycles": 150, "same": 5}, "boards": {"luts": 7}}
    assert list(differences(before, after)) == [
        "boards: 1 new: luts", "models: cycles: 200 -> 150 (-25.00%)", "models: 1 gone: gone"]
    with pytest.raises(FiguresError, match="git ls-tree"):
        figures_of("no-such-commit")
    assert figures_of(None)["models"]
