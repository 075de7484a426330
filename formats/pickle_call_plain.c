#include "formats/pickle_vm.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"

/*
 * Calls that make something which is best shown as text: dates (ISO 8601), paths, devices. Python
 * pickles a date as the bytes of its fields, so without this it would be ten numbers.
 */

static int make_text(struct pickle_vm *vm, const char *s, struct ckpt_value **out) {
    return s ? pickle_make_str(vm, ckpt_text_of(s), out) : pickle_fail_memory(vm);
}

/* The n bytes in the first argument, or NULL. */
static const unsigned char *field_bytes(const struct ckpt_value *args, size_t n) {
    const struct ckpt_value *v = pickle_arg_at(args, 0);
    return pickle_is(v, CKPT_VALUE_BYTES) && v->text.n == n ? (const unsigned char *)v->text.s
                                                            : NULL;
}

/* datetime.date(4 bytes): year, year, month, day */
static int call_date(struct pickle_vm *vm, const struct ckpt_value *args, struct ckpt_value **out) {
    const unsigned char *b = field_bytes(args, 4);
    if (!b)
        return 0;
    return make_text(
        vm, ckpt_arena_printf(vm->arena, "%04d-%02d-%02d", b[0] << 8 | b[1], b[2], b[3]), out);
}

/* "13:30:00", with the microseconds only if there are any, and the zone that was given. */
static const char *clock_text(struct pickle_vm *vm, const unsigned char *b,
                              const struct ckpt_value *zone) {
    const int us = b[3] << 16 | b[4] << 8 | b[5];
    char fraction[16] = "";
    if (us)
        snprintf(fraction, sizeof fraction, ".%06d", us);
    return ckpt_arena_printf(vm->arena, "%02d:%02d:%02d%s%s", b[0] & 0x7f, b[1], b[2], fraction,
                             pickle_is(zone, CKPT_VALUE_STR) ? zone->text.s : "");
}

/* datetime.time(6 bytes[, zone]) */
static int call_time(struct pickle_vm *vm, const struct ckpt_value *args, struct ckpt_value **out) {
    const unsigned char *b = field_bytes(args, 6);
    return b ? make_text(vm, clock_text(vm, b, pickle_arg_at(args, 1)), out) : 0;
}

/* datetime.datetime(10 bytes[, zone]). The month's high bit tells the second of two equal hours. */
static int call_datetime(struct pickle_vm *vm, const struct ckpt_value *args,
                         struct ckpt_value **out) {
    const unsigned char *b = field_bytes(args, 10);
    if (!b)
        return 0;
    const char *clock = clock_text(vm, b + 4, pickle_arg_at(args, 1));
    if (!clock)
        return pickle_fail_memory(vm);
    return make_text(vm,
                     ckpt_arena_printf(vm->arena, "%04d-%02d-%02dT%s", b[0] << 8 | b[1],
                                       b[2] & 0x7f, b[3], clock),
                     out);
}

#define DAYS_MAX 999999999 /* Python's */
#define DAY_SECONDS 86400
#define SECOND_MICROS 1000000

static bool int_arg(const struct ckpt_value *args, size_t i, int64_t max, int64_t *out) {
    const struct ckpt_value *v = pickle_arg_at(args, i);
    *out = pickle_is(v, CKPT_VALUE_INT) ? v->i : 0;
    return *out <= max && *out >= -max && (!v || v->kind == CKPT_VALUE_INT);
}

/* datetime.timedelta(days, seconds, microseconds): "PT7200S", "-PT0.5S" */
static int call_timedelta(struct pickle_vm *vm, const struct ckpt_value *args,
                          struct ckpt_value **out) {
    int64_t days, seconds, micros;
    if (!int_arg(args, 0, DAYS_MAX, &days) || !int_arg(args, 1, DAY_SECONDS, &seconds) ||
        !int_arg(args, 2, SECOND_MICROS, &micros) || seconds < 0 || micros < 0)
        return 0;
    seconds += days * DAY_SECONDS;
    const bool negative = seconds < 0;
    if (negative && micros) { /* -1 s + 0.25 s is -0.75 s */
        seconds++;
        micros = SECOND_MICROS - micros;
    }
    char fraction[16] = "";
    if (micros)
        snprintf(fraction, sizeof fraction, ".%06d", (int)micros);
    return make_text(vm,
                     ckpt_arena_printf(vm->arena, "%sPT%lld%sS", negative ? "-" : "",
                                       llabs((long long)seconds), fraction),
                     out);
}

/* datetime.timezone(timedelta[, name]): "+02:00" */
static int call_timezone(struct pickle_vm *vm, const struct ckpt_value *args,
                         struct ckpt_value **out) {
    const struct ckpt_value *delta = pickle_arg_at(args, 0);
    if (!pickle_is(delta, CKPT_VALUE_STR))
        return 0;
    const bool negative = delta->text.s[0] == '-';
    if (!ckpt_text_starts(delta->text, negative ? "-PT" : "PT"))
        return 0;
    const long minutes = strtol(delta->text.s + (negative ? 3 : 2), NULL, 10) / 60;
    if (minutes >= 24 * 60)
        return 0;
    return make_text(vm,
                     ckpt_arena_printf(vm->arena, "%c%02ld:%02ld", negative ? '-' : '+',
                                       minutes / 60, minutes % 60),
                     out);
}

/* The parts of a path with a separator between them; the first may be a root that ends with one. */
static int join_path(struct pickle_vm *vm, const struct ckpt_value *args, char separator,
                     struct ckpt_value **out) {
    CKPT_AUTO(str) struct ckpt_str path = {0};
    for (size_t i = 0; i < args->seq.n; i++) {
        const struct ckpt_value *part = args->seq.item[i];
        if (part->kind != CKPT_VALUE_STR)
            return 0;
        const int rc = pickle_charge(vm, 1 + part->text.n / 64);
        if (rc)
            return rc;
        if (path.n && path.s[path.n - 1] != separator)
            ckpt_str_add(&path, &separator, 1);
        ckpt_str_add(&path, part->text.s, part->text.n);
    }
    if (path.failed)
        return pickle_fail_memory(vm);
    return pickle_make_str(vm, path.n ? ckpt_str_text(&path) : CKPT_TEXT("."), out);
}

static int call_posix_path(struct pickle_vm *vm, const struct ckpt_value *args,
                           struct ckpt_value **out) {
    return join_path(vm, args, '/', out);
}

static int call_windows_path(struct pickle_vm *vm, const struct ckpt_value *args,
                             struct ckpt_value **out) {
    return join_path(vm, args, '\\', out);
}

/* torch.device(kind[, index]): "cuda:1" */
static int call_device(struct pickle_vm *vm, const struct ckpt_value *args,
                       struct ckpt_value **out) {
    struct ckpt_value *kind = pickle_arg_at(args, 0);
    const struct ckpt_value *index = pickle_arg_at(args, 1);
    if (!pickle_is(kind, CKPT_VALUE_STR))
        return 0;
    *out = kind;
    if (!pickle_is(index, CKPT_VALUE_INT))
        return 0;
    const int rc = pickle_charge(vm, kind->text.n / 64);
    return rc ? rc
              : make_text(
                    vm, ckpt_arena_printf(vm->arena, "%s:%lld", kind->text.s, (long long)index->i),
                    out);
}

const struct pickle_call pickle_calls_plain[] = {
    {"datetime", "date", call_date},
    {"datetime", "time", call_time},
    {"datetime", "datetime", call_datetime},
    {"datetime", "timedelta", call_timedelta},
    {"datetime", "timezone", call_timezone},
    {"pathlib", "PurePosixPath", call_posix_path},
    {"pathlib", "PosixPath", call_posix_path},
    {"pathlib", "PurePath", call_posix_path},
    {"pathlib", "Path", call_posix_path},
    {"pathlib", "PureWindowsPath", call_windows_path},
    {"pathlib", "WindowsPath", call_windows_path},
    {"pathlib._local", "PurePosixPath", call_posix_path},
    {"pathlib._local", "PosixPath", call_posix_path},
    {"pathlib._local", "PureWindowsPath", call_windows_path},
    {"pathlib._local", "WindowsPath", call_windows_path},
    {"torch", "device", call_device},
    {NULL, NULL, NULL},
};
