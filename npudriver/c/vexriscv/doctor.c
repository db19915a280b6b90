/* The ladder of a new board (npugen_doctor.h) on VexRiscv beside the machine. Its findings are text from the mailbox's
 * `samples` on, of which `count` says how long it may be and `done` how long it is; gen/soc/doctor.py is the other end. */
#include "firmware.h"

#include <string.h>

#include "npugen_bringup.h"
#include "npugen_vexriscv.h"

extern uint8_t npugen_end[]; /* of the image with its stack: firmware.ld */

int main(void);

__attribute__((section(".mailbox"))) volatile npugen_mailbox npugen_mail = {
    .magic = NPUGEN_MAGIC, .samples = (uintptr_t)npugen_end};

static void put(void *context, const char *text, size_t size) {
    const uint32_t done = npugen_mail.done, room = npugen_mail.count - done;
    (void)context;
    if (size > room) size = room;
    memcpy(npugen_end + done, text, size);
    npugen_mail.done = done + (uint32_t)size;
}

static void report(void *context, const npugen_finding *finding) {
    npugen_put_finding(finding, put, context);
    *(volatile uint32_t *)(uintptr_t)NPUGEN_SOC_SCRATCH = npugen_mail.done;
}

int main(void) {
    static npugen_bare bare;
    npugen_doctor doctor = {0};
    uint8_t *memory = npugen_end + npugen_mail.count;
    const size_t room = (size_t)(NPUGEN_SOC_MEMORY + NPUGEN_SOC_MEMORY_BYTES - (uintptr_t)memory);
    const npugen_status status = npugen_vexriscv_open(&bare, &doctor.backend, memory, room);
    npugen_mail.status = (uint32_t)status;
    doctor.trials = npugen_trials;
    doctor.trial_count = NPUGEN_TRIALS;
    doctor.has_interrupt = 1;
    doctor.report = report;
    npugen_mail.state = status == NPUGEN_OK && npugen_examine(&doctor) ? NPUGEN_FINISHED : NPUGEN_FAILED;
    return 0;
}
