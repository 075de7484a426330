/*
 * random_reader SEED THREADS SECONDS READS FILE REFERENCE [FILE REFERENCE]...
 *
 * Threads that read random ranges of random files in all the ways that programs do, and compare
 * them with the reference of each:
 *
 *     pread, preadv, pread with O_DIRECT, mmap shared and private, sendfile, splice,
 *     copy_file_range
 *
 * for so many seconds, or so many reads a thread if SECONDS is 0. Now and then a file's cached
 * pages are given up first. Prints how many reads of each kind were compared; 1 and a line for the
 * first that differs. What the kernel cannot do between these filesystems is counted as refused.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MOST ((size_t)3 << 20) /* bytes of a read */
#define VECTORS 7
#define THREADS_MOST 256
#define REFUSED (-1000)

struct file {
    const char *path;
    const uint8_t *expected;
    size_t size;
    int fd, direct; /* direct: opened with O_DIRECT */
};

struct reader {
    pthread_t thread;
    uint64_t random;
    uint8_t *buf; /* MOST bytes, page-aligned */
    int memory;   /* a file in memory to send to */
    int pipe[2];
};

struct range {
    const struct file *file;
    off_t off;
    size_t len;
};

static struct file *files;
static size_t nfiles;
static double seconds;
static long reads_each;
static struct timespec began;
static atomic_bool failed;

/* --- chance ----------------------------------------------------------------------------------- */

static uint64_t next_random(struct reader *r) {
    uint64_t z = r->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* 0 .. n-1 */
static size_t below(struct reader *r, size_t n) {
    return (size_t)(next_random(r) % n);
}

/* Anywhere, at a page's border, or around the end; short, of some pages, or long. */
static struct range choose(struct reader *r) {
    static const size_t lengths[] = {1, 16, 4096, 65536, 128u << 10, 1u << 20, MOST};
    const struct file *const f = &files[below(r, nfiles)];
    size_t off = below(r, f->size + 1);
    if (below(r, 3) == 0)
        off = off / 4096 * 4096 + (below(r, 3) == 0);
    if (below(r, 8) == 0)
        off = f->size - below(r, f->size < 5000 ? f->size + 1 : 5000);
    const size_t most = lengths[below(r, sizeof lengths / sizeof *lengths)];
    return (struct range){f, (off_t)off, 1 + below(r, most)};
}

/* --- ways to read; each gives the bytes read, or a negative errno ----------------------------- */

static ssize_t result(ssize_t n) {
    return n < 0 ? -errno : n;
}

static ssize_t by_pread(struct reader *r, const struct range *q) {
    return result(pread(q->file->fd, r->buf, q->len, q->off));
}

static ssize_t by_preadv(struct reader *r, const struct range *q) {
    struct iovec iov[VECTORS];
    size_t left = q->len;
    for (int i = 0; i < VECTORS; i++) {
        const size_t n = i == VECTORS - 1 ? left : below(r, left + 1);
        iov[i] = (struct iovec){r->buf + (q->len - left), n};
        left -= n;
    }
    return result(preadv(q->file->fd, iov, VECTORS, q->off));
}

static ssize_t by_direct(struct reader *r, const struct range *q) {
    return result(pread(q->file->direct, r->buf, q->len, q->off));
}

static ssize_t by_mapping(struct reader *r, const struct range *q, int flags) {
    const size_t size = q->file->size, off = (size_t)q->off;
    const size_t n = off < size ? (size - off < q->len ? size - off : q->len) : 0;
    if (n == 0)
        return 0;
    uint8_t *const map = mmap(NULL, size, PROT_READ, flags, q->file->fd, 0);
    if (map == MAP_FAILED)
        return -errno;
    memcpy(r->buf, map + off, n);
    munmap(map, size);
    return (ssize_t)n;
}

static ssize_t by_shared_mapping(struct reader *r, const struct range *q) {
    return by_mapping(r, q, MAP_SHARED);
}

static ssize_t by_private_mapping(struct reader *r, const struct range *q) {
    return by_mapping(r, q, MAP_PRIVATE);
}

static ssize_t from_memory(struct reader *r, ssize_t n) {
    return n > 0 ? result(pread(r->memory, r->buf, (size_t)n, 0)) : n;
}

/* Until there is no more: both may stop early. */
static ssize_t by_sendfile(struct reader *r, const struct range *q) {
    off_t off = q->off;
    size_t done = 0;
    ssize_t n = 1;
    if (lseek(r->memory, 0, SEEK_SET) < 0)
        return -errno;
    while (n > 0 && done < q->len) {
        n = sendfile(r->memory, q->file->fd, &off, q->len - done);
        done += n > 0 ? (size_t)n : 0;
    }
    return n < 0 ? -errno : from_memory(r, (ssize_t)done);
}

static ssize_t by_copy_file_range(struct reader *r, const struct range *q) {
    off_t off = q->off, to = 0;
    size_t done = 0;
    ssize_t n = 1;
    while (n > 0 && done < q->len) {
        n = copy_file_range(q->file->fd, &off, r->memory, &to, q->len - done, 0);
        done += n > 0 ? (size_t)n : 0;
    }
    if (n < 0 && (errno == EXDEV || errno == EOPNOTSUPP || errno == EINVAL || errno == ENOSYS))
        return REFUSED;
    return n < 0 ? -errno : from_memory(r, (ssize_t)done);
}

static ssize_t by_splice(struct reader *r, const struct range *q) {
    off_t off = q->off;
    size_t done = 0;
    for (ssize_t n = 1; n > 0 && done < q->len;) {
        n = splice(q->file->fd, &off, r->pipe[1], NULL, q->len - done, 0);
        if (n < 0)
            return -errno;
        for (ssize_t taken = 0, k; taken < n; taken += k, done += (size_t)k)
            if ((k = read(r->pipe[0], r->buf + done, (size_t)(n - taken))) <= 0)
                return k < 0 ? -errno : -EIO;
    }
    return (ssize_t)done;
}

static struct way {
    const char *name;
    ssize_t (*read)(struct reader *r, const struct range *q);
    atomic_long compared, refused;
} ways[] = {
    {"pread", by_pread, 0, 0},
    {"preadv", by_preadv, 0, 0},
    {"O_DIRECT", by_direct, 0, 0},
    {"mmap shared", by_shared_mapping, 0, 0},
    {"mmap private", by_private_mapping, 0, 0},
    {"sendfile", by_sendfile, 0, 0},
    {"splice", by_splice, 0, 0},
    {"copy_file_range", by_copy_file_range, 0, 0},
};
#define WAYS (sizeof ways / sizeof *ways)

/* --- comparing -------------------------------------------------------------------------------- */

static void compare(struct reader *r, struct way *w, const struct range *q, ssize_t n) {
    const size_t off = (size_t)q->off, size = q->file->size;
    const size_t want = off < size ? (size - off < q->len ? size - off : q->len) : 0;
    if (n == REFUSED) {
        atomic_fetch_add(&w->refused, 1);
        return;
    }
    size_t at = 0;
    while (n >= 0 && at < (size_t)n && at < want && r->buf[at] == q->file->expected[off + at])
        at++;
    if (n == (ssize_t)want && at == want)
        atomic_fetch_add(&w->compared, 1);
    else if (!atomic_exchange(&failed, true))
        printf("%s: %s of %zu bytes at %zu: %s, %zd of %zu bytes, byte %zu differs\n",
               q->file->path, w->name, q->len, off, n < 0 ? strerror((int)-n) : "read", n, want,
               off + at);
}

static bool is_over(long done) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const double passed =
        (double)(now.tv_sec - began.tv_sec) + (double)(now.tv_nsec - began.tv_nsec) / 1e9;
    return atomic_load(&failed) || (seconds > 0 ? passed >= seconds : done >= reads_each);
}

static void *read_on(void *arg) {
    struct reader *const r = arg;
    for (long done = 0; !is_over(done); done++) {
        const struct range q = choose(r);
        struct way *const w = &ways[below(r, WAYS)];
        if (below(r, 6) == 0)
            (void)posix_fadvise(q.file->fd, 0, 0, POSIX_FADV_DONTNEED);
        compare(r, w, &q, w->read(r, &q));
    }
    return NULL;
}

/* --- starting --------------------------------------------------------------------------------- */

static void must(bool holds, const char *what) {
    if (holds)
        return;
    fprintf(stderr, "random_reader: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void open_files(struct file *f, const char *path, const char *reference) {
    struct stat st;
    const int fd = open(reference, O_RDONLY | O_CLOEXEC);
    must(fd >= 0 && fstat(fd, &st) == 0, reference);
    f->path = path;
    f->size = (size_t)st.st_size;
    if (f->size > 0) {
        f->expected = mmap(NULL, f->size, PROT_READ, MAP_PRIVATE, fd, 0);
        must(f->expected != MAP_FAILED, reference);
    }
    close(fd);
    f->fd = open(path, O_RDONLY | O_CLOEXEC);
    f->direct = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    must(f->fd >= 0 && f->direct >= 0 && fstat(f->fd, &st) == 0, path);
    errno = 0;
    must((size_t)st.st_size == f->size, path);
}

static void start(struct reader *r, uint64_t seed) {
    r->random = seed;
    must(posix_memalign((void **)&r->buf, 4096, MOST) == 0, "memory");
    r->memory = memfd_create("random_reader", MFD_CLOEXEC);
    must(r->memory >= 0 && pipe(r->pipe) == 0, "a pipe");
    must(pthread_create(&r->thread, NULL, read_on, r) == 0, "a thread");
}

int main(int argc, char **argv) {
    if (argc < 7 || argc % 2 == 0) {
        fprintf(stderr, "usage: %s SEED THREADS SECONDS READS FILE REFERENCE...\n", argv[0]);
        return 2;
    }
    static struct reader readers[THREADS_MOST];
    const uint64_t seed = strtoull(argv[1], NULL, 10);
    const size_t n = strtoul(argv[2], NULL, 10);
    seconds = strtod(argv[3], NULL);
    reads_each = strtol(argv[4], NULL, 10);
    nfiles = (size_t)(argc - 5) / 2;
    files = calloc(nfiles, sizeof *files);
    must(files && n > 0 && n <= THREADS_MOST, "memory");
    for (size_t i = 0; i < nfiles; i++)
        open_files(&files[i], argv[5 + 2 * i], argv[6 + 2 * i]);
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (size_t i = 0; i < n; i++)
        start(&readers[i], seed + i * 1000003);
    for (size_t i = 0; i < n; i++)
        pthread_join(readers[i].thread, NULL);
    for (size_t i = 0; i < WAYS; i++)
        printf("%s%s %ld (%ld refused)", i ? ", " : "", ways[i].name,
               atomic_load(&ways[i].compared), atomic_load(&ways[i].refused));
    printf("\n");
    return atomic_load(&failed);
}
