// A system of LiteX in Verilator: its clock, and the bytes of its serial line.
#include <cstdint>
#include <deque>

#include "Vsoc.h"
#include "verilated.h"

namespace {

struct System {
    VerilatedContext context;
    Vsoc top{&context};
    std::deque<uint8_t> to_system, from_system;
    uint64_t cycle = 0;

    void tick() {
        top.serial_sink_valid = !to_system.empty();
        top.serial_sink_data = to_system.empty() ? 0 : to_system.front();
        top.serial_source_ready = 1;
        top.sys_clk = 0;
        top.eval();
        const bool heard = top.serial_sink_valid && top.serial_sink_ready;
        if (top.serial_source_valid) from_system.push_back(top.serial_source_data);
        top.sys_clk = 1;
        top.eval();
        if (heard) to_system.pop_front();
        ++cycle;
    }
};

}  // namespace

extern "C" {

System *soc_new() { return new System; }

void soc_delete(System *system) { delete system; }

// Runs until all bytes are taken, or none has been for `patience` cycles; returns how many are left.
uint64_t soc_write(System *system, const uint8_t *bytes, uint64_t count, uint64_t patience) {
    auto &queue = system->to_system;
    queue.insert(queue.end(), bytes, bytes + count);
    for (uint64_t waited = 0, left = queue.size(); !queue.empty() && waited < patience; ++waited) {
        system->tick();
        if (queue.size() != left) waited = 0;
        left = queue.size();
    }
    return queue.size();
}

// Runs until `wanted` bytes have been said, or for `limit` cycles; returns the bytes that are there.
uint64_t soc_run(System *system, uint64_t wanted, uint64_t limit) {
    for (uint64_t end = system->cycle + limit; system->cycle < end && system->from_system.size() < wanted;)
        system->tick();
    return system->from_system.size();
}

// Takes up to `count` bytes that have been said; returns how many.
uint64_t soc_read(System *system, uint8_t *bytes, uint64_t count) {
    uint64_t taken = 0;
    for (; taken < count && !system->from_system.empty(); ++taken) {
        bytes[taken] = system->from_system.front();
        system->from_system.pop_front();
    }
    return taken;
}

uint64_t soc_cycle(System *system) { return system->cycle; }

}  // extern "C"
