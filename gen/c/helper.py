"""What generated functions refer to, once in a file: a helper function for an operation and its types, whatever the
shapes; a table of constants.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from string import Template

__all__ = ["Helper", "Template", "in_order", "instance"]


@dataclass(frozen=True)
class Helper:
    """A static function ``name``, which calls those that it ``needs``, or a table. ``source`` ends a line."""

    name: str
    source: str = field(repr=False, compare=False)
    needs: tuple["Helper", ...] = field(default=(), repr=False, compare=False)


def instance(name: str, template: str, needs: Iterable[Helper] = (), /, **words: str) -> Helper:
    """The helper ``op_{name}`` of a template, in which ``$name`` and ``$word`` stand for what is given here."""
    name = f"op_{name}"
    return Helper(name, Template(template.strip() + "\n").substitute(words, name=name), tuple(needs))


def in_order(helpers: Iterable[Helper]) -> list[Helper]:
    """All of them and what they need, each once, and after what it needs."""
    found: dict[str, Helper] = {}

    def add(helper: Helper) -> None:
        if helper.name not in found:
            for other in helper.needs:
                add(other)
            found[helper.name] = helper

    for helper in helpers:
        add(helper)
    return list(found.values())
