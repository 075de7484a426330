/* Texts, numbers and lists of the report, cut to its limits. */
#include "verify/report_put.h"

void ckpt_put_text(struct ckpt_report_out *w, const char *key, struct ckpt_text t) {
    size_t quoted;
    const struct ckpt_text cut = ckpt_report_cut(t, &quoted);
    w->truncated = w->truncated || cut.n < t.n;
    if (key)
        ckpt_jsonw_key(&w->json, key);
    ckpt_jsonw_text(&w->json, cut);
}

void ckpt_put_string(struct ckpt_report_out *w, const char *key, const char *s) {
    ckpt_put_text(w, key, ckpt_text_of(s));
}

void ckpt_put_reason(struct ckpt_report_out *w, const struct ckpt_reason *r) {
    if (r->text[0])
        ckpt_put_string(w, "reason", r->text);
}

void ckpt_put_status(struct ckpt_report_out *w, const char *key, enum ckpt_status s) {
    ckpt_put_string(w, key, ckpt_status_name(s));
}

void ckpt_put_u64(struct ckpt_report_out *w, const char *key, uint64_t v) {
    ckpt_jsonw_key(&w->json, key);
    ckpt_jsonw_u64(&w->json, v);
}

void ckpt_put_double(struct ckpt_report_out *w, const char *key, double v) {
    ckpt_jsonw_key(&w->json, key);
    ckpt_jsonw_double(&w->json, v);
}

void ckpt_put_bool(struct ckpt_report_out *w, const char *key, bool v) {
    ckpt_jsonw_key(&w->json, key);
    ckpt_jsonw_bool(&w->json, v);
}

void ckpt_put_begin(struct ckpt_report_out *w, const char *key) {
    ckpt_jsonw_key(&w->json, key);
    ckpt_jsonw_object(&w->json);
}

void ckpt_put_end(struct ckpt_report_out *w) {
    ckpt_jsonw_object_end(&w->json);
}

void ckpt_put_list(struct ckpt_report_out *w, const char *key) {
    ckpt_jsonw_key(&w->json, key);
    ckpt_jsonw_array(&w->json);
}

void ckpt_put_list_end(struct ckpt_report_out *w) {
    ckpt_jsonw_array_end(&w->json);
}
