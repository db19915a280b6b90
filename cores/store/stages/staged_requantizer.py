"""A requantizer whose second stage has multipliers of its own."""

from types import SimpleNamespace

from amaranth.hdl import Module, Mux, Signal

from ...arch.numerics import MIN_SHIFT
from ...lib.component import record
from ...timing.store import StagedRequantizerTiming
from ..parts import beats_of, second_stage_of, words_of
from ..requantizer import Requantizer
from ..requantizer_lane import LaneControl, RequantizerLane
from .second_lane import SecondControl, SecondLane

__all__ = ["StagedRequantizer"]


class StagedRequantizer(StagedRequantizerTiming, Requantizer):
    """As `Requantizer`, with a `SecondLane` after each `RequantizerLane`: a pixel a cycle in any chain.

    Where another operand and the first result share a multiplier, pixels with another operand set out an even number of
    cycles apart. ``load`` is wanted where parameters change.
    """

    def elaborate(self, platform):
        m = Module()
        config, chain = self.config, self.chain
        words, stage, results = words_of(config), second_stage_of(config, chain), beats_of(config)
        first, second, adds = chain.requant, chain.second, chain.adds
        issue, pooled_source, residual = self._arrive(m)
        valid, load, release = self._follow(m, issue)
        limits = {"low": (first.low, second.add.low), "high": (first.high, second.add.high)}
        results.limit_stages(m, self, valid, issue, limits)
        m.d.sync += self.output_valid.eq(
            results.comes(m, self, Mux(adds, valid[self.ADD_LATENCY - 1], valid[self.LATENCY - 1])))

        # What is not said of the first stage's lanes is zero: they have no second turns.
        control = record(LaneControl)
        m.d.comb += [
            self.released.eq(release[self.RELEASE]),
            control.load_bias.eq(load[1]),
            control.load_factor.eq(load[2]),
            control.load_shift.eq(load[4]),
            control.zero_point.eq(first.zero_point),
            control.low.eq(limits["low"][0]),
            control.high.eq(limits["high"][0]),
        ]

        # The chain stands still long before these are looked at.
        does = record(SecondControl, reset_less=True)
        multiplies, add = stage.multiplies(), second.add
        m.d.sync += [
            does.factor.eq(add.multiplier_a),
            does.negative_factor.eq(Mux(chain.leaky, second.leaky.negative, add.multiplier_a)),
            does.other_factor.eq(Mux(multiplies, add.multiplier_a, add.multiplier_b)),
            does.constant.eq(Mux(multiplies, -add.constant, add.constant)),
            does.adds.eq(~chain.leaky & ~multiplies),
            does.multiplies.eq(multiplies),
            does.shift.eq(add.shift - MIN_SHIFT),
            does.zero_point.eq(add.zero_point),
            does.low.eq(limits["low"][1]),
            does.high.eq(limits["high"][1]),
        ]

        # The residual waits for the first stage's result.
        residuals = {self.RESIDUAL: residual}
        for cycle in range(self.RESIDUAL + 1, self.LATENCY):
            residuals[cycle] = Signal(config.beat_bits, name=f"residual{cycle}", reset_less=True)
            m.d.sync += residuals[cycle].eq(residuals[cycle - 1])
        others = Mux(multiplies, residuals[self.LATENCY - self.FACTOR], residuals[self.LATENCY - 1])

        from_pool, pooled, choose = self._begin_sources(m, words, issue, pooled_source)
        for lane in range(config.ic_lanes):
            pool_source = Signal.like(pooled[lane], name=f"pool{lane}", reset_less=True)
            m.d.sync += pool_source.eq(Mux(from_pool, pooled[lane], 0))
            one = RequantizerLane(acc_width=config.acc_width, halves=not config.hard_block_registers,
                                  packs=results.PACKS, whole=True)
            other = SecondLane(apart=config.residual_cycles == 1, multiplies=stage.MULTIPLIES)
            m.submodules[f"lane{lane}"], m.submodules[f"second{lane}"] = one, other
            m.d.comb += [
                one.source.eq(words.source(m, lane, choose(lane)) | pool_source),
                one.channel.eq(self.channels[lane]),
                one.control.eq(control),
                other.value.eq(one.result),
                other.other.eq(others.word_select(lane, 8)),
                other.control.eq(does),
                *([] if other.apart else [other.own.eq(valid[self.LATENCY])]),
            ]
            # Beats that are made of results are ORed into these, which are zero then.
            merge, merged = (Signal(8, name=f"{name}{lane}") for name in ("merge", "merged"))
            m.d.sync += merged.eq(merge)
            results.connect_lane(m, lane, SimpleNamespace(
                negative=Mux(adds, other.negative, one.negative) if results.PACKS else None, merge=merge))
            m.d.comb += self.output[lane].eq(Mux(adds, other.output, one.output) | merged)
        return m
