/* Charges from sysfs. See npugen_power.h. */
#include "npugen_power.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FULL 1000000u
/* Of a number in a file: ten times as much has 64 bits. Of a file: what is looked at. */
#define MOST_DIGITS 18u
#define MOST_TEXT 64u

typedef enum found { ABSENT, NUMBER, NO_NUMBER } found;

static int is_space(char one) {
    return one == ' ' || (one >= '\t' && one <= '\r');
}

/* A file that is one whole number of 0 or more, and spaces around it. */
static found read_number(const char *folder, const char *name, uint64_t *value) {
    char path[512], text[MOST_TEXT];
    size_t begin = 0, end;
    FILE *file;
    int failed;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path) return NO_NUMBER;
    errno = 0;
    file = fopen(path, "r");
    if (!file) return errno == ENOENT || errno == ENOTDIR ? ABSENT : NO_NUMBER;
    end = fread(text, 1, sizeof text, file);
    failed = ferror(file);
    fclose(file);
    if (failed) return NO_NUMBER;
    while (begin < end && is_space(text[begin])) ++begin;
    while (end > begin && is_space(text[end - 1])) --end;
    if (begin == end || end - begin > MOST_DIGITS) return NO_NUMBER;
    for (*value = 0; begin < end; ++begin) {
        if (text[begin] < '0' || text[begin] > '9') return NO_NUMBER;
        *value = 10 * *value + (uint64_t)(text[begin] - '0');
    }
    return NUMBER;
}

/* Of 1,000,000, rounded down, digit by digit. */
static uint32_t share_of(uint64_t now, uint64_t full) {
    uint32_t share = 0;
    if (now >= full) return FULL;
    for (uint32_t digit = 1; digit < FULL; digit *= 10) {
        now *= 10;
        share = 10 * share + (uint32_t)(now / full);
        now %= full;
    }
    return share;
}

npugen_status npugen_read_charge(const char *folder, uint32_t *charge_ppm) {
    static const char *const pairs[][2] = {{"energy_now", "energy_full"}, {"charge_now", "charge_full"}};
    uint64_t now = 0, full = 0;
    for (size_t pair = 0; pair < sizeof pairs / sizeof *pairs; ++pair) {
        const found left = read_number(folder, pairs[pair][0], &now), most = read_number(folder, pairs[pair][1], &full);
        if (left == ABSENT || most == ABSENT) continue;
        if (left != NUMBER || most != NUMBER || !full) return NPUGEN_IO;
        *charge_ppm = share_of(now, full);
        return NPUGEN_OK;
    }
    if (read_number(folder, "capacity", &now) != NUMBER) return NPUGEN_IO;
    *charge_ppm = now < 100 ? (uint32_t)now * (FULL / 100) : FULL;
    return NPUGEN_OK;
}
