/* What an input, an output or a state of a model in C is: the same for all models of a program. */
#ifndef NPUGEN_VALUE_H
#define NPUGEN_VALUE_H

#include <stddef.h>

typedef enum npugen_type { NPUGEN_INTEGER, NPUGEN_UNSIGNED, NPUGEN_REAL } npugen_type;

/* Row by row, of one sample. */
typedef struct npugen_value {
    const char *name;
    npugen_type type;
    size_t element, values, rank; /* bytes of an element; how many there are, at most */
    const size_t *shape;          /* rank of them */
} npugen_value;

#endif
