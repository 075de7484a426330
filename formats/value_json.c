#include "formats/value.h"

#include <errno.h>

#include "base/cleanup.h"
#include "base/strmap.h"
#include "formats/limits.h"

/*
 * A value as JSON. Values may be shared and cyclic, so the walk is bounded twice: by the writer's
 * depth, and by the bytes written, since a list of two references to a list of two references...
 * doubles with each level. What lies beyond a bound shows as the string "...".
 */

struct walk {
    struct ckpt_json_out *w;
    struct ckpt_arena *scratch; /* for names of keys that are not plain strings */
    uint64_t stop;              /* length of the output at which the walk ends */
    bool cut;                   /* something did not fit */
};

static void write_value(struct walk *k, const struct ckpt_value *v);

/* Asked where there is more to write. */
static bool is_over(struct walk *k) {
    const bool over = ckpt_str_total(k->w->out) >= k->stop;
    k->cut |= over;
    return over;
}

static void write_cut(struct walk *k) {
    k->cut = true;
    ckpt_jsonw_string(k->w, "...");
}

static void write_list(struct walk *k, const struct ckpt_value *v) {
    ckpt_jsonw_array(k->w);
    for (size_t i = 0; i < v->seq.n && !is_over(k); i++)
        write_value(k, v->seq.item[i]);
    ckpt_jsonw_array_end(k->w);
}

/* The text of item i's key, made to differ from those before it by "~I": 1 and "1" print alike. .s
 * is NULL when out of memory. */
static struct ckpt_text unique_key(struct walk *k, struct ckpt_strmap *used,
                                   const struct ckpt_value *dict, size_t i) {
    const struct ckpt_text plain = ckpt_value_path_segment(k->scratch, dict->seq.item[i]);
    struct ckpt_text key = plain;
    int rc = plain.s ? ckpt_strmap_add(used, plain, 0, NULL) : -ENOMEM;
    for (size_t suffix = i; rc == -EEXIST; suffix++) {
        CKPT_AUTO(str) struct ckpt_str text = {0};
        ckpt_str_add(&text, plain.s, plain.n);
        ckpt_str_printf(&text, "~%zu", suffix / 2);
        key = ckpt_text_copy(k->scratch, ckpt_str_text(&text).s, text.n);
        rc = key.s && !text.failed ? ckpt_strmap_add(used, key, 0, NULL) : -ENOMEM;
    }
    return rc ? (struct ckpt_text){0} : key;
}

static void write_dict(struct walk *k, const struct ckpt_value *v) {
    CKPT_AUTO(strmap) struct ckpt_strmap used = {0};
    ckpt_jsonw_object(k->w);
    for (size_t i = 0; i + 1 < v->seq.n && !is_over(k); i += 2) {
        const struct ckpt_text key = unique_key(k, &used, v, i);
        if (!key.s) {
            k->cut = true;
            break;
        }
        ckpt_jsonw_key_text(k->w, key);
        write_value(k, v->seq.item[i + 1]);
    }
    ckpt_jsonw_object_end(k->w);
}

static void write_bytes(struct walk *k, struct ckpt_text bytes) {
    ckpt_jsonw_array(k->w);
    for (size_t i = 0; i < bytes.n && !is_over(k); i++)
        ckpt_jsonw_u64(k->w, (unsigned char)bytes.s[i]);
    ckpt_jsonw_array_end(k->w);
}

static void write_nested(struct walk *k, const struct ckpt_value *v) {
    if (k->w->depth + 1 >= CKPT_JSON_OUT_DEPTH_MAX)
        write_cut(k);
    else if (v->kind == CKPT_VALUE_BYTES)
        write_bytes(k, v->text);
    else if (v->kind == CKPT_VALUE_DICT)
        write_dict(k, v);
    else
        write_list(k, v);
}

static void write_value(struct walk *k, const struct ckpt_value *value) {
    const struct ckpt_value *v = ckpt_value_shown(value);
    if (is_over(k)) {
        write_cut(k);
        return;
    }
    switch (v->kind) {
    case CKPT_VALUE_NONE:
        ckpt_jsonw_null(k->w);
        break;
    case CKPT_VALUE_BOOL:
        ckpt_jsonw_bool(k->w, v->b);
        break;
    case CKPT_VALUE_INT:
        ckpt_jsonw_i64(k->w, v->i);
        break;
    case CKPT_VALUE_BIGINT:
        ckpt_jsonw_raw(k->w, v->text);
        break;
    case CKPT_VALUE_FLOAT:
        ckpt_jsonw_double(k->w, v->f);
        break;
    case CKPT_VALUE_STR:
    case CKPT_VALUE_GLOBAL:
    case CKPT_VALUE_OPAQUE:
    case CKPT_VALUE_MODULE:
        ckpt_jsonw_text(k->w, v->text);
        break;
    case CKPT_VALUE_BYTES:
    case CKPT_VALUE_LIST:
    case CKPT_VALUE_TUPLE:
    case CKPT_VALUE_SET:
    case CKPT_VALUE_DICT:
        write_nested(k, v);
        break;
    default:
        ckpt_jsonw_string(k->w, v->kind == CKPT_VALUE_TENSOR ? "tensor" : "object");
    }
}

bool ckpt_value_json(struct ckpt_json_out *w, const struct ckpt_value *v) {
    struct ckpt_arena scratch = {.limit = CKPT_LIMIT_VALUE_JSON_BYTES};
    struct walk k = {w, &scratch, ckpt_str_total(w->out) + CKPT_LIMIT_VALUE_JSON_BYTES, false};
    write_value(&k, v);
    ckpt_arena_fini(&scratch);
    return !k.cut;
}
