"""Where the nodes of a model run, for people and for scripts."""

from typing import TYPE_CHECKING, Any

from rich.table import Table

from gen.cli.common import messages

if TYPE_CHECKING:
    from gen.partition.partition import Partition

__all__ = ["facts_of", "show_segments"]

#: Nodes that a row of the table names.
_NAMED = 3


def facts_of(partition: "Partition | None") -> dict[str, Any] | None:
    """What ``--json`` says; None for a model that runs on the accelerator as a whole."""
    if partition is None:
        return None
    operators = _operators(partition)
    return {
        **_counts(partition), "quantised": list(partition.quantised), "operands": list(partition.operands),
        "before": None if partition.before is None else _counts(partition.before),
        "host": [{"node": name, "op": operators[name], "code": reason.code, "reason": reason}
                 for name, reason in partition.host.items()],
    }


def show_segments(partition: "Partition") -> None:
    """A row for each operator and reason, and how often the model goes from one side to the other."""
    rows: dict[tuple[str, str], list[str]] = {}
    operators = _operators(partition)
    for name, why in partition.host.items():
        rows.setdefault((operators[name], why), []).append(name)
    table = Table(title="on the processor", title_justify="left")
    for heading in ("operator", "nodes", "why"):
        table.add_column(heading, overflow="fold")
    for (operator, reason), names in rows.items():
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        table.add_row(operator, ", ".join(names[:_NAMED]) + more, reason)
    if rows:    # there are none where the processor has copies of what moves values alone
        messages.print(table)
    if partition.quantised:
        messages.print(f"quantised for the processor, too, so that their layers stay on the accelerator: "
                       f"{', '.join(partition.quantised)}", soft_wrap=True)
    if partition.operands:
        messages.print(f"quantised for layers that have quantised weights: {', '.join(partition.operands)}",
                       soft_wrap=True)
    now = _counts(partition)
    line = f"subgraphs on the accelerator: {now['subgraphs']}, switches: {now['switches']}"
    if partition.before is not None:
        before = _counts(partition.before)
        line += (f"; before reconstruction {before['subgraphs']} and {before['switches']}, convolutions and matrix "
                 f"products on the processor {before['host_products']} -> {now['host_products']}")
    messages.print(line, soft_wrap=True)


def _operators(partition: "Partition") -> dict[str, str]:
    return {node.name: node.op for node in partition.model.nodes}


def _counts(partition: "Partition") -> dict[str, int]:
    return {"subgraphs": partition.subgraphs, "switches": partition.switches, "host_nodes": len(partition.host),
            "host_products": partition.host_products}
