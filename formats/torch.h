#ifndef CKPT_FORMATS_TORCH_H
#define CKPT_FORMATS_TORCH_H
/*
 * Inside the readers of torch checkpoints (private to torch_*.c and pickle_call_*.c).
 *
 *     container (ZIP, legacy stream) ──► records ◄── storages ◄── tensors ◄── the pickle's values
 *     torch_zip.c  torch_legacy.c        bytes by    a typed      a strided        │
 *                                        key         range        view             ▼
 *                                                          torch_tree.c: ckpt_checkpoint
 *
 * What a tensor suffers from is kept beside it and judged only when the tree reaches it, so that
 * the message can name it and a tensor that nothing refers to harms nobody.
 */
#include "base/strmap.h"
#include "formats/checkpoint.h"
#include "formats/pickle.h"
#include "formats/zip.h"

/* Bytes under a key: a ZIP entry, a run of a legacy stream, bytes of the pickle itself. */
struct torch_record {
    struct ckpt_text key;
    uint64_t nbytes;  /* as the pickle says */
    uint64_t element; /* bytes of one, in the class that named it first */
    struct ckpt_blob *blob;
    const char *error; /* why the bytes can't be had; NULL: they can */
    bool listed;       /* the blob is among the checkpoint's */
};

struct torch_storage {
    struct torch_record *record;
    const char *error;     /* impossible: the reason; every tensor on it bears it */
    const char *cls;       /* "torch.FloatStorage" */
    enum ckpt_dtype dtype; /* NONE: a class without a dtype that we serve (quantised) */
    uint64_t element;      /* bytes of one, in its class */
    uint64_t offset;       /* bytes into the record (views of torch < 0.4) */
    uint64_t nbytes;
};

/* A tensor or numpy array as the pickle describes it. */
struct torch_tensor {
    const struct torch_storage *storage;
    enum ckpt_dtype dtype;
    uint32_t ndim;
    const int64_t *shape;
    const int64_t *stride; /* NULL: contiguous */
    int64_t offset;        /* elements */
    bool conj, neg;
    bool swap;               /* a numpy array that says so itself */
    bool is_numpy;           /* BUILD gives it its content */
    const char *unsupported; /* a kind that can't be served: the reason */
    const char *error;       /* damaged: the reason */
};

/* What all containers share while they read. */
struct torch_reader {
    struct ckpt_checkpoint *c;
    const struct ckpt_open_options *options;
    struct ckpt_file *file;
    struct ckpt_strmap by_key; /* record key -> index in records */
    struct torch_record **records;
    size_t nrecords, cap;
    bool big_endian;
    const uint8_t *copy; /* plain pickles: what was copied of the file (torch_pickle.c), or NULL */
    /* Where a record that the pickle names for the first time has its bytes: sets blob or error. */
    int (*locate)(struct torch_reader *r, struct torch_record *record, struct ckpt_err *err);
    void *container;
};

/* ('storage', class, key, location, numel[, view]) -> a CKPT_PICKLE_STORAGE value. with_view: the
 * sixth element of legacy streams must be there. Fails only if the id is not of that form; what is
 * wrong with the storage itself is kept in it. */
int torch_storage_from_id(struct torch_reader *r, const struct ckpt_value *id, bool with_view,
                          struct ckpt_value **out, struct ckpt_err *err) CKPT_CHECKED;
/* A record of that key, which must be new; its bytes are still to be found. */
int torch_record_add(struct torch_reader *r, struct ckpt_text key, uint64_t nbytes,
                     uint64_t element, struct torch_record **out,
                     struct ckpt_err *err) CKPT_CHECKED;
void torch_reader_fini(struct torch_reader *r);
#define ckpt_auto_torch_reader torch_reader_fini
/* A storage of that class and element count (values of the pickle) over the record of that key. */
int torch_storage_new(struct torch_reader *r, struct ckpt_text key, const struct ckpt_value *cls,
                      const struct ckpt_value *count, struct ckpt_value **out,
                      struct ckpt_err *err) CKPT_CHECKED;
/* Narrows a storage to so many elements from an offset; false if they leave it. */
bool torch_storage_narrow(struct torch_storage *s, const struct ckpt_value *offset,
                          const struct ckpt_value *count);
/* A storage's key, text or number, as text. */
int torch_key_text(struct torch_reader *r, const struct ckpt_value *key, struct ckpt_text *out,
                   struct ckpt_err *err) CKPT_CHECKED;
/* A value of a kind of enum ckpt_pickle_kind that points to `data`; NULL when out of memory. */
struct ckpt_value *torch_value_new(struct torch_reader *r, int kind, void *data);

/* torch_stream.c: where the next pickle, number or storage begins. */
struct torch_stream {
    struct torch_reader *r;
    const struct ckpt_file *file; /* NULL: bytes of a pickle, which stay where they are */
    const uint8_t *bytes;
    size_t n, pos;
    const char *list; /* "storages": what is being listed, for messages */
};
/* Runs the pickle there; `what` names it. */
int torch_stream_pickle(struct torch_stream *s, const char *what,
                        const struct ckpt_pickle_hooks *hooks, struct ckpt_value **out,
                        struct ckpt_err *err) CKPT_CHECKED;
/* A little-endian number of so many bytes. */
int torch_stream_int(struct torch_stream *s, unsigned bytes, uint64_t *out,
                     struct ckpt_err *err) CKPT_CHECKED;
/* Gives the record the bytes that lie there. */
int torch_stream_blob(struct torch_stream *s, struct torch_record *record,
                      struct ckpt_err *err) CKPT_CHECKED;

/* torch_tensor.c: adds t to the checkpoint under path, or to what it leaves out. */
int torch_tensor_add(struct torch_reader *r, struct ckpt_path path, const struct torch_tensor *t,
                     int32_t module, struct ckpt_err *err) CKPT_CHECKED;

/* The two halves of it: t as a tensor of the checkpoint, whose storage is listed; and listing it.
 */
int torch_tensor_describe(struct torch_reader *r, struct ckpt_path path,
                          const struct torch_tensor *t, struct ckpt_tensor *out,
                          struct ckpt_err *err) CKPT_CHECKED;
int torch_tensor_enter(struct ckpt_checkpoint *c, const struct ckpt_tensor *t,
                       struct ckpt_err *err) CKPT_CHECKED;

/* torch_scan.c: what lies below a value. */
enum torch_mark {
    TORCH_UNKNOWN,
    TORCH_ON_PATH, /* being scanned: meeting it again is a cycle */
    TORCH_PLAIN,   /* no tensor below, finite, can be written as JSON */
    TORCH_MIXED,   /* tensors, modules or a cycle below */
    TORCH_WALKED,  /* an object with tensors below, which were listed where it was met first */
};
/* The mark of v; scans what lies below once. weight: nodes when written out as a tree. */
int torch_scan(struct ckpt_arena *a, struct ckpt_value *v, unsigned depth, enum torch_mark *mark,
               uint64_t *weight, struct ckpt_err *err) CKPT_CHECKED;
/* An opaque object whose attributes are known: it is walked like a dict. */
bool torch_has_state(const struct ckpt_value *v);
/* One of whose state or parts, a tuple, something is known. */
bool torch_has_content(const struct ckpt_value *v);

/* A walk over the value graph: the path to where it is, and its bounds. */
struct torch_walk {
    struct torch_reader *r;
    struct ckpt_text segment[CKPT_LIMIT_PICKLE_DEPTH + 2];
    uint32_t depth;
    uint32_t bare;  /* as in ckpt_path */
    uint64_t nodes; /* visited; CKPT_LIMIT_WALK_NODES */
    struct ckpt_err *err;
};
/* Goes a segment down; left by w->depth--. The caller sees to its bound. */
void torch_walk_enter(struct torch_walk *w, struct ckpt_text segment, bool bare);
int torch_walk_count(struct torch_walk *w, uint64_t n) CKPT_CHECKED;
/* A copy of the path so far, in the checkpoint's arena; .segment NULL when out of memory. */
struct ckpt_path torch_walk_path(const struct torch_walk *w);

/* Lists the tensors in the attributes of a container or tensor, which are not shown. */
int torch_walk_attributes(struct torch_walk *w, const struct ckpt_value *v) CKPT_CHECKED;

/* torch_tree.c: the whole value graph of a checkpoint -> tensors, values, modules, notes. */
int torch_tree_read(struct torch_reader *r, struct ckpt_value *root,
                    struct ckpt_err *err) CKPT_CHECKED;
/* The same in two steps, for checkpoints of several objects: what lies below a value, which lies at
 * `path` itself; and in the end, that no two tensors have one key, since both could not be in
 * model.safetensors. */
int torch_tree_add(struct torch_reader *r, struct ckpt_path path, struct ckpt_value *v,
                   struct ckpt_err *err) CKPT_CHECKED;
int torch_tree_check(struct ckpt_checkpoint *c, struct ckpt_err *err) CKPT_CHECKED;
/* torch_module.c: a module's state dict, one segment a tensor, and its rows in the module table. */
int torch_module_read(struct torch_walk *w, struct ckpt_value *module) CKPT_CHECKED;

/* torch_zip.c: the object of the torch.save archive in those bytes of r->file. The reader must be
 * new; what it makes of storages outlives the call. */
int torch_zip_object(struct torch_reader *r, uint64_t offset, uint64_t size,
                     struct ckpt_value **root, struct ckpt_err *err) CKPT_CHECKED;
/* The object of FOLDER/NAME.pkl in an open archive, whose storages are FOLDER/NAME/KEY; the pickle
 * has at most so many bytes. The reader must be new. */
int torch_zip_pickle(struct torch_reader *r, const struct ckpt_zip *zip, struct ckpt_text folder,
                     const char *name, uint64_t most, struct ckpt_value **out,
                     struct ckpt_err *err) CKPT_CHECKED;
/* What the entry "byteorder" says. */
int torch_zip_byte_order(const struct ckpt_zip *zip, const struct ckpt_zip_entry *e,
                         struct ckpt_arena *a, bool *big_endian, struct ckpt_err *err) CKPT_CHECKED;

/* torch_pickle.c: whether the text is a part of the copy; then *offset is its place in the file. */
bool torch_pickle_place(const struct torch_reader *r, struct ckpt_text t, uint64_t *offset);

/* torch_legacy.c: ckpt_pickle_hooks.nested_storage; user is the torch_reader. */
int torch_legacy_nested(void *user, struct ckpt_text bytes, struct ckpt_value **out,
                        struct ckpt_err *err);

#endif
