/* Goes up the ladder of a new board, and says what it found.
 *
 *     ./doctor [npu [udmabuf0]]        the UIO device and the u-dma-buf, by name
 */
#include <string.h>

#include "npugen_bringup.h"
#include "npugen_doctor.h"
#include "npugen_example.h"

static void report(void *context, const npugen_finding *finding) {
    (void)context;
    if (finding->ok)
        printf("ok     %s: %s\n", finding->check, finding->found);
    else
        printf("FAILED %s: %s; most likely %s; next: %s\n", finding->check, finding->found, finding->wrong,
               finding->next);
    fflush(stdout);
}

/* Whether waits end when the interrupt comes. */
static int has_interrupt(const npugen_backend *backend) {
#ifdef NPUGEN_BACKEND_HEADER
    (void)backend;
    return 1;
#else
    (void)backend->wait(backend->context, 0); /* a node that names none is found out by this */
    return uio.interrupt >= 0;
#endif
}

int main(int argc, char **argv) {
    npugen_doctor doctor;
    memset(&doctor, 0, sizeof doctor);
    if (open_backend(&doctor.backend, argc, argv) != NPUGEN_OK) return 1;
    doctor.trials = npugen_trials;
    doctor.trial_count = NPUGEN_TRIALS;
    doctor.has_interrupt = has_interrupt(&doctor.backend);
    doctor.report = report;
    return npugen_examine(&doctor) ? 0 : 1;
}
