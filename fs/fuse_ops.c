/* The kernel's questions about the tree. All answers are functions of immutable data. */
#include "fs/fuse_server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/cleanup.h"
#include "base/log.h"

#define BLOCK_SIZE 4096u
#define BEST_READ (1 << 20) /* st_blksize: cp and cat take it as their buffer's size */
#define BACKGROUND 64       /* parked reads of verify.json must not starve read-ahead */

static void init(void *userdata, struct fuse_conn_info *conn) {
    (void)userdata;
    conn->max_background = BACKGROUND;
}

static void fill_stat(const struct ckpt_session *s, uint32_t i, struct stat *st) {
    const struct ckpt_node *node = &s->tree.node[i];
    const struct ckpt_options *o = s->options;
    *st = (struct stat){.st_ino = i + 1,
                        .st_uid = o->uid,
                        .st_gid = o->gid,
                        .st_blksize = BEST_READ,
                        .st_mtim = s->mtime};
    if (node->file) {
        st->st_mode = S_IFREG | (0444u & ~o->umask);
        st->st_nlink = 1;
        st->st_size = (off_t)node->file->size;
        st->st_blocks = (blkcnt_t)((node->file->size + 511) / 512);
        st->st_mtim = node->file->mtime;
    } else {
        st->st_mode = S_IFDIR | (0555u & ~o->umask);
        st->st_nlink = 2 + node->nfolders;
    }
    st->st_atim = st->st_ctim = st->st_mtim;
}

static void fill_entry(const struct ckpt_session *s, uint32_t i, struct fuse_entry_param *e) {
    *e = (struct fuse_entry_param){
        .ino = i + 1, .attr_timeout = CKPT_FUSE_FOREVER, .entry_timeout = CKPT_FUSE_FOREVER};
    fill_stat(s, i, &e->attr);
}

static void lookup(fuse_req_t req, fuse_ino_t parent, const char *name) {
    const struct ckpt_session *s = ckpt_fuse_session(req);
    struct fuse_entry_param e = {.entry_timeout = CKPT_FUSE_FOREVER}; /* absent, for good */
    const uint32_t i = ckpt_fuse_node(s, parent)
                           ? ckpt_tree_lookup(&s->tree, (uint32_t)parent - 1, ckpt_text_of(name))
                           : CKPT_TREE_NONE;
    if (i != CKPT_TREE_NONE)
        fill_entry(s, i, &e);
    fuse_reply_entry(req, &e);
}

static void getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    (void)fi;
    const struct ckpt_session *s = ckpt_fuse_session(req);
    if (!ckpt_fuse_node(s, ino)) {
        fuse_reply_err(req, ENOENT);
        return;
    }
    struct stat st;
    fill_stat(s, (uint32_t)ino - 1, &st);
    fuse_reply_attr(req, &st, CKPT_FUSE_FOREVER);
}

static void opendir_(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    (void)ino;
    fi->cache_readdir = 1;
    fi->keep_cache = 1;
    fuse_reply_open(req, fi);
}

/*
 * A listing's offsets: 0 before ".", 1 before "..", 2 before the first child, and after child i its
 * index + 2 (children have indices from 1), so that a listing resumes without counting.
 */
struct listing {
    const struct ckpt_session *s;
    uint32_t folder, at; /* at: the node to add, or NONE */
    off_t off;           /* the offset that stands before it */
};

static void start_listing(struct listing *l, off_t off) {
    const struct ckpt_tree *t = &l->s->tree;
    l->off = off;
    if (off <= 0)
        l->at = l->folder;
    else if (off == 1)
        l->at = t->node[l->folder].parent;
    else if (off == 2)
        l->at = t->node[l->folder].first;
    else
        l->at = off - 2 < (off_t)t->n ? t->node[off - 2].next : CKPT_TREE_NONE;
}

static const char *entry_name(const struct listing *l) {
    return l->off <= 0 ? "." : l->off == 1 ? ".." : l->s->tree.node[l->at].name.s;
}

static off_t next_offset(const struct listing *l) {
    return l->off <= 0 ? 1 : l->off == 1 ? 2 : (off_t)l->at + 2;
}

static size_t add_entry(fuse_req_t req, char *buf, size_t room, const struct listing *l,
                        bool plus) {
    const char *name = entry_name(l);
    struct fuse_entry_param e;
    fill_entry(l->s, l->at, &e);
    if (!plus)
        return fuse_add_direntry(req, buf, room, name, &e.attr, next_offset(l));
    if (l->off < 2)
        e.ino = 0; /* "." and "..": the kernel has them already */
    return fuse_add_direntry_plus(req, buf, room, name, &e, next_offset(l));
}

static void list(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, bool plus) {
    const struct ckpt_session *s = ckpt_fuse_session(req);
    const struct ckpt_node *node = ckpt_fuse_node(s, ino);
    if (!node || node->file) {
        fuse_reply_err(req, ENOTDIR);
        return;
    }
    CKPT_AUTO(free) char *buf = malloc(size);
    if (!buf) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    size_t n = 0;
    struct listing l = {.s = s, .folder = (uint32_t)ino - 1};
    for (start_listing(&l, off); l.at != CKPT_TREE_NONE; start_listing(&l, next_offset(&l))) {
        const size_t need = add_entry(req, buf + n, size - n, &l, plus);
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

static void open_(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    const struct ckpt_session *s = ckpt_fuse_session(req);
    const struct ckpt_node *node = ckpt_fuse_node(s, ino);
    if (!node || !node->file) {
        fuse_reply_err(req, EISDIR);
        return;
    }
    if ((fi->flags & O_ACCMODE) != O_RDONLY) {
        fuse_reply_err(req, EROFS);
        return;
    }
    struct ckpt_err err = {0};
    const int rc = ckpt_vfile_open(node->file, &err);
    if (rc < 0) {
        ckpt_log_once(err.text, "%s", err.text);
        fuse_reply_err(req, -rc);
        return;
    }
    fi->direct_io = s->options->direct_io;
    fi->keep_cache = !fi->direct_io;
    fi->noflush = 1;
    if (fuse_reply_open(req, fi) == -ENOENT) /* the opener was interrupted: no release follows */
        ckpt_vfile_close(node->file);
}

static void release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    (void)fi;
    const struct ckpt_node *node = ckpt_fuse_node(ckpt_fuse_session(req), ino);
    if (node && node->file)
        ckpt_vfile_close(node->file);
    fuse_reply_err(req, 0);
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
    .init = init,
    .lookup = lookup,
    .getattr = getattr,
    .opendir = opendir_,
    .readdir = readdir_,
    .readdirplus = readdirplus,
    .open = open_,
    .read = ckpt_fuse_read,
    .release = release,
    .statfs = statfs_,
    .getxattr = ckpt_fuse_getxattr,
    .listxattr = ckpt_fuse_listxattr,
};
