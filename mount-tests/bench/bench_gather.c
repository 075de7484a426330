/*
 * How fast ranges of walks are gathered, beside memcpy in the same run. One thread, CPU time, the
 * median of several rounds in which all rows take turns; the output goes band by band into one
 * buffer, as the reader makes it.
 *
 *     bench_gather [ROUNDS]                 all rows, as a table
 *     bench_gather --json ROUNDS VIEW       one row, its seconds as JSON
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "adapters/band_shape.h"
#include "base/cpu.h"
#include "base/pages.h"

#define SOURCE_BYTES ((size_t)400 << 20)
#define BAND_LIMIT ((int64_t)8 << 20)
#define COPY_PIECE ((size_t)256 << 10)
#define ROUNDS_MOST 50

struct row {
    const char *name;
    enum ckpt_dtype from, to;
    uint32_t ndim;
    int64_t shape[5];
    uint32_t order[5];
};

#define T2 .order = {1, 0}
#define OIHW .order = {3, 2, 0, 1}
#define SAME(d) .from = CKPT_DT_##d, .to = CKPT_DT_##d
#define CAST(a, b) .from = CKPT_DT_##a, .to = CKPT_DT_##b

static const struct row rows[] = {
    {"[4096,11008] T f32", SAME(F32), 2, {4096, 11008}, T2},
    {"[4096,11008] T bf16", SAME(BF16), 2, {4096, 11008}, T2},
    {"[4096,11008] T bf16->f32", CAST(BF16, F32), 2, {4096, 11008}, T2},
    {"[4096,11008] T f16->f32", CAST(F16, F32), 2, {4096, 11008}, T2},
    {"[4096,11008] T f32->bf16", CAST(F32, BF16), 2, {4096, 11008}, T2},
    {"[4112,11008] T f32", SAME(F32), 2, {4112, 11008}, T2},
    {"[4112,11008] T bf16", SAME(BF16), 2, {4112, 11008}, T2},
    {"[4112,11008] T bf16->f32", CAST(BF16, F32), 2, {4112, 11008}, T2},
    {"[4112,11008] T u8", SAME(U8), 2, {4112, 11008}, T2},
    {"[4112,4112] T bf16", SAME(BF16), 2, {4112, 4112}, T2},
    {"[4096,4096] T f32", SAME(F32), 2, {4096, 4096}, T2},
    {"[4096,4096] T bf16", SAME(BF16), 2, {4096, 4096}, T2},
    {"[4096,4096] T u8", SAME(U8), 2, {4096, 4096}, T2},
    {"[4096,4096] T bf16->f32", CAST(BF16, F32), 2, {4096, 4096}, T2},
    {"[2048,2048] T f64", SAME(F64), 2, {2048, 2048}, T2},
    {"[2048,2048] T c128", SAME(C128), 2, {2048, 2048}, T2},
    {"[11008,4096] T f32", SAME(F32), 2, {11008, 4096}, T2},
    {"[32000,2048] T f32", SAME(F32), 2, {32000, 2048}, T2},
    {"[3072,768] T f32", SAME(F32), 2, {3072, 768}, T2},
    {"[14,14,3,1152] HWIO->OIHW f32", SAME(F32), 4, {14, 14, 3, 1152}, OIHW},
    {"[3,3,1024,256] HWIO->OIHW f32", SAME(F32), 4, {3, 3, 1024, 256}, OIHW},
    {"[5,1024,256] ->OIW f32", SAME(F32), 3, {5, 1024, 256}, .order = {2, 1, 0}},
    {"[256,3,3,1024] channels last f32", SAME(F32), 4, {256, 3, 3, 1024}, .order = {0, 3, 1, 2}},
    {"[8,2048,256] heads T f32", SAME(F32), 3, {8, 2048, 256}, .order = {0, 2, 1}},
    {"[8,4096,128] runs of 512 B f32", SAME(F32), 3, {8, 4096, 128}, .order = {1, 0, 2}},
    {"[8,4096,192] runs of 768 B f32", SAME(F32), 3, {8, 4096, 192}, .order = {1, 0, 2}},
    {"[8,2048,256] runs of 1 KiB f32", SAME(F32), 3, {8, 2048, 256}, .order = {1, 0, 2}},
    {"[8,2048,512] runs of 2 KiB f32", SAME(F32), 3, {8, 2048, 512}, .order = {1, 0, 2}},
    {"[8,2048,768] runs of 3 KiB f32", SAME(F32), 3, {8, 2048, 768}, .order = {1, 0, 2}},
    {"[8,2048,1024] runs of 4 KiB f32", SAME(F32), 3, {8, 2048, 1024}, .order = {1, 0, 2}},
    {"plain f16->f32", CAST(F16, F32), 1, {32 << 20}, .order = {0}},
    {"plain bf16->f32", CAST(BF16, F32), 1, {32 << 20}, .order = {0}},
    {"plain f32->f16", CAST(F32, F16), 1, {32 << 20}, .order = {0}},
    {"plain f32->bf16", CAST(F32, BF16), 1, {32 << 20}, .order = {0}},
    {"plain f64->f32", CAST(F64, F32), 1, {32 << 20}, .order = {0}},
    {"plain contiguous f32", SAME(F32), 1, {32 << 20}, .order = {0}},
};
#define ROWS (sizeof rows / sizeof *rows)

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct ckpt_walk *walk_of(struct ckpt_arena *a, const struct row *row) {
    struct ckpt_blob blob = {.size = SOURCE_BYTES, .name = "memory"};
    const struct ckpt_tensor t = {.key = CKPT_TEXT("bench"),
                                  .dtype = row->from,
                                  .ndim = row->ndim,
                                  .shape = row->shape,
                                  .blob = &blob};
    struct ckpt_view v;
    struct ckpt_err err = {0};
    if (ckpt_view_init(&v, &t, &err) < 0 || ckpt_view_permute(&v, row->order, row->ndim, &err) < 0)
        fprintf(stderr, "%s: %s\n", row->name, err.text);
    return ckpt_walk_pack(a, &v);
}

static double out_bytes(const struct row *row, const struct ckpt_walk *w) {
    const struct ckpt_element_map map = {.from = row->from, .to = row->to};
    return (double)w->count * ckpt_map_out_bytes(&map, w->esize);
}

/* GB of output a second. */
static double measure(const struct row *row, const struct ckpt_walk *w, const uint8_t *source,
                      uint8_t *band) {
    const struct ckpt_element_map map = {.from = row->from, .to = row->to};
    const struct ckpt_band_shape shape = ckpt_band_shape(w, &map, BAND_LIMIT);
    const double start = cpu_seconds();
    for (int64_t done = 0; done < w->count;) {
        const struct ckpt_band_range range = ckpt_band_at(&shape, done);
        ckpt_gather(w, &map, source, range.first, range.n, band);
        done += range.n;
    }
    return out_bytes(row, w) / (cpu_seconds() - start) * 1e-9;
}

static double measure_memcpy(const uint8_t *source, uint8_t *band) {
    const size_t bytes = (size_t)176 << 20;
    const double start = cpu_seconds();
    for (size_t at = 0; at < bytes; at += COPY_PIECE)
        memcpy(band + at % (4 << 20), source + at, COPY_PIECE);
    return (double)bytes / (cpu_seconds() - start) * 1e-9;
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, compare);
    return v[n / 2];
}

/* One row by its name: the median of its seconds. */
static int print_row(const char *view, int rounds, struct ckpt_arena *arena, const uint8_t *source,
                     uint8_t *band) {
    double speed[ROUNDS_MOST];
    for (size_t i = 0; i < ROWS; i++) {
        if (strcmp(rows[i].name, view) != 0)
            continue;
        const struct ckpt_walk *const walk = walk_of(arena, &rows[i]);
        for (int round = 0; round < rounds; round++)
            speed[round] = measure(&rows[i], walk, source, band);
        const double rate = median(speed, rounds);
        printf("{\"view\": \"%s\", \"seconds\": %.6f, \"gb_per_second\": %.3f, \"avx2\": %s}\n",
               view, out_bytes(&rows[i], walk) / rate * 1e-9, rate,
               ckpt_cpu()->avx2 ? "true" : "false");
        return 0;
    }
    fprintf(stderr, "no view is called %s\n", view);
    return 1;
}

static int print_table(int rounds, struct ckpt_arena *arena, const uint8_t *source, uint8_t *band) {
    static double speed[ROWS + 1][ROUNDS_MOST];
    const struct ckpt_walk *walk[ROWS];
    for (size_t i = 0; i < ROWS; i++)
        walk[i] = walk_of(arena, &rows[i]);
    for (int round = 0; round < rounds; round++) {
        speed[ROWS][round] = measure_memcpy(source, band);
        for (size_t i = 0; i < ROWS; i++)
            speed[i][round] = measure(&rows[i], walk[i], source, band);
    }
    const double copy = median(speed[ROWS], rounds);
    printf("%-36s %8s %8s   (%s, %d rounds)\n", "view", "GB/s", "ratio",
           ckpt_cpu()->avx2 ? "avx2" : "portable", rounds);
    printf("%-36s %8.2f %8.2f\n", "memcpy", copy, 1.0);
    for (size_t i = 0; i < ROWS; i++) {
        const double v = median(speed[i], rounds);
        printf("%-36s %8.2f %8.2f\n", rows[i].name, v, v / copy);
    }
    return 0;
}

static int between(int low, int value, int high) {
    return value < low ? low : value > high ? high : value;
}

int main(int argc, char **argv) {
    const bool json = argc == 4 && strcmp(argv[1], "--json") == 0;
    const int rounds = between(1, argc > 1 ? atoi(argv[json ? 2 : 1]) : 7, ROUNDS_MOST);
    struct ckpt_arena arena = {0};
    uint8_t *const source = aligned_alloc(4096, SOURCE_BYTES);
    uint8_t *const band = ckpt_pages_new((uint64_t)BAND_LIMIT, true); /* as the reader has it */
    if (!source || !band)
        return 1;
    memset(source, 1, SOURCE_BYTES);
    memset(band, 1, (size_t)BAND_LIMIT);
    const int failed = json ? print_row(argv[3], rounds, &arena, source, band)
                            : print_table(rounds, &arena, source, band);
    ckpt_arena_fini(&arena);
    free(source);
    ckpt_pages_free(band, (uint64_t)BAND_LIMIT);
    return failed;
}
