/* Instances of a model in C, each on a device and a thread of its own: FROM TO are a device's ends of pipes.
 *
 *     ./model FROM TO [FROM TO ...]
 */
#include <pthread.h>

#include "piped_work.h"

#define MOST 8

static void *run(void *work) {
    piped_run(work);
    return NULL;
}

int main(int argc, char **argv) {
    static piped_work works[MOST];
    pthread_t threads[MOST];
    const int count = (argc - 1) / 2;
    if (count > MOST) return 2;
    for (int number = 0; number < count; ++number) {
        works[number].end = (piped_end){atoi(argv[1 + 2 * number]), atoi(argv[2 + 2 * number])};
        if (pthread_create(&threads[number], NULL, run, &works[number])) return 3;
    }
    for (int number = 0; number < count; ++number)
        if (pthread_join(threads[number], NULL)) return 3;
    return 0;
}
