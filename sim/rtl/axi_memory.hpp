// The memory behind the NPU's AXI4 port, and the checks of the bus protocol.
//
// Every output is decided at the beginning of a cycle (drive) and every input is looked at after the NPU's logic has
// settled (sample). Answers come in order. A read returns what the memory held when its address was accepted and a write
// is in memory when its response is given: the worst that AXI allows to a master that does not wait for its responses.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "dram.hpp"

constexpr unsigned kBoundary = 4096;
constexpr unsigned kQueue = 64;          // bursts accepted and not answered, of each direction
constexpr unsigned kWriteBuffer = 512;   // beats accepted ahead of their address
enum Response : uint8_t { kOkay = 0, kSlaveError = 2, kDecodeError = 3 };
enum WriteOrder { kAnyOrder = 0, kAddressFirst = 1, kDataFirst = 2 };

// Random numbers that are the same on every machine (xorshift64*).
class Random {
public:
    void seed(uint64_t seed) { state_ = (seed + 1) * 0x9E3779B97F4A7C15ull | 1; }
    uint32_t next() {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return static_cast<uint32_t>((state_ * 0x2545F4914F6CDD1Dull) >> 32);
    }
    bool chance(double probability) { return probability > 0 && next() < probability * 4294967296.0; }

private:
    uint64_t state_ = 1;
};

struct Region {
    uint64_t base, size;
    uint8_t* data;
    uint64_t writable_from;  // offset of the first byte that may be written
};

// Answer ``response`` instead of OKAY: to burst number ``burst`` (from 0; negative: any) that touches [low, high).
struct Fault {
    bool write;
    int64_t burst;
    uint64_t low, high;
    uint8_t response;
};

// Bytes first to last, that reads or writes may ask for.
struct Window {
    bool write;
    uint64_t first, last;
};

struct BusSettings {
    unsigned latency = 40;      // cycles from an accepted address (write: last beat) to the first possible answer
    double bandwidth = 1.0;     // beats a cycle, of each direction
    double stall = 0.0;         // probability that a channel pauses in a cycle
    WriteOrder write_order = kAnyOrder;
};

// An address channel as seen in one cycle.
struct AddressBeat {
    bool valid = false;
    uint64_t address = 0;
    unsigned id = 0, length = 0, size = 0, burst = 0, cache = 0, prot = 0;
    bool operator==(const AddressBeat& other) const {
        return valid == other.valid && address == other.address && id == other.id && length == other.length
            && size == other.size && burst == other.burst && cache == other.cache && prot == other.prot;
    }
};

template <unsigned BeatBytes>
struct WriteBeat {
    bool valid = false, last = false;
    uint32_t strobe = 0;
    uint8_t data[BeatBytes] = {};
    bool operator==(const WriteBeat& other) const {
        return valid == other.valid && last == other.last && strobe == other.strobe
            && std::memcmp(data, other.data, BeatBytes) == 0;
    }
};

struct BusCounts {
    uint64_t read_beats = 0, write_beats = 0, read_bursts = 0, write_bursts = 0;
    uint64_t read_waits = 0;     // cycles in which read data was offered and not taken
    uint64_t stray_writes = 0;   // bursts with strobes outside the writable regions
};

template <unsigned BeatBytes>
class AxiMemory {
public:
    BusSettings settings;
    BusCounts counts;
    std::vector<Region> regions;
    std::vector<Fault> faults;
    std::vector<Window> windows;     // none: every address may be offered
    std::string failure;         // first broken rule of the protocol
    Random random;

    // Outputs of this cycle.
    bool arready = false, rvalid = false, rlast = false, awready = false, wready = false, bvalid = false;
    uint8_t rresp = 0, bresp = 0;
    const uint8_t* rdata = zero_;

    // With a DRAM bursts are served as it says; latency and bandwidth count no more.
    void set_dram(const DramTiming* timing) {
        dram_.reset();
        read_pace_ = write_pace_ = 1;
        if (timing) {
            dram_.emplace(*timing);
            read_pace_ = timing->read_pace, write_pace_ = timing->write_pace;
        }
    }

    // The DRAM's time begins now, so that the cycles of a program depend on it alone.
    void restart_dram(uint64_t cycle) {
        if (dram_) dram_->restart();
        dram_origin_ = cycle;
    }

    unsigned in_flight() const { return unsigned(reads_.size() + addresses_.size() + beats_.size() + responses_.size()); }

    // Transactions in flight are forgotten: the machine is reset.
    void abandon() {
        reads_.clear(), addresses_.clear(), beats_.clear(), responses_.clear();
        arready = rvalid = awready = wready = bvalid = false;
        last_ar_ = last_aw_ = AddressBeat();
        last_w_ = WriteBeat<BeatBytes>();
        collecting_ = Write();
        collected_ = sent_ = 0;
        failure.clear();
    }

    void drive(uint64_t cycle) {
        const double p = settings.stall;
        read_credit_ = std::min(read_credit_ + settings.bandwidth, std::max(1.0, settings.bandwidth));
        write_credit_ = std::min(write_credit_ + settings.bandwidth, std::max(1.0, settings.bandwidth));
        arready = reads_.size() < kQueue && !random.chance(p);
        if (!rvalid && !reads_.empty() && due_of(reads_.front()) <= cycle && read_credit_ >= 1.0
            && cycle >= read_free_ && !random.chance(p)) {
            const Read& burst = reads_.front();
            rvalid = true;
            rdata = burst.data.data() + size_t(sent_) * BeatBytes;
            rlast = sent_ + 1 == burst.beats;
            rresp = burst.response;
            read_credit_ -= 1.0;
            read_free_ = cycle + read_pace_;
        }
        const bool data_waits = !beats_.empty() || last_w_.valid;
        awready = addresses_.size() < kQueue && (settings.write_order != kDataFirst || data_waits) && !random.chance(p);
        wready = beats_.size() < kWriteBuffer && write_credit_ >= 1.0 && cycle >= write_free_
            && (settings.write_order != kAddressFirst || !addresses_.empty()) && !random.chance(p);
        if (!bvalid && !responses_.empty() && responses_.front().due <= cycle && !random.chance(p)) {
            bvalid = true;
            bresp = commit(responses_.front());
        }
    }

    void sample(uint64_t cycle, const AddressBeat& ar, bool rready, const AddressBeat& aw,
                const WriteBeat<BeatBytes>& w, bool bready) {
        check_stable(cycle, "AR", ar, last_ar_);
        check_stable(cycle, "AW", aw, last_aw_);
        check_stable(cycle, "W", w, last_w_);
        check_windows(cycle, "AR", ar, false);
        check_windows(cycle, "AW", aw, true);
        if (ar.valid && arready) accept_read(cycle, ar);
        if (rvalid && rready) {
            ++counts.read_beats;
            rvalid = false;
            if (++sent_ == reads_.front().beats) {
                sent_ = 0;
                reads_.pop_front();
            }
        } else if (rvalid) {
            ++counts.read_waits;
        }
        if (bvalid && bready) {
            bvalid = false;
            responses_.pop_front();
        }
        if (aw.valid && awready) {
            check_address(cycle, "AW", aw);
            addresses_.push_back(aw);
        }
        if (w.valid && wready) {
            ++counts.write_beats;
            write_credit_ -= 1.0;
            write_free_ = cycle + write_pace_;
            beats_.push_back(w);
        }
        if (!addresses_.empty() && !beats_.empty()) collect_write(cycle);
        last_ar_ = ar.valid && !arready ? ar : AddressBeat();
        last_aw_ = aw.valid && !awready ? aw : AddressBeat();
        if (w.valid && !wready) last_w_ = w;
        else last_w_.valid = false;
    }

    void fail(uint64_t cycle, const std::string& rule) {
        if (failure.empty()) failure = rule + " (cycle " + std::to_string(cycle) + ")";
    }

private:
    struct Read {
        uint64_t due;            // cycle of the first beat; with a DRAM the tick in which the pins begin with it
        unsigned beats;
        uint8_t response;
        std::vector<uint8_t> data;
    };
    struct Write {
        uint64_t due = 0, address = 0;
        std::vector<WriteBeat<BeatBytes>> beats;
    };

    static constexpr uint8_t zero_[BeatBytes] = {};
    std::optional<Dram> dram_;
    uint64_t dram_origin_ = 0;
    std::deque<Read> reads_;
    std::deque<AddressBeat> addresses_;
    std::deque<WriteBeat<BeatBytes>> beats_;
    std::deque<Write> responses_;
    Write collecting_;
    unsigned sent_ = 0, collected_ = 0;
    double read_credit_ = 0, write_credit_ = 0;
    // A narrow port has a beat every few cycles of each direction: the cycle from which it has place for the next.
    uint64_t read_pace_ = 1, write_pace_ = 1, read_free_ = 0, write_free_ = 0;
    AddressBeat last_ar_, last_aw_;
    WriteBeat<BeatBytes> last_w_;

    // Jitter belongs to the stalls: without them a run's cycles depend on the program alone.
    uint64_t due(uint64_t cycle) {
        const unsigned jitter = settings.stall > 0 ? random.next() % (settings.latency + 1) : 0;
        return cycle + std::max(1u, settings.latency) + jitter;
    }

    // The cycle from which the next beat of a read can be offered.
    uint64_t due_of(const Read& burst) const { return dram_ ? dram_origin_ + dram_->read_cycle(burst.due, sent_) : burst.due; }

    uint64_t written(uint64_t cycle, const AddressBeat& aw) {
        dram_->serve(cycle, aw.address, aw.length + 1, BeatBytes, true);
        return dram_origin_ + dram_->write_cycle(cycle);
    }

    template <class Beat>
    void check_stable(uint64_t cycle, const char* channel, const Beat& now, const Beat& before) {
        if (before.valid && !(now == before)) fail(cycle, std::string(channel) + " changed while it was waiting for ready");
    }

    void check_address(uint64_t cycle, const char* channel, const AddressBeat& beat) {
        const std::string name(channel);
        const uint64_t bytes = uint64_t(beat.length + 1) * BeatBytes;
        if ((1u << beat.size) != BeatBytes) fail(cycle, name + " size is not the width of the bus");
        if (beat.burst != 1) fail(cycle, name + " burst is not INCR");
        if (beat.id != 0) fail(cycle, name + " id is not 0");
        if (beat.address % BeatBytes) fail(cycle, name + " address is not a multiple of a beat");
        if (beat.address / kBoundary != (beat.address + bytes - 1) / kBoundary) fail(cycle, name + " burst crosses 4 KiB");
    }

    // Also of what is offered and not taken yet.
    void check_windows(uint64_t cycle, const char* channel, const AddressBeat& beat, bool write) {
        if (windows.empty() || !beat.valid) return;
        const uint64_t last = beat.address + uint64_t(beat.length + 1) * BeatBytes - 1;
        for (const Window& window : windows)
            if (window.write == write && window.first <= beat.address && beat.address <= last && last <= window.last) return;
        char text[80];
        std::snprintf(text, sizeof text, "%s burst at 0x%llx leaves the windows", channel,
                      static_cast<unsigned long long>(beat.address));
        fail(cycle, text);
    }

    const Region* find(uint64_t address, uint64_t bytes) const {
        for (const Region& region : regions)
            if (address >= region.base && address - region.base <= region.size
                && bytes <= region.size - (address - region.base)) return &region;
        return nullptr;
    }

    uint8_t fault(bool write, uint64_t number, uint64_t address, uint64_t bytes) const {
        for (const Fault& f : faults)
            if (f.write == write && (f.burst < 0 || uint64_t(f.burst) == number)
                && address < f.high && address + bytes > f.low) return f.response;
        return kOkay;
    }

    void accept_read(uint64_t cycle, const AddressBeat& ar) {
        check_address(cycle, "AR", ar);
        const unsigned beats = ar.length + 1;
        const uint64_t bytes = uint64_t(beats) * BeatBytes;
        const Region* region = find(ar.address, bytes);
        uint8_t response = region ? fault(false, counts.read_bursts, ar.address, bytes) : uint8_t(kDecodeError);
        const uint64_t from = dram_ ? dram_->serve(cycle - dram_origin_, ar.address, beats, BeatBytes, false) : due(cycle);
        reads_.push_back({from, beats, response, std::vector<uint8_t>(bytes, 0xA5)});
        if (response == kOkay) std::memcpy(reads_.back().data.data(), region->data + (ar.address - region->base), bytes);
        ++counts.read_bursts;
    }

    // Give accepted beats to accepted addresses, in order.
    void collect_write(uint64_t cycle) {
        while (!addresses_.empty() && !beats_.empty()) {
            const AddressBeat& aw = addresses_.front();
            const bool last = collected_ == aw.length;
            if (beats_.front().last != last) fail(cycle, last ? "WLAST is missing" : "WLAST comes early");
            collecting_.beats.push_back(beats_.front());
            beats_.pop_front();
            if (!last) {
                ++collected_;
                continue;
            }
            collecting_.address = aw.address;
            collecting_.due = dram_ ? written(cycle - dram_origin_, aw) : due(cycle);
            responses_.push_back(std::move(collecting_));
            collecting_ = Write();
            addresses_.pop_front();
            collected_ = 0;
        }
    }

    uint8_t commit(const Write& burst) {
        const uint64_t bytes = burst.beats.size() * BeatBytes;
        const Region* region = find(burst.address, bytes);
        const bool writable = region && burst.address - region->base >= region->writable_from;
        uint8_t response = !region ? kDecodeError : !writable ? kSlaveError : kOkay;
        if (response == kOkay) response = fault(true, counts.write_bursts, burst.address, bytes);
        ++counts.write_bursts;
        bool stray = false;
        uint64_t address = burst.address;
        for (const auto& beat : burst.beats) {
            stray |= !writable && beat.strobe;
            if (response == kOkay)
                for (unsigned i = 0; i < BeatBytes; ++i)
                    if (beat.strobe >> i & 1) region->data[address - region->base + i] = beat.data[i];
            address += BeatBytes;
        }
        counts.stray_writes += stray;
        return response;
    }
};
