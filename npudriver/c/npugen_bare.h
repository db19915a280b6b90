/* A back end without an operating system, of what a port says of its processor: data and four short functions.
 *
 * npugen_arm.c is the port to the Arm processors beside the fabric of Zynq-7000, Zynq UltraScale+ and Cyclone V. A
 * processor without caches, or whose memory is coherent, gives clean and invalidate as NULL; one without an interrupt
 * gives sleep as NULL, and the machine is polled. Only `now` is always needed.
 */
#ifndef NPUGEN_BARE_H
#define NPUGEN_BARE_H

#include "npugen.h"
#include "npugen_memory.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct npugen_port {
    void *context;                /* the functions' first argument */
    volatile uint32_t *registers; /* the machine's, 4 KiB, not cached */
    /* Memory that nobody else uses, cached or not; it begins and ends at cache lines. */
    uint8_t *memory;
    uint64_t memory_address; /* of its first byte, on the machine's bus */
    size_t memory_size;
    /* Bytes of the longest cache line on the way to memory, a power of two; 0 or 1 where there is no cache. */
    size_t line;
    /* Of whole lines: write back what was changed; and drop what is there, without writing it back. When they return, it
     * is done in all levels of caches. */
    void (*clean)(void *context, const uint8_t *begin, size_t size);
    void (*invalidate)(void *context, const uint8_t *begin, size_t size);
    uint64_t (*now)(void *context); /* microseconds, from any beginning */
    /* Until the interrupt comes, or for so long; it may end early. */
    void (*sleep)(void *context, uint32_t microseconds);
    /* Reset the machine and its buses; NULL where the system cannot. */
    npugen_status (*reset)(void *context);
} npugen_port;

typedef struct npugen_bare {
    npugen_port port;
    npugen_memory memory;
} npugen_bare;

/* NPUGEN_ARGUMENT for memory that is not of whole lines, or a function that is missing. Nothing has to be closed. */
npugen_status npugen_bare_open(npugen_bare *bare, npugen_backend *backend, const npugen_port *port);

#ifdef __cplusplus
}
#endif

#endif
