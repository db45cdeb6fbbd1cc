/* Inject faults into the writes, syncs and renames of a process below one directory.
 *
 * Loaded with LD_PRELOAD. Operations on files below the armed directory are counted from 1; the one
 * with the chosen number fails:
 *   error   it does nothing and returns EIO;
 *   full    a write writes half of its bytes, and all later ones return ENOSPC, as on a full disk;
 *   death   a write writes half of its bytes, and the process is killed by SIGKILL;
 *   group   as death, but the whole process group (the job) is killed;
 *   wait    it waits until a file with the name of the directory and ".continue" exists.
 * Armed by faults_arm(), or at startup by FAULTS_DIRECTORY, FAULTS_AT and FAULTS_KIND.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static char directory[4096];
static long fault_at;
static char kind;
static long count;
static int is_full;

void faults_arm(const char *where, long at, const char *what) {
    snprintf(directory, sizeof directory, "%s", where);
    fault_at = at;
    kind = what[0];
    count = 0;
    is_full = 0;
}

long faults_count(void) { return count; }

__attribute__((constructor)) static void arm_from_environment(void) {
    const char *where = getenv("FAULTS_DIRECTORY"), *at = getenv("FAULTS_AT");
    const char *what = getenv("FAULTS_KIND");
    if (where && at && what) faults_arm(where, atol(at), what);
}

static int is_below(const char *path) {
    size_t length = strlen(directory);
    return length && !strncmp(path, directory, length) && (path[length] == '/' || !path[length]);
}

static int is_armed_file(int descriptor) {
    char link[64], path[4096];
    if (!directory[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0) return 0;
    path[size] = 0;
    return is_below(path);
}

static void wait_for_file(void) {
    char path[sizeof directory + 16];
    snprintf(path, sizeof path, "%s.continue", directory);
    while (access(path, F_OK)) usleep(10000);
}

/* Count an operation; return whether it is the one that must fail. */
static int is_due(void) {
    if (__atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST) != fault_at) return 0;
    if (kind != 'w') return 1;
    wait_for_file();
    return 0;
}

static void die(void) {
    kill(kind == 'g' ? 0 : getpid(), SIGKILL);
    for (;;) pause();
}

/* Fail a rename or sync if it is due; return 0 if it must succeed. */
static int fault(void) {
    if (!is_due()) return 0;
    if (kind == 'd' || kind == 'g') die();
    errno = kind == 'f' ? ENOSPC : EIO;
    return -1;
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, name)

ssize_t write(int descriptor, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    if (!is_armed_file(descriptor)) return real(descriptor, data, size);
    if (is_full) {
        errno = ENOSPC;
        return -1;
    }
    if (!is_due()) return real(descriptor, data, size);
    if (kind == 'e') {
        errno = EIO;
        return -1;
    }
    ssize_t half = size > 1 ? real(descriptor, data, size / 2) : 0;
    if (kind != 'f') die();
    is_full = 1;
    if (half > 0) return half;
    errno = ENOSPC;
    return -1;
}

ssize_t writev(int descriptor, const struct iovec *parts, int number) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    if (!is_armed_file(descriptor) || number < 1) return real(descriptor, parts, number);
    return write(descriptor, parts[0].iov_base, parts[0].iov_len);
}

int fsync(int descriptor) {
    REAL(int, "fsync", int);
    return is_armed_file(descriptor) && fault() ? -1 : real(descriptor);
}

int fdatasync(int descriptor) {
    REAL(int, "fdatasync", int);
    return is_armed_file(descriptor) && fault() ? -1 : real(descriptor);
}

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    return is_below(to) && fault() ? -1 : real(from, to);
}

int renameat(int a, const char *from, int b, const char *to) {
    REAL(int, "renameat", int, const char *, int, const char *);
    return is_below(to) && fault() ? -1 : real(a, from, b, to);
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    REAL(int, "renameat2", int, const char *, int, const char *, unsigned);
    return is_below(to) && fault() ? -1 : real(a, from, b, to, flags);
}
