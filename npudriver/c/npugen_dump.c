/* A machine's registers and counters as JSON. See npugen_dump.h. */
#include "npugen_dump.h"

#include <string.h>

#define APART_US 1000u /* between two looks: what moves at all has moved then */

typedef struct writer {
    const npugen_backend *backend;
    const npugen_shown *shown;
    void (*put)(void *context, const char *text, size_t size);
    void *context;
} writer;

static void put(const writer *w, const char *text) { w->put(w->context, text, strlen(text)); }

static void put_number(const writer *w, uint64_t value) {
    char digits[20];
    size_t at = sizeof digits;
    do digits[--at] = (char)('0' + value % 10u);
    while ((value /= 10u) != 0);
    w->put(w->context, &digits[at], sizeof digits - at);
}

/* A member of an object, all but the first after a comma. */
static void put_member(const writer *w, int *first, const char *name, uint64_t value) {
    put(w, *first ? "\n  \"" : ",\n  \"");
    put(w, name);
    put(w, "\": ");
    put_number(w, value);
    *first = 0;
}

static uint32_t read_register(const writer *w, uint32_t address) {
    return w->backend->read32(w->backend->context, address);
}

static void put_sample(const writer *w, uint64_t began) {
    const uint64_t now = w->backend->now(w->backend->context);
    int first = 1;
    put(w, "{\"microseconds\": ");
    put_number(w, now - began);
    put(w, ", \"status\": ");
    put_number(w, read_register(w, NPUGEN_REG_STATUS));
    put(w, ", \"counters\": {");
    for (unsigned number = 0; number < w->shown->counter_count; ++number) {
        const npugen_named *counter = &w->shown->counters[number];
        const uint32_t low = read_register(w, counter->address); /* it holds the high half */
        put_member(w, &first, counter->name, (uint64_t)read_register(w, counter->address + 4u) << 32 | low);
    }
    put(w, "}}");
}

int npugen_dump(const npugen_backend *backend, const npugen_shown *shown,
                void (*out)(void *context, const char *text, size_t size), void *context) {
    const writer w = {backend, shown, out, context};
    const int is_npu = read_register(&w, NPUGEN_REG_ID) == NPUGEN_ID_VALUE
        && read_register(&w, NPUGEN_REG_VERSION) == NPUGEN_VERSION_VALUE;
    int first = 1;
    put(&w, "{\"format\": \"npugen dump\", \"version\": 1,\n\"machine\": ");
    out(context, (const char *)shown->machine, shown->machine_size);
    put(&w, ",\n\"samples\": [");
    if (is_npu) {
        const uint64_t began = backend->now(backend->context);
        uint64_t last = began;
        put_sample(&w, began);
        put(&w, ",\n");
        while (last - began < APART_US) { /* a wait may end early, and waits for nothing where the clock stands */
            const uint64_t before = last;
            if (backend->wait(backend->context, APART_US) != NPUGEN_OK) break;
            last = backend->now(backend->context);
            if (last == before) break;
        }
        put_sample(&w, began);
    }
    put(&w, "],\n\"registers\": {");
    for (unsigned number = 0; number < shown->register_count; ++number) {
        const npugen_named *one = &shown->registers[number];
        /* Those that say what the device is. */
        const int known = one->address <= NPUGEN_REG_LANES;
        if (is_npu || known) put_member(&w, &first, one->name, read_register(&w, one->address));
    }
    put(&w, "},\n\"trouble\": \"\"}\n");
    return is_npu;
}
