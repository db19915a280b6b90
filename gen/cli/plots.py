"""Plots as files: which kinds of files, for all commands that write any."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gen.files.figure import KINDS, title_of, write_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["add_plots_option", "plot_files", "write_plots"]



def add_plots_option(parser: argparse.ArgumentParser) -> None:
    """--plots"""
    parser.add_argument("--plots", type=_kinds, default=("png",), metavar="KINDS",
                        help=f"what plots are written as: {', '.join(KINDS)}, separated by commas (default png)")


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(dict.fromkeys(kind.strip() for kind in text.split(",")))
    if not set(kinds) <= set(KINDS):
        raise argparse.ArgumentTypeError(f"must be of {', '.join(KINDS)}, separated by commas, not {text}")
    return kinds


def plot_files(arguments: argparse.Namespace, name: str) -> list[str]:
    """The files of a plot, one of each kind."""
    return [f"{name}.{kind}" for kind in arguments.plots]


def write_plots(arguments: argparse.Namespace, folder: Path, name: str, figure: "Figure", *,
                title: Sequence[str] = ()) -> None:
    """``title``: lines of what it is, and on which machine, board and clock, where the figure does not say so itself.
    Raises OSError.
    """
    if title:
        figure.suptitle(title_of(title), fontsize="medium")
    for file in plot_files(arguments, name):
        write_figure(folder / file, figure)
