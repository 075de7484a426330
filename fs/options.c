/*
 * The options of -o. We split ourselves, since fuse_opt eats backslashes that regular expressions
 * need. One row of the table is one option: its name, whether it takes a value, the function that
 * stores it and where.
 */
#include "fs/options.h"

#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <math.h>
#include <pwd.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "formats/decoded_cache.h"
#include "fs/option_map.h"

enum value_rule { NO_VALUE, VALUE, EMPTY_VALUE /* an empty one, too */, MAYBE_VALUE };

struct choice {
    const char *name;
    int value;
};

struct row {
    const char *name;
    enum value_rule rule;
    int (*set)(struct ckpt_options *o, const struct row *row, const char *value,
               struct ckpt_err *err);
    size_t at; /* offset of the field in struct ckpt_options */
    const struct choice *choices;
};

static void *field(struct ckpt_options *o, const struct row *row) {
    return (char *)o + row->at;
}

static int set_nothing(struct ckpt_options *o, const struct row *row, const char *value,
                       struct ckpt_err *err) {
    (void)o, (void)row, (void)value, (void)err;
    return 0;
}

static int set_flag(struct ckpt_options *o, const struct row *row, const char *value,
                    struct ckpt_err *err) {
    (void)value, (void)err;
    *(bool *)field(o, row) = true;
    return 0;
}

static int set_text(struct ckpt_options *o, const struct row *row, const char *value,
                    struct ckpt_err *err) {
    const char *copy = ckpt_arena_copy(&o->arena, value, strlen(value));
    if (!copy)
        return ckpt_fail_memory(err, "reading options");
    *(const char **)field(o, row) = copy;
    return 0;
}

/* A file to be read later, from wherever the daemon is then: must be there now. */
static int set_file(struct ckpt_options *o, const struct row *row, const char *value,
                    struct ckpt_err *err) {
    const char *path = ckpt_options_absolute(&o->arena, value);
    if (!path)
        return ckpt_fail_memory(err, "reading options");
    if (access(path, R_OK) != 0)
        return ckpt_fail(err, -EINVAL, "option %s: cannot read %s: %s", row->name, value,
                         strerror(errno));
    *(const char **)field(o, row) = path;
    return 0;
}

static int set_choice(struct ckpt_options *o, const struct row *row, const char *value,
                      struct ckpt_err *err) {
    for (const struct choice *c = row->choices; c->name; c++) {
        if (strcmp(c->name, value) != 0)
            continue;
        *(int *)field(o, row) = c->value;
        return 0;
    }
    CKPT_AUTO(str) struct ckpt_str names = {0};
    for (const struct choice *c = row->choices; c->name; c++)
        ckpt_str_printf(&names, "%s%s", c == row->choices ? "" : ", ", c->name);
    return ckpt_fail(err, -EINVAL, "option %s: %s is none of %s", row->name, value,
                     ckpt_str_text(&names).s);
}

static int set_bool_choice(struct ckpt_options *o, const struct row *row, const char *value,
                           struct ckpt_err *err) {
    for (const struct choice *c = row->choices; c->name; c++) {
        if (strcmp(c->name, value) != 0)
            continue;
        *(bool *)field(o, row) = c->value != 0;
        return 0;
    }
    return ckpt_fail(err, -EINVAL, "option %s: %s is none of %s, %s", row->name, value,
                     row->choices[0].name, row->choices[1].name);
}

static int set_size(struct ckpt_options *o, const struct row *row, const char *value,
                    struct ckpt_err *err) {
    if (!ckpt_options_size(value, field(o, row)))
        return ckpt_fail(err, -EINVAL, "option %s: %s is no size: expected bytes such as 256M",
                         row->name, value);
    return 0;
}

static int set_threads(struct ckpt_options *o, const struct row *row, const char *value,
                       struct ckpt_err *err) {
    char *end;
    errno = 0;
    const long n = strtol(value, &end, 10);
    if (errno || *end || end == value || n < 1 || n > 1024)
        return ckpt_fail(err, -EINVAL, "option %s: %s is no number from 1 to 1024", row->name,
                         value);
    *(unsigned *)field(o, row) = (unsigned)n;
    return 0;
}

static int set_tolerance(struct ckpt_options *o, const struct row *row, const char *value,
                         struct ckpt_err *err) {
    char *end;
    const double v = strtod(value, &end);
    if (*end || end == value || !isfinite(v) || v < 0)
        return ckpt_fail(err, -EINVAL, "option %s: %s is no tolerance: expected a number >= 0",
                         row->name, value);
    *(double *)field(o, row) = v;
    o->verify.tolerance_given = true;
    return 0;
}

static bool parse_id(const char *value, unsigned *id) {
    char *end;
    errno = 0;
    const unsigned long v = strtoul(value, &end, 10);
    *id = (unsigned)v;
    return isdigit((unsigned char)value[0]) && !*end && !errno && v < UINT32_MAX;
}

static int set_uid(struct ckpt_options *o, const struct row *row, const char *value,
                   struct ckpt_err *err) {
    const struct passwd *user = getpwnam(value);
    unsigned id = user ? user->pw_uid : 0;
    if (!user && !parse_id(value, &id))
        return ckpt_fail(err, -EINVAL, "option %s: there is no user %s", row->name, value);
    *(uid_t *)field(o, row) = id;
    return 0;
}

static int set_gid(struct ckpt_options *o, const struct row *row, const char *value,
                   struct ckpt_err *err) {
    const struct group *group = getgrnam(value);
    unsigned id = group ? group->gr_gid : 0;
    if (!group && !parse_id(value, &id))
        return ckpt_fail(err, -EINVAL, "option %s: there is no group %s", row->name, value);
    *(gid_t *)field(o, row) = id;
    return 0;
}

static int set_umask(struct ckpt_options *o, const struct row *row, const char *value,
                     struct ckpt_err *err) {
    char *end;
    const long v = strtol(value, &end, 8);
    if (*end || end == value || v < 0 || v > 0777)
        return ckpt_fail(err, -EINVAL, "option %s: %s is no octal mask such as 022", row->name,
                         value);
    *(mode_t *)field(o, row) = (mode_t)v;
    return 0;
}

static int set_list(struct ckpt_options *o, const struct row *row, const char *value,
                    struct ckpt_err *err) {
    struct ckpt_option_list *list = field(o, row);
    if (list->n == list->cap) {
        const size_t cap = list->cap ? 2 * list->cap : 4;
        const char **item = ckpt_arena_array(&o->arena, cap, sizeof *item);
        if (!item)
            return ckpt_fail_memory(err, "reading options");
        if (list->n)
            memcpy(item, list->item, list->n * sizeof *item);
        list->item = item;
        list->cap = cap;
    }
    const char *copy = ckpt_arena_copy(&o->arena, value, strlen(value));
    if (!copy)
        return ckpt_fail_memory(err, "reading options");
    list->item[list->n++] = copy;
    return 0;
}

static int set_mapping(struct ckpt_options *o, const struct row *row, const char *value,
                       struct ckpt_err *err) {
    return ckpt_option_map_add(&o->arena, field(o, row), row->name, value, err);
}

static int set_map_file(struct ckpt_options *o, const struct row *row, const char *value,
                        struct ckpt_err *err) {
    return ckpt_option_map_read(&o->arena, field(o, row), value, err);
}

static int set_dialect(struct ckpt_options *o, const struct row *row, const char *value,
                       struct ckpt_err *err) {
    const int rc = ckpt_dialect_check(value, err);
    if (rc == 0 && strcmp(value, "auto") != 0)
        return set_text(o, row, value, err);
    *(const char **)field(o, row) = NULL;
    return rc;
}

static int set_cast(struct ckpt_options *o, const struct row *row, const char *value,
                    struct ckpt_err *err) {
    o->adapt.cast_keep = strcmp(value, "keep") == 0;
    return set_choice(o, row, value, err);
}

static int set_remount(struct ckpt_options *o, const struct row *row, const char *value,
                       struct ckpt_err *err) {
    (void)o, (void)value;
    return ckpt_fail(err, -EINVAL,
                     "option %s: a mounted checkpoint never changes: unmount it first", row->name);
}

static const struct choice layouts[] = {{"burn", CKPT_LAYOUT_BURN},
                                        {"torch", CKPT_LAYOUT_TORCH},
                                        {"source", CKPT_LAYOUT_SOURCE},
                                        {NULL, 0}};
static const struct choice tristates[] = {
    {"auto", CKPT_AUTO_}, {"on", CKPT_ON}, {"off", CKPT_OFF}, {NULL, 0}};
static const struct choice casts[] = {{"auto", CKPT_DT_NONE},
                                      {"keep", CKPT_DT_NONE}, /* set_cast tells it from auto */
                                      {"f32", CKPT_DT_F32},
                                      {"f16", CKPT_DT_F16},
                                      {"bf16", CKPT_DT_BF16},
                                      {"f64", CKPT_DT_F64},
                                      {NULL, 0}};
static const struct choice loras[] = {{"merge", 0}, {"refuse", 1}, {NULL, 0}};
static const struct choice devices[] = {{"cpu", 0}, {NULL, 0}};
static const struct choice prefixes[] = {{"strip", 0}, {"keep", 1}, {NULL, 0}};
static const struct choice module_sets[] = {{"nn", 0}, {"store", 1}, {NULL, 0}};
static const struct choice listings[] = {{"all", 1}, {"tree", 0}, {NULL, 0}};

#define AT(member) offsetof(struct ckpt_options, member)
#define IGNORED(name)                                                                              \
    { name, MAYBE_VALUE, set_nothing, 0, NULL }

static const struct row rows[] = {
    {"layout", VALUE, set_choice, AT(adapt.layout), layouts},
    {"dialect", VALUE, set_dialect, AT(adapt.dialect), NULL},
    {"root", EMPTY_VALUE, set_text, AT(adapt.root), NULL},
    {"prefix", VALUE, set_bool_choice, AT(adapt.prefix_keep), prefixes},
    {"map", VALUE, set_mapping, AT(map), NULL},
    {"map_file", VALUE, set_map_file, AT(map), NULL},
    {"kind", VALUE, set_mapping, AT(kind), NULL},
    {"contiguous", VALUE, set_choice, AT(adapt.contiguous), tristates},
    {"contiguous_except", VALUE, set_text, AT(adapt.contiguous_except), NULL},
    {"cast", VALUE, set_cast, AT(adapt.cast), casts},
    {"modules", VALUE, set_bool_choice, AT(adapt.modules_store), module_sets},
    {"include", VALUE, set_list, AT(include), NULL},
    {"exclude", VALUE, set_list, AT(exclude), NULL},
    {"rules", VALUE, set_file, AT(adapt.rules), NULL},
    {"expect", VALUE, set_file, AT(adapt.expect), NULL},
    {"strict", NO_VALUE, set_flag, AT(adapt.strict), NULL},
    {"keep_going", NO_VALUE, set_flag, AT(open.keep_going), NULL},
    {"graph", VALUE, set_file, AT(verify.graph), NULL},
    {"reference", VALUE, set_file, AT(verify.reference), NULL},
    {"chain", VALUE, set_text, AT(verify.chain), NULL},
    {"atol", VALUE, set_tolerance, AT(verify.atol), NULL},
    {"rtol", VALUE, set_tolerance, AT(verify.rtol), NULL},
    {"verify_memory", VALUE, set_size, AT(verify.memory), NULL},
    {"device", VALUE, set_choice, AT(device), devices},
    {"cache", VALUE, set_size, AT(cache), NULL},
    {"threads", VALUE, set_threads, AT(threads), NULL},
    {"nomt", NO_VALUE, set_flag, AT(single_thread), NULL},
    {"direct_io", NO_VALUE, set_flag, AT(direct_io), NULL},
    {"list", VALUE, set_bool_choice, AT(list_all), listings},
    {"lora", VALUE, set_bool_choice, AT(adapt.lora_refuse), loras},
    {"passthrough", NO_VALUE, set_flag, AT(passthrough), NULL},
    /* as other FUSE filesystems: */
    {"allow_other", NO_VALUE, set_flag, AT(allow_other), NULL},
    {"allow_root", NO_VALUE, set_flag, AT(allow_root), NULL},
    {"auto_unmount", NO_VALUE, set_flag, AT(auto_unmount), NULL},
    {"fsname", VALUE, set_text, AT(fsname), NULL},
    {"fg", NO_VALUE, set_flag, AT(foreground), NULL},
    {"uid", VALUE, set_uid, AT(uid), NULL},
    {"gid", VALUE, set_gid, AT(gid), NULL},
    {"umask", VALUE, set_umask, AT(umask), NULL},
    IGNORED("default_permissions"),
    IGNORED("subtype"),
    IGNORED("kernel_cache"),
    IGNORED("nonempty"),
    /* mount(8)'s own and those of /etc/fstab; the mount is read-only, nosuid, nodev anyway: */
    {"remount", NO_VALUE, set_remount, 0, NULL},
    {"nofail", MAYBE_VALUE, set_flag, AT(nofail), NULL},
    IGNORED("ro"),
    IGNORED("rw"),
    IGNORED("defaults"),
    IGNORED("auto"),
    IGNORED("noauto"),
    IGNORED("user"),
    IGNORED("nouser"),
    IGNORED("users"),
    IGNORED("owner"),
    IGNORED("group"),
    IGNORED("_netdev"),
    IGNORED("comment"),
    IGNORED("suid"),
    IGNORED("nosuid"),
    IGNORED("dev"),
    IGNORED("nodev"),
    IGNORED("exec"),
    IGNORED("noexec"),
    IGNORED("async"),
    IGNORED("sync"),
    IGNORED("dirsync"),
    IGNORED("atime"),
    IGNORED("noatime"),
    IGNORED("diratime"),
    IGNORED("nodiratime"),
    IGNORED("relatime"),
    IGNORED("norelatime"),
    IGNORED("strictatime"),
    IGNORED("nostrictatime"),
    IGNORED("lazytime"),
    IGNORED("nolazytime"),
    IGNORED("iversion"),
    IGNORED("noiversion"),
    IGNORED("silent"),
    IGNORED("loud"),
};

#define NROWS (sizeof rows / sizeof rows[0])

static const struct row *find_row(const char *name) {
    for (size_t i = 0; i < NROWS; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

static int fail_unknown(const char *name, struct ckpt_err *err) {
    struct ckpt_text names[NROWS];
    size_t n = 0;
    for (size_t i = 0; i < NROWS; i++)
        if (rows[i].set != set_nothing) /* no use to anybody */
            names[n++] = ckpt_text_of(rows[i].name);
    const int near = ckpt_text_nearest(ckpt_text_of(name), names, n);
    if (near < 0)
        return ckpt_fail(err, -EINVAL, "unknown option %s: mount.ckpt --help lists them", name);
    return ckpt_fail(err, -EINVAL, "unknown option %s: did you mean %s?", name, names[near].s);
}

/* One option, NUL-terminated and without its escapes. */
static int parse_option(struct ckpt_options *o, char *option, bool sloppy, struct ckpt_err *err) {
    if (strncmp(option, "x-", 2) == 0 || strncmp(option, "X-", 2) == 0)
        return 0; /* userspace's own */
    char *value = strchr(option, '=');
    if (value)
        *value++ = '\0';
    const struct row *row = find_row(option);
    if (!row)
        return sloppy ? 0 : fail_unknown(option, err);
    if ((row->rule == VALUE && (!value || !*value)) || (row->rule == EMPTY_VALUE && !value))
        return ckpt_fail(err, -EINVAL, "option %s needs a value: %s=...", option, option);
    if (row->rule == NO_VALUE && value)
        return ckpt_fail(err, -EINVAL, "option %s takes no value, %s was given", option, value);
    return row->set(o, row, value, err);
}

int ckpt_options_parse(struct ckpt_options *o, const char *list, bool sloppy,
                       struct ckpt_err *err) {
    CKPT_AUTO(free) char *option = malloc(strlen(list) + 1);
    if (!option)
        return ckpt_fail_memory(err, "reading options");
    for (const char *p = list; *p;) {
        size_t n = 0;
        for (; *p && *p != ','; p++) {
            if (p[0] == '\\' && (p[1] == ',' || p[1] == '\\'))
                p++;
            option[n++] = *p;
        }
        option[n] = '\0';
        p += *p == ',';
        const int rc = n ? parse_option(o, option, sloppy, err) : 0;
        if (rc < 0)
            return rc;
    }
    return 0;
}

void ckpt_options_init(struct ckpt_options *o) {
    *o = (struct ckpt_options){.cache = CKPT_DECODED_DEFAULT, .uid = getuid(), .gid = getgid()};
    o->verify.atol = CKPT_ATOL;
    o->verify.rtol = CKPT_RTOL;
}

int ckpt_options_finish(struct ckpt_options *o, struct ckpt_err *err) {
    o->adapt.map = o->map.item;
    o->adapt.nmap = o->map.n;
    o->adapt.kind = o->kind.item;
    o->adapt.nkind = o->kind.n;
    o->adapt.include = o->include.item;
    o->adapt.ninclude = o->include.n;
    o->adapt.exclude = o->exclude.item;
    o->adapt.nexclude = o->exclude.n;
    return ckpt_option_patterns_check(&o->adapt, err);
}

void ckpt_options_fini(struct ckpt_options *o) {
    ckpt_arena_fini(&o->arena);
}

bool ckpt_options_size(const char *text, uint64_t *out) {
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    const unsigned long long v = strtoull(text, &end, 10);
    if (errno || end == text || !isdigit((unsigned char)text[0]))
        return false;
    const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    const unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    if ((*end && !unit) || (unit && end[1]) || v > UINT64_MAX >> shift)
        return false;
    *out = (uint64_t)v << shift;
    return true;
}

const char *ckpt_options_absolute(struct ckpt_arena *a, const char *path) {
    if (path[0] == '/')
        return ckpt_arena_copy(a, path, strlen(path));
    CKPT_AUTO(free) char *cwd = getcwd(NULL, 0);
    return cwd ? ckpt_arena_printf(a, "%s/%s", cwd, path) : NULL;
}
