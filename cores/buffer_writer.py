"""Buffer writer: the delivering half of the load engine."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .byte_window import lanes_below
from .config import NpuConfig
from .input_buffer import ENTRY_BITS, BankShape, BufferWrite, KeptBeat
from .instruction_layout import INDEX_BITS, QueueEntry, instruction_layout
from .isa import Opcode
from .registers import ENGINE_STATES
from .run_gatherer import RunGatherer
from .run_settings import RunSettings
from .winograd_input import WinogradInput

__all__ = ["BufferWriter"]

_STATE = {name: code for code, name in enumerate(ENGINE_STATES["load"])}


class BufferWriter(wiring.Component):
    """Take the load queue's data in order and put it where it belongs, a beat a cycle.

    LOAD_ACT: pad and write to the input-buffer banks (docs/architecture.md, "Loading"). LOAD_WGT, LOAD_SIDE: pass on to
    their rings. ``overrun`` when an entry outside the input buffer would be written, by load ``overrun_index``. With
    ``gather`` in the configuration every beat for the input buffer goes through `RunGatherer`; with ``winograd``, boxes
    behind a LOAD_WINOGRAD go through `WinogradInput`, which goes on writing while other loads follow. The next LOAD_ACT
    waits for it. Beats of the store engine (``kept``, with ``local_store``) go first: no entry of a LOAD_ACT sets out
    in their cycle, and no tile is written.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            "queue": In(stream.Signature(QueueEntry)),
            "input": In(stream.Signature(config.beat_bits)),
            "compute_level": In(8),
            "compute_take": Out(8),
            "post_compute": Out(1),
            "write": Out(BufferWrite(config)),
            **({"kept": In(KeptBeat(config))} if config.local_store else {}),
            "weights": Out(stream.Signature(config.beat_bits)),
            "side": Out(stream.Signature(config.beat_bits)),
            "state": Out(4),
            "index": Out(INDEX_BITS),
            "overrun": Out(1),
            "overrun_index": Out(INDEX_BITS),
            "idle": Out(1),
        })

    @staticmethod
    def latency(config: NpuConfig) -> int:
        """Cycles from an entry's setting out until it is written."""
        return RunGatherer.LATENCY if config.gather else 1

    def elaborate(self, platform):
        m = Module()
        config, write = self.config, self.write
        several = config.banks > 1

        word = Value.cast(self.queue.payload.word)
        act, wgt, side = (data.View(instruction_layout(opcode), word)
                          for opcode in (Opcode.LOAD_ACT, Opcode.LOAD_WGT, Opcode.LOAD_SIDE))
        g = Signal(instruction_layout(Opcode.LOAD_SET))

        active, to_weights, to_side, post = Signal(), Signal(), Signal(), Signal()
        index = Signal(INDEX_BITS)
        blocks_left = Signal(10)
        # Padded rows are counted in three phases: padding above, data, padding below; columns likewise.
        rows_top, rows_data, rows_bottom = Signal(6), Signal(10), Signal(6)
        top_left, data_left, bottom_left = Signal(6), Signal(10), Signal(6)
        cols_data = Signal(24)
        if config.gather:
            m.submodules.settings = settings = RunSettings(config)
            m.submodules.gatherer = gatherer = RunGatherer(config)
            m.d.comb += settings.word.eq(word)
            left, right = settings.left, settings.right
        else:
            left, right = g.pad_left, g.pad_right
        left_left, cols_left, right_left = Signal(left.shape()), Signal(24), Signal(right.shape())

        pads = ~to_weights & ~to_side
        kept = self.kept.enable.any() if config.local_store else Const(0)
        in_data_row = (top_left == 0) & (data_left != 0)
        is_data = in_data_row & (left_left == 0) & (cols_left != 0)
        row_end, block_end = Signal(), Signal()
        m.d.comb += [
            row_end.eq((left_left == 0) & Mux(cols_left == 1, right_left == 0, (cols_left == 0) & (right_left == 1))),
            # One row is left: any of the three phases may have no rows.
            block_end.eq(Mux(top_left != 0, (top_left == 1) & (data_left == 0) & (bottom_left == 0),
                             Mux(data_left == 1, bottom_left == 0, (data_left == 0) & (bottom_left == 1)))),
        ]

        # -- transformer ------------------------------------------------------------------------------------------
        boxes = pads            # a LOAD_ACT that does not go through it
        if config.winograd:
            m.submodules.tiles = tiles = WinogradInput(config)
            tiled = Signal()    # behind a LOAD_WINOGRAD
            transform = Signal(instruction_layout(Opcode.LOAD_WINOGRAD))
            boxes = pads & ~tiled
            transforms = pads & tiled

        # -- one beat -------------------------------------------------------------------------------------------
        room, sink_ready = Signal(init=1), Signal()
        accepts = Mux(tiled, tiles.pixels.ready, room) if config.winograd else room
        m.d.comb += [
            sink_ready.eq(Mux(to_weights, self.weights.ready, Mux(to_side, self.side.ready, accepts))),
            self.weights.valid.eq(active & to_weights & self.input.valid),
            self.weights.payload.eq(self.input.payload),
            self.side.valid.eq(active & to_side & self.input.valid),
            self.side.payload.eq(self.input.payload),
            self.input.ready.eq(active & is_data & sink_ready),
        ]
        go = Signal()
        m.d.comb += go.eq(active & sink_ready & (~is_data | self.input.valid))
        last = row_end & block_end & (blocks_left == 1)
        with m.If(go):
            with m.If(left_left != 0):
                m.d.sync += left_left.eq(left_left - 1)
            with m.Elif(cols_left != 0):
                m.d.sync += cols_left.eq(cols_left - 1)
            with m.Else():
                m.d.sync += right_left.eq(right_left - 1)
            with m.If(row_end):
                m.d.sync += [left_left.eq(Mux(pads, left, 0)), cols_left.eq(cols_data),
                             right_left.eq(Mux(pads, right, 0))]
                with m.If(top_left != 0):
                    m.d.sync += top_left.eq(top_left - 1)
                with m.Elif(data_left != 0):
                    m.d.sync += data_left.eq(data_left - 1)
                with m.Else():
                    m.d.sync += bottom_left.eq(bottom_left - 1)
                with m.If(block_end):
                    m.d.sync += [top_left.eq(rows_top), data_left.eq(rows_data), bottom_left.eq(rows_bottom),
                                 blocks_left.eq(blocks_left - 1)]

        # -- entries: the present one's, its banks (from ``bank`` on), what it ends ---------------------------------
        if config.gather:
            feeding = Signal()
            placed, ends_row, ends_block = gatherer.emit, gatherer.row_end, gatherer.block_end
            finish = Mux(boxes, gatherer.finish, go & last)
            # Of a row's data, only the first ``bytes`` bytes are.
            beats_left = Signal(signed(len(settings.data_beats) + 1))
            with m.If(go):
                with m.If(row_end):
                    m.d.sync += beats_left.eq(settings.data_beats)
                with m.Elif(is_data & (beats_left >= 0)):
                    m.d.sync += beats_left.eq(beats_left - 1)
                with m.If(last):
                    m.d.sync += feeding.eq(0)
            m.d.comb += [
                room.eq(feeding & gatherer.room),
                gatherer.hold.eq(kept),
                gatherer.enter.eq(go & boxes),
                gatherer.enter_last.eq(row_end),
                gatherer.runs.eq(settings.runs),
                gatherer.blocks.eq(act.blocks),
                gatherer.rows.eq(act.pad_top + act.rows + act.pad_bottom),
            ]
            tail = Mux(beats_left == 0, lanes_below(settings.data_bytes, config.beat_bytes), 0)
            present = Signal(config.beat_bytes)
            with m.If(is_data):
                m.d.comb += present.eq(Mux(~settings.gathering | (beats_left > 0), ~0, tail))
            # Without ``pad_zero`` no padding is absent.
            m.d.comb += gatherer.present.eq(Mux(g.pad_zero, present, ~0) if config.binary_rows else present)
            for lane in range(config.beat_bytes):
                byte, padding = self.input.payload.word_select(lane, 8), g.pad_value.as_unsigned()
                if config.binary_rows and lane < config.beat_bytes // 8:
                    # The signs of a beat are a run of its first bytes, which goes where the gatherer says.
                    signs = Cat(~self.input.payload[8 * channel + 7] for channel in range(8 * lane, 8 * lane + 8))
                    byte = Mux(g.sign, signs, byte)
                    padding = Mux(g.sign, (~g.pad_value[-1]).replicate(8), padding)
                m.d.comb += gatherer.beat[lane].eq(Mux(present[lane], byte, padding))
            pixel, written = Value.cast(gatherer.beat), gatherer.data
            m.d.comb += write.bytes.eq(gatherer.bytes)
            if config.binary_rows:
                m.d.comb += write.zero.eq(gatherer.zero)
            if config.local_store:
                waits, beat = kept, self.kept.payload
                for number in range(RunGatherer.LATENCY):
                    before, waits = waits, Signal(name=f"kept{number + 1}")
                    payload, beat = beat, Signal(config.beat_bits, name=f"kept_beat{number + 1}")
                    m.d.sync += [waits.eq(before), beat.eq(payload)]
                written = Mux(waits, beat.replicate(config.write_lanes), written)
                with m.If(waits):
                    m.d.comb += write.bytes.eq(~0)
                    if config.binary_rows:
                        m.d.comb += write.zero.eq(0)
        else:
            placed, ends_row, ends_block, finish = go & boxes, row_end, block_end, go & last
            m.d.comb += room.eq(~kept)
            pixel, written = Signal(config.beat_bits), Signal(config.beat_bits)
            padding = g.pad_value.as_unsigned().replicate(config.beat_bytes)
            m.d.comb += pixel.eq(Mux(is_data, self.input.payload, padding))
            m.d.sync += written.eq(Mux(kept, self.kept.payload, pixel) if config.local_store else pixel)
        if config.activation_bits > 8:
            values = [written.word_select(number, 8) for number in range(config.write_lanes * config.ic_lanes)]
            written = Cat(Cat(value, value[7].replicate(config.activation_bits - 8)) for value in values)
        m.d.comb += write.data.eq(written)
        block_base, row_base, address = Signal(ENTRY_BITS), Signal(ENTRY_BITS), Signal(ENTRY_BITS)
        phase, bank = Signal(3), Signal(BankShape(config))
        placing = placed.any()
        entry = Signal(data.StructLayout({"enable": config.banks, "address": ENTRY_BITS, "post": 1}))
        m.d.comb += [
            # A token posted with the last entry is seen when that can be read.
            entry.post.eq(finish & post & ~transforms if config.winograd else finish & post),
            entry.enable.eq(placed << bank if several else placed),
            entry.address.eq(address),
            self.overrun.eq(placing & (address >= config.input_depth)),
        ]
        if config.local_store:
            with m.If(kept):
                m.d.comb += [entry.enable.eq(self.kept.enable), entry.address.eq(self.kept.address)]
        stages = [entry]
        for number in range(self.latency(config)):
            stage = Signal.like(entry, name=f"entry{number + 1}")
            m.d.sync += stage.eq(stages[-1])
            stages.append(stage)
        m.d.comb += [write.enable.eq(stages[-1].enable), write.address.eq(stages[-1].address),
                     self.post_compute.eq(stages[-1].post), self.overrun_index.eq(index)]
        with m.If(placing):
            if several:
                turn, full = phase + 1 == g.stride, bank.all()
                if config.gather:
                    turn, full = turn | settings.gathering, (bank | placed[1:]).all()
                with m.If(turn):
                    # A bank is done with its ``stride`` columns: the next are the next bank's at the same entries.
                    m.d.sync += [
                        phase.eq(0),
                        bank.eq(bank + (1 + placed[1] if config.gather else 1)),
                        address.eq(Mux(full, address + 1, address - phase)),
                    ]
                with m.Else():
                    m.d.sync += [phase.eq(phase + 1), address.eq(address + 1)]
            else:
                m.d.sync += address.eq(address + 1)
            with m.If(ends_row):
                next_row = row_base + g.buf_row_pitch
                m.d.sync += [phase.eq(0), bank.eq(0), row_base.eq(next_row), address.eq(next_row)]
                with m.If(ends_block):
                    pitch = Mux(gatherer.wrap, g.buf_block_pitch, 0) if config.gather else g.buf_block_pitch
                    next_block = block_base + pitch
                    m.d.sync += [signal.eq(next_block) for signal in (block_base, row_base, address)]
        with m.If(finish):
            m.d.sync += active.eq(0)

        # -- transformed tiles ------------------------------------------------------------------------------------
        if config.winograd:
            value = tiles.entries.payload
            m.d.comb += [
                tiles.pixels.valid.eq(active & transforms & (~is_data | self.input.valid)),
                tiles.pixels.payload.data.eq(pixel),
                tiles.pixels.payload.row_end.eq(row_end),
                tiles.pixels.payload.block_end.eq(row_end & block_end),
                tiles.pixels.payload.end.eq(blocks_left == 1),
                # No other box is under way then, but a beat of the store engine may be.
                tiles.entries.ready.eq(~stages[-1].enable.any() if config.local_store else 1),
            ]
            with m.If(tiles.entries.valid & tiles.entries.ready):
                m.d.comb += [
                    write.enable.eq(1 << value.bank if several else 1),
                    write.address.eq(value.address),
                    write.data.eq(value.data.replicate(config.write_lanes)),
                ]
                if config.gather:
                    m.d.comb += write.bytes.eq(~0)
                if config.binary_rows:
                    m.d.comb += write.zero.eq(0)
            with m.If(tiles.overrun):
                m.d.comb += [self.overrun.eq(1), self.overrun_index.eq(tiles.index)]
            # Its token and another load's can fall on the same cycle. The next of its own is at least 16 cycles off,
            # while no more loads than wait in the queue can follow one another at a cycle each.
            owed = Signal()
            other, own = stages[-1].post, tiles.entries.valid & tiles.entries.ready & value.post
            m.d.comb += self.post_compute.eq(other | own | owed)
            m.d.sync += owed.eq((other & own) | (owed & (other | own)))

        # -- next instruction ------------------------------------------------------------------------------------
        waits_compute = act.wait_compute & (self.compute_level == 0)
        settled = settings.ready if config.gather else 1
        if config.winograd:
            is_box = act.opcode == Opcode.LOAD_ACT
            settled = settled & (tiles.idle | ~is_box)
            m.d.comb += [
                tiles.start.eq(self.queue.ready & is_box & tiled),
                *[tiles.load[name].eq(source[name]) for source, names in (
                    (act, ("buf_base", "post_compute")), (g, ("buf_block_pitch",)),
                    (transform, ("shifts", "tile_cols", "position_pitch")), (self.queue.payload, ("index",)))
                  for name in names],
            ]
        with m.If(self.queue.valid & (~active | finish) & ~waits_compute & settled):
            m.d.comb += [self.queue.ready.eq(1), self.compute_take.eq(act.wait_compute)]
            if config.gather:
                m.d.comb += settings.take.eq(1)
            m.d.sync += [index.eq(self.queue.payload.index), post.eq(act.post_compute), to_weights.eq(0), to_side.eq(0),
                         blocks_left.eq(1), phase.eq(0), bank.eq(0)]
            with m.Switch(act.opcode):
                with m.Case(Opcode.LOAD_SET):
                    m.d.sync += Value.cast(g).eq(word)
                    if config.winograd:
                        m.d.sync += tiled.eq(0)
                if config.winograd:
                    with m.Case(Opcode.LOAD_WINOGRAD):
                        m.d.sync += [Value.cast(transform).eq(word), tiled.eq(1), g.sign.eq(0)]
                with m.Case(Opcode.LOAD_ACT):
                    m.d.sync += [
                        active.eq(1),
                        blocks_left.eq(act.blocks),
                        *[signal.eq(act.pad_top) for signal in (rows_top, top_left)],
                        *[signal.eq(act.rows) for signal in (rows_data, data_left)],
                        *[signal.eq(act.pad_bottom) for signal in (rows_bottom, bottom_left)],
                        *[signal.eq(g.cols) for signal in (cols_data, cols_left)],
                        left_left.eq(left),
                        right_left.eq(right),
                        *[signal.eq(act.buf_base) for signal in (block_base, row_base, address)],
                    ]
                    if config.gather:
                        m.d.comb += gatherer.start.eq(~tiled if config.winograd else 1)
                        m.d.sync += [feeding.eq(1), beats_left.eq(settings.data_beats)]
                if config.gather:
                    with m.Case(Opcode.LOAD_GATHER):
                        m.d.sync += g.sign.eq(0)
                with m.Default():
                    is_weights = act.opcode == Opcode.LOAD_WGT
                    count = Mux(is_weights, wgt.beats, side.cols)
                    rows = Mux(is_weights, 1, side.rows)
                    m.d.sync += [
                        active.eq(1),
                        to_weights.eq(is_weights),
                        to_side.eq(~is_weights),
                        *[signal.eq(0) for signal in (rows_top, top_left, rows_bottom, bottom_left, left_left,
                                                      right_left)],
                        *[signal.eq(rows) for signal in (rows_data, data_left)],
                        *[signal.eq(count) for signal in (cols_data, cols_left)],
                    ]

        # -- report ------------------------------------------------------------------------------------------------
        m.d.comb += [
            self.idle.eq(~active & ~self.queue.valid & ~Cat(stage.enable for stage in stages[1:]).any()),
            # Without a further instruction it is the last one whose beats are still on their way.
            self.index.eq(Mux(active | ~self.queue.valid, index, self.queue.payload.index)),
        ]
        # The gatherer may be at work when nothing enters it.
        working = go | (active & pads & ~(is_data & ~self.input.valid)) if config.gather else go
        if config.winograd:
            working = working | tiles.entries.valid
            with m.If(~tiles.idle | owed):
                m.d.comb += self.idle.eq(0)
                with m.If(~active):
                    m.d.comb += self.index.eq(tiles.index)
        with m.If(working):
            m.d.comb += self.state.eq(_STATE["busy"])
        with m.Elif(active & ~self.input.valid):
            m.d.comb += self.state.eq(_STATE["wait_bus"])
        with m.Elif(active & pads & kept):
            m.d.comb += self.state.eq(_STATE["wait_store"])
        with m.Elif(active):
            m.d.comb += self.state.eq(_STATE["wait_ring"])
        if config.winograd:
            with m.Elif(~tiles.idle):   # between two rows' entries
                m.d.comb += self.state.eq(_STATE["busy"])
        with m.Elif(self.queue.valid & waits_compute):
            m.d.comb += self.state.eq(_STATE["wait_compute"])
        with m.Elif(self.queue.valid):
            m.d.comb += self.state.eq(_STATE["setup"])
        return m
