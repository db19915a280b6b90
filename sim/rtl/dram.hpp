// When a memory with rows, banks and refreshes serves its bursts: sim/timing/dram.py in C++, the same to the tick.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

// Times in ticks, latency in cycles; as DramTiming in dram.py.
struct DramTiming {
    int64_t latency, beat, row_bytes, banks, row_miss, refresh_interval, refresh, turn, shared, read_pace, write_pace;
};

class Dram {
public:
    static constexpr int64_t kTicks = 1024;

    explicit Dram(const DramTiming& timing) : timing_(timing) { restart(); }

    void restart() {
        free_[0] = free_[1] = refreshes_ = 0;
        wrote_ = false;
        rows_.assign(timing_.banks, -1);
        used_.assign(timing_.banks, 0);
    }

    // A burst whose address (of a write: last beat) is taken in this cycle: the tick in which its data begin.
    int64_t serve(int64_t cycle, int64_t address, int64_t beats, int64_t beat_bytes, bool write) {
        const int64_t arrival = cycle * kTicks;
        int64_t start = std::max(arrival, free_[write]);
        if (timing_.shared && wrote_ && !write) start = std::max(start, free_[write] + timing_.turn);
        if (start / timing_.refresh_interval != refreshes_) rows_.assign(timing_.banks, -1);
        const int64_t row = address / timing_.row_bytes, last = (address + beats * beat_bytes - 1) / timing_.row_bytes;
        const int64_t bank = row % timing_.banks;
        if (rows_[bank] != row) start = std::max(start, std::max(arrival, used_[bank]) + timing_.row_miss);
        start += std::max<int64_t>(0, timing_.refresh - start % timing_.refresh_interval);
        refreshes_ = start / timing_.refresh_interval;
        const int64_t end = after(start, beats * timing_.beat);
        for (int64_t touched = row; touched <= last; ++touched) {
            rows_[touched % timing_.banks] = touched;
            used_[touched % timing_.banks] = end;
        }
        free_[write] = end;
        if (timing_.shared) free_[!write] = end;
        wrote_ = write;
        return start;
    }

    // The cycle in which a beat of a burst that began at a tick is at the machine.
    int64_t read_cycle(int64_t start, int64_t beat) const {
        return ceil_cycles(after(start, timing_.beat * (beat + 1))) + behind();
    }

    // The cycle of the response to the write that was served last, whose last beat was taken in this cycle.
    int64_t write_cycle(int64_t cycle) const { return std::max(cycle + timing_.latency, ceil_cycles(free_[1])); }

private:
    DramTiming timing_;
    int64_t free_[2], refreshes_;
    bool wrote_;
    std::vector<int64_t> rows_, used_;

    static int64_t ceil_cycles(int64_t ticks) { return (ticks + kTicks - 1) / kTicks; }

    // The tick at which the pins have done so much since start, refreshes left out.
    int64_t after(int64_t start, int64_t work) const {
        const int64_t interval = timing_.refresh_interval, refresh = timing_.refresh, useful = interval - refresh;
        const int64_t done = start % interval - refresh + work - 1;
        return start - start % interval + done / useful * interval + refresh + done % useful + 1;
    }

    int64_t behind() const {
        return std::max<int64_t>(0, timing_.latency - ceil_cycles(timing_.row_miss + timing_.beat));
    }
};
