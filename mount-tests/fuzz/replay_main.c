/*
 * An ordinary main for a fuzz target: feeds it the empty input and then every file named on the
 * command line, folders included, in the order of their names. So inputs that once broke something
 * stay in the ordinary test run, under any compiler and sanitizer. No input at all is a failure: a
 * corpus that went missing must not look like a pass.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The whole file in memory of exactly its size, so that a sanitizer sees a read past its end. */
static uint8_t *read_whole(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (!f || fstat(fileno(f), &st) != 0) {
        perror(path);
        exit(2);
    }
    *size = (size_t)st.st_size;
    uint8_t *data = malloc(*size ? *size : 1);
    if (!data || fread(data, 1, *size, f) != *size) {
        perror(path);
        exit(2);
    }
    fclose(f);
    return data;
}

static int replay_file(const char *path) {
    size_t size;
    uint8_t *data = read_whole(path, &size);
    printf("%s: %zu bytes\n", path, size);
    fflush(stdout); /* the name must be there if the next line is a crash */
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    return 1;
}

static int is_visible(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

static int replay(const char *path) {
    struct dirent **names;
    const int n = scandir(path, &names, is_visible, alphasort);
    if (n < 0)
        return replay_file(path);
    int count = 0;
    for (int i = 0; i < n; i++) {
        char child[4096];
        snprintf(child, sizeof child, "%s/%s", path, names[i]->d_name);
        count += replay(child);
        free(names[i]);
    }
    free(names);
    return count;
}

int main(int argc, char **argv) {
    int count = 0;
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++)
        count += replay(argv[i]);
    printf("%d inputs\n", count);
    return count > 0 ? 0 : 1;
}
