/* A model in C over the samples that the other end of a pipe has; with any argument, by events. */
#include "piped_work.h"

int main(int argc, char **argv) {
    static piped_work work;
    (void)argv;
    work.events = argc > 1;
    work.end = (piped_end){0, 1};
    piped_run(&work);
    return 0;
}
