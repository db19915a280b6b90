"""``python -m tests.figures``: record, write, check, compare; see docs/testing.md."""

import argparse
import fnmatch
import json
import sys
from collections.abc import Iterator

from tests import ROOT
from tests.figures.compare import FiguresError, differences, figures_of
from tests.figures.page import Constants, Page
from tests.figures.record import FOLDER, load, measure, save

__all__ = ["complaints", "constants_of", "pages"]

_CONSTANTS = FOLDER / "constants.json"


def pages() -> Iterator[Page]:
    """Every page that may have figures."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        yield Page(path.relative_to(ROOT).as_posix(), path.read_text(), load)


def constants_of(page: str, constants: Constants) -> dict[str, str]:
    """Number -> why it is no figure, on a page."""
    return {number: why for pattern, numbers in constants.items() if fnmatch.fnmatch(page, pattern)
            for number, why in numbers.items()}


def known_constants() -> Constants:
    return json.loads(_CONSTANTS.read_text())


def complaints(page: Page, constants: Constants) -> list[str]:
    """What is wrong with a page, a line each, with what would help."""
    found = [f"{one} (docs/figures/README.md)" for one in page.typed(constants_of(page.name, constants))]
    found += [f"{page.name}: record {name} was never measured: run `python -m tests.figures record {name}`"
              for name in page.unknown()]
    found += [f"{page.name}: record {name} is of an earlier state: run `python -m tests.figures record {name}`"
              for name in page.stale()]
    if page.written() != page.text:
        found.append(f"{page.name}: tables or remarks are not the records': run `python -m tests.figures write`")
    return found


def _write() -> None:
    for page in pages():
        if (text := page.written()) != page.text:
            (ROOT / page.name).write_text(text)
            print(f"{page.name} is written anew")


def _record(names: list[str]) -> int:
    """Measures records; a page's numbers follow. 1 where a number may be several figures."""
    unclear = []
    for name in names:
        print(f"{name} ...", flush=True)
        old = load(name)
        save(name, new := measure(old))
        gone = sorted(old.figures.keys() - new.figures.keys())
        changed = {one: value for one, value in new.figures.items() if old.figures.get(one, value) != value}
        for one, value in changed.items():
            print(f"  {one}: {old.figures[one]:,} -> {value:,}")
        if gone:
            print(f"  no longer there: {', '.join(gone[:5])}")
        for page in pages():
            if name in page.records:
                text, lines = page.replaced(name, old)
                (ROOT / page.name).write_text(text)
                unclear += lines
    _write()
    for line in unclear:
        print(f"by hand: {line}")
    return 1 if unclear else 0


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.figures", description="Figures of the documents.")
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="measure records again, and write the pages that have their figures")
    record.add_argument("names", nargs="*", metavar="NAME", help="default: the quick ones of an earlier state")
    commands.add_parser("write", help="tables and remarks of the pages, of the records as they are")
    commands.add_parser("check", help="what is wrong with the pages")
    commands.add_parser("list", help="every record: quick or not, its state, its commands")
    compare = commands.add_parser("compare", help="the figures of two commits, where they differ")
    compare.add_argument("before", metavar="COMMIT")
    compare.add_argument("after", metavar="COMMIT", nargs="?", help="default: the working tree")
    arguments = parser.parse_args(words)
    names = sorted(path.stem for path in FOLDER.glob("*.json") if path != _CONSTANTS)
    if arguments.command == "record":
        return _record(arguments.names or [name for name in names if load(name).due])
    if arguments.command == "compare":
        try:
            lines = list(differences(figures_of(arguments.before), figures_of(arguments.after)))
        except FiguresError as error:
            print(error, file=sys.stderr)
            return 1
        print("\n".join(lines) or "the same figures")
        return 0
    if arguments.command == "write":
        _write()
    elif arguments.command == "list":
        for name in names:
            one = load(name)
            age = one.age if one.commands else "others'"
            print(f"{name:24} {'quick' if one.quick else '':6} {age:8} {' ; '.join(one.commands.values())}")
    else:
        constants = known_constants()
        found = [line for page in pages() for line in complaints(page, constants)]
        print("\n".join(found) or "all figures are of their records")
        return 1 if found else 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
