#include "formats/pickle_vm.h"

/*
 * Objects that are nothing but what they hold: a Namespace is its attributes, a node of OmegaConf
 * its value. When such an object is given its state it becomes that value. (Subclasses of dict and
 * list need no row: they become a dict or list when they are given items.)
 */
static const struct holder {
    const char *cls;    /* ends with a dot: all classes of the module */
    const char *member; /* of the state that is the value; NULL: the state itself */
} holders[] = {
    {"argparse.Namespace", NULL},
    {"types.SimpleNamespace", NULL},
    {"omegaconf.dictconfig.DictConfig", "_content"},
    {"omegaconf.listconfig.ListConfig", "_content"},
    {"omegaconf.nodes.", "_val"},
    {"omegaconf.base.UnionNode", "_content"},
    {"ml_collections.config_dict.config_dict.ConfigDict", "_fields"},
    {"ml_collections.config_dict.config_dict.FrozenConfigDict", "_fields"},
};

/* What OmegaConf writes of a node beside its value says nothing that is shown. */
static const char *const bookkeeping[] = {
    "omegaconf.base.ContainerMetadata",
    "omegaconf.base.Metadata",
    "typing.Any",
    "omegaconf.base.SCMode",
    "omegaconf.base.DictKeyType",
};

static const struct holder *find_holder(struct ckpt_text cls) {
    for (size_t i = 0; i < sizeof holders / sizeof *holders; i++) {
        const char *const name = holders[i].cls;
        if (name[strlen(name) - 1] == '.' ? ckpt_text_starts(cls, name) : ckpt_text_is(cls, name))
            return &holders[i];
    }
    return NULL;
}

bool pickle_is_plain_class(struct ckpt_text cls) {
    for (size_t i = 0; i < sizeof bookkeeping / sizeof *bookkeeping; i++)
        if (ckpt_text_is(cls, bookkeeping[i]))
            return true;
    return find_holder(cls) != NULL;
}

/* A copy, so that what the stream does to one later leaves the other alone. */
static int become(struct pickle_vm *vm, struct ckpt_value *target, const struct ckpt_value *value) {
    switch (value->kind) {
    case CKPT_VALUE_DICT:
        return pickle_set_items(vm, target, value->seq.item, value->seq.n);
    case CKPT_VALUE_LIST:
    case CKPT_VALUE_TUPLE:
        return pickle_append(vm, target, value->seq.item, value->seq.n, CKPT_VALUE_LIST);
    case CKPT_VALUE_NONE:
    case CKPT_VALUE_BOOL:
    case CKPT_VALUE_INT:
    case CKPT_VALUE_BIGINT:
    case CKPT_VALUE_FLOAT:
    case CKPT_VALUE_STR:
    case CKPT_VALUE_BYTES:
        *target = *value;
        return 0;
    default: /* an enum's member, a tensor: shown as what stands for the object */
        return 0;
    }
}

int pickle_take_state(struct pickle_vm *vm, struct ckpt_value *target, struct ckpt_value *state,
                      bool *taken) {
    const struct holder *h = target->kind == CKPT_VALUE_OPAQUE ? find_holder(target->text) : NULL;
    struct ckpt_value *value = h && h->member ? pickle_dict_get(state, h->member) : state;
    *taken = h && value;
    return *taken ? become(vm, target, value) : 0;
}
