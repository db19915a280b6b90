"""Weight loader: the weights of the next step, gathered after those at work."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..arch.instruction_layout import field_shape, kind_flags
from ..arch.isa import Opcode, StepKind
from ..config import NpuConfig
from ..config.parts import part_of
from ..lib.component import Component, record
from ..timing.compute import WeightLoaderTiming
from .weight_chain import Int4Chain, WeightChain

__all__ = ["WeightLoader"]


def _rows_port(kind: StepKind) -> str:
    return f"{kind.name.lower()}_rows"


def _rows_ports(config: NpuConfig) -> dict[str, wiring.Member]:
    """Of a step of another unit."""
    # The weights of each row.
    rows = {_rows_port(kind): Out(data.ArrayLayout(config.beat_bits, rows)) for kind, rows in config.unit_rows.items()}
    return {**rows, "row_taken": Out(1)} if rows else {}  # the last of the rows came a cycle ago


class WeightLoader(WeightLoaderTiming, Component):
    """Shift one step's weights and indices in from the weight ring and hold them until the array takes them over.

    A step takes ``weight_beats`` cycles, and ``index_beats`` more if indexed. ``ready`` says that the next step may
    start: what is missing of it is in the ring, of which ``level`` counted the beats a cycle ago, and will be here in
    time. ``release`` comes a cycle before the array copies the weights, in which the next step's may begin to follow.
    The weights of a step that is not indexed get the indices of docs/architecture.md, "Computing", made here, so that
    both kinds look alike to the array. ``fill_*`` describe the step to gather in the cycle before its first beat can be
    taken, and until it is.

    A step of another unit takes a cycle for each of its rows, a row's weights in each; one whose weights have four bits
    takes half of the cycles for them.

    ``taken``: cycles from a step's first issue until its weights are copied; the array takes the indices a cycle
    earlier, the other units their rows after `rows_taken`. The next step may not start before that.

    What is to be done with a beat is in registers when it comes: which step's it is, which of its beats, whether it is
    the last.
    """

    def rows(self, kind: StepKind) -> Value:
        """The port with the weights of each row of the next step of a unit."""
        return getattr(self, _rows_port(kind))

    def __init__(self, config: NpuConfig, *, taken: int):
        if taken < 2:
            raise ValueError(f"taken must be at least 2, not {taken!r}")
        self.config = config
        self.taken = taken
        lanes = config.oc_lanes * config.nnz_lanes
        super().__init__({
            "beats": In(stream.Signature(config.beat_bits)),  # from the weight ring
            "level": In(range(config.weight_depth + 1)),  # beats in the ring
            "fill_valid": In(1),    # there is a step to gather
            "fill_kinds": In(kind_flags(StepKind, config)),  # what it is
            "fill_group": In(field_shape(Opcode.COMPUTE, "groups")),    # its number in its block's tap
            # The next step may start: what is missing of it is in the ring and will be here in time.
            "ready": Out(1),
            "release": In(1),       # the weights are copied in the next cycle; the next step's may begin to follow then
            # Of each reduction lane of each output lane.
            "weights": Out(data.ArrayLayout(signed(config.weight_bits), lanes)),
            "indices": Out(data.ArrayLayout(unsigned(config.index_bits), lanes)),  # of the same lanes
            **_rows_ports(config),
        })

    def _own_steps(self, step: data.View) -> list[tuple[Value, Value, int, int]]:
        """Of the kinds of steps that have beats of their own number: whether one is described, the same of the step at
        hand, its beats, its `lead`. Of those that are true the last counts.
        """
        def is_kind(kinds: data.View, kind: StepKind) -> Value:
            return Cat(kinds[trait] for trait in kind.traits).all()

        return [(is_kind(self.fill_kinds, kind), is_kind(step.kinds, kind), beats,
                 self.lead(self.config, kind, taken=self.taken)) for kind, beats in self.config.own_beats.items()]

    def _dense_indices(self, group: Value) -> list[Value]:
        """The index beats of step ``group`` of a dense block."""
        config = self.config
        # groups_dense is a power of two: adding the group number is setting the low bits.
        low = (config.groups_dense - 1).bit_length()
        indices = []
        for lane in range(config.oc_lanes * config.nnz_lanes):
            j = lane % config.nnz_lanes
            base = j * config.groups_dense - config.window_base(j)
            indices.append(Cat(group[:low], Const(base >> low, config.index_bits - low)))
        padding = config.index_beats * config.beat_bits - sum(len(index) for index in indices)
        bits = Cat(*indices, Const(0, padding))
        return [bits[beat * config.beat_bits:(beat + 1) * config.beat_bits] for beat in range(config.index_beats)]

    def _window_indices(self) -> list[Const]:
        """The index beats of a depthwise step: output lane i works on channel i of its block."""
        config = self.config
        value = 0
        for lane in range(config.oc_lanes * config.nnz_lanes):
            value |= lane // config.nnz_lanes % config.ic_lanes << lane * config.index_bits
        mask = (1 << config.beat_bits) - 1
        return [Const(value >> beat * config.beat_bits & mask, config.beat_bits) for beat in range(config.index_beats)]

    def _made_indices(self) -> dict[str, list[Const]]:
        """The index beats of the kinds of steps that the machine has and that are always the same."""
        always = {"window": self._window_indices} if self.config.gathered_taps else {}
        return {name: always[name]() for name in kind_flags(StepKind, self.config).members if name in always}

    def elaborate(self, platform):
        m = Module()
        config = self.config
        lanes = config.oc_lanes * config.nnz_lanes
        # Chains of whole beats, filled from above.
        weights = part_of(config, WeightChain, {"int4": Int4Chain})(config)
        indices = Signal(config.index_beats * config.beat_bits, reset_less=True)
        m.d.comb += self.weights.as_value().eq(weights.last(config.weight_beats)[:lanes * config.weight_bits])
        m.d.comb += self.indices.as_value().eq(indices[:lanes * config.index_bits])

        # -- the step in hand ---------------------------------------------------------------------------------------
        # Between two steps the registers follow the description of the next; its first beat holds them.
        described = {name.removeprefix("fill_"): getattr(self, name) for name in self.signature.members
                     if name.startswith("fill_") and name != "fill_valid"}
        step = record(data.StructLayout({name: port.shape() for name, port in described.items()}))
        total = config.weight_beats + config.index_beats
        most = max([total, *config.own_beats.values()])
        count, missing = Signal(range(most)), Signal(range(most + 1), init=config.weight_beats)
        within = Signal()           # the step's first beat is taken, its last is not
        complete = Signal()         # all are, and the array has not copied them
        wanted = Signal()           # a beat is taken if there is one
        last = Signal()             # it is the step's last
        near = Signal()             # with it, the step may start
        enough = Signal()           # if the others are in the ring, as they are
        taking, stays, taken_all = Signal(name="taking"), Signal(name="stays"), Signal(name="taken_all")
        m.d.comb += [
            self.beats.ready.eq(wanted),
            taking.eq(wanted & self.beats.valid),
            stays.eq(Mux(taking, ~last, within)),
            taken_all.eq((complete | (taking & last)) & ~self.release),
        ]
        m.d.sync += [within.eq(stays), complete.eq(taken_all), wanted.eq(stays | (self.fill_valid & ~taken_all))]

        # Beats of the step described, whether they are few from the first on, and what few is in the step at hand.
        indexed, dense = (self.lead(config, kind, taken=self.taken) for kind in (StepKind.INDEXED, StepKind.DENSE))
        beats = Mux(self.fill_kinds.indexed, total, config.weight_beats)
        few = Mux(self.fill_kinds.indexed, total <= indexed, config.weight_beats <= dense)
        lead, most_lead = Mux(step.kinds.indexed, indexed, dense), max(indexed, dense)
        for described_so, is_so, own, its_lead in self._own_steps(step):
            beats = Mux(described_so, own, beats)
            few = Mux(described_so, own <= its_lead, few)
            lead, most_lead = Mux(is_so, its_lead, lead), max(its_lead, most_lead)
        with m.If(~stays):
            m.d.sync += [
                *[step[name].eq(port) for name, port in described.items()],
                count.eq(0), missing.eq(beats), last.eq(beats == 1), near.eq(few),
            ]
        with m.Elif(taking):
            m.d.sync += [
                count.eq(count + 1), missing.eq(missing - 1), last.eq(missing == 2), near.eq(missing <= lead + 1),
            ]
        # Where it matters, ``near``, few beats are missing, so few bits are compared: of a whole step, and the last
        # beat of the one before it.
        low = (most_lead + 1).bit_length()
        mask = (1 << low) - 1

        def has(number: Value | int) -> Value:
            """Whether the ring has so many, or more than are compared."""
            return self.level[low:].any() | (self.level[:low] >= number)

        def has_step(number: int) -> Value:
            # More than are compared are far from being few, so it does not matter.
            there, with_last = (has(count) if count <= mask else Const(0) for count in (number, number + 1))
            return Mux(taking, with_last, there)

        # Which step it is comes late and therefore only chooses between comparisons.
        has_whole = Mux(self.fill_kinds.indexed, has_step(total), has_step(config.weight_beats))
        for described_so, _, own, _ in self._own_steps(step):
            has_whole = Mux(described_so, has_step(own), has_whole)
        m.d.sync += enough.eq(Mux(stays, has(missing[:low]), has_whole))

        # -- beats --------------------------------------------------------------------------------------------------
        # In a register, as all bits of the chains wait for it: the next beat is one of the first, which indices are in.
        in_indices, in_weights = Signal(init=1), Signal()
        with m.If(~stays):
            m.d.sync += in_indices.eq(1)
        with m.Elif(taking):
            m.d.sync += in_indices.eq(count + 1 < config.index_beats)
        m.d.comb += in_weights.eq(~(step.kinds.indexed & in_indices))
        with m.If(self.release):
            m.d.sync += self.ready.eq(0)
        with m.Elif(taking & near & (enough | last)):
            m.d.sync += self.ready.eq(1)
        weights.take(m, taking & in_weights, self.beats.payload, step, count)
        for kind, rows in config.unit_rows.items():
            m.d.comb += Value.cast(self.rows(kind)).eq(weights.last(rows))
        if config.unit_rows:
            m.d.sync += self.row_taken.eq(taking)

        # -- indices: beats before the weights, or made beside the first beats of a step that has none ---------------
        index_beat = Signal(config.beat_bits)
        made = self._dense_indices(step.group)
        m.d.comb += index_beat.eq(made[0])
        if any(beat.shape() != made[0].shape() or repr(beat) != repr(made[0]) for beat in made[1:]):
            with m.Switch(count):
                for number, beat in enumerate(made):
                    with m.Case(number):
                        m.d.comb += index_beat.eq(beat)
        for name, beats_of_kind in self._made_indices().items():
            with m.If(step.kinds[name]), m.Switch(count):
                for number, beat in enumerate(beats_of_kind):
                    with m.Case(number):
                        m.d.comb += index_beat.eq(beat)
        with m.If(step.kinds.indexed):
            m.d.comb += index_beat.eq(self.beats.payload)
        with m.If(taking & in_indices):
            m.d.sync += indices.eq(Cat(indices[config.beat_bits:], index_beat))
        return m
