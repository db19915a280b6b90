"""Weight loader: the weights of the next step, gathered behind those at work."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import NpuConfig
from .popcount import parities

__all__ = ["WeightLoader"]


class WeightLoader(wiring.Component):
    """Shift one step's weights and indices in from the weight ring and hold them until the array takes them over.

    A step takes ``weight_beats`` cycles, and ``index_beats`` more if indexed. ``ready`` says that a step is complete;
    ``release`` that the array has copied it. The weights of a step that is not indexed get the indices of
    docs/architecture.md, "Computing", made here, so that both kinds look alike to the array. ``fill_*`` describe the
    step to gather; they must not change their meaning while it is being gathered.

    A binary step takes ``binary_rows`` cycles, a row's bits in each, and has the parities that its rows need beside it
    (`cores.popcount`).
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        lanes = config.oc_lanes * config.nnz_lanes
        super().__init__({
            "beats": In(stream.Signature(config.beat_bits)),
            "fill_valid": In(1),
            "fill_indexed": In(1),
            "fill_group": In(6),
            **({"fill_window": In(1)} if config.depthwise else {}),
            **({"fill_binary": In(1)} if config.binary_rows else {}),
            "ready": Out(1),
            "release": In(1),
            "weights": Out(data.ArrayLayout(signed(config.weight_bits), lanes)),
            "indices": Out(data.ArrayLayout(unsigned(config.index_bits), lanes)),
            **({
                "rows": Out(data.ArrayLayout(config.binary_bits, config.binary_rows)),
                "row_parities": Out(data.ArrayLayout(config.binary_bits // 2, config.binary_rows)),
            } if config.binary_rows else {}),
        })

    def _dense_indices(self, group: Signal) -> list[Cat]:
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

    def elaborate(self, platform):
        m = Module()
        config = self.config
        lanes = config.oc_lanes * config.nnz_lanes
        # Chains of whole beats, filled from above: neither need fill its last one.
        weights = Signal(max(config.weight_beats, config.binary_rows) * config.beat_bits, reset_less=True)
        indices = Signal(config.index_beats * config.beat_bits, reset_less=True)
        m.d.comb += self.weights.as_value().eq(
            weights[-config.weight_beats * config.beat_bits:][:lanes * config.weight_bits])
        m.d.comb += self.indices.as_value().eq(indices[:lanes * config.index_bits])

        total = config.weight_beats + config.index_beats
        count = Signal(range(max(total, config.binary_rows) + 1))
        last = Mux(self.fill_indexed, total - 1, config.weight_beats - 1)
        in_weights = count < config.weight_beats
        if config.binary_rows:
            last = Mux(self.fill_binary, config.binary_rows - 1, last)
            in_weights = in_weights | self.fill_binary
            row_parities = Signal.like(self.row_parities, reset_less=True)
            m.d.comb += [
                self.rows.as_value().eq(weights[-config.binary_rows * config.beat_bits:]),
                self.row_parities.eq(row_parities),
            ]
            with m.If(self.beats.valid & self.beats.ready):
                arriving = parities(self.beats.payload, of_weights=True)
                m.d.sync += row_parities.eq(Cat(row_parities.as_value()[len(arriving):], arriving))
        m.d.comb += self.beats.ready.eq(~self.ready & self.fill_valid)
        with m.If(self.beats.valid & self.beats.ready):
            m.d.sync += count.eq(count + 1)
            with m.If(in_weights):
                m.d.sync += weights.eq(Cat(weights[config.beat_bits:], self.beats.payload))
            # A step that is not indexed makes its index beats beside its last weight beats.
            index_beat = Signal(config.beat_bits)
            m.d.comb += index_beat.eq(self.beats.payload)
            with m.If(~self.fill_indexed):
                dense = self._dense_indices(self.fill_group)
                m.d.comb += index_beat.eq(dense[0])
                if any(beat.shape() != dense[0].shape() or repr(beat) != repr(dense[0]) for beat in dense[1:]):
                    with m.Switch(count):
                        for number, beat in enumerate(dense, start=config.weight_beats - config.index_beats):
                            with m.Case(number):
                                m.d.comb += index_beat.eq(beat)
            if config.depthwise:
                with m.If(self.fill_window), m.Switch(count):
                    first = config.weight_beats - config.index_beats
                    for number, beat in enumerate(self._window_indices(), start=first):
                        with m.Case(number):
                            m.d.comb += index_beat.eq(beat)
            with m.If(~in_weights | ~self.fill_indexed):
                m.d.sync += indices.eq(Cat(indices[config.beat_bits:], index_beat))
            with m.If(count == last):
                m.d.sync += [self.ready.eq(1), count.eq(0)]
        with m.If(self.release):
            m.d.sync += self.ready.eq(0)
        return m
