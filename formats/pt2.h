#ifndef CKPT_FORMATS_PT2_H
#define CKPT_FORMATS_PT2_H
/*
 * Archives of torch.export.save (.pt2), which all are ZIP archives with one folder, ROOT (any name;
 * none at all up to torch 2.7):
 *
 *     torch      weights                                        graph
 *     2.9 on     ROOT data/weights/MODEL_weights_config.json    ROOT models/MODEL.json
 *                ROOT data/weights/weight_0, ... raw storages
 *     2.8        ROOT data/weights/model.pt, of torch.save      ROOT models/MODEL.json
 *     to 2.7     serialized_state_dict.pt, of torch.save        another schema: not read
 *
 * data/constants/ is of the same form; it holds what the state dict leaves out.
 */
#include "formats/checkpoint.h"
#include "formats/export_schema.h"
#include "formats/zip.h"

/* Whether the archive is one of torch.export.save; then *root is its folder with a slash behind, or
 * "". */
bool ckpt_pt2_root(const struct ckpt_zip *zip, struct ckpt_text *root);
/* The entry's name below root; "" if it is elsewhere. */
struct ckpt_text ckpt_pt2_name(const struct ckpt_zip_entry *e, struct ckpt_text root);

/* Tensors and graph into the checkpoint. */
int ckpt_pt2_read(struct ckpt_checkpoint *c, const struct ckpt_open_options *options,
                  const struct ckpt_zip *zip, struct ckpt_text root,
                  struct ckpt_err *err) CKPT_CHECKED;

/* A configuration: which tensor lies where. */
struct ckpt_pt2_entry {
    struct ckpt_text key;
    struct ckpt_text path; /* the entry's name in its folder */
    bool is_pickle;        /* a subclass of tensor, pickled */
    struct ckpt_export_meta meta;
};

struct ckpt_pt2_config {
    struct ckpt_pt2_entry *entry; /* on the heap; what they point to is in the arena */
    size_t n, cap;
};

int ckpt_pt2_config_parse(const void *json, size_t n, struct ckpt_arena *a,
                          struct ckpt_pt2_config *out, struct ckpt_err *err) CKPT_CHECKED;
void ckpt_pt2_config_fini(struct ckpt_pt2_config *c);
#define ckpt_auto_pt2_config ckpt_pt2_config_fini

#endif
