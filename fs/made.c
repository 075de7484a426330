/* Texts that are written when they are read. One lock a text guards all of it. */
#include "fs/made.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/cleanup.h"

struct ckpt_made {
    struct ckpt_made *next;
    ckpt_made_write *write;
    const void *arg;
    pthread_mutex_t mu;
    bool is_measured; /* from here on guarded by mu */
    uint64_t size;
    unsigned holders;
    struct ckpt_str text; /* while it is held and has been read */
};

int ckpt_made_new(struct ckpt_made **list, ckpt_made_write *write, const void *arg,
                  struct ckpt_err *err) {
    struct ckpt_made *m = calloc(1, sizeof *m);
    if (!m)
        return ckpt_fail_memory(err, "building the tree");
    m->write = write;
    m->arg = arg;
    m->next = *list;
    pthread_mutex_init(&m->mu, NULL);
    *list = m;
    return 0;
}

void ckpt_made_free_list(struct ckpt_made *list) {
    while (list) {
        struct ckpt_made *next = list->next;
        ckpt_str_fini(&list->text);
        pthread_mutex_destroy(&list->mu);
        free(list);
        list = next;
    }
}

/* With the lock held, as the two below. */
static int write_text(struct ckpt_made *m, struct ckpt_str *out, struct ckpt_err *err) {
    const int rc = m->write(m->arg, out, err);
    return rc == 0 && out->failed ? ckpt_fail_memory(err, "writing a text") : rc;
}

static int measure(struct ckpt_made *m, struct ckpt_err *err) {
    if (m->is_measured)
        return 0;
    CKPT_AUTO(str) struct ckpt_str out = {.sink = ckpt_str_forget};
    const int rc = write_text(m, &out, err);
    if (rc < 0)
        return rc;
    m->size = ckpt_str_total(&out);
    m->is_measured = true;
    return 0;
}

static int make(struct ckpt_made *m, struct ckpt_err *err) {
    if (m->text.s)
        return 0;
    int rc = write_text(m, &m->text, err);
    if (rc == 0 && m->is_measured && m->text.n != m->size)
        rc = ckpt_fail(err, -EIO, "a text of %llu bytes came out with %zu",
                       (unsigned long long)m->size, m->text.n);
    if (rc < 0)
        ckpt_str_fini(&m->text);
    return rc;
}

int ckpt_made_size(struct ckpt_made *m, uint64_t *size, struct ckpt_err *err) {
    pthread_mutex_lock(&m->mu);
    const int rc = measure(m, err);
    *size = m->size;
    pthread_mutex_unlock(&m->mu);
    return rc;
}

void ckpt_made_hold(struct ckpt_made *m) {
    pthread_mutex_lock(&m->mu);
    m->holders++;
    pthread_mutex_unlock(&m->mu);
}

void ckpt_made_release(struct ckpt_made *m) {
    pthread_mutex_lock(&m->mu);
    if (--m->holders == 0)
        ckpt_str_fini(&m->text);
    pthread_mutex_unlock(&m->mu);
}

bool ckpt_made_is_there(struct ckpt_made *m) {
    if (pthread_mutex_trylock(&m->mu) != 0)
        return false; /* somebody may be writing it */
    const bool is_there = m->text.s;
    pthread_mutex_unlock(&m->mu);
    return is_there;
}

int ckpt_made_text(struct ckpt_made *m, const char **text, struct ckpt_err *err) {
    pthread_mutex_lock(&m->mu);
    const int rc = make(m, err);
    *text = m->text.s;
    pthread_mutex_unlock(&m->mu);
    return rc;
}
