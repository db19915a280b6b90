/* Where the processor finds samples and leaves results: at NPUGEN_MAILBOX_OFFSET of its image, in memory;
 * gen/soc/firmware.py and gen/soc/samples.py are the other end.
 *
 * A system that waits has NPUGEN_IDLE in LiteX's scratch register, and starts at the address that is written there. Its
 * image and its samples are in memory then. The number of samples that are done is there in between, and NPUGEN_IDLE
 * again when all is.
 */
#ifndef NPUGEN_FIRMWARE_H
#define NPUGEN_FIRMWARE_H

#define NPUGEN_MAILBOX_OFFSET 16
#define NPUGEN_IDLE 0x12345678
#define NPUGEN_MAGIC 0x4355504e

/* Offsets in the mailbox of what start.S writes. */
#define NPUGEN_MAILBOX_STATE 16
#define NPUGEN_MAILBOX_CAUSE 36

/* What becomes of an image: it is at work, has done all samples, a call of the library has failed, or the processor has
 * met what it cannot do. */
#define NPUGEN_RUNS 0
#define NPUGEN_FINISHED 1
#define NPUGEN_FAILED 2
#define NPUGEN_TRAPPED 3

#ifndef __ASSEMBLER__
#include <stdint.h>

#include "npugen_model.h"

/* Samples lie one after the other from `samples` on, each: npugen_record; inputs; room for outputs. All of these begin
 * at NPUGEN_SAMPLE_ALIGNMENT bytes. */
#define NPUGEN_SAMPLE_ALIGNMENT 32u

typedef struct npugen_mailbox {
    uint32_t magic;
    uint32_t samples; /* address from which they may lie: written by the linker */
    uint32_t count;   /* of samples: written by who loads the image */
    uint32_t done;    /* of them */
    uint32_t state, status, what, fault_code, fault_index; /* what: call of the library that has failed */
    uint32_t cause, instruction, value;                    /* mcause, mepc and mtval of a trap */
    uint64_t load_cycles;                                  /* until the first sample */
} npugen_mailbox;

typedef struct npugen_record {
    uint64_t cycles;      /* from the sample to its outputs */
    uint64_t accelerator; /* of these, by the machine's counter */
    uint32_t shapes[NPUGEN_MODEL_OUTPUTS][NPUGEN_MODEL_RANK];
} npugen_record;

extern volatile npugen_mailbox npugen_mail;
#endif

#endif
