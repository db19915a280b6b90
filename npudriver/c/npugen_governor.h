/* Which level an inference is made at, by charge and deadline: npudriver/governor.py in C, with the same choices.
 *
 * Levels and plan are in npugen_levels.h, which `python -m gen govern` writes. Whole numbers alone, no memory but the
 * struct of the caller. Where the charge comes from is the caller's: a fuel gauge, npugen_power.h on Linux, or
 * npugen_battery, which reckons. */
#ifndef NPUGEN_GOVERNOR_H
#define NPUGEN_GOVERNOR_H

#include "npugen.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NPUGEN_FULL 1000000u /* a full battery, in the parts that charges are given in */
#define NPUGEN_MOST_LEVELS 32u
#define NPUGEN_MOST_ENERGY ((uint64_t)1 << 43) /* of times and energies, too */

typedef struct npugen_level {
    const char *name;
    uint32_t program;               /* its number among the programs that the levels are of */
    uint32_t shift;                 /* powers of two by which its streams are shorter */
    uint32_t clock_khz, millivolts; /* of the machine, 0 where they stay: the caller sets them */
    uint64_t time_ns, energy;       /* of an inference; energy in any unit, that of the battery */
    uint32_t right;                 /* of 10,000 answers */
    uint32_t above_ppm;             /* charge above which thresholds use it */
} npugen_level;

typedef enum npugen_plan_kind { NPUGEN_THRESHOLDS = 0, NPUGEN_LASTING = 1 } npugen_plan_kind;

typedef struct npugen_plan {
    npugen_plan_kind kind;
    uint64_t deadline_ns;        /* of an inference, 0 for none */
    uint32_t hysteresis_ppm;     /* a level comes back at so much more charge; lasting: at so much more than its energy */
    uint32_t least_right;        /* levels with fewer of 10,000 answers right are not used */
    uint64_t period_us, lasts_us; /* lasting: an inference every so often, for so long from the first one on */
} npugen_plan;

typedef struct npugen_governor {
    const npugen_level *levels; /* by falling energy */
    unsigned count;
    npugen_plan plan; /* the deadline may be changed at any time */
    uint64_t battery; /* energy of a full one, 0 where it is not known */
    unsigned rank;    /* what the charge alone has chosen last */
    int begun;
    uint64_t began_us; /* when the first inference did */
} npugen_governor;

typedef struct npugen_choice {
    unsigned level;
    int late;     /* no level that is accurate enough meets the deadline: the fastest of them */
    int short_of; /* the charge is not enough: for this inference, or for what a lasting plan has to come */
} npugen_choice;

/* NPUGEN_ARGUMENT for levels and a plan that do not go together, as the Python class raises LevelsFileError. */
npugen_status npugen_governor_init(npugen_governor *governor, const npugen_level *levels, unsigned count,
                                   const npugen_plan *plan, uint64_t battery);

/* For an inference that begins at now_us microseconds from any beginning, with so much of a full battery. The time may
 * wrap from its largest value to 0. */
npugen_choice npugen_governor_choose(npugen_governor *governor, uint32_t charge_ppm, uint64_t now_us);

/* Choose, and have the device make what is started from then on with streams of the level. The caller starts the
 * level's program, and sets clock and voltage where the levels have any. NPUGEN_ARGUMENT where the machine has no
 * streams to shorten. */
npugen_status npugen_govern(npugen_governor *governor, npugen_device *device, uint32_t charge_ppm, uint64_t now_us,
                            npugen_choice *choice);

/* A battery that is reckoned: left of full, in the unit of the levels' energies. */
typedef struct npugen_battery {
    uint64_t full, left;
} npugen_battery;

void npugen_battery_spend(npugen_battery *battery, uint64_t energy);
uint32_t npugen_battery_charge(const npugen_battery *battery); /* in parts of NPUGEN_FULL */

#ifdef __cplusplus
}
#endif

#endif
