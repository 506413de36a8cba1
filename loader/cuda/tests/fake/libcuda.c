/* A stand-in for the CUDA driver, for machines without one. "Device" memory is
 * an address range nobody may touch, with its bytes in a shadow beside it: host
 * code that looks at a device address crashes, as it would with a device.
 *
 * Every call is appended to the file DIR "/log". A line "NAME CODE" in the file
 * DIR "/fail" makes the function NAME answer CODE. DIR is given when it is
 * compiled; there are DEVICES devices. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef DEVICES
#define DEVICES 2
#endif
#define MOST 4096
#define INVALID_VALUE 1
#define INVALID_CONTEXT 201
#define HOST_MEMORY_ALREADY_REGISTERED 712
#define HOST_MEMORY_NOT_REGISTERED 713

typedef unsigned int result;
typedef uint64_t pointer;

struct range {
    pointer start;
    size_t bytes;
    char *shadow;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range memory[MOST], registered[MOST];
static int retained[DEVICES];
static _Thread_local void *current[16];
static _Thread_local int depth;

static void say(const char *format, ...) {
    char line[256];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    int fd = open(DIR "/log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0) {
        if (write(fd, line, len) != len)
            abort();
        close(fd);
    }
}

/* What the test wants this function to answer. */
static result told(const char *function) {
    char name[64];
    unsigned code, found = 0;
    FILE *file = fopen(DIR "/fail", "re");
    if (!file)
        return 0;
    while (fscanf(file, "%63s %u", name, &code) == 2)
        if (!strcmp(name, function))
            found = code;
    fclose(file);
    return found;
}

#define BEGIN(function)                         \
    do {                                        \
        result wanted = told(#function);        \
        if (wanted) {                           \
            say(#function " failed\n");         \
            return wanted;                      \
        }                                       \
    } while (0)

/* Calls about memory need a context. */
#define IN_CONTEXT(function)                    \
    do {                                        \
        BEGIN(function);                        \
        if (!depth)                             \
            return INVALID_CONTEXT;             \
    } while (0)

/* Where the bytes of a range of device memory are. */
static char *shadow_of(pointer start, size_t bytes) {
    char *found = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST; i++)
        if (memory[i].bytes && start >= memory[i].start &&
            start + bytes <= memory[i].start + memory[i].bytes)
            found = memory[i].shadow + (start - memory[i].start);
    pthread_mutex_unlock(&lock);
    return found;
}

static int is_registered(const void *start, size_t bytes) {
    int found = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST; i++)
        found |= registered[i].bytes && (pointer)start >= registered[i].start &&
                 (pointer)start + bytes <= registered[i].start + registered[i].bytes;
    pthread_mutex_unlock(&lock);
    return found;
}

static int keep(struct range *table, struct range made) {
    int at = -1;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST && at < 0; i++)
        if (!table[i].bytes)
            table[at = i] = made;
    pthread_mutex_unlock(&lock);
    return at;
}

static struct range drop(struct range *table, pointer start) {
    struct range found = {0};
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST; i++)
        if (table[i].bytes && table[i].start == start) {
            found = table[i];
            table[i].bytes = 0;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

result cuInit(unsigned flags) {
    BEGIN(cuInit);
    return flags ? INVALID_VALUE : 0;
}

result cuGetErrorName(result code, const char **name) {
    *name = code == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
            : code == 1   ? "CUDA_ERROR_INVALID_VALUE"
            : code == 801 ? "CUDA_ERROR_NOT_SUPPORTED"
                          : "CUDA_ERROR_UNKNOWN";
    return 0;
}

result cuDeviceGetCount(int *count) {
    BEGIN(cuDeviceGetCount);
    *count = DEVICES;
    return 0;
}

result cuDeviceGet(int *device, int number) {
    BEGIN(cuDeviceGet);
    if (number < 0 || number >= DEVICES)
        return 101;
    *device = number;
    return 0;
}

result cuDeviceGetName(char *name, int len, int device) {
    BEGIN(cuDeviceGetName);
    snprintf(name, len, "Stand-in %d", device);
    return 0;
}

result cuDeviceGetAttribute(int *value, int attribute, int device) {
    BEGIN(cuDeviceGetAttribute);
    (void)device;
    /* Has dmabufs; writes of peers are not ordered, but can be flushed. */
    *value = attribute == 124 || attribute == 117;
    return 0;
}

result cuDevicePrimaryCtxRetain(void **context, int device) {
    BEGIN(cuDevicePrimaryCtxRetain);
    retained[device]++;
    *context = &retained[device];
    say("retain %d\n", device);
    return 0;
}

result cuDevicePrimaryCtxRelease_v2(int device) {
    BEGIN(cuDevicePrimaryCtxRelease_v2);
    if (--retained[device] < 0)
        abort();
    say("release %d\n", device);
    return 0;
}

result cuCtxPushCurrent_v2(void *context) {
    BEGIN(cuCtxPushCurrent_v2);
    if (depth == 16)
        return INVALID_VALUE;
    current[depth++] = context;
    return 0;
}

result cuCtxPopCurrent_v2(void **context) {
    BEGIN(cuCtxPopCurrent_v2);
    if (!depth)
        return INVALID_CONTEXT;
    *context = current[--depth];
    return 0;
}

result cuMemAlloc_v2(pointer *start, size_t bytes) {
    IN_CONTEXT(cuMemAlloc_v2);
    if (!bytes)
        return INVALID_VALUE;
    char *closed = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *shadow = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (closed == MAP_FAILED || shadow == MAP_FAILED)
        return 2;
    struct range made = {(pointer)closed, bytes, shadow};
    if (keep(memory, made) < 0)
        return 2;
    *start = made.start;
    say("alloc %zu\n", bytes);
    return 0;
}

result cuMemFree_v2(pointer start) {
    IN_CONTEXT(cuMemFree_v2);
    struct range gone = drop(memory, start);
    if (!gone.bytes)
        return INVALID_VALUE;
    munmap((void *)gone.start, gone.bytes);
    munmap(gone.shadow, gone.bytes);
    say("free %zu\n", gone.bytes);
    return 0;
}

result cuMemHostRegister_v2(void *start, size_t bytes, unsigned flags) {
    IN_CONTEXT(cuMemHostRegister_v2);
    (void)flags;
    if (is_registered(start, 1))
        return HOST_MEMORY_ALREADY_REGISTERED;
    struct range made = {(pointer)start, bytes, NULL};
    if (keep(registered, made) < 0)
        return 2;
    say("register %zu\n", bytes);
    return 0;
}

result cuMemHostUnregister(void *start) {
    IN_CONTEXT(cuMemHostUnregister);
    struct range gone = drop(registered, (pointer)start);
    if (!gone.bytes)
        return HOST_MEMORY_NOT_REGISTERED;
    say("unregister %zu\n", gone.bytes);
    return 0;
}

result cuStreamCreate(void **stream, unsigned flags) {
    IN_CONTEXT(cuStreamCreate);
    (void)flags;
    *stream = calloc(1, 1);
    say("stream\n");
    return 0;
}

result cuStreamDestroy_v2(void *stream) {
    IN_CONTEXT(cuStreamDestroy_v2);
    free(stream);
    say("unstream\n");
    return 0;
}

result cuStreamSynchronize(void *stream) {
    IN_CONTEXT(cuStreamSynchronize);
    return stream ? 0 : INVALID_VALUE;
}

result cuMemcpyHtoDAsync_v2(pointer to, const void *from, size_t bytes, void *stream) {
    IN_CONTEXT(cuMemcpyHtoDAsync_v2);
    char *shadow = shadow_of(to, bytes);
    if (!shadow || !stream)
        return INVALID_VALUE;
    say("in %zu %s\n", bytes, is_registered(from, bytes) ? "locked" : "pageable");
    memcpy(shadow, from, bytes);
    return 0;
}

result cuMemcpyDtoHAsync_v2(void *to, pointer from, size_t bytes, void *stream) {
    IN_CONTEXT(cuMemcpyDtoHAsync_v2);
    char *shadow = shadow_of(from, bytes);
    if (!shadow || !stream)
        return INVALID_VALUE;
    say("out %zu\n", bytes);
    memcpy(to, shadow, bytes);
    return 0;
}

/* CUDA_MEMCPY2D of cuda.h. */
struct copy {
    size_t src_x, src_y;
    unsigned src_type;
    const void *src_host;
    pointer src_device;
    void *src_array;
    size_t src_pitch, dst_x, dst_y;
    unsigned dst_type;
    void *dst_host;
    pointer dst_device;
    void *dst_array;
    size_t dst_pitch, width, height;
};

result cuMemcpy2DAsync_v2(const struct copy *copy, void *stream) {
    IN_CONTEXT(cuMemcpy2DAsync_v2);
    if (!stream || copy->src_type != 2 || copy->dst_type != 2 || copy->width > copy->src_pitch)
        return INVALID_VALUE;
    for (size_t row = 0; row < copy->height; row++) {
        char *from = shadow_of(copy->src_device + row * copy->src_pitch, copy->width);
        char *to = shadow_of(copy->dst_device + row * copy->dst_pitch, copy->width);
        if (!from || !to)
            return INVALID_VALUE;
        memcpy(to, from, copy->width);
    }
    say("2d %zu\n", copy->width * copy->height);
    return 0;
}

result cuPointerSetAttribute(const void *value, int attribute, pointer start) {
    IN_CONTEXT(cuPointerSetAttribute);
    if (attribute != 6 || *(const unsigned *)value != 1 || !shadow_of(start, 1))
        return INVALID_VALUE;
    say("ordered\n");
    return 0;
}

result cuMemGetHandleForAddressRange(void *handle, pointer start, size_t bytes, unsigned type,
                                     unsigned long long flags) {
    IN_CONTEXT(cuMemGetHandleForAddressRange);
    if (type != 1 || flags || start % 4096 || bytes % 4096 || !shadow_of(start, bytes))
        return INVALID_VALUE;
    int fd = memfd_create("dmabuf", MFD_CLOEXEC);
    if (fd < 0)
        return 999;
    *(int *)handle = fd;
    say("dmabuf %zu\n", bytes);
    return 0;
}

result cuFlushGPUDirectRDMAWrites(unsigned target, unsigned scope) {
    IN_CONTEXT(cuFlushGPUDirectRDMAWrites);
    if (target != 0 || scope != 100)
        return INVALID_VALUE;
    say("flush\n");
    return 0;
}
