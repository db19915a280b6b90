"""A table of levels for the C library."""

import jinja2

from npudriver.levels import LevelTable

__all__ = ["levels_header"]


def levels_header(table: LevelTable) -> str:
    """``npugen_levels.h``."""
    environment = jinja2.Environment(loader=jinja2.PackageLoader("gen"), undefined=jinja2.StrictUndefined,
                                     keep_trailing_newline=True)
    environment.filters["c_plain"] = _plain
    return environment.get_template("npugen_levels.h.jinja").render(table=table)


def _plain(text: str) -> str:
    """What is within a literal or a comment, whatever the text."""
    return "".join(one if one.isascii() and one.isprintable() and one not in "\"\\?*" else "_" for one in text)
