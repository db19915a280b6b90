/* Reads records of a length (4 bytes), a digest and data; prints what npugen_check says of each, as code and constants.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npugen.h"

int main(void) {
    uint8_t head[4 + NPUGEN_DIGEST_BYTES];
    while (fread(head, 1, sizeof head, stdin) == sizeof head) {
        const size_t size = (size_t)head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16;
        uint8_t *data = malloc(size);
        npugen_image image;
        if (!data || fread(data, 1, size, stdin) != size) return 1;
        memset(&image, 0, sizeof image);
        image.code = image.constants = data;
        image.code_size = image.constants_size = size;
        image.code_digest = image.constants_digest = head + 4;
        printf("%d\n", (int)npugen_check(&image));
        free(data);
    }
    return 0;
}
