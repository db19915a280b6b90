/* Charges from sysfs. See npugen_power.h. */
#include "npugen_power.h"

#include <stdio.h>
#include <string.h>

#define FULL 1000000u
/* Of a number in a file: its product with FULL has 64 bits. */
#define MOST (UINT64_MAX / FULL)

/* A file that is one whole number of 0 or more. */
static int read_number(const char *folder, const char *name, uint64_t *value) {
    char path[512];
    int digit, found = 0;
    FILE *file;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path) return 0;
    file = fopen(path, "r");
    if (!file) return 0;
    *value = 0;
    while ((digit = fgetc(file)) >= '0' && digit <= '9' && *value <= MOST / 10) {
        *value = 10 * *value + (uint64_t)(digit - '0');
        found = 1;
    }
    fclose(file);
    return found && (digit == '\n' || digit == EOF) && *value <= MOST;
}

npugen_status npugen_read_charge(const char *folder, uint32_t *charge_ppm) {
    static const char *const pairs[][2] = {{"energy_now", "energy_full"}, {"charge_now", "charge_full"}};
    uint64_t now, full, share;
    for (size_t pair = 0; pair < sizeof pairs / sizeof *pairs; ++pair) {
        if (!read_number(folder, pairs[pair][0], &now) || !read_number(folder, pairs[pair][1], &full)) continue;
        if (!full) return NPUGEN_IO;
        share = now * FULL / full;
        *charge_ppm = share < FULL ? (uint32_t)share : FULL;
        return NPUGEN_OK;
    }
    if (!read_number(folder, "capacity", &now)) return NPUGEN_IO;
    *charge_ppm = now < 100 ? (uint32_t)now * (FULL / 100) : FULL;
    return NPUGEN_OK;
}
