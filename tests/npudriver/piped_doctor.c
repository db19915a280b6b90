/* The ladder of a new board, or a dump, on a device at the other end of a pipe, which hears what it found. */
#include <stdio.h>
#include <string.h>

#include "npugen_bringup.h"
#include "npugen_doctor.h"
#include "piped_backend.h"

static piped_end end = {0, 1};

static void report(void *context, const npugen_finding *finding) {
    char line[1024];
    (void)context;
    snprintf(line, sizeof line, "%s %s: %s | %s | %s", finding->ok ? "ok" : "FAILED", finding->check, finding->found,
             finding->wrong, finding->next);
    piped_request(&end, PIPED_SAY, (uint32_t)strlen(line), 0, 0);
    piped_put(&end, line, strlen(line));
}

static void put(void *context, const char *text, size_t size) {
    (void)context;
    piped_request(&end, PIPED_SAY, (uint32_t)size, 0, 0);
    piped_put(&end, text, size);
}

/* With any argument, a dump. */
int main(int argc, char **argv) {
    npugen_doctor doctor;
    (void)argv;
    memset(&doctor, 0, sizeof doctor);
    doctor.backend = piped_backend(&end);
    if (argc > 1) {
        npugen_dump(&doctor.backend, &npugen_shown_machine, put, NULL);
        return 0;
    }
    doctor.trials = npugen_trials;
    doctor.trial_count = NPUGEN_TRIALS;
    doctor.has_interrupt = 1;
    doctor.report = report;
    npugen_examine(&doctor);
    return 0;
}
