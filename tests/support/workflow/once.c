// A file system that returns a file wrongly once: LD_PRELOAD of a program named mgg. The first open of a path that ends
// with $ONCE_PATH finds nothing, or $ONCE_STALE where that is set, and makes the file $ONCE_MARK.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static int (*plain)(int, const char *, int, ...);

static int is_due(const char *path, int flags) {
    const char *wanted = getenv("ONCE_PATH"), *mark = getenv("ONCE_MARK");
    char name[16] = "";
    if (!wanted || !mark || (flags & O_ACCMODE) != O_RDONLY || strlen(path) < strlen(wanted)) return 0;
    if (strcmp(path + strlen(path) - strlen(wanted), wanted)) return 0;
    prctl(PR_GET_NAME, name);
    if (strcmp(name, "mgg")) return 0;
    int made = plain(AT_FDCWD, mark, O_CREAT | O_EXCL | O_WRONLY, 0600);
    if (made < 0) return 0;
    close(made);
    return 1;
}

static int opened(int folder, const char *path, int flags, mode_t mode) {
    if (!plain) plain = dlsym(RTLD_NEXT, "openat");
    if (is_due(path, flags)) {
        const char *stale = getenv("ONCE_STALE");
        if (!stale) {
            errno = ENOENT;
            return -1;
        }
        return plain(AT_FDCWD, stale, flags, mode);
    }
    return plain(folder, path, flags, mode);
}

#define MODE(flags, mode)                                   \
    mode_t mode = 0;                                        \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {                \
        va_list rest;                                       \
        va_start(rest, flags);                              \
        mode = va_arg(rest, mode_t);                        \
        va_end(rest);                                       \
    }

int open(const char *path, int flags, ...) {
    MODE(flags, mode)
    return opened(AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE(flags, mode)
    return opened(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}
int openat(int folder, const char *path, int flags, ...) {
    MODE(flags, mode)
    return opened(folder, path, flags, mode);
}
int openat64(int folder, const char *path, int flags, ...) {
    MODE(flags, mode)
    return opened(folder, path, flags | O_LARGEFILE, mode);
}
FILE *fopen64(const char *path, const char *how) {
    static FILE *(*plain_fopen)(const char *, const char *);
    if (!plain_fopen) plain_fopen = dlsym(RTLD_NEXT, "fopen64");
    if (!plain) plain = dlsym(RTLD_NEXT, "openat");
    if (*how == 'r' && !strchr(how, '+') && is_due(path, O_RDONLY)) {
        const char *stale = getenv("ONCE_STALE");
        if (!stale) {
            errno = ENOENT;
            return NULL;
        }
        return plain_fopen(stale, how);
    }
    return plain_fopen(path, how);
}
