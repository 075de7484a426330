#ifndef CKPT_BASE_JSON_WALK_H
#define CKPT_BASE_JSON_WALK_H
/*
 * Steps over the pull reader for JSON whose form is known: an object whose members a function takes
 * one by one, a list, a value of one type. `what` names the value in the message ("the dtype is a
 * string at byte 12, expected an integer"). All return 0 or a negative errno with the sentence in
 * the reader's err.
 */
#include "base/json.h"

/* Takes one member, whose value is still to be read, and reads that value whole. */
typedef int ckpt_json_member(void *user, struct ckpt_text key);
/* Takes one element, whose first token has just been read, and reads the rest of it. */
typedef int ckpt_json_element(void *user, int token);

/* Fails with the sentence for a value that began with `token` where `expected` was. */
int ckpt_json_unexpected(struct ckpt_json *j, int token, const char *what, const char *expected);

int ckpt_json_read_object(struct ckpt_json *j, const char *what, ckpt_json_member *member,
                          void *user) CKPT_CHECKED;
int ckpt_json_read_array(struct ckpt_json *j, const char *what, ckpt_json_element *element,
                         void *user) CKPT_CHECKED;
/* The same where the first token has been read already. */
int ckpt_json_take_object(struct ckpt_json *j, int token, const char *what,
                          ckpt_json_member *member, void *user) CKPT_CHECKED;
int ckpt_json_take_int(struct ckpt_json *j, int token, const char *what, int64_t *out) CKPT_CHECKED;
int ckpt_json_take_text(struct ckpt_json *j, int token, const char *what, struct ckpt_arena *a,
                        struct ckpt_text *out) CKPT_CHECKED;

int ckpt_json_read_int(struct ckpt_json *j, const char *what, int64_t *out) CKPT_CHECKED;
int ckpt_json_read_bool(struct ckpt_json *j, const char *what, bool *out) CKPT_CHECKED;
/* A copy in the arena. */
int ckpt_json_read_text(struct ckpt_json *j, const char *what, struct ckpt_arena *a,
                        struct ckpt_text *out) CKPT_CHECKED;
/* Reads and checks a value that nobody wants. */
int ckpt_json_read_nothing(struct ckpt_json *j) CKPT_CHECKED;

#endif
