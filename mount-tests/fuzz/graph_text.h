#ifndef CKPT_FUZZ_GRAPH_TEXT_H
#define CKPT_FUZZ_GRAPH_TEXT_H
/* A graph's JSON as text that is changed: random places in it, and what is put there. */
#include <stdint.h>
#include <string.h>

#include "base/text.h"

struct mutation {
    uint64_t state;
    struct ckpt_text text; /* of the document */
    struct ckpt_str out;
};

/* 0 .. n-1 */
static size_t pick(struct mutation *m, size_t n) {
    m->state = m->state * 6364136223846793005u + 1442695040888963407u;
    return n ? (size_t)(m->state >> 33) % n : 0;
}

/* ---- finding places ---- */

/* The k-th place of word, counted round; SIZE_MAX: there is none. */
static size_t find_word(struct mutation *m, const char *word, size_t from) {
    const size_t n = strlen(word);
    size_t count = 0;
    for (int pass = 0; pass < 2; pass++) {
        size_t k = pass ? pick(m, count) : SIZE_MAX;
        for (size_t i = from; i + n <= m->text.n; i++)
            if (memcmp(m->text.s + i, word, n) == 0) {
                count++;
                if (k-- == 0)
                    return i;
            }
        if (count == 0)
            return SIZE_MAX;
    }
    return SIZE_MAX;
}

static bool is_number(char c) {
    return (c >= '0' && c <= '9') || c == '-' || c == '.' || c == 'e' || c == '+';
}

/* The text with [at, at + n) replaced. */
static void replace(struct mutation *m, size_t at, size_t n, const char *with, size_t length) {
    m->out.n = 0;
    ckpt_str_add(&m->out, m->text.s, at);
    ckpt_str_add(&m->out, with, length);
    ckpt_str_add(&m->out, m->text.s + at + n, m->text.n - at - n);
}

/* ---- what is put in ---- */

static const char *odd_number(struct mutation *m) {
    static const char *const numbers[] = {"0",
                                          "1",
                                          "-1",
                                          "2",
                                          "3",
                                          "-2",
                                          "5",
                                          "7",
                                          "17",
                                          "1000",
                                          "65536",
                                          "2147483647",
                                          "4294967296",
                                          "1099511627776",
                                          "9223372036854775807",
                                          "-9223372036854775808",
                                          "0.5",
                                          "1e300"};
    return numbers[pick(m, pick(m, 3) ? 7 : sizeof(numbers) / sizeof(numbers[0]))];
}

static bool string_at(const struct mutation *m, size_t at, struct ckpt_text *out) {
    const char *const end = memchr(m->text.s + at, '"', m->text.n - at);
    if (end)
        *out = (struct ckpt_text){m->text.s + at, (size_t)(end - (m->text.s + at))};
    return end != NULL;
}

#endif
