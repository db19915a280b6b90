// The verilated NPU with its clock, memory and register port, as a C interface for Python (machine.py).
//
// Compiled with BEAT_BYTES and CONTROL_ADDRESS; with WAVES defined it can write a VCD file, with WATCH_WORDS it keeps what
// the machine's watch ports show (observed.py).

#include "Vnpu.h"
#include "verilated.h"
#ifdef WAVES
#include "verilated_vcd_c.h"
#endif

#include "axi_memory.hpp"

#include <memory>
#include <vector>

namespace {

constexpr unsigned kEngines = 3;        // load, compute, store
constexpr unsigned kStates = 7;         // the most states an engine has
constexpr unsigned kRegisterTimeout = 10000;
constexpr uint64_t kNever = ~0ull;
enum RunStatus { kLimit = 0, kInterrupt = 1, kFailed = 2 };

// Histogram of engine states by instruction, in buffers of the caller.
struct Trace {
    uint64_t instructions = 0;
    uint32_t* counts = nullptr;   // [engine][state][instruction]
    int64_t* first = nullptr;     // [engine][instruction]: first cycle after START that is not idle, or -1
    int64_t* last = nullptr;
};

// The machine when it was last told to stop: what each engine had in hand and lacked.
struct Standing {
    uint32_t state[kEngines], index[kEngines];
    uint32_t fetch_index, fetch_waiting, stores;
};

struct Stats {
    uint64_t cycle, started, finished, in_flight;
    BusCounts bus;
};

class Machine {
public:
    AxiMemory<BEAT_BYTES> memory;
    Trace trace;
    Standing standing = {};
    std::vector<uint32_t> watched;      // cycle (two words) and WATCH_WORDS words, of cycles in which anything happened

    explicit Machine(uint64_t seed) : context_(new VerilatedContext), top_(new Vnpu(context_.get())) {
        memory.random.seed(seed);
        reset(4);
    }

    ~Machine() {
#ifdef WAVES
        if (waves_) waves_->close();
#endif
        top_->final();
    }

    void reset(unsigned cycles) {
        memory.abandon();
        top_->rst = 1;
        for (unsigned i = 0; i < cycles; ++i) step();
        top_->rst = 0;
        started_ = finished_ = kNever;
    }

    void step() {
        if (!top_->rst) memory.drive(cycle_);
        drive_memory();
        top_->clk = 0;
        top_->eval();
        dump(10 * cycle_);
        if (!top_->rst) {
            sample_memory();
            watch();
        }
        top_->clk = 1;
        top_->eval();
        dump(10 * cycle_ + 5);
        ++cycle_;
    }

    // One access of the register port. Returns response << 32 | data, or -1 when the port does not answer.
    int64_t access_register(bool write, unsigned address, uint32_t value) {
        Random& random = memory.random;
        const double p = memory.settings.stall;
        bool address_done = false, data_done = !write;
        for (unsigned i = 0; i < kRegisterTimeout; ++i) {
            // A valid that is up stays up until it is taken.
            if (write) {
                top_->s_axi_awvalid = !address_done && (top_->s_axi_awvalid || !random.chance(p));
                top_->s_axi_wvalid = !data_done && (top_->s_axi_wvalid || !random.chance(p));
                top_->s_axi_awaddr = address;
                top_->s_axi_wdata = value;
                top_->s_axi_wstrb = 15;
                top_->s_axi_bready = !random.chance(p);
            } else {
                top_->s_axi_arvalid = !address_done && (top_->s_axi_arvalid || !random.chance(p));
                top_->s_axi_araddr = address;
                top_->s_axi_rready = !random.chance(p);
            }
            const bool requested = address_done && data_done;
            sampled_ = Sampled();
            step();
            if (!requested && sampled_.answer) memory.fail(cycle_, "register port answers before it was asked");
            address_done |= sampled_.address;
            data_done |= sampled_.data;
            if (write && !requested && address_done && data_done && address == CONTROL_ADDRESS && (value & 1)) begin();
            if (sampled_.answer && sampled_.taken) {
                top_->s_axi_awvalid = top_->s_axi_wvalid = top_->s_axi_arvalid = 0;
                top_->s_axi_bready = top_->s_axi_rready = 0;
                return int64_t(sampled_.response) << 32 | sampled_.value;
            }
        }
        return -1;
    }

    RunStatus run(uint64_t cycles) {
        for (uint64_t i = 0; i < cycles; ++i) {
            if (top_->irq) return kInterrupt;
            step();
            if (!memory.failure.empty()) return kFailed;
        }
        return top_->irq ? kInterrupt : kLimit;
    }

    void stats(Stats* out) const { *out = {cycle_, started_, finished_, memory.in_flight(), memory.counts}; }

    bool open_waves(const char* path) {
#ifdef WAVES
        context_->traceEverOn(true);
        waves_.reset(new VerilatedVcdC);
        top_->trace(waves_.get(), 99);
        waves_->open(path);
        return waves_->isOpen();
#else
        (void)path;
        return false;
#endif
    }

private:
    struct Sampled {
        bool address = false, data = false, answer = false, taken = false;
        uint8_t response = 0;
        uint32_t value = 0;
    };

    std::unique_ptr<VerilatedContext> context_;
    std::unique_ptr<Vnpu> top_;
#ifdef WAVES
    std::unique_ptr<VerilatedVcdC> waves_;
#endif
    uint64_t cycle_ = 0, started_ = kNever, finished_ = kNever;
    Sampled sampled_;

    void dump(uint64_t time) {
#ifdef WAVES
        if (waves_) waves_->dump(time);
#else
        (void)time;
#endif
    }

    // START has been accepted in the cycle before this one.
    void begin() {
        started_ = cycle_ - 1;
        finished_ = kNever;
        memory.restart_dram(started_);
    }

    void drive_memory() {
        top_->m_axi_arready = memory.arready;
        top_->m_axi_rvalid = memory.rvalid;
        top_->m_axi_rlast = memory.rlast;
        top_->m_axi_rresp = memory.rresp;
        top_->m_axi_rid = 0;
        if (memory.rvalid) std::memcpy(&top_->m_axi_rdata, memory.rdata, BEAT_BYTES);
        top_->m_axi_awready = memory.awready;
        top_->m_axi_wready = memory.wready;
        top_->m_axi_bvalid = memory.bvalid;
        top_->m_axi_bresp = memory.bresp;
        top_->m_axi_bid = 0;
    }

    void sample_memory() {
        AddressBeat ar, aw;
        WriteBeat<BEAT_BYTES> w;
        if (top_->m_axi_arvalid)
            ar = {true, uint64_t(top_->m_axi_araddr), top_->m_axi_arid, top_->m_axi_arlen, top_->m_axi_arsize,
                  top_->m_axi_arburst, top_->m_axi_arcache, top_->m_axi_arprot};
        if (top_->m_axi_awvalid)
            aw = {true, uint64_t(top_->m_axi_awaddr), top_->m_axi_awid, top_->m_axi_awlen, top_->m_axi_awsize,
                  top_->m_axi_awburst, top_->m_axi_awcache, top_->m_axi_awprot};
        if (top_->m_axi_wvalid) {
            w.valid = true;
            w.last = top_->m_axi_wlast;
            w.strobe = uint32_t(top_->m_axi_wstrb);
            std::memcpy(w.data, &top_->m_axi_wdata, BEAT_BYTES);
        }
        memory.sample(cycle_, ar, top_->m_axi_rready, aw, w, top_->m_axi_bready);
    }

    // The register port, the interrupt and the trace ports, as settled in this cycle.
    void watch() {
        sampled_.address = (top_->s_axi_awvalid && top_->s_axi_awready) || (top_->s_axi_arvalid && top_->s_axi_arready);
        sampled_.data = top_->s_axi_wvalid && top_->s_axi_wready;
        sampled_.answer = top_->s_axi_bvalid || top_->s_axi_rvalid;
        sampled_.taken = (top_->s_axi_bvalid && top_->s_axi_bready) || (top_->s_axi_rvalid && top_->s_axi_rready);
        sampled_.response = top_->s_axi_bvalid ? top_->s_axi_bresp : top_->s_axi_rresp;
        sampled_.value = top_->s_axi_rdata;
        if (started_ == kNever || finished_ != kNever) return;
        if (top_->irq) {
            finished_ = cycle_;
            return;
        }
        const Standing now = {
            {top_->trace_load_state, top_->trace_compute_state, top_->trace_store_state},
            {top_->trace_load_index, top_->trace_compute_index, top_->trace_store_index},
            top_->trace_fetch_index, top_->trace_fetch_waiting, top_->trace_stores,
        };
        if (!top_->trace_halt) standing = now;
        keep_watched();
        if (!trace.instructions) return;
        for (unsigned engine = 0; engine < kEngines; ++engine) record(engine, now.state[engine], now.index[engine]);
    }

    void keep_watched() {
#ifdef WATCH_WORDS
        if (!top_->watch_valid) return;
        const uint64_t now = cycle_ - started_;
        watched.push_back(uint32_t(now));
        watched.push_back(uint32_t(now >> 32));
        for (unsigned word = 0; word < WATCH_WORDS; ++word) watched.push_back(top_->watch[word]);
#endif
    }

    void record(unsigned engine, unsigned state, uint64_t index) {
        if (state == 0) return;
        if (state >= kStates || index >= trace.instructions) {
            memory.fail(cycle_, "trace port out of range: engine " + std::to_string(engine) + ", state "
                        + std::to_string(state) + ", instruction " + std::to_string(index));
            return;
        }
        ++trace.counts[(uint64_t(engine) * kStates + state) * trace.instructions + index];
        const uint64_t slot = engine * trace.instructions + index;
        const int64_t now = int64_t(cycle_ - started_);
        if (trace.first[slot] < 0) trace.first[slot] = now;
        trace.last[slot] = now;
    }
};

}  // namespace

extern "C" {

Machine* npu_new(uint64_t seed) { return new Machine(seed); }
void npu_delete(Machine* machine) { delete machine; }
void npu_reset(Machine* machine, unsigned cycles) { machine->reset(cycles); }

void npu_set_bus(Machine* machine, unsigned latency, double bandwidth, double stall, int write_order) {
    machine->memory.settings = {latency, bandwidth, stall, static_cast<WriteOrder>(write_order)};
}

void npu_set_dram(Machine* machine, const DramTiming* timing) {
    machine->memory.set_dram(timing);
}

void npu_clear_regions(Machine* machine) { machine->memory.regions.clear(); }
void npu_add_region(Machine* machine, uint64_t base, uint64_t size, uint8_t* data, uint64_t writable_from) {
    machine->memory.regions.push_back({base, size, data, writable_from});
}

void npu_clear_faults(Machine* machine) { machine->memory.faults.clear(); }
void npu_add_fault(Machine* machine, int write, int64_t burst, uint64_t low, uint64_t high, int response) {
    machine->memory.faults.push_back({write != 0, burst, low, high, static_cast<uint8_t>(response)});
}

void npu_clear_windows(Machine* machine) { machine->memory.windows.clear(); }
void npu_add_window(Machine* machine, int write, uint64_t first, uint64_t last) {
    machine->memory.windows.push_back({write != 0, first, last});
}

int64_t npu_access(Machine* machine, int write, unsigned address, uint32_t value) {
    return machine->access_register(write != 0, address, value);
}

void npu_trace(Machine* machine, uint64_t instructions, uint32_t* counts, int64_t* first, int64_t* last) {
    machine->trace = {instructions, counts, first, last};
}

int npu_run(Machine* machine, uint64_t cycles) { return machine->run(cycles); }
void npu_stats(Machine* machine, Stats* stats) { machine->stats(stats); }
void npu_standing(Machine* machine, Standing* standing) { *standing = machine->standing; }
void npu_clear_counts(Machine* machine) {
    machine->memory.counts = BusCounts();
    machine->watched.clear();
}
const uint32_t* npu_watched(Machine* machine, uint64_t* words) {
    *words = machine->watched.size();
    return machine->watched.data();
}
const char* npu_failure(Machine* machine) { return machine->memory.failure.c_str(); }
int npu_waves(Machine* machine, const char* path) { return machine->open_waves(path); }

}  // extern "C"
