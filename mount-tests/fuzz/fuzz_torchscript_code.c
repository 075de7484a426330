/*
 * The class heads in TorchScript's source. Property: a file is refused with a sentence, or every
 * class name is a part of it, roles are one of the two, and reading it again gives the same.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/torch_script.h"

static void require(bool condition) {
    if (!condition)
        abort();
}

static void compare(const struct torch_script_class *a, const struct torch_script_class *b) {
    require(ckpt_text_eq(a->name, b->name) && a->is_module == b->is_module);
    require(a->role.count == b->role.count);
    for (size_t i = 0; i < a->role.cap; i++) {
        const struct ckpt_strmap_slot *s = &a->role.slots[i];
        if (!s->key.s)
            continue;
        require(s->value == TORCH_SCRIPT_PARAMETER || s->value == TORCH_SCRIPT_BUFFER);
        require(ckpt_strmap_get(&b->role, s->key) == s->value);
    }
}

static void check_names(const struct torch_script_code *code, const char *text, size_t n) {
    for (size_t i = 0; i < code->n; i++) {
        const struct ckpt_text name = code->classes[i].name;
        require(name.s >= text && name.n <= n && (size_t)(name.s - text) <= n - name.n);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct ckpt_text text = {(const char *)data, size};
    struct torch_script_code code, again;
    struct ckpt_arena a = {0};
    struct ckpt_err err = {0};
    if (size && torch_script_parse(&code, &a, text, &err) == 0) {
        check_names(&code, text.s, size);
        require(torch_script_parse(&again, &a, text, &err) == 0 && again.n == code.n);
        for (size_t i = 0; i < code.n; i++)
            compare(&code.classes[i], &again.classes[i]);
        torch_script_code_fini(&again);
        torch_script_code_fini(&code);
    } else {
        require(size == 0 || (err.text[0] != '\0' && !strchr(err.text, '\n')));
    }
    ckpt_arena_fini(&a);
    return 0;
}
