"""Stochastic unit: dot products of words of pixels with rows of weights, by streams of bits."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from ...arch.stochastic import MAX_LENGTH_LOG, MIN_LENGTH_LOG, SUM_LOG, Circuit, sum_bits
from ...lib.component import Component
from ...lib.trees import delayed
from ...timing.stochastic import StochasticUnitTiming
from .logic import above
from .place_thresholds import PlaceThresholds
from .stochastic_lane import StochasticLane
from .stream_source import LogShape, StreamSource

__all__ = ["StochasticUnit"]



class StochasticUnit(StochasticUnitTiming, Component):
    """Sum over ``inputs`` of products of int8 pixels and weights, for ``rows`` output lanes and ``pixels`` pixels.

    A word starts with ``start`` and takes 2**``made`` / ``bits`` cycles, after which the next may start. Its pixels,
    and with ``load`` the rows' weights, are there a cycle after ``start``; with uGEMM the weights two cycles longer.
    Its sums come `latency` cycles after ``start``, with ``valid`` high for a cycle, in units of int8 products.

    Golden model: ``sim.stochastic.circuits.sums_by_bits``. Raises ValueError for ``inputs`` that `StochasticLane` and
    ``bits`` that `StreamSource` does not take, and unless ``rows`` and ``pixels`` are positive.
    """

    def __init__(self, *, circuit: Circuit, inputs: int, rows: int, pixels: int, bits: int = 1):
        for name, value in (("rows", rows), ("pixels", pixels)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value!r}")
        self.circuit, self.inputs, self.rows, self.pixel_lanes, self.bits = circuit, inputs, rows, pixels, bits
        # Made here, so that they say what is wrong with the other parameters.
        self._source = StreamSource(circuit=circuit, inputs=inputs, bits=bits)
        self._lanes = [[StochasticLane(circuit=circuit, inputs=inputs, bits=bits) for _ in range(rows)]
                       for _ in range(pixels)]
        values = data.ArrayLayout(signed(8), inputs)
        super().__init__({
            "start": In(1),          # a word begins
            "length": In(LogShape),  # with ``start``: logarithm of its streams' length
            "made": In(LogShape),    # with ``start``: logarithm of the bits that are made of them
            "pixels": In(data.ArrayLayout(values, pixels)),  # of the word, a cycle after ``start``
            "load": In(1),           # in that cycle: take the weights over
            "weights": In(data.ArrayLayout(values, rows)),   # of each row
            "valid": Out(1),         # a word's sums are there
            # Of each row of each pixel.
            "sums": Out(data.ArrayLayout(signed(sum_bits(inputs)), pixels * rows)),
        })

    def _compared(self, value: Value) -> Value:
        """What of an int8 register is compared: the value plus 128, or twice the magnitude, which 128 is above."""
        if self.circuit.bipolar:
            return Cat(value[:7], ~value[7])
        # A negative value's magnitude is its complement and 1: the half that equals the threshold is above it.
        return Cat(value[7], value[:7] ^ value[7].replicate(7))

    def _bit(self, value: Value, threshold: Value) -> Value:
        return above(self._compared(value), threshold if self.circuit.bipolar else Cat(Const(0, 1), threshold))

    def elaborate(self, platform):
        m = Module()
        m.submodules.source = source = self._source
        values = data.ArrayLayout(signed(8), self.inputs)
        # -- words and weights at work --------------------------------------------------------------------------------
        x = [Signal(values, name=f"x{pixel}", reset_less=True) for pixel in range(self.pixel_lanes)]
        w = [Signal(values, name=f"w{row}", reset_less=True) for row in range(self.rows)]
        load = self.load & source.fresh
        load = delayed(m, load, self.weights_taken(self.circuit), "load")
        made: Value = Signal(LogShape)
        with m.If(self.start):
            m.d.sync += made.eq(self.made)
        with m.If(source.fresh):
            m.d.sync += [register.eq(self.pixels[pixel]) for pixel, register in enumerate(x)]
        with m.If(load):
            m.d.sync += [register.eq(self.weights[row]) for row, register in enumerate(w)]
        m.d.comb += [source.start.eq(self.start), source.length.eq(self.length), source.made.eq(self.made)]

        # -- streams --------------------------------------------------------------------------------------------------
        a_bits = [self._streams(m, value, source.activations, f"a{pixel}") for pixel, value in enumerate(x)]
        if self.circuit == Circuit.UGEMM:
            a_bits, w_bits = self._followed(m, a_bits, w)
        else:
            of_rows = [self._streams(m, value, source.weights, f"b{row}") for row, value in enumerate(w)]
            w_bits = [of_rows] * self.pixel_lanes
        # -- sums -----------------------------------------------------------------------------------------------------
        timing = StochasticLane.timing(self.circuit, inputs=self.inputs, bits=self.bits)
        # Cycles from the thresholds to the streams' bits.
        behind = 1 + self._before_lanes(self.circuit) - StreamSource.LATENCY
        marks = {
            "first_held": delayed(m, source.first, behind + timing.held, "first_held"),
            "select": delayed(m, Value.cast(source.select), behind + timing.select, "select"),
            "first": delayed(m, source.first, behind + timing.counted, "first"),
            "valid": delayed(m, source.valid, behind + timing.counted, "valid"),
        }
        complete = delayed(m, source.last, behind + timing.counted + 1, "complete")
        # The count is at hand a cycle later, of a word whose length was there a cycle ahead of the thresholds.
        made = delayed(m, made, behind + timing.counted + 2, "made")
        for pixel, lanes in enumerate(self._lanes):
            for row, lane in enumerate(lanes):
                m.submodules[f"lane{pixel}_{row}"] = lane
                if not self.circuit.bipolar:
                    negative = Signal(self.inputs, name=f"negative{pixel}_{row}", reset_less=True)
                    m.d.sync += negative.eq(Cat(one[7] ^ other[7] for one, other in zip(
                        map(Value.cast, x[pixel]), map(Value.cast, w[row]), strict=True)))
                    m.d.comb += lane.negative.eq(negative)
                m.d.comb += [lane.activations[bit].eq(bits) for bit, bits in enumerate(a_bits[pixel])]
                m.d.comb += [lane.weights[bit].eq(bits) for bit, bits in enumerate(w_bits[pixel][row])]
                m.d.comb += [Value.cast(getattr(lane, name)).eq(mark) for name, mark in marks.items()]
                self._scale(m, pixel * self.rows + row, lane.count, made)
        m.d.sync += self.valid.eq(complete)
        return m

    def _streams(self, m: Module, value: Any, thresholds: Any, name: str) -> list[Signal]:
        """The bits of a cycle of all inputs' streams."""
        streams = [Signal(self.inputs, name=f"{name}_bit{bit}", reset_less=True) for bit in range(self.bits)]
        m.d.sync += [stream.eq(Cat(self._bit(Value.cast(one), threshold) for one in value))
                     for stream, threshold in zip(streams, thresholds, strict=True)]
        return streams

    def _followed(self, m: Module, a_bits: list[list[Signal]],
                  w: list[Signal]) -> tuple[list[list[Signal]], list[list[list[Signal]]]]:
        """uGEMM: the activations' bits again, and beside them those of the weights, of each pixel and row."""
        source = self._source
        valid, first, mask = (delayed(m, port, 1, f"place_{name}") for name, port in (
            ("valid", source.valid), ("first", source.first), ("mask", source.mask)))
        later_a, later_w = [], []
        for pixel, (stream,) in enumerate(a_bits):
            places = [PlaceThresholds() for _ in range(self.inputs)]
            for number, place in enumerate(places):
                m.submodules[f"place{pixel}_{number}"] = place
                m.d.comb += [place.bit.eq(stream[number]), place.valid.eq(valid), place.first.eq(first),
                             place.mask.eq(mask)]
            later = Signal(self.inputs, name=f"a{pixel}_later", reset_less=True)
            m.d.sync += later.eq(Cat(place.activation for place in places))
            later_a.append([later])
            rows = []
            for row, value in enumerate(w):
                bits = Signal(self.inputs, name=f"b{pixel}_{row}", reset_less=True)
                m.d.sync += bits.eq(Cat(self._bit(Value.cast(one), place.threshold)
                                        for one, place in zip(value, places, strict=True)))
                rows.append([bits])
            later_w.append(rows)
        return later_a, later_w

    def _scale(self, m: Module, number: int, count: Value, made: Value) -> None:
        """A sum of streams of any length in the units of the longest, and those in units of int8 products."""
        with m.Switch(made):
            for log in range(MIN_LENGTH_LOG, MAX_LENGTH_LOG + 1):
                with m.Case(log):
                    m.d.sync += self.sums[number].eq(count << SUM_LOG - log)
