#ifndef CKPT_VERIFY_REPORT_PUT_H
#define CKPT_VERIFY_REPORT_PUT_H
/* What the parts of the report are written with (private to report*.c). */
#include "base/json.h"
#include "verify/report.h"
#include "verify/run.h"

struct ckpt_report_out {
    struct ckpt_json_out json;
    bool truncated;
};

/* A member; without a key an element of a list. */
void ckpt_put_text(struct ckpt_report_out *w, const char *key, struct ckpt_text t);
void ckpt_put_string(struct ckpt_report_out *w, const char *key, const char *s);
void ckpt_put_reason(struct ckpt_report_out *w, const struct ckpt_reason *r); /* if there is one */
void ckpt_put_status(struct ckpt_report_out *w, const char *key, enum ckpt_status s);
void ckpt_put_u64(struct ckpt_report_out *w, const char *key, uint64_t v);
void ckpt_put_double(struct ckpt_report_out *w, const char *key, double v);
void ckpt_put_bool(struct ckpt_report_out *w, const char *key, bool v);
void ckpt_put_begin(struct ckpt_report_out *w, const char *key); /* an object */
void ckpt_put_end(struct ckpt_report_out *w);
void ckpt_put_list(struct ckpt_report_out *w, const char *key);
void ckpt_put_list_end(struct ckpt_report_out *w);

/* report_graph.c: the members "graph", "runs", "properties" and "params". */
void ckpt_put_graph(struct ckpt_report_out *w, const struct ckpt_verification *v);
void ckpt_put_runs(struct ckpt_report_out *w, const struct ckpt_verification *v);
void ckpt_put_properties(struct ckpt_report_out *w, const struct ckpt_verification *v);
void ckpt_put_params(struct ckpt_report_out *w, const struct ckpt_verification *v);

#endif
