/* Levels by charge and deadline. See npugen_governor.h; products have 64 bits at most, by NPUGEN_MOST_ENERGY. */
#include "npugen_governor.h"

#include <string.h>

static int levels_fit(const npugen_level *levels, unsigned count, const npugen_plan *plan, uint64_t battery) {
    int accurate = 0;
    for (unsigned number = 0; number < count; ++number) {
        const npugen_level *level = &levels[number];
        if (!level->energy || level->energy > NPUGEN_MOST_ENERGY || !level->time_ns
            || level->time_ns > NPUGEN_MOST_ENERGY)
            return 0;
        if (number && level->energy >= levels[number - 1].energy) return 0;
        if (plan->kind == NPUGEN_THRESHOLDS && number && level->above_ppm >= levels[number - 1].above_ppm) return 0;
        accurate |= level->right >= plan->least_right;
    }
    if (plan->kind == NPUGEN_LASTING) return accurate && battery && plan->period_us && plan->lasts_us;
    return accurate && !levels[count - 1].above_ppm
           && (count == 1 || (levels[0].above_ppm < NPUGEN_FULL
                              && levels[0].above_ppm + plan->hysteresis_ppm < NPUGEN_FULL));
}

npugen_status npugen_governor_init(npugen_governor *governor, const npugen_level *levels, unsigned count,
                                   const npugen_plan *plan, uint64_t battery) {
    memset(governor, 0, sizeof *governor);
    if (!count || count > NPUGEN_MOST_LEVELS || battery > NPUGEN_MOST_ENERGY) return NPUGEN_ARGUMENT;
    if (plan->deadline_ns > NPUGEN_MOST_ENERGY || plan->period_us > NPUGEN_MOST_ENERGY
        || plan->lasts_us > NPUGEN_MOST_ENERGY || plan->hysteresis_ppm > NPUGEN_FULL)
        return NPUGEN_ARGUMENT;
    if (!levels_fit(levels, count, plan, battery)) return NPUGEN_ARGUMENT;
    governor->levels = levels;
    governor->count = count;
    governor->plan = *plan;
    governor->battery = battery;
    return NPUGEN_OK;
}

static unsigned by_thresholds(const npugen_governor *governor, uint32_t charge_ppm) {
    for (unsigned number = 0; number < governor->count; ++number) {
        const uint32_t margin = number < governor->rank ? governor->plan.hysteresis_ppm : 0;
        if (charge_ppm > governor->levels[number].above_ppm + margin) return number;
    }
    return governor->count - 1;
}

static unsigned by_endurance(npugen_governor *governor, uint64_t energy, uint64_t now_us, int *short_of) {
    const npugen_plan *plan = &governor->plan;
    uint64_t passed, left, inferences, each;
    if (!governor->begun) {
        governor->began_us = now_us;
        governor->begun = 1;
    }
    passed = now_us - governor->began_us; /* the time may wrap; from half of its range on it is before the beginning */
    left = passed < plan->lasts_us || passed >> 63 ? plan->lasts_us - passed : 0;
    inferences = left ? (left - 1) / plan->period_us + 1 : 1;
    each = energy / inferences;
    *short_of = 0;
    for (unsigned number = 0; number < governor->count; ++number) {
        const uint64_t needed = governor->levels[number].energy;
        const uint64_t margin = number < governor->rank ? needed * plan->hysteresis_ppm / NPUGEN_FULL : 0;
        if (needed + margin <= each) return number;
    }
    *short_of = governor->levels[governor->count - 1].energy > each;
    return governor->count - 1;
}

static int accurate(const npugen_governor *governor, unsigned number) {
    return governor->levels[number].right >= governor->plan.least_right;
}

static int in_time(const npugen_governor *governor, unsigned number) {
    const uint64_t deadline = governor->plan.deadline_ns;
    return accurate(governor, number) && (!deadline || governor->levels[number].time_ns <= deadline);
}

/* The level that the deadline and the accuracy leave of a rank: first those of less energy. */
static unsigned by_deadline(const npugen_governor *governor, unsigned rank, int *late) {
    unsigned fastest = governor->count;
    *late = 0;
    for (unsigned number = rank; number < governor->count; ++number)
        if (in_time(governor, number)) return number;
    for (unsigned number = rank; number-- > 0;)
        if (in_time(governor, number)) return number;
    *late = 1;
    for (unsigned number = 0; number < governor->count; ++number)
        if (accurate(governor, number)
            && (fastest == governor->count || governor->levels[number].time_ns < governor->levels[fastest].time_ns))
            fastest = number;
    return fastest;
}

npugen_choice npugen_governor_choose(npugen_governor *governor, uint32_t charge_ppm, uint64_t now_us) {
    npugen_choice choice = {0, 0, 0};
    uint64_t energy;
    if (charge_ppm > NPUGEN_FULL) charge_ppm = NPUGEN_FULL;
    energy = governor->battery * charge_ppm / NPUGEN_FULL;
    if (governor->plan.kind == NPUGEN_LASTING)
        governor->rank = by_endurance(governor, energy, now_us, &choice.short_of);
    else
        governor->rank = by_thresholds(governor, charge_ppm);
    choice.level = by_deadline(governor, governor->rank, &choice.late);
    if (governor->plan.kind != NPUGEN_LASTING && governor->battery)
        choice.short_of = governor->levels[choice.level].energy > energy;
    return choice;
}

npugen_status npugen_govern(npugen_governor *governor, npugen_device *device, uint32_t charge_ppm, uint64_t now_us,
                            npugen_choice *choice) {
    *choice = npugen_governor_choose(governor, charge_ppm, now_us);
    return npugen_set_stream_shift(device, governor->levels[choice->level].shift);
}

void npugen_battery_spend(npugen_battery *battery, uint64_t energy) {
    battery->left -= energy < battery->left ? energy : battery->left;
}

uint32_t npugen_battery_charge(const npugen_battery *battery) {
    if (battery->left >= battery->full) return battery->full ? NPUGEN_FULL : 0;
    return (uint32_t)(battery->left * NPUGEN_FULL / battery->full);
}
