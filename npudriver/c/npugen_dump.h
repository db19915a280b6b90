/* What a machine shows of itself, as the JSON that `python -m gen explain` puts into words: registers by name, and
 * status and counters twice. It writes no register, and reads none of a device that does not identify itself, as reading
 * may change what another peripheral holds; so it can be taken of a machine that hangs. The twin of
 * `python3 -m npudriver dump`.
 */
#ifndef NPUGEN_DUMP_H
#define NPUGEN_DUMP_H

#include "npugen.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct npugen_named {
    const char *name;
    uint32_t address; /* of a counter: of its low half, which the high one follows */
} npugen_named;

/* Of a machine; npugen_bringup.h has npugen_shown_machine. */
typedef struct npugen_shown {
    const uint8_t *machine; /* machine.json */
    size_t machine_size;
    const npugen_named *registers, *counters; /* without commands and counters; all counters */
    unsigned register_count, counter_count;
} npugen_shown;

/* Gives the text to put, piece by piece. Returns whether the device is such a machine. */
int npugen_dump(const npugen_backend *backend, const npugen_shown *shown,
                void (*put)(void *context, const char *text, size_t size), void *context);

#ifdef __cplusplus
}
#endif

#endif
