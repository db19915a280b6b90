"""The reference of the commands, from the parsers that read them."""

import argparse
import re
from collections.abc import Iterator
from itertools import zip_longest

from gen.cli import COMMANDS, make_parser

__all__ = ["commands_page"]

_INTRODUCTION = """# Commands

Generated from the parsers: each command's `--help` has the same. `python -m gen` and the installed `npugen` are one
program. The exit status is 0 (success), 1 (failure), 2 (bad arguments) or 130 (interrupted).
"""


def _cell(text: str) -> str:
    """Text as a cell of a table: but for code between backticks nothing in it is markup."""
    parts = " ".join(text.split()).split("`")
    plain = [re.sub(r"[\\*_{}\[\]<>#|$&]", lambda match: f"&#{ord(match[0])};", part) for part in parts[::2]]
    return "`".join(part for pair in zip_longest(plain, parts[1::2]) for part in pair if part is not None)


def _forms(action: argparse.Action, formatter: argparse.HelpFormatter) -> str:
    """How an argument is written: each of an option's names, and what follows it."""
    words = formatter._format_args(action, formatter._get_default_metavar_for_optional(action)) \
        if action.option_strings and action.nargs != 0 else ""
    if not action.option_strings:
        return f"`{formatter._format_args(action, formatter._get_default_metavar_for_positional(action))}`"
    return ", ".join(f"`{name} {words}`" if words else f"`{name}`" for name in action.option_strings)


def _table(actions: list[argparse.Action], formatter: argparse.HelpFormatter) -> Iterator[str]:
    yield "| argument | meaning |"
    yield "|---|---|"
    for action in actions:
        text = formatter._expand_help(action) if action.help else ""
        yield f"| {_forms(action, formatter)} | {_cell(text)} |"


def _command(name: str) -> Iterator[str]:
    parser = make_parser(name)
    chosen = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    command = chosen.choices[name]
    formatter = command._get_formatter()
    yield f"## {name}\n\n{_cell(command.description or '')}\n"
    for group in command._action_groups:
        shown = [action for action in group._group_actions
                 if action.help != argparse.SUPPRESS and not isinstance(action, argparse._HelpAction)]
        if not shown:
            continue
        if group.title not in ("positional arguments", "options"):
            yield f"**{group.title[0].upper()}{group.title[1:]}**" if group.title else ""
            yield f"\n{_cell(group.description)}\n" if group.description else ""
        yield from _table(shown, formatter)
        yield ""
    epilog = (command.epilog or "").replace("%(prog)s", command.prog)
    yield "```\n" + "\n".join(line.strip() for line in epilog.removeprefix("example:").strip().splitlines()) + "\n```\n"


def commands_page() -> str:
    """Markdown: a section for each command, in the order of the help, with its options and an example."""
    lines = [_INTRODUCTION, "| command | what it does |", "|---|---|"]
    lines += [f"| [{name}](#{name}) | {_cell(text)} |" for name, text in COMMANDS.items()]
    lines.append("")
    for name in COMMANDS:
        lines += _command(name)
    return "\n".join(lines)
