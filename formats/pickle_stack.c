#include "formats/pickle_vm.h"

#include <stdlib.h>

/* The stack of values and the stack of marks. Both grow by doubling up to the object limit. */

/* Room for one more; *array may move. */
static int reserve(struct pickle_vm *vm, void *array, size_t n, size_t *cap, size_t size) {
    if (n >= CKPT_LIMIT_PICKLE_OBJECTS)
        return pickle_fail(vm,
                           "more than %u values or marks on the stack (limit of pickled objects)",
                           CKPT_LIMIT_PICKLE_OBJECTS);
    if (n < *cap)
        return 0;
    const size_t bigger = *cap ? *cap * 2 : 64;
    void *p = reallocarray(*(void **)array, bigger, size);
    if (!p)
        return pickle_fail_memory(vm);
    *(void **)array = p;
    *cap = bigger;
    return 0;
}

int pickle_push(struct pickle_vm *vm, struct ckpt_value *v) {
    struct pickle_stack *s = &vm->stack;
    const int rc = reserve(vm, &s->item, s->n, &s->cap, sizeof *s->item);
    if (rc == 0)
        s->item[s->n++] = v;
    return rc;
}

static size_t floor_of(const struct pickle_stack *s) {
    return s->nmark ? s->mark[s->nmark - 1] : 0;
}

int pickle_top(struct pickle_vm *vm, struct ckpt_value **v) {
    const struct pickle_stack *s = &vm->stack;
    if (s->n <= floor_of(s))
        return pickle_fail(vm, "needs a value where the stack has none%s",
                           s->nmark ? " above the last MARK" : "");
    *v = s->item[s->n - 1];
    return 0;
}

int pickle_pop(struct pickle_vm *vm, struct ckpt_value **v) {
    const int rc = pickle_top(vm, v);
    if (rc == 0)
        vm->stack.n--;
    return rc;
}

int pickle_push_mark(struct pickle_vm *vm) {
    struct pickle_stack *s = &vm->stack;
    const int rc = reserve(vm, &s->mark, s->nmark, &s->mark_cap, sizeof *s->mark);
    if (rc == 0)
        s->mark[s->nmark++] = s->n;
    return rc;
}

int pickle_pop_mark(struct pickle_vm *vm, struct ckpt_value ***items, size_t *n) {
    struct pickle_stack *s = &vm->stack;
    if (s->nmark == 0)
        return pickle_fail(vm, "needs a MARK and there is none");
    const size_t height = s->mark[--s->nmark];
    *items = s->item ? s->item + height : NULL;
    *n = s->n - height;
    s->n = height;
    return 0;
}

void pickle_stack_fini(struct pickle_stack *s) {
    free(s->item);
    free(s->mark);
    *s = (struct pickle_stack){0};
}
