/* A model in C over the samples that the other end of a pipe has. */
#include "piped_work.h"

int main(void) {
    static piped_work work;
    work.end = (piped_end){0, 1};
    piped_run(&work);
    return 0;
}
