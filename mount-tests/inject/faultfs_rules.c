/* A list of rules under one lock: a test has few of them. */
#include "faultfs_rules.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RULES_MAX 64

enum action { FAIL, SHORT, HANG };

struct rule {
    char *path; /* NULL: the slot is free */
    enum fault_call call;
    enum action action;
    int error;
    off_t from, to;
    unsigned waiting;
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* guarded by mu: */
static struct rule rules[RULES_MAX];
static unsigned turn; /* counts what was cleared: a slot may be taken again meanwhile */

/* --- words ------------------------------------------------------------------------------------ */

struct word {
    const char *name;
    int value;
};

static const struct word calls[] = {
    {"read", FAULT_READ},
    {"write", FAULT_WRITE},
    {"open", FAULT_OPEN},
    {"stat", FAULT_STAT},
    {"sync", FAULT_SYNC},
    {"rename", FAULT_RENAME},
    {NULL, 0},
};
static const struct word errors[] = {
    {"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EACCES", EACCES}, {"ESTALE", ESTALE},
    {"ENOENT", ENOENT}, {"EDQUOT", EDQUOT}, {"ENOMEM", ENOMEM}, {NULL, 0},
};

static bool find(const struct word *words, const char *name, int *value) {
    for (; words->name; words++)
        if (strcmp(words->name, name) == 0) {
            *value = words->value;
            return true;
        }
    return false;
}

static bool parse_action(struct rule *r, const char *name) {
    if (strcmp(name, "short") == 0)
        r->action = SHORT;
    else if (strcmp(name, "hang") == 0)
        r->action = HANG;
    else
        return find(errors, name, &r->error);
    return true;
}

/* Without a length a rule holds to the end, without an offset everywhere. */
static bool parse(struct rule *r, const char *line) {
    char call[16], action[16];
    long long from = 0, length = INT64_MAX;
    const int n = sscanf(line, "%15s %15s %lld %lld", call, action, &from, &length);
    int which = 0;
    if (n < 2 || from < 0 || length < 1 || !find(calls, call, &which) || !parse_action(r, action))
        return false;
    r->call = (enum fault_call)which;
    r->from = from;
    r->to = length > INT64_MAX - from ? INT64_MAX : from + length;
    return true;
}

/* --- adding and removing ---------------------------------------------------------------------- */

static int add(const char *path, const char *line) {
    struct rule r = {0};
    if (!parse(&r, line))
        return -EINVAL;
    r.path = strdup(path);
    if (!r.path)
        return -ENOMEM;
    int rc = -ENOSPC;
    pthread_mutex_lock(&mu);
    for (size_t i = 0; rc && i < RULES_MAX; i++)
        if (!rules[i].path) {
            rules[i] = r;
            rc = 0;
        }
    pthread_mutex_unlock(&mu);
    if (rc)
        free(r.path);
    return rc;
}

int fault_add(const char *path, const char *text, size_t n) {
    char *const copy = strndup(text, n);
    char *rest = copy, *line;
    int rc = copy ? 0 : -ENOMEM;
    while (rc == 0 && (line = strsep(&rest, "\n")))
        rc = *line ? add(path, line) : 0;
    free(copy);
    return rc;
}

void fault_clear(const char *path) {
    pthread_mutex_lock(&mu);
    for (size_t i = 0; i < RULES_MAX; i++)
        if (rules[i].path && strcmp(rules[i].path, path) == 0) {
            free(rules[i].path);
            rules[i] = (struct rule){0};
        }
    turn++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mu);
}

unsigned fault_waiting(const char *path) {
    unsigned n = 0;
    pthread_mutex_lock(&mu);
    for (size_t i = 0; i < RULES_MAX; i++)
        if (rules[i].path && strcmp(rules[i].path, path) == 0)
            n += rules[i].waiting;
    pthread_mutex_unlock(&mu);
    return n;
}

/* --- meeting them ----------------------------------------------------------------------------- */

/* What holds for a folder holds for all in it. */
static bool is_below(const char *path, const char *of) {
    const size_t n = strlen(of) > 1 ? strlen(of) : 0;
    return strncmp(path, of, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static bool concerns(const struct rule *r, const char *path, enum fault_call call, off_t off,
                     size_t n) {
    return r->path && r->call == call && is_below(path, r->path) && off < r->to &&
           (n == 0 || off + (off_t)n > r->from);
}

static void hang(struct rule *r) {
    const unsigned began = turn;
    r->waiting++;
    while (turn == began)
        pthread_cond_wait(&changed, &mu);
}

static int meet(struct rule *r, off_t off, size_t *n) {
    if (r->action == FAIL)
        return -r->error;
    if (r->action == SHORT)
        *n = off < r->from ? (size_t)(r->from - off) : 0;
    else
        hang(r);
    return 0;
}

int fault_meet(const char *path, enum fault_call call, off_t off, size_t *n) {
    int rc = 0;
    pthread_mutex_lock(&mu);
    for (size_t i = 0; rc == 0 && i < RULES_MAX; i++)
        if (concerns(&rules[i], path, call, off, *n))
            rc = meet(&rules[i], off, n);
    pthread_mutex_unlock(&mu);
    return rc;
}
