/*
 * How long libzip alone takes to read an archive's directory and to look at every entry: seconds on
 * stdout. What mounting a .pt can't do without.
 *
 *     bench_index ARCHIVE
 */
#include <stdio.h>
#include <time.h>
#include <zip.h>

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    const double start = seconds();
    int code = 0;
    zip_t *const archive = zip_open(argv[1], ZIP_RDONLY, &code);
    if (!archive) {
        fprintf(stderr, "%s: libzip's error %d\n", argv[1], code);
        return 1;
    }
    const zip_int64_t n = zip_get_num_entries(archive, 0);
    for (zip_int64_t i = 0; i < n; i++) {
        zip_stat_t entry;
        if (zip_stat_index(archive, (zip_uint64_t)i, 0, &entry) < 0)
            return 1;
    }
    printf("%.6f\n", seconds() - start);
    zip_discard(archive);
    return 0;
}
