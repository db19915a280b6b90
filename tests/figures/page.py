"""A page and its figures: where which records hold, tables made of them, numbers that no record has.

In a page stand

    <!-- figures: NAME, NAME -->            records that hold for the heading above it and the headings below that one
    <!-- end of figures -->                 between the two: which of them are of an earlier state, written here

    <!-- table: NAME                        rows with {figure}, {1e3 * figure:.1f}, {other-record/figure:.1%},
    | ... |                                 {figure / figure:.1f} in them; {.last}: another last part of the one before
    -->
    <!-- end of table -->                   between the two: the same with the figures, written here
"""

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from tests.figures.record import Record

__all__ = ["Constants", "Page"]

#: Pattern of page names -> number as it is written, or * for all -> why it is no figure.
Constants = Mapping[str, Mapping[str, str]]

_REGION = re.compile(r"(<!-- figures: ([^>]*?) -->\n).*?(<!-- end of figures -->\n)", re.S)
_TABLE = re.compile(r"(<!-- table: (\S+)\n(.*?)-->\n).*?(<!-- end of table -->\n)", re.S)
#: Characters of a command that a line of a remark holds.
_COMMAND = 110
_TERM = r"(?:[\w-]+/)?[\w.%-]+?"
_PLACE = re.compile(rf"\{{({_TERM}(?: [*/] {_TERM})*)(?::([^{{}}]*))?\}}")

#: What holds no figures of ours: code, links' targets, comments, and what other commands write.
_FENCED = re.compile(r"^```.*?^```$", re.S | re.M)
_OTHER = re.compile(r"^(?:    [^\n]*\n)+|``.*?``|`[^`]*`|\]\([^)]*\)"
                    r"|<!-- (?:boards|operators): .*?<!-- end of (?:boards|operators) -->"
                    r"|<!-- figures: .*?<!-- end of figures -->|<!--.*?-->", re.S | re.M)
#: Not what is part of a word, as in ResNet-18 and 224x224, nor a number after a point or a comma.
_NUMBER = re.compile(r"(?<![\w.,])(?<!\w[-/])(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(?![\w-]|[.,]\d)"
                     r"( ?(?:%|MHz|ns|ms|dB|GB/s))?")
#: Shares, seconds and bytes a second may be written so.
_FACTORS = {"%": 100, "ms": 1e3, "GB/s": 1e-9}
_HEADING = re.compile(r"^(#+) ", re.M)


@dataclass
class Page:
    """``name``: such as docs/models.md. ``records``: all that its regions and tables name. Raises ValueError for a
    region without an end.
    """

    name: str
    text: str
    load: Callable[[str], Record]
    records: dict[str, Record] = field(init=False)
    #: The text with blanks for blocks of code.
    _plain: str = field(init=False)

    def __post_init__(self) -> None:
        self._plain = _FENCED.sub(lambda block: _blank(block[0]), self.text)
        for begin, end, found in (("<!-- figures: ", "<!-- end of figures -->", _REGION),
                                  ("<!-- table: ", "<!-- end of table -->", _TABLE)):
            if not self._plain.count(begin) == self._plain.count(end) == len(found.findall(self._plain)):
                raise ValueError(f"{self.name}: `{begin}... -->` and `{end}` do not go in pairs")
        names = [name for region in _REGION.finditer(self._plain) for name in region[2].split(", ")]
        for table in _TABLE.finditer(self._plain):
            names += [table[2], *(term.split("/")[0] for place in _PLACE.finditer(table[3])
                                  for term in place[1].split(" ") if "/" in term and term != "/")]
        self.records = {name: self.load(name) for name in dict.fromkeys(names)}

    def written(self) -> str:
        """The text with remarks and tables as they must be. Raises ValueError for a figure that no record has."""
        said: set[str] = set()

        def table(place: re.Match[str]) -> str:
            return f"{place[1]}{self._filled(place[2], place[3])}\n{place[4]}"

        def remark(region: re.Match[str]) -> str:
            names = [name for name in region[2].split(", ") if name not in said]
            said.update(names)
            return f"{region[1]}{self._remark(names)}{region[3]}"

        pieces, begin = [], 0
        for block in (*_FENCED.finditer(self.text), None):
            end = len(self.text) if block is None else block.start()
            pieces += [_REGION.sub(remark, _TABLE.sub(table, self.text[begin:end])), block[0] if block else ""]
            begin = end + len(pieces[-1])
        return "".join(pieces)

    def _filled(self, record: str, template: str) -> str:
        before = ""

        def value(term: str) -> float:
            nonlocal before
            other, _, name = term.rpartition("/")
            name = before.rpartition(".")[0] + name if name.startswith(".") else name
            figures = self.records[other or record].figures
            if name in figures:
                before = name
                return figures[name]
            if not other and re.fullmatch(r"\d[\d.]*(e-?\d+)?", name):
                return float(name)
            raise ValueError(f"{self.name}: record {other or record} has no figure {name}")

        def filled(place: re.Match[str]) -> str:
            first, *rest = place[1].split(" ")
            result = value(first)
            for operator, term in zip(rest[::2], rest[1::2], strict=True):
                result = result * value(term) if operator == "*" else result / value(term)
            return format(result, place[2] or ",").replace("%", " %")

        return "\n" + _PLACE.sub(filled, template)

    def _remark(self, names: list[str]) -> str:
        """Which records are not of the state at hand; once a page."""
        lines = []
        for name, record in ((name, self.records[name]) for name in names):
            if record.commands and record.age == "earlier":
                of = f"Of an earlier state ({record.commit}, {record.date})"
                # A command stays in one line; those that no line holds are named by their record.
                commands = ", ".join(f"`{command}`".replace(" ", "\0") for command in record.commands.values())
                if any(len(command) > _COMMAND for command in record.commands.values()):
                    commands = f"`python -m tests.figures record {name}`"
                lines.append(textwrap.fill(f"* {of}: {commands}.", 120, subsequent_indent="  ", break_long_words=False,
                                           break_on_hyphens=False).replace("\0", " "))
        return "\n" + "\n".join(lines) + "\n\n" if lines else ""

    def stale(self) -> list[str]:
        """Records that must be measured again."""
        return [name for name, record in self.records.items() if record.due]

    def unknown(self) -> list[str]:
        """Records with commands whose figures none of these has given; those without are facts of others."""
        return [name for name, record in self.records.items() if record.commands and record.age == "unknown"]

    def typed(self, constants: Constants) -> Iterator[str]:
        """Numbers that are no constants and are in no record that holds there, or stand in a table, where a figure has
        its name: lines as ``docs/models.md:12: 71,536: in no record that holds there``.
        """
        rows = {number for number, line in enumerate(self._plain.split("\n"), 1) if line.startswith("|")}
        for line, number, records in self._numbers():
            if {number, "*"} & constants.keys():
                continue
            if not any(_is_of(number, record) for record in records):
                yield f"{self.name}:{line}: {number}: in no record that holds there"
            elif line in rows:
                yield f"{self.name}:{line}: {number}: typed into a table, where figures have names"

    def replaced(self, name: str, old: Record) -> tuple[str, list[str]]:
        """The text with figures of a record's ``old`` state replaced by those of the state at hand, where all figures
        that a number may be are the same now; and the lines of those that may be several.
        """
        new, edits, unclear = self.records[name], [], []
        for line, number, records in self._numbers():
            if new not in records or any(_is_of(number, other) for other in records if other is not new):
                continue
            names = [one for one, value in old.figures.items() if _is(number, value)]
            now = {_written(number, old.figures[one], new.figures[one]) for one in names if one in new.figures}
            if len(now) == 1 and len(names) >= 1:
                edits.append((number, now.pop()))
            elif names and not _is_of(number, new):
                unclear.append(f"{self.name}:{line}: {number} may be {', '.join(names[:4])}")
        text = self.text
        for number, now_written in reversed(edits):
            text = text[:number.start] + now_written + text[number.start + len(number):]
        return text, unclear

    def _numbers(self) -> Iterator[tuple[int, "_Number", list[Record]]]:
        """Every number that counts as a figure: of three digits, with a point, or with a unit; its line, and the
        records that hold there.
        """
        # Of a table its template counts, but for what is filled in.
        visible = _OTHER.sub(lambda other: _blank(other[0]), _TABLE.sub(
            lambda table: _blank(self.text[table.start():table.start(3)])
            + _PLACE.sub(lambda place: _blank(place[0]), table[3])
            + _blank(self.text[table.end(3):table.end()]), self._plain))
        scopes = self._scopes()
        for found in _NUMBER.finditer(visible):
            if found[2] or found[3] or len(found[1]) > 2:
                text, unit = found[1] + (found[2] or ""), (found[3] or "").strip()
                number = _Number(text, unit, found.start())
                holding = [records for begin, end, records in scopes if begin <= number.start < end]
                yield visible.count("\n", 0, number.start) + 1, number, [*chain.from_iterable(holding)]

    def _scopes(self) -> list[tuple[int, int, list[Record]]]:
        headings = [(found.start(), len(found[1])) for found in _HEADING.finditer(self._plain)]
        scopes = []
        for region in _REGION.finditer(self._plain):
            begin, level = next((one for one in reversed(headings) if one[0] < region.start()), (0, 1))
            end = next((place for place, other in headings if place > begin and other <= level), len(self.text))
            scopes.append((begin, end, [self.records[name] for name in region[2].split(", ")]))
        return scopes


class _Number(str):
    """As it is written; its unit, and its place in the text."""

    unit: str
    start: int

    def __new__(cls, text: str, unit: str, start: int) -> "_Number":
        number = super().__new__(cls, text)
        number.unit, number.start = unit, start
        return number

    def as_written(self, value: int | float) -> list[str]:
        """A figure in the places that this number has, without commas; in its unit, if that is not the figure's."""
        decimals = len(self.partition(".")[2])
        return [f"{abs(factor * value):.{decimals}f}" for factor in (1, _FACTORS.get(self.unit)) if factor]


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _is(number: _Number, value: int | float) -> bool:
    """Whether a number is a figure, rounded to its places."""
    return number.replace(",", "") in number.as_written(value)


def _is_of(number: _Number, record: Record) -> bool:
    return any(_is(number, value) for value in record.figures.values())


def _written(number: _Number, old: int | float, new: int | float) -> str:
    """``new`` as ``number`` has ``old``."""
    written = number.as_written(new)[number.as_written(old).index(number.replace(",", ""))]
    return f"{int(found[1]):,}" + written[found.end():] if (found := re.match(r"(\d+)", written)) else written
