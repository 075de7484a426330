/* The kernel's questions about the tree. All answers are functions of immutable data. */
#include "fs/fuse_server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/cleanup.h"
#include "base/log.h"

#define BLOCK_SIZE 4096u
#define BEST_READ (1 << 20) /* st_blksize: cp and cat take it as their buffer's size */

static int fill_file(struct ckpt_session *s, const struct ckpt_vfile *f, struct stat *st,
                     struct ckpt_err *err) {
    uint64_t size;
    const int rc = ckpt_vfile_measure(f, &size, err);
    if (rc < 0)
        return rc; /* an empty file would be a wrong one */
    st->st_mode = S_IFREG | (0444u & ~s->options->umask);
    st->st_nlink = 1;
    st->st_size = (off_t)size;
    st->st_blocks = (blkcnt_t)((size + 511) / 512);
    if (f->kind == CKPT_VFILE_PLAIN)
        st->st_mtim = f->plain->mtime;
    return 0;
}

static int fill_stat(struct ckpt_session *s, struct ckpt_dentry e, struct stat *st) {
    const struct ckpt_options *o = s->options;
    *st = (struct stat){.st_ino = ckpt_dentry_inode(s, e),
                        .st_uid = o->uid,
                        .st_gid = o->gid,
                        .st_blksize = BEST_READ,
                        .st_mtim = s->mtime};
    struct ckpt_vfile *file;
    struct ckpt_err err = {0};
    int rc = ckpt_dentry_file(s, e, &file, &err);
    if (rc == 0 && file)
        rc = fill_file(s, file, st, &err);
    if (rc < 0) {
        ckpt_log_once(err.text, "%s", err.text);
        return rc;
    }
    if (!file) {
        st->st_mode = S_IFDIR | (0555u & ~o->umask);
        st->st_nlink = 2 + ckpt_dentry_folders(s, e);
    }
    st->st_atim = st->st_ctim = st->st_mtim;
    return 0;
}

/* The root's generation is 0: kernels before 6.8 take another for a sign that the root is gone. */
static int fill_entry(struct ckpt_session *s, struct ckpt_dentry at, struct fuse_entry_param *e) {
    const uint64_t ino = ckpt_dentry_inode(s, at);
    *e = (struct fuse_entry_param){.ino = ino,
                                   .generation = ino == FUSE_ROOT_ID ? 0 : s->generation,
                                   .attr_timeout = CKPT_FUSE_FOREVER,
                                   .entry_timeout = CKPT_FUSE_FOREVER};
    return fill_stat(s, at, &e->attr);
}

/*
 * "." and ".." come from NFS and open_by_handle_at(2) only: the inode is one that a handle names,
 * and need not exist. Where it does not, the entry is absent, and the kernel says ESTALE.
 */
static int find(struct ckpt_session *s, fuse_ino_t parent, const char *name, struct ckpt_dentry *at,
                struct ckpt_err *err) {
    const bool up = strcmp(name, "..") == 0;
    if (!up && strcmp(name, ".") != 0)
        return ckpt_dentry_lookup(s, ckpt_dentry_of_inode(s, parent), ckpt_text_of(name), at, err);
    *at = ckpt_dentry_of_handle(s, parent);
    if (up && ckpt_dentry_is_folder(*at))
        *at = ckpt_dentry_parent(s, *at);
    return 0;
}

static void lookup(fuse_req_t req, fuse_ino_t parent, const char *name) {
    struct ckpt_session *s = ckpt_fuse_session(req);
    struct fuse_entry_param e = {.entry_timeout = CKPT_FUSE_FOREVER}; /* absent, for good */
    struct ckpt_dentry at;
    struct ckpt_err err = {0};
    int rc = find(s, parent, name, &at, &err);
    if (rc < 0)
        ckpt_log_once(err.text, "%s", err.text);
    else if (at.tree)
        rc = fill_entry(s, at, &e);
    if (rc < 0)
        fuse_reply_err(req, rc == -ENOMEM ? ENOMEM : EIO);
    else
        fuse_reply_entry(req, &e);
}

static void getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    (void)fi;
    struct ckpt_session *s = ckpt_fuse_session(req);
    const struct ckpt_dentry e = ckpt_dentry_of_inode(s, ino);
    struct stat st;
    if (!e.tree)
        fuse_reply_err(req, ENOENT);
    else if (fill_stat(s, e, &st) < 0)
        fuse_reply_err(req, EIO);
    else
        fuse_reply_attr(req, &st, CKPT_FUSE_FOREVER);
}

/* ENOSYS once, and a kernel that knows what that means (5.1) opens folders without us, with both of
 * these flags. */
static void opendir_(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    (void)ino;
    if (ckpt_fuse_server(req)->no_opendir) {
        fuse_reply_err(req, ENOSYS);
        return;
    }
    fi->cache_readdir = 1;
    fi->keep_cache = 1;
    fuse_reply_open(req, fi);
}

/*
 * A listing's offsets: 0 before ".", 1 before "..", 2 before the first child, and behind each child
 * its inode + 2 (children have inodes from 2), so that a listing resumes without counting.
 */
struct listing {
    struct ckpt_session *s;
    struct ckpt_dentry folder, at; /* at: the entry to add; no tree at the end */
    off_t off;                     /* the offset that stands before it */
};

static void start_listing(struct listing *l, off_t off) {
    l->off = off;
    if (off <= 0)
        l->at = l->folder;
    else if (off == 1)
        l->at = ckpt_dentry_parent(l->s, l->folder);
    else if (off == 2)
        l->at = ckpt_dentry_first(l->s, l->folder);
    else
        l->at = ckpt_dentry_of_inode(l->s, (uint64_t)off - 2);
    if (off > 2 && l->at.tree)
        l->at = ckpt_dentry_next(l->at);
}

static void entry_name(const struct listing *l, struct ckpt_str *name) {
    ckpt_str_cut(name, 0);
    if (l->off < 2)
        ckpt_str_puts(name, l->off <= 0 ? "." : "..");
    else
        ckpt_tree_name(l->at.tree, l->at.id, name);
}

static off_t next_offset(const struct listing *l) {
    return l->off <= 0 ? 1 : l->off == 1 ? 2 : (off_t)ckpt_dentry_inode(l->s, l->at) + 2;
}

/* 0: it cannot be told, and is left out. */
static size_t add_entry(fuse_req_t req, char *buf, size_t room, const struct listing *l,
                        const struct ckpt_str *name, bool plus) {
    struct fuse_entry_param e;
    const char *const text = ckpt_str_text(name).s;
    if (name->failed || fill_entry(l->s, l->at, &e) < 0)
        return 0;
    if (!plus)
        return fuse_add_direntry(req, buf, room, text, &e.attr, next_offset(l));
    if (l->off < 2)
        e.ino = 0; /* "." and "..": the kernel has them already */
    return fuse_add_direntry_plus(req, buf, room, text, &e, next_offset(l));
}

static void list(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, bool plus) {
    struct ckpt_session *s = ckpt_fuse_session(req);
    struct listing l = {.s = s, .folder = ckpt_dentry_of_inode(s, ino)};
    if (!ckpt_dentry_is_folder(l.folder)) {
        fuse_reply_err(req, ENOTDIR);
        return;
    }
    CKPT_AUTO(free) char *buf = malloc(size);
    CKPT_AUTO(str) struct ckpt_str name = {0};
    if (!buf) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    size_t n = 0;
    for (start_listing(&l, off); l.at.tree; start_listing(&l, next_offset(&l))) {
        entry_name(&l, &name);
        const size_t need = add_entry(req, buf + n, size - n, &l, &name, plus);
        if (need > size - n)
            break;
        n += need;
    }
    fuse_reply_buf(req, buf, n);
}

static void readdir_(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                     struct fuse_file_info *fi) {
    (void)fi;
    list(req, ino, size, off, false);
}

static void readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                        struct fuse_file_info *fi) {
    (void)fi;
    list(req, ino, size, off, true);
}

static void statfs_(fuse_req_t req, fuse_ino_t ino) {
    (void)ino;
    const struct ckpt_session *s = ckpt_fuse_session(req);
    uint64_t bytes = 0;
    for (size_t i = 0; i < s->model->ntensors; i++)
        bytes += s->model->tensor[i].nbytes;
    const struct statvfs st = {.f_bsize = BLOCK_SIZE,
                               .f_frsize = BLOCK_SIZE,
                               .f_blocks = (bytes + BLOCK_SIZE - 1) / BLOCK_SIZE,
                               .f_files = s->tree.n,
                               .f_namemax = 255,
                               .f_flag = ST_RDONLY};
    fuse_reply_statfs(req, &st);
}

const struct fuse_lowlevel_ops ckpt_fuse_ops = {
    .init = ckpt_fuse_init,
    .lookup = lookup,
    .getattr = getattr,
    .opendir = opendir_,
    .readdir = readdir_,
    .readdirplus = readdirplus,
    .open = ckpt_fuse_open,
    .read = ckpt_fuse_read,
    .release = ckpt_fuse_release,
    .statfs = statfs_,
    .getxattr = ckpt_fuse_getxattr,
    .listxattr = ckpt_fuse_listxattr,
};
