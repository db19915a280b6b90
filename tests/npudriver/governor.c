/* The governor in C on tables and traces from standard input, as tests/npudriver/test_c_governor.py writes them.
 *
 *     table: COUNT KIND DEADLINE HYSTERESIS LEAST PERIOD LASTS BATTERY, then of each level TIME ENERGY RIGHT ABOVE
 *     trace: STEPS, then of each CHARGE NOW DEADLINE
 *
 * A line for each table: "refused", or LEVEL,LATE,SHORT of each step. */
#include "npugen_governor.h"

#include <inttypes.h>
#include <stdio.h>

static uint64_t next(void) {
    uint64_t value = 0;
    if (scanf("%" SCNu64, &value) != 1) value = UINT64_MAX;
    return value;
}

int main(void) {
    for (uint64_t count = next(); count != UINT64_MAX; count = next()) {
        npugen_level levels[NPUGEN_MOST_LEVELS] = {{0}};
        npugen_plan plan;
        npugen_governor governor;
        uint64_t battery, steps;
        int refused;
        plan.kind = next() ? NPUGEN_LASTING : NPUGEN_THRESHOLDS;
        plan.deadline_ns = next();
        plan.hysteresis_ppm = (uint32_t)next();
        plan.least_right = (uint32_t)next();
        plan.period_us = next();
        plan.lasts_us = next();
        battery = next();
        for (unsigned number = 0; number < count; ++number) {
            levels[number].time_ns = next();
            levels[number].energy = next();
            levels[number].right = (uint32_t)next();
            levels[number].above_ppm = (uint32_t)next();
        }
        refused = npugen_governor_init(&governor, levels, (unsigned)count, &plan, battery) != NPUGEN_OK;
        for (steps = next(); steps; --steps) {
            const uint32_t charge = (uint32_t)next();
            const uint64_t now = next();
            const uint64_t deadline = next();
            npugen_choice choice;
            if (refused) continue;
            governor.plan.deadline_ns = deadline;
            choice = npugen_governor_choose(&governor, charge, now);
            printf("%u,%d,%d ", choice.level, choice.late, choice.short_of);
        }
        puts(refused ? "refused" : "");
    }
    return 0;
}
