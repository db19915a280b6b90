"""What `gen battery` has found, on the terminal."""

import argparse
import dataclasses
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from gen.cli.common import console

if TYPE_CHECKING:
    from gen.energy.rivals import Rival
    from gen.energy.strategies import Plan, Strategy, Verdict

__all__ = ["show"]


def show(arguments: argparse.Namespace, plan: "Plan", found: "list[Strategy]", rivals: "list[Rival]") -> None:
    from gen.energy.battery import SWITCH_CYCLES
    from gen.stochastic.cycles import BASIS

    console.print(f"{arguments.backbone}, {arguments.circuit}; deadline {_ms(1000 * plan.limit)} ms at the clocks of "
                  f"the levels; cycles {BASIS}, energies relative", soft_wrap=True)
    _strategies(found)
    _levels(found)
    console.print(f"a switch between levels: {SWITCH_CYCLES} cycles, one register write; nothing is loaded again",
                  soft_wrap=True)
    if rivals:
        _rivals(rivals)


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    return table


def _strategies(found: "list[Strategy]") -> None:
    from gen.energy.strategies import PUBLISHED

    table = _table("strategy", "inferences", "over fixed", "published", "accuracy, %")
    for strategy in found:
        table.add_row(strategy.name, f"{strategy.discharge.inferences:,}", f"{strategy.gain:.2f}",
                      f"{PUBLISHED[strategy.name]:.2f}", f"{100 * strategy.discharge.accuracy:.2f}")
    console.print(table)


def _levels(found: "list[Strategy]") -> None:
    table = _table("strategy", "level", "MHz", "V", "bits", "cycles", "ms", "deadline", "accuracy, %", "bound",
                   "relative energy")
    for strategy in found:
        for verdict in dict.fromkeys(_alike(strategy)):
            one = verdict.setting
            table.add_row(strategy.name, one.level.name, f"{one.level.mhz:g}", f"{one.level.volts:.3f}",
                          f"{one.length}", f"{one.cycles:,}", _ms(1000 * one.seconds),
                          "met" if verdict.in_time else "missed",
                          f"{100 * one.accuracy:.2f}", "met" if verdict.accurate else "missed", f"{one.energy:.4g}")
    console.print(table)


def _alike(strategy: "Strategy") -> "list[Verdict]":
    """A level that goes on below its charge is one."""
    return [dataclasses.replace(one, setting=dataclasses.replace(one.setting, above=0.0)) for one in strategy.verdicts]


def _rivals(rivals: "list[Rival]") -> None:
    table = _table("circuit by itself", "bits", "ms", "deadline", "accuracy, %", "bound", "relative energy",
                   "both over it", "published")
    for rival in rivals:
        table.add_row(rival.circuit, f"{rival.length}", _ms(rival.ms), "met" if rival.in_time else "missed",
                      f"{100 * rival.accuracy:.2f}", "met" if rival.accurate else "missed", f"{rival.energy:.4g}",
                      f"{rival.gain:.2f}", rival.published)
    console.print(table)


def _ms(value: float) -> str:
    return f"{value:.4g}"
