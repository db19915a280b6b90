/* The charge of a battery as Linux shows it, for npugen_governor.h. */
#ifndef NPUGEN_POWER_H
#define NPUGEN_POWER_H

#include "npugen.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of a folder of /sys/class/power_supply, in millionths of a full battery: energy_now of energy_full, else charge_now of
 * charge_full, else capacity, whole percents. NPUGEN_IO where a pair is there and cannot be read, or none of them is: the
 * same as npudriver.battery.PowerSupply. */
npugen_status npugen_read_charge(const char *folder, uint32_t *charge_ppm);

#ifdef __cplusplus
}
#endif

#endif
