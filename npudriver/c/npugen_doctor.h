/* Bring-up: a ladder of checks of a new board, each of which says what it found and, of a failure, what is most likely
 * wrong and what to do next. The twin of `python3 -m npudriver doctor`, for bare metal as for Linux: it allocates
 * nothing but the back end's memory for the device, and writes no files.
 *
 * The programs for the engines are those of npugen_bringup.h, which is generated for a machine.
 */
#ifndef NPUGEN_DOCTOR_H
#define NPUGEN_DOCTOR_H

#include "npugen.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A program of one engine with a known answer. Places and sizes of the data region are in beats, of data in bytes. */
typedef struct npugen_trial {
    const char *name; /* of the engine */
    const char *text; /* what it does */
    const uint8_t *code, *data, *expected;
    size_t code_size, data_size, expected_size; /* data: of the region from its first beat on */
    uint32_t data_beats, write_start;
    uint32_t output;     /* where expected is to be found */
    uint32_t rows, cols; /* of its map, whose blocks follow each other */
    int32_t source;      /* where the input begins that the program only copies; -1 for others */
} npugen_trial;

typedef struct npugen_finding {
    const char *check;
    int ok;
    char found[200];
    char wrong[240];  /* most likely; empty where all is well */
    const char *next; /* to do; empty where all is well */
} npugen_finding;

typedef struct npugen_doctor {
    npugen_backend backend;
    const npugen_trial *trials; /* may be NULL where trial_count is 0 */
    unsigned trial_count;
    int has_interrupt; /* whether the backend's wait ends when the interrupt comes; it is polled otherwise */
    void *context;     /* of report */
    void (*report)(void *context, const npugen_finding *finding); /* each finding, as it is made */
} npugen_doctor;

/* Go up the ladder: identity, rest, registers, memory, fetch, interrupt, and each engine by itself. It ends at the first
 * check that fails, as those above rely on it. Returns whether all is well. */
int npugen_examine(const npugen_doctor *doctor);

/* Gives a finding's line to put, piece by piece. */
void npugen_put_finding(const npugen_finding *finding, void (*put)(void *context, const char *text, size_t size),
                        void *context);

#ifdef __cplusplus
}
#endif

#endif
