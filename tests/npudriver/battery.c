/* A reckoned battery from standard input, as tests/npudriver/test_c_governor.py writes it: FULL LEFT, then what each
 * inference takes. Prints the charge before the first and after each. */
#include "npugen_governor.h"

#include <inttypes.h>
#include <stdio.h>

int main(void) {
    npugen_battery battery;
    uint64_t energy;
    if (scanf("%" SCNu64 "%" SCNu64, &battery.full, &battery.left) != 2) return 1;
    printf("%" PRIu32, npugen_battery_charge(&battery));
    while (scanf("%" SCNu64, &energy) == 1) {
        npugen_battery_spend(&battery, energy);
        printf(" %" PRIu32, npugen_battery_charge(&battery));
    }
    puts("");
    return 0;
}
