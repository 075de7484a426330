#ifndef CKPT_FORMATS_LIMITS_H
#define CKPT_FORMATS_LIMITS_H
/* What a checkpoint may ask of us. Each is named in the message of the refusal that it causes. */

#define CKPT_LIMIT_HEADER_BYTES 100000000u /* safetensors header, as the reference package */
/* burnpack: the first four as burn's own reader */
#define CKPT_LIMIT_BURNPACK_METADATA (100u << 20) /* bytes of CBOR */
#define CKPT_LIMIT_BURNPACK_TENSORS 100000u
#define CKPT_LIMIT_BURNPACK_TENSOR_BYTES ((uint64_t)10 << 30)
#define CKPT_LIMIT_BURNPACK_FILE_BYTES ((uint64_t)100 << 30)
#define CKPT_LIMIT_BURNPACK_PAIRS 100000u /* of its metadata; and of its scalars */

#define CKPT_LIMIT_JSON_DEPTH 64u               /* of a safetensors header or shard index */
#define CKPT_LIMIT_TENSORS 170000u              /* in one checkpoint */
#define CKPT_LIMIT_DIMENSIONS 2500000u          /* of all tensors of one header together */
#define CKPT_LIMIT_TIES 1000000u                /* names in all lists of ties together */
#define CKPT_LIMIT_KEY_BYTES 65536u             /* a tensor's or value's path, segments and dots */
#define CKPT_LIMIT_KEYS_BYTES (32u << 20)       /* all of them together */
#define CKPT_LIMIT_KEYS_LEVELS 2500000u         /* folders and files that they name, all together */
#define CKPT_LIMIT_FOLDERS 250000u              /* that keys' dots make in the tree */
#define CKPT_LIMIT_TIES_LISTED 16u              /* names in one tensor's list of ties */
#define CKPT_LIMIT_MODULES 100000u              /* of whole-module pickles */
#define CKPT_LIMIT_SHARDS 4000u                 /* files of one sharded directory */
#define CKPT_LIMIT_PICKLE_BYTES (100u << 20)    /* data.pkl, inflated */
#define CKPT_LIMIT_PICKLE_DEPTH 1000u           /* nesting of pickled values */
#define CKPT_LIMIT_PICKLE_OBJECTS 1500000u      /* values made by one pickle */
#define CKPT_LIMIT_PICKLE_ARENA (112u << 20)    /* bytes of memory for them */
#define CKPT_LIMIT_PICKLE_NAME_BYTES 1000u      /* MODULE.NAME of a global */
#define CKPT_LIMIT_WALK_ARENA (64u << 20)       /* bytes of memory for paths and notes */
#define CKPT_LIMIT_WALK_NODES 1000000u          /* values visited when flattening */
#define CKPT_LIMIT_VALUE_JSON_BYTES (32u << 20) /* one value shown as JSON */
#define CKPT_LIMIT_TENSOR_BYTES ((uint64_t)1 << 46) /* one tensor served (64 TiB, lazily) */
#define CKPT_LIMIT_CODE_BYTES (64u << 20)           /* source in a TorchScript archive, inflated */
#define CKPT_LIMIT_GRAPH_BYTES (32u << 20)          /* the JSON of one torch.export graph */
#define CKPT_LIMIT_GRAPH_ARENA (64u << 20)          /* bytes of memory for its tables */
#define CKPT_LIMIT_GRAPH_NODES 250000u
#define CKPT_LIMIT_GRAPH_ITEMS 250000u /* of one list; also inputs, outputs of a graph */
#define CKPT_LIMIT_GRAPH_ARGS 256u     /* arguments, or outputs, of one node */
/* TorchScript as a graph */
#define CKPT_LIMIT_SCRIPT_ARENA (32u << 20)    /* bytes of memory for its code; for its graph */
#define CKPT_LIMIT_SCRIPT_CONSTANTS (1u << 20) /* bytes of constants.pkl */
#define CKPT_LIMIT_SCRIPT_NESTING 200u         /* of expressions and blocks */
#define CKPT_LIMIT_SCRIPT_DEFINITIONS 200000u  /* classes, functions and attributes of one file */
#define CKPT_LIMIT_SCRIPT_FILES 20000u
#define CKPT_LIMIT_SCRIPT_DEPTH 1500u    /* calls, blocks and expressions inside one another */
#define CKPT_LIMIT_SCRIPT_STEPS 1500000u /* statements and expressions that are followed */
#define CKPT_LIMIT_ZIP_ENTRIES 300000u
#define CKPT_LIMIT_ZIP_DIRECTORY (40u << 20) /* bytes of the central directory */
/* What is known of a checkpoint, and what its tensors and values will take when they are adapted
 * and laid out. */
#define CKPT_LIMIT_MEMORY (220u << 20)
#define CKPT_MEMORY_PER_TENSOR 1100u
#define CKPT_MEMORY_PER_MATRIX 750u /* more than that: it may be a Linear's, to be transposed */
#define CKPT_MEMORY_PER_VALUE 250u
#define CKPT_LIMIT_INFLATED_BYTES ((uint64_t)1 << 36) /* one deflated entry */

/* Key-value stores and what is in them */
#define CKPT_LIMIT_KV_KEYS 1000000u
#define CKPT_LIMIT_KV_KEY_BYTES (64u << 20)
#define CKPT_LIMIT_KV_FOLDERS 16u                   /* nesting, where the store is a directory */
#define CKPT_LIMIT_OCDBT_MANIFEST_BYTES (16u << 20) /* decoded */
#define CKPT_LIMIT_OCDBT_NODE_BYTES (128u << 20)    /* one node, decoded; orbax' own is 100 MB */
#define CKPT_LIMIT_OCDBT_BYTES (256u << 20)         /* all nodes, decoded */
#define CKPT_LIMIT_OCDBT_NODES 100000u
#define CKPT_LIMIT_OCDBT_ENTRIES 1048576u             /* of one node, as in its format */
#define CKPT_LIMIT_OCDBT_PATH 65535u                  /* bytes of a path or key, as in its format */
#define CKPT_LIMIT_ZARR_METADATA (1u << 20)           /* the JSON of one array */
#define CKPT_LIMIT_ZARR_SUBCHUNKS ((uint64_t)1 << 22) /* in one shard */
#define CKPT_LIMIT_ZARR_LEAVES (1u << 18)             /* smallest chunks that are had one by one */
#define CKPT_LIMIT_MAPPED 2000u                       /* files of arrays that are mapped */
#define CKPT_LIMIT_ZARR_SHARDS 8u                     /* nesting of shards */
#define CKPT_LIMIT_ZARR_STEPS 8u                      /* codecs of one kind, in one list */
#define CKPT_LIMIT_ZARR_BETWEEN (64u << 20)           /* bytes between two compressions */
#define CKPT_LIMIT_ZARR_SUBCHUNK_BYTES (128u << 20)   /* one of several chunks in a shard */

#define CKPT_LIMIT_MSGPACK_DEPTH 128u
#define CKPT_LIMIT_MSGPACK_OBJECTS 1500000u
#define CKPT_LIMIT_MSGPACK_TEXT (16u << 20)             /* bytes of one text */
#define CKPT_LIMIT_MSGPACK_TEXTS (64u << 20)            /* of all of them */
#define CKPT_LIMIT_MSGPACK_PIECES 4096u                 /* of one array; each has 1 GiB */
#define CKPT_LIMIT_ORBAX_METADATA ((uint64_t)100 << 20) /* bytes of _METADATA, of _strings.json */
#define CKPT_LIMIT_ORBAX_ITEMS 10000u                   /* folders looked at in one */
#define CKPT_LIMIT_ORBAX_SEGMENTS 256u                  /* of a leaf's path */

#endif
