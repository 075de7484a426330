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
#define CKPT_LIMIT_TENSORS 250000u              /* in one checkpoint */
#define CKPT_LIMIT_KEY_BYTES 65536u             /* a tensor's or value's path, segments and dots */
#define CKPT_LIMIT_KEYS_BYTES (32u << 20)       /* all of them together */
#define CKPT_LIMIT_KEYS_LEVELS 2500000u         /* folders and files that they name, all together */
#define CKPT_LIMIT_FOLDERS 500000u              /* that keys' dots make in the tree */
#define CKPT_LIMIT_TIES_LISTED 16u              /* names in one tensor's list of ties */
#define CKPT_LIMIT_MODULES 100000u              /* of whole-module pickles */
#define CKPT_LIMIT_SHARDS 4000u                 /* files of one sharded directory */
#define CKPT_LIMIT_PICKLE_BYTES (100u << 20)    /* data.pkl, inflated */
#define CKPT_LIMIT_PICKLE_DEPTH 1000u           /* nesting of pickled values */
#define CKPT_LIMIT_PICKLE_OBJECTS 1500000u      /* values made by one pickle */
#define CKPT_LIMIT_PICKLE_ARENA (144u << 20)    /* bytes of memory for them */
#define CKPT_LIMIT_PICKLE_NAME_BYTES 1000u      /* MODULE.NAME of a global */
#define CKPT_LIMIT_WALK_ARENA (128u << 20)      /* bytes of memory for paths and notes */
#define CKPT_LIMIT_WALK_NODES 1000000u          /* values visited when flattening */
#define CKPT_LIMIT_VALUE_JSON_BYTES (32u << 20) /* one value shown as JSON */
#define CKPT_LIMIT_TENSOR_BYTES ((uint64_t)1 << 46) /* one tensor served (64 TiB, lazily) */
#define CKPT_LIMIT_CODE_BYTES (64u << 20)           /* source in a TorchScript archive, inflated */
#define CKPT_LIMIT_GRAPH_BYTES (32u << 20)          /* the JSON of one torch.export graph */
#define CKPT_LIMIT_GRAPH_ARENA (64u << 20)          /* bytes of memory for its tables */
#define CKPT_LIMIT_GRAPH_NODES 250000u
#define CKPT_LIMIT_GRAPH_ITEMS 250000u /* of one list; also inputs, outputs of a graph */
#define CKPT_LIMIT_GRAPH_ARGS 256u     /* arguments, or outputs, of one node */
#define CKPT_LIMIT_ZIP_ENTRIES 300000u
#define CKPT_LIMIT_INFLATED_BYTES ((uint64_t)1 << 36) /* one deflated entry */

#endif
