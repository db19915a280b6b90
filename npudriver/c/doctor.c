/* Goes up the ladder of a new board, and says what it found.
 *
 *     ./doctor [npu [udmabuf0]]              the UIO device and the u-dma-buf, by name
 *     ./doctor dump [npu [udmabuf0]] > FILE  what the machine shows, for `python -m gen explain FILE`
 */
#include <string.h>

#include "npugen_bringup.h"
#include "npugen_doctor.h"
#include "npugen_example.h"

static void print(void *context, const char *text, size_t size) {
    (void)context;
    fwrite(text, 1, size, stdout);
}

static void report(void *context, const npugen_finding *finding) {
    npugen_put_finding(finding, print, context);
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
    const int dumps = argc > 1 && !strcmp(argv[1], "dump");
    npugen_doctor doctor;
    memset(&doctor, 0, sizeof doctor);
    if (open_backend(&doctor.backend, argc - dumps, argv + dumps) != NPUGEN_OK) return 1;
    if (dumps) return npugen_dump(&doctor.backend, &npugen_shown_machine, print, NULL) ? 0 : 1;
    doctor.trials = npugen_trials;
    doctor.trial_count = NPUGEN_TRIALS;
    doctor.has_interrupt = has_interrupt(&doctor.backend);
    doctor.report = report;
    return npugen_examine(&doctor) ? 0 : 1;
}
