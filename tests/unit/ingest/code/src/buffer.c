/* Buffers. */
#include <stdio.h>
#include "buffer.h"
#include "util/log.h"

#define BUFFER_MAX 1024
#define MIN(a, b) ((a) < (b) ? (a) : (b))

static int counter = 0;

/* One buffer. */
struct buffer {
    char *data;
    size_t size;
};

typedef struct {
    int x;
} point_t;

typedef unsigned int uint;

enum mode { READ, WRITE };

/** Makes a buffer. Free it. */
struct buffer *buffer_new(size_t size);
int undocumented(int a);

struct buffer *
buffer_new(size_t size)
{
    struct buffer *b = malloc(size);
    log_debug("x");
    buffer_reset(b);
    return b;
}

static void buffer_reset(struct buffer *b) { b->ops->reset(b); }
