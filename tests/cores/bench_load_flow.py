"""Load engine, cycle by cycle: requests, order, room for data, tokens, states and rate; see also bench_load_engine."""

import cocotb
import numpy as np

from cores.arch.axi import AxiResponse
from cores.arch.error_codes import ErrorCode
from cores.timing.buffers import write_latency
from tests.cores.load_flow_environment import CONFIG, REPORT_CYCLES, RINGS, ROOM, begin, random_program, start
from tests.cores.load_stimulus import LoadStimulus


@cocotb.test()
@cocotb.parametrize(stalls=[0.0, 0.3, 0.7])
async def random_loads(dut, stalls):
    """Programs of all kinds, fast and slow surroundings."""
    environment = await start(dut, random_program(begin(dut), 20), **{"": stalls})
    await environment.run()
    environment.check()


@cocotb.test()
async def one_side_slow(dut):
    """Each side in turn is the slow one: a source runs dry, or a sink stands still."""
    rng = begin(dut)
    for slow in ("queue", "request", "memory", "weights", "side", "compute", "store"):
        environment = await start(dut, random_program(rng, 6), **{slow: 0.85})
        await environment.run()
        environment.check()


@cocotb.test()
async def padding_alone(dut):
    """Boxes without data rows, of one row and of more, padded above, below or both; nothing is asked for them."""
    rng = begin(dut)
    stimulus = LoadStimulus(CONFIG, rng)
    for pads in ((1, 0), (0, 1), (3, 0), (0, 3), (2, 2)):
        for blocks in (1, 2):
            stimulus.geometry(cols=int(rng.integers(1, 6)))
            stimulus.box(blocks=blocks, rows=0, pads=pads, post_compute=1)
    stimulus.box(rows=1, blocks=1, pads=(0, 0), post_compute=1)
    environment = await start(dut, stimulus)
    await environment.run()
    environment.check()


@cocotb.test()
async def full_rate(dut):
    """A beat a cycle, also from one load to the next of its kind, as long as the memory keeps up."""
    rng = begin(dut)
    long = min(700, CONFIG.banks * CONFIG.input_depth // 2)
    programs = {}
    boxes = (long, (0, 0), 3, 1), (long // 2, (3, 2), 3, 2), (2, (0, 0), 5, 4), (1, (1, 1), 5, 4)
    for cols, pads, rows, blocks in boxes:
        stimulus = LoadStimulus(CONFIG, rng)
        stimulus.geometry(cols=cols, pads=pads, stride=1)
        for number in range(3):
            stimulus.box(blocks=blocks, rows=rows, pads=(1, 1) if any(pads) else (0, 0), wait_compute=int(not number))
        programs[f"boxes of {cols} columns"] = stimulus
    for name in RINGS:
        stimulus = LoadStimulus(CONFIG, rng)
        for number in range(3):
            flags = {"wait_compute": int(not number)}
            if name == "weights":
                stimulus.weights(700, **flags)
            else:
                stimulus.side(cols=300, rows=2, **flags)
        programs[name] = stimulus
    for name, stimulus in programs.items():
        environment = await start(dut, stimulus, latency=(40, 40), compute=1.0)
        await environment.steps(120)    # the data is on its way before the token
        environment.stalls["compute"] = 0.0
        await environment.run()
        environment.check()
        gaps = np.diff(environment.delivery_cycles)
        cocotb.log.info("%s: %d beats in %d cycles", name, len(gaps) + 1, gaps.sum() + 1)
        assert (gaps == 1).all(), (name, gaps)


@cocotb.test()
async def room(dut):
    """With its sink standing still the engine asks for what its FIFO holds, all of it and no beat more."""
    rng = begin(dut)
    for sink, state in (("weights", "wait_ring"), ("side", "wait_ring"), ("compute", "wait_compute")):
        stimulus = LoadStimulus(CONFIG, rng)
        if sink == "weights":
            stimulus.weights(1500)
        elif sink == "side":
            stimulus.side(cols=128, rows=10)
        else:
            stimulus.geometry(cols=64)
            stimulus.box(blocks=4, rows=5, pads=(1, 1), wait_compute=1)
        environment = await start(dut, stimulus, latency=(1, 20), **{sink: 1.0})
        await environment.steps(700)
        assert environment.asked == ROOM and not environment.delivered and not environment.answers
        assert environment.states[-1] == state
        assert environment.sample("index") == stimulus.loads[0].index
        environment.stalls[sink] = 0.0
        await environment.run()
        environment.check()


@cocotb.test()
async def tokens(dut):
    """Store tokens are taken in one go when all are there; nothing of the load or after it is asked for before."""
    rng = begin(dut)
    stimulus = LoadStimulus(CONFIG, rng)
    stimulus.weights(5)
    stimulus.weights(3, stores=200, post_compute=1)
    stimulus.weights(2)
    environment = await start(dut, stimulus, latency=(5, 5), store=1.0)
    environment.given["store"] = 199
    await environment.steps(60)
    assert (environment.taken, environment.asked, environment.delivered) == (1, 5, 5)
    assert environment.states[-1] == "wait_store" and environment.sample("index") == 1
    assert environment.used["store"] == 0
    environment.given["store"] = 200
    await environment.run()
    environment.check()
    # Data is asked for long before the compute token comes, and what is after it waits with it.
    stimulus = LoadStimulus(CONFIG, rng)
    stimulus.geometry(cols=4)
    stimulus.box(rows=2, wait_compute=1, post_compute=1)
    stimulus.weights(3)
    environment = await start(dut, stimulus, latency=(5, 5), compute=1.0)
    await environment.steps(80)
    assert not environment.requests and not environment.delivered and not environment.posts
    environment.stalls["compute"] = 0.0
    await environment.run()
    environment.check()
    assert environment.posts == 1
    # A slow memory is no fault of the ring's.
    stimulus = LoadStimulus(CONFIG, rng)
    stimulus.weights(3)
    environment = await start(dut, stimulus, latency=(50, 50))
    await environment.steps(30)
    assert environment.states[-1] == "wait_bus"


@cocotb.test()
async def read_range(dut):
    """A row that leaves the data region is not asked for; those before it are."""
    rng = begin(dut)
    for kind in ("box", "weights", "side"):
        while True:
            stimulus = LoadStimulus(CONFIG, rng)
            stimulus.weights(4)
            if kind == "box":
                stimulus.geometry(cols=7)
                stimulus.box(blocks=2, rows=3)
            elif kind == "weights":
                stimulus.weights(300)
            else:
                stimulus.side(cols=5, rows=3)
            ends = [request.offset + request.beats for request in stimulus.requests]
            if ends == sorted(set(ends)):
                break
        for beyond in (0, 1):
            environment = await start(dut, stimulus, region_beats=stimulus.region_beats - beyond)
            await environment.steps(700)
            expected = {(ErrorCode.READ_RANGE, stimulus.loads[1].index)} if beyond else set()
            assert set(environment.errors) == expected, (kind, environment.errors)
            # The 300 weights are one row of two requests.
            assert len(environment.requests) == beyond * (2 if kind == "weights" else 1)


@cocotb.test()
async def bus_errors(dut):
    """An error response is reported for the load whose beat it is, whatever is under way; EXOKAY is none."""
    rng = begin(dut)
    for code, response in ((ErrorCode.READ_SLVERR, AxiResponse.SLVERR), (ErrorCode.READ_DECERR, AxiResponse.DECERR),
                           (None, AxiResponse.EXOKAY)):
        for stalls in (0.0, 0.0, 0.5, 0.5):
            stimulus = random_program(rng, 6)
            sources = [delivery for delivery in stimulus.deliveries if delivery.source is not None]
            bad = sources[rng.integers(len(sources))]
            # The beat may be fetched more than once.
            wanted = [(code, stimulus.loads[delivery.load].index) for delivery in sources
                      if delivery.source == bad.source]
            environment = await start(dut, stimulus, **{"": stalls})
            environment.responses[bad.source] = response
            await environment.run()
            assert environment.errors == (wanted if code else []), (environment.errors, wanted)


@cocotb.test()
async def last_entry(dut):
    """A box that ends with the input buffer, and one that ends an entry after it."""
    rng = begin(dut)
    for beyond in (0, 1):
        for stride in (1, 2, 3):
            stimulus = LoadStimulus(CONFIG, rng)
            stimulus.geometry(stride=stride)
            stimulus.box(blocks=2, rows=2, beyond=0)
            good = len(stimulus.deliveries)
            stimulus.box(blocks=2, rows=2, beyond=beyond)
            depth = CONFIG.input_depth
            # Entries past the end have no place; where they would go does not matter any more.
            outside = [number for number, delivery in enumerate(stimulus.deliveries) if delivery.place[1] >= depth]
            assert bool(outside) == bool(beyond) and all(number >= good for number in outside)
            stimulus.deliveries = [delivery._replace(place=(delivery.place[0], delivery.place[1] % depth))
                                   for delivery in stimulus.deliveries]
            environment = await start(dut, stimulus)
            while environment.delivered < len(stimulus.deliveries):
                await environment.step()
            await environment.steps(REPORT_CYCLES)
            # Each of them is reported, as long after its write as that is not after its setting out.
            late = REPORT_CYCLES - write_latency(CONFIG)
            assert environment.error_cycles == [environment.delivery_cycles[number] + late for number in outside]
            assert set(environment.errors) == ({(ErrorCode.BUFFER, stimulus.loads[1].index)} if beyond else set())


@cocotb.test()
async def halted(dut):
    """After ``halt`` nothing is taken or asked for any more; a reset in mid-stream leaves nothing behind."""
    rng = begin(dut)
    for stalls in (0.0, 0.5):
        environment = await start(dut, random_program(rng, 30), request=1.0, **{"": stalls})
        while environment.held["request"] is None:
            await environment.step()
        environment.halt = True
        await environment.steps(50)
        assert environment.held["request"] is not None, "a request is withdrawn"
        environment = await start(dut, random_program(rng, 30), **{"": stalls})
        await environment.steps(int(rng.integers(50, 300)))
        environment.halt = True
        # What had been looked at when the halt came goes on, and a request that stands is taken.
        await environment.steps(20)
        before = environment.taken, environment.asked
        await environment.steps(200)
        assert environment.queue and (environment.taken, environment.asked) == before
        for cycles in (40, 150):
            environment = await start(dut, random_program(rng, 10), **{"": stalls})
            await environment.steps(cycles)
        environment = await start(dut, random_program(rng, 5), **{"": stalls})
        await environment.run()
        environment.check()
