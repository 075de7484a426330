/* replaced by real sources */
typedef int ckpt_placeholder_fs;
