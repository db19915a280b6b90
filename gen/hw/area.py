"""What a machine takes of a device, without synthesis: reckoned from machines that were synthesised.

Each component has a few terms that its area grows with, and non-negative factors for them that fit the machines in
``area.json`` best, relative errors counted. For LUTs and flip-flops those are the machines of the reference fabric,
with LUTs of six inputs; for families of another fabric they are scaled, component by component, to what was measured
there (LUTs with a factor that grows with the machine's width), or by what the family says of itself where nothing was.
Multipliers and block RAMs are counted from the widths and depths in the configuration. ``python -m gen.hw.area_table``
makes the table.
"""

import functools
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from boards.board import Board
from cores.config import UNITS, NpuConfig
from gen.families.family import REFERENCE_FABRIC
from gen.families.registry import FAMILIES, get_family
from gen.files.read import read_file

from .area_counts import counted
from .hardware import hardware_digest

__all__ = ["TABLE", "Area", "Machine", "area_of", "exceeded", "growth", "machines", "read_ports_of"]

TABLE = Path(__file__).parent / "area.json"

#: Let off of LUTs and flip-flops where no error is known, and of what is counted, which is that near in every family.
_UNKNOWN_ERROR = 0.25
_COUNTED_ERROR = 0.03


@dataclass(frozen=True)
class Machine:
    """One that was synthesised: component -> resource -> count, as `gen.hw.synth.Report` has them.

    ``hardware``: `hardware_digest` of then.
    """

    family: str
    config: NpuConfig
    components: Mapping[str, Mapping[str, float]]
    hardware: str

    @property
    def totals(self) -> dict[str, float]:
        return {name: sum(found[name] for found in self.components.values())
                for name in get_family(self.family).resources}

    def count(self, component: str, resource: str) -> float:
        """0 for a component that it has not."""
        return self.components.get(component, {}).get(resource, 0.0)


@dataclass(frozen=True)
class Area:
    """``totals`` and ``components`` as a synthesis report has them.

    ``error``: the largest relative error of a total over the machines of the family (or of one with the same LUTs),
    each of them estimated from the others. Machines without which the cost of a term would not be known are left out.
    It is 0 for a machine that is in the table, and None where the table cannot tell: it has too few machines, none with
    a unit that this one has, or none as large. ``nearest``: in words, the machine of the table that is most like this
    one, where it is larger or smaller than all of them; else "". ``now``: not of an earlier state of the hardware.
    """

    family: str
    totals: dict[str, float]
    components: dict[str, dict[str, float]]
    error: float | None
    now: bool = True
    nearest: str = ""
    #: Of the machine's bus.
    beat_bits: int = 0

    @property
    def known(self) -> str:
        """How it is known, such as ``within 8 % of synthesis``."""
        if self.nearest:
            how = f"extrapolated, its error unknown: the nearest machine that was synthesised is {self.nearest}"
        elif self.error is None:
            return "its error unknown"
        else:
            how = f"within {100 * self.error:.0f} % of synthesis" if self.error else "as synthesised"
        return how + ("" if self.now else " of an earlier state")

    def ports(self, board: Board) -> dict[str, float]:
        """What the read ports of the board's project take beside the machine, where it has more than one."""
        if not board.shares_reads(self.beat_bits):
            return dict.fromkeys(self.totals, 0.0)
        return read_ports_of(self.family, self.beat_bits)

    def on(self, board: Board) -> dict[str, float]:
        """``totals`` with those `ports`."""
        ports = self.ports(board)
        return {name: total + ports[name] for name, total in self.totals.items()}

    def too_much(self, board: Board) -> list[str]:
        """What the machine and its `ports` surely take more of than the device has, after allowing for its error; there
        is none where it was synthesised.
        """
        logic = _UNKNOWN_ERROR if self.error is None else self.error
        counted = 0.0 if self.error == 0 else _COUNTED_ERROR
        hard = get_family(self.family).resources[2:]
        return exceeded(self.on(board), board, {name: counted if name in hard else logic for name in self.totals})

    def __str__(self) -> str:
        """Such as ``lut 23,505, ff 26,240, dsp 144, bram36 86, within 8 % of synthesis``."""
        counts = ", ".join(f"{name} {round(total):,}" for name, total in self.totals.items())
        return f"{counts}, {self.known}"

    def to_dict(self) -> dict[str, Any]:
        return {"totals": self.totals, "error": self.error, "nearest": self.nearest, "now": self.now,
                "known": self.known, "components": self.components}


@functools.cache
def machines() -> tuple[Machine, ...]:
    """What is in the table."""
    return tuple(Machine(one["family"], NpuConfig.from_dict(one["config"]), one["components"],
                         one["hardware"])
                 for one in json.loads(read_file(TABLE))["machines"])


@functools.cache
def _ports() -> Mapping[str, Mapping[int, Mapping[str, float]]]:
    """Family -> bits of a beat -> resource -> count of `cores.bus.read_ports.ReadPorts`."""
    found: dict[str, dict[int, Mapping[str, float]]] = {}
    for one in json.loads(read_file(TABLE))["ports"]:
        found.setdefault(one["family"], {})[one["beat_bits"]] = one["totals"]
    return found


def read_ports_of(family: str, beat_bits: int) -> dict[str, float]:
    """What two ports for reads of beats of so many bits take: as synthesised for the family, or for another one, and in
    proportion to the nearest width.
    """
    measured, known = min(_ports().items(), key=lambda item: item[0] != family)
    nearest = min(known, key=lambda bits: abs(bits - beat_bits))
    resources = zip(get_family(family).resources, get_family(measured).resources, strict=True)
    return {name: round(known[nearest][other] * beat_bits / nearest, 1) for name, other in resources}


#: Component -> what its area grows with; optional units add terms of their own. Of terms that fit alike the first is
#: taken. Components that are not named are as large in every machine.
_TERMS: dict[str, Callable[[NpuConfig], Sequence[float]]] = {
    # A MAC has adders and registers, and a multiplexer of as many inputs as it chooses from. Sums of products of 27
    # bits stay packed, in slices; narrower ones are added beside them.
    "compute": lambda c: (1, c.ic_lanes, c.macs, c.macs * c.select_fanin, (c.multiplier_width < 27) * c.macs),
    "load": lambda c: (c.ic_lanes, 1),
    "store": lambda c: (c.ic_lanes // c.store_parts, 1, (c.multiplier_width < 27) * c.ic_lanes // c.store_parts),
    "weight_ring": lambda c: (c.ic_lanes, 1),
    "side_ring": lambda c: (c.ic_lanes, 1),
    "registers": lambda c: (1, c.address_width),
    # Queues of one instruction have no memory.
    "fetch": lambda c: (1, int(c.queue_depth > 1)),
}


@functools.cache
def _components() -> tuple[str, ...]:
    """Those that any machine of the table has; an optional unit can have one of its own."""
    return tuple(dict.fromkeys(component for one in machines() for component in one.components))


def _terms(component: str, config: NpuConfig) -> Sequence[float]:
    own = _TERMS.get(component, lambda c: (1,))(config)
    return (*own, *(term for unit in UNITS if component in unit.area for term in unit.area[component](config)))


def _fitted(rows: Sequence[Sequence[float]], wanted: Sequence[float]) -> np.ndarray:
    """The non-negative factors of least squared relative error: the best of all choices of terms, the fewest."""
    weights = 1 / np.maximum(np.asarray(wanted, float), 1)
    scaled, target = np.asarray(rows, float) * weights[:, None], np.asarray(wanted, float) * weights
    best, least = np.zeros(scaled.shape[1]), math.inf
    for number in range(1, scaled.shape[1] + 1):
        choices = np.array(list(itertools.combinations(range(scaled.shape[1]), number)))
        for chosen, about in zip(choices, _about(scaled, target, choices), strict=True):
            # A term more must be worth it: few machines are measured.
            if about > least * 0.999:
                continue
            factors = np.linalg.lstsq(scaled[:, chosen], target, rcond=None)[0]
            left = float(np.sum((scaled[:, chosen] @ factors - target) ** 2))
            if (factors >= 0).all() and left < least * 0.999 - 1e-9:
                best, least = np.zeros(scaled.shape[1]), left
                best[chosen] = factors
    return best


def _about(scaled: np.ndarray, target: np.ndarray, choices: np.ndarray) -> np.ndarray:
    """A bit less than what each of the ``choices`` (N, terms) leaves of ``target``; infinite if a factor is negative.

    All at once by their normal equations, which takes less time than to solve each well. They are not exact: a factor
    counts as negative only where it surely is.
    """
    lengths = np.maximum(np.linalg.norm(scaled, axis=0), 1e-30)
    unit = scaled / lengths
    squares, products = (unit.T @ unit)[choices[:, :, None], choices[:, None, :]], (unit.T @ target)[choices]
    factors = np.linalg.solve(squares + 1e-12 * np.eye(choices.shape[1]), products[:, :, None])[:, :, 0]
    left = target @ target - 2 * np.sum(products * factors, axis=1) + np.einsum(
        "ni,nij,nj->n", factors, squares, factors)
    negative = (factors < -1e-3 * np.abs(factors).max(axis=1, keepdims=True)).any(axis=1)
    return np.where(negative, math.inf, left * (1 - 1e-6) - 1e-6 * (target @ target))


def _of_fabric(fabric: str) -> tuple[str, ...]:
    return tuple(name for name, family in FAMILIES.items() if family.fabric == fabric)


def _related(family: str) -> tuple[str, ...]:
    """Families with the same LUTs and flip-flops."""
    return _of_fabric(get_family(family).fabric)


def _reference(without: int | None = None) -> list[Machine]:
    return _known(_of_fabric(REFERENCE_FABRIC), without)


def _known(families: Sequence[str], without: int | None) -> list[Machine]:
    """Machines of some families, but for one of the table."""
    return [one for number, one in enumerate(machines()) if one.family in families and number != without]


@functools.cache
def _factors(component: str, resource: str, without: int | None) -> np.ndarray:
    shared = _reference(without)
    return _fitted([_terms(component, one.config) for one in shared],
                   [one.count(component, resource) for one in shared])


def _measured(family: str, without: int | None) -> list[Machine]:
    """Machines of a family, else of those that are made of the same cells."""
    return _known((family,), without) or _known(_related(family), without)


def _scale(known: Sequence[Machine], component: str, resource: str, guess: Callable[[Machine], float]) -> float:
    """Measured over guessed, over all ``known`` machines."""
    guesses = sum(guess(one) for one in known)
    return sum(one.count(component, resource) for one in known) / guesses if guesses else 0.0


def _logic(component: str, resource: str, family: str, without: int | None) -> Callable[[NpuConfig], float]:
    """LUTs or flip-flops of a component."""
    factors = _factors(component, resource, without)

    def fitted(config: NpuConfig) -> float:
        return float(np.dot(_terms(component, config), factors))

    if get_family(family).fabric == REFERENCE_FABRIC:
        return fitted
    known = _measured(family, without)
    if not known or resource != get_family(family).resources[0]:
        scale = (_scale(known, component, resource, lambda one: fitted(one.config)) if known
                 else get_family(family).unmeasured.get(resource, 1.0))
        return lambda config: scale * fitted(config)

    def terms(config: NpuConfig) -> tuple[float, float]:
        # Of smaller tables a choice takes the more of them the wider it is; a flip-flop is one in every family.
        return fitted(config), fitted(config) * config.ic_lanes

    scales = _fitted([terms(one.config) for one in known], [one.count(component, resource) for one in known])
    return lambda config: float(np.dot(terms(config), scales))


def _hard(component: str, resource: str, kind: str, family: str, without: int | None) -> Callable[[NpuConfig], float]:
    """Multipliers or block RAMs of a component."""
    known = _measured(family, without)
    if not known:
        each = get_family(family).unmeasured.get(resource, 1.0)
        return lambda config: each * counted(component, config, family)[kind]
    scale = _scale(known, component, resource, lambda one: counted(component, one.config, one.family)[kind])
    if scale:
        return lambda config: scale * counted(component, config, family)[kind]
    # What does not follow from the configuration, such as a table.
    most = max(one.count(component, resource) for one in known)
    return lambda config: max(most, counted(component, config, family)[kind])


@functools.cache
def _models(family: str, without: int | None = None) -> dict[str, dict[str, Callable[[NpuConfig], float]]]:
    """Component -> resource -> what it takes of it."""
    lut, ff, dsp, ram = get_family(family).resources
    return {component: {
        lut: _logic(component, lut, family, without), ff: _logic(component, ff, family, without),
        dsp: _hard(component, dsp, "dsp", family, without), ram: _hard(component, ram, "ram", family, without),
    } for component in _components()}


def _reckoned(config: NpuConfig, family: str, without: int | None = None) -> dict[str, dict[str, float]]:
    return {component: {resource: model(config) for resource, model in models.items()}
            for component, models in _models(family, without).items()}


def _sum(components: Mapping[str, Mapping[str, float]], family: str) -> dict[str, float]:
    return {name: sum(one[name] for one in components.values()) for name in get_family(family).resources}


def _spanned(number: int) -> bool:
    """Whether the table without a machine still says of every term what it costs."""
    if get_family(machines()[number].family).fabric != REFERENCE_FABRIC:
        return True
    shared, others = _reference(), _reference(number)

    def rank(known: Sequence[Machine], component: str) -> int:
        return int(np.linalg.matrix_rank(np.array([_terms(component, one.config) for one in known], float)))

    return all(rank(shared, component) == rank(others, component) for component in _components())


def _has_all_terms(config: NpuConfig) -> bool:
    """Whether every term that a machine has is there in one of the table."""
    shared = _reference()
    return all(any(_terms(component, one.config)[number] for one in shared)
               for component in _components() for number, term in enumerate(_terms(component, config)) if term)


def _nearest(config: NpuConfig, family: str) -> str:
    """"" where machines of the family, or of one with the same LUTs, lie on both sides of this one in every term of its
    area; else the one of them that is most like it, in words.
    """
    known = _known(_related(family), None)

    def terms(of: NpuConfig) -> list[float]:
        return [term for component in _components() for term in _terms(component, of)]

    own, others = terms(config), [terms(one.config) for one in known]
    if not others or all(min(found) <= term <= max(found) for term, *found in zip(own, *others, strict=True)):
        return ""

    def distance(number: int) -> float:
        return sum(math.log((1 + term) / (1 + other)) ** 2 for term, other in zip(own, others[number], strict=True))

    one = known[min(range(len(known)), key=distance)]
    features = f" with {', '.join(one.config.features)}" if one.config.features else ""
    return f"of {one.config.macs} MACs{features}"


def from_others(number: int) -> dict[str, float] | None:
    """Totals of a machine of the table, by its place there, as the others have it reckoned. None where these do not say
    of every term what it costs.
    """
    one = machines()[number]
    if not _known(_related(one.family), number) or not _spanned(number):
        return None
    return _sum(_reckoned(one.config, one.family, number), one.family)


@functools.cache
def _error(family: str) -> float | None:
    """Largest relative error of a total, each machine of the family and those like it reckoned from the others."""
    worst = None
    for number, one in enumerate(machines()):
        if one.family in _related(family) and (totals := from_others(number)) is not None:
            worst = max(worst or 0.0, *(abs(totals[name] / count - 1) for name, count in one.totals.items() if count))
    return None if worst is None else round(worst, 3)


def area_of(config: NpuConfig, family: str) -> Area:
    """What ``build --synth`` would find, within ``error``; what it has found, where the table has the machine."""
    for one in machines():
        if (one.family, one.config) == (family, config):
            return Area(family, one.totals, {name: dict(counts) for name, counts in one.components.items()}, 0.0,
                        one.hardware == hardware_digest(family), beat_bits=config.beat_bits)
    components = {component: {name: round(count, 1) if name not in ("lut", "ff") else round(count)
                              for name, count in counts.items()}
                  for component, counts in _reckoned(config, family).items()}
    known = _known(_related(family), None) or _reference()
    nearest = _nearest(config, family)
    return Area(family, {name: round(count, 1) for name, count in _sum(components, family).items()}, components,
                _error(family) if _has_all_terms(config) and not nearest else None,
                all(one.hardware == hardware_digest(one.family) for one in known), nearest, config.beat_bits)


def growth(config: NpuConfig, larger: NpuConfig, family: str) -> dict[str, float]:
    """What a ``larger`` machine takes more, by resource.

    Both are reckoned, also where the table has one of them: else the error of the other would be in the difference.
    """
    now, then = (_sum(_reckoned(one, family), family) for one in (config, larger))
    return {name: round(then[name] - count, 1) for name, count in now.items()}


def exceeded(totals: Mapping[str, float], board: Board, errors: Mapping[str, float] | None = None) -> list[str]:
    """What a machine takes more of than the device has, after allowing for ``errors``: ``lut 99,000 of 70,560``."""
    least = {name: total * (1 - (errors or {}).get(name, 0)) for name, total in totals.items()}
    return [f"{name} {totals[name]:,.10g} of {board.resources[name]:,}" for name, total in least.items()
            if total > board.resources[name]]
