/* The mailbox of an image, at NPUGEN_MAILBOX_OFFSET of it, in memory; gen/soc/firmware.py is the other end.
 *
 * A system that waits has NPUGEN_IDLE in LiteX's scratch register, and starts at the address that is written there. Its
 * image, and the samples of a model, are in memory then. How much is done is there in between, and NPUGEN_IDLE again
 * when all is.
 */
#ifndef NPUGEN_FIRMWARE_H
#define NPUGEN_FIRMWARE_H

#define NPUGEN_MAILBOX_OFFSET 16
#define NPUGEN_IDLE 0x12345678
#define NPUGEN_MAGIC 0x4355504e

/* Offsets in the mailbox of what start.S writes. */
#define NPUGEN_MAILBOX_STATE 16
#define NPUGEN_MAILBOX_CAUSE 36

/* What becomes of an image: it is at work, has done all, a call of the library or a check has failed, or the processor
 * has met what it cannot do. */
#define NPUGEN_RUNS 0
#define NPUGEN_FINISHED 1
#define NPUGEN_FAILED 2
#define NPUGEN_TRAPPED 3

#ifndef __ASSEMBLER__
#include <stdint.h>

typedef struct npugen_mailbox {
    uint32_t magic;
    uint32_t samples; /* address from which they, or findings as text, may lie: written by the linker */
    uint32_t count;   /* of samples, or bytes that the text may have: written by who loads the image */
    uint32_t done;    /* of these */
    uint32_t state, status, what, fault_code, fault_index; /* what: call of the library that has failed */
    uint32_t cause, instruction, value;                    /* mcause, mepc and mtval of a trap */
    uint64_t load_cycles;                                  /* until the first sample */
} npugen_mailbox;

extern volatile npugen_mailbox npugen_mail;
#endif

#endif
