/* The pickle machine: every opcode, every kind of damage, every limit at its edge. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/limits.h"
#include "formats/pickle.h"
#include "formats/pickle_vm.h"

/* A pickle as a C string that may hold NULs, and what must come of it: its value as JSON, or a part
 * of the error's sentence. */
struct row {
    const char *name, *bytes;
    size_t n;
    const char *expected;
};
#define ROW(name, bytes, expected)                                                                 \
    { name, bytes, sizeof(bytes) - 1, expected }

static int run(const void *bytes, size_t n, struct ckpt_arena *a, struct ckpt_str *json,
               struct ckpt_err *err) {
    struct ckpt_value *v;
    size_t consumed;
    const int rc = ckpt_pickle_run(bytes, n, NULL, a, &consumed, &v, err);
    assert_true(consumed <= n);
    if (rc)
        return rc;
    assert_int_equal(ckpt_pickle_length(bytes, n), consumed);
    struct ckpt_json_out w = {.out = json};
    ckpt_value_json(&w, v);
    return 0;
}

static void check_value(const struct row *r) {
    struct ckpt_arena a = {0};
    struct ckpt_str json = {0};
    struct ckpt_err err = {0};
    if (run(r->bytes, r->n, &a, &json, &err) != 0)
        fail_msg("%s: %s", r->name, err.text);
    if (strcmp(ckpt_str_text(&json).s, r->expected) != 0)
        fail_msg("%s: %s, expected %s", r->name, ckpt_str_text(&json).s, r->expected);
    ckpt_str_fini(&json);
    ckpt_arena_fini(&a);
}

static void check_error(const struct row *r) {
    struct ckpt_arena a = {0};
    struct ckpt_str json = {0};
    struct ckpt_err err = {0};
    if (run(r->bytes, r->n, &a, &json, &err) == 0)
        fail_msg("%s: accepted as %s", r->name, ckpt_str_text(&json).s);
    if (!strstr(err.text, r->expected))
        fail_msg("%s: \"%s\" does not say \"%s\"", r->name, err.text, r->expected);
    ckpt_str_fini(&json);
    ckpt_arena_fini(&a);
}

#define CHECK_ALL(rows, check)                                                                     \
    for (size_t i = 0; i < sizeof(rows) / sizeof *(rows); i++)                                     \
    check(&(rows)[i])

static void test_scalars(void **state) {
    static const struct row rows[] = {
        ROW("NONE", "N.", "null"),
        ROW("NEWTRUE", "\x80\2\x88.", "true"),
        ROW("NEWFALSE", "\x80\2\x89.", "false"),
        ROW("INT", "I-12\n.", "-12"),
        ROW("INT true", "I01\n.", "true"),
        ROW("INT false", "I00\n.", "false"),
        ROW("INT big", "I-9223372036854775809\n.", "-9223372036854775809"),
        ROW("BININT", "J\xfe\xff\xff\xff.", "-2"),
        ROW("BININT1", "K\xff.", "255"),
        ROW("BININT2", "M\xff\xff.", "65535"),
        ROW("LONG", "L-5L\n.", "-5"),
        ROW("LONG zeros", "L00012\n.", "12"),
        ROW("LONG1 empty", "\x8a\0.", "0"),
        ROW("LONG1 -1", "\x8a\1\xff.", "-1"),
        ROW("LONG1 128", "\x8a\2\x80\0.", "128"),
        ROW("LONG1 2^63", "\x8a\x09\0\0\0\0\0\0\0\x80\0.", "9223372036854775808"),
        ROW("LONG1 -2^64", "\x8a\x09\0\0\0\0\0\0\0\0\xff.", "-18446744073709551616"),
        ROW("LONG4", "\x8b\2\0\0\0\0\1.", "256"),
        ROW("FLOAT", "F1.5\n.", "1.5"),
        ROW("FLOAT inf", "F-inf\n.", "\"-Infinity\""),
        ROW("BINFLOAT", "G\x3f\xf8\0\0\0\0\0\0.", "1.5"),
        ROW("STRING", "S'a\\n\\x41\\101\\''\n.", "\"a\\nAA'\""),
        ROW("STRING bytes", "S'\\xff'\n.", "[255]"),
        ROW("STRING unknown escape", "S'\\q'\n.", "\"\\\\q\""),
        ROW("BINSTRING", "T\3\0\0\0abc.", "\"abc\""),
        ROW("SHORT_BINSTRING", "U\2\xc3\xa9.", "\"\xc3\xa9\""),
        ROW("SHORT_BINSTRING bytes", "U\1\xe9.", "[233]"),
        ROW("UNICODE", "Va\\u00e9\xe9\\U0001F600\n.", "\"a\xc3\xa9\xc3\xa9\xf0\x9f\x98\x80\""),
        ROW("BINUNICODE", "X\1\0\0\0x.", "\"x\""),
        ROW("BINUNICODE surrogate", "X\3\0\0\0\xed\xb2\x80.", "\"%ED%B2%80\""),
        ROW("SHORT_BINUNICODE", "\x8c\1x.", "\"x\""),
        ROW("BINUNICODE8", "\x8d\1\0\0\0\0\0\0\0x.", "\"x\""),
        ROW("BINBYTES", "B\2\0\0\0\0\xff.", "[0,255]"),
        ROW("SHORT_BINBYTES", "C\1\7.", "[7]"),
        ROW("BINBYTES8", "\x8e\1\0\0\0\0\0\0\0\1.", "[1]"),
        ROW("BYTEARRAY8", "\x80\5\x96\1\0\0\0\0\0\0\0\1.", "[1]"),
    };
    (void)state;
    CHECK_ALL(rows, check_value);
}

static void test_containers(void **state) {
    static const struct row rows[] = {
        ROW("EMPTY_LIST", "].", "[]"),
        ROW("EMPTY_DICT", "}.", "{}"),
        ROW("EMPTY_TUPLE", ").", "[]"),
        ROW("EMPTY_SET", "\x8f.", "[]"),
        ROW("TUPLE", "(K\1K\2t.", "[1,2]"),
        ROW("TUPLE1", "K\1\x85.", "[1]"),
        ROW("TUPLE2", "K\1K\2\x86.", "[1,2]"),
        ROW("TUPLE3", "K\1K\2K\3\x87.", "[1,2,3]"),
        ROW("LIST", "(K\1l.", "[1]"),
        ROW("DICT", "(K\1K\2d.", "{\"1\":2}"),
        ROW("FROZENSET", "(K\1\x91.", "[1]"),
        ROW("APPEND", "]K\1a.", "[1]"),
        ROW("APPENDS", "](K\1K\2e.", "[1,2]"),
        ROW("SETITEM", "}K\1K\2s.", "{\"1\":2}"),
        ROW("SETITEMS", "}(K\1K\2K\3K\4u.", "{\"1\":2,\"3\":4}"),
        ROW("ADDITEMS", "\x8f(K\1K\2\x90.", "[1,2]"),
        ROW("a repeated key", "}(\x8c\1aK\1\x8c\1bK\2\x8c\1aK\3u.", "{\"a\":3,\"b\":2}"),
        ROW("1, True and 1.0", "}(K\1K\1\x88K\2G\x3f\xf0\0\0\0\0\0\0K\3u.", "{\"1\":3}"),
        ROW("equal tuples", "}(K\1K\2\x86K\1K\1K\2\x86K\7u.", "{\"(1, 2)\":7}"),
        ROW("None and 0", "}(NK\1K\0K\2u.", "{\"None\":1,\"0\":2}"),
        ROW("text and bytes", "}(C\1aK\1\x8c\1aK\2u.", "{\"b'a'\":1,\"a\":2}"),
    };
    (void)state;
    CHECK_ALL(rows, check_value);
}

static void test_stack_and_memo(void **state) {
    static const struct row rows[] = {
        ROW("POP",
            "K\1K\2"
            "0.",
            "1"),
        ROW("POP of a MARK", "K\1(0.", "1"),
        ROW("POP_MARK",
            "K\1(K\2K\3"
            "1.",
            "1"),
        ROW("DUP",
            "K\1"
            "2\x86.",
            "[1,1]"),
        ROW("PUT, GET", "K\1p5\ng5\n\x86.", "[1,1]"),
        ROW("BINPUT, BINGET", "K\1q\5h\5\x86.", "[1,1]"),
        ROW("LONG_BINPUT, LONG_BINGET", "K\1r\xff\xff\xff\xffj\xff\xff\xff\xff\x86.", "[1,1]"),
        ROW("a memo entry written twice",
            "K\1q\0"
            "0K\2q\0h\0\x86.",
            "[2,2]"),
        ROW("MEMOIZE counts entries",
            "K\1q\7"
            "0K\2\x94h\1\x86.",
            "[2,2]"),
        ROW("a gap that fills",
            "K\1q\1"
            "0K\2q\0"
            "0K\3q\1h\0h\1\x87.",
            "[3,2,3]"),
        ROW("PROTO and FRAME", "\x80\4\x95\2\0\0\0\0\0\0\0N.", "null"),
        ROW("bytes behind STOP", "N.garbage", "null"),
    };
    (void)state;
    CHECK_ALL(rows, check_value);
}

#define REDUCE_BYTES "c_codecs\nencode\n(\x8c\3a\xc3\xbf\x8c\6latin1tR"

static void test_calls(void **state) {
    static const struct row rows[] = {
        ROW("GLOBAL", "cos\nsystem\n.", "\"os.system\""),
        ROW("STACK_GLOBAL", "\x8c\2os\x8c\6system\x93.", "\"os.system\""),
        ROW("Python 2's name", "c__builtin__\nset\n.", "\"builtins.set\""),
        ROW("REDUCE of anything", "cos\nsystem\n\x8c\1x\x85R.", "\"os.system('x')\""),
        ROW("REDUCE, arguments that are no text", "cos\nsystem\n]\x85R.", "\"os.system\""),
        ROW("REDUCE, five arguments", "cos\nsystem\n(K\1K\1K\1K\1K\1tR.", "\"os.system\""),
        ROW("REDUCE of a result", "cos\ngetenv\n)R)R.", "\"os.getenv\""),
        ROW("NEWOBJ", "csubprocess\nPopen\n)\x81.", "\"subprocess.Popen\""),
        ROW("NEWOBJ_EX", "csubprocess\nPopen\n)}\x92.", "\"subprocess.Popen\""),
        ROW("INST", "(\x8c\1xios\nsystem\n.", "\"os.system('x')\""),
        ROW("OBJ", "(cos\nsystem\n\x8c\1xo.", "\"os.system('x')\""),
        ROW("BUILD", "cm\nC\n)\x81}\x8c\1aK\1sb.", "{\"a\":1}"),
        ROW("BUILD after arguments", "cm\nC\nK\7\x85R}\x8c\1aK\1sb.", "{\"a\":1}"),
        ROW("BUILD with slots",
            "cm\nC\n)\x81N}\x8c\1aK\1s\x86"
            "b.",
            "{\"a\":1}"),
        ROW("BUILD of nothing", "cm\nC\n)\x81}b.", "\"m.C\""),
        ROW("BUILD twice", "cm\nC\n)\x81}b\x8c\1xb.", "\"m.C\""),
        ROW("a subclass of dict", "cm\nD\n)\x81K\1K\2s.", "{\"1\":2}"),
        ROW("a subclass of list", "cm\nL\n)\x81K\1a.", "[1]"),
        ROW("OrderedDict", "ccollections\nOrderedDict\n)RK\1K\2s.", "{\"1\":2}"),
        ROW("OrderedDict of pairs",
            "ccollections\nOrderedDict\n](K\1K\2\x86"
            "e\x85R.",
            "{\"1\":2}"),
        ROW("OrderedDict's attributes", "ccollections\nOrderedDict\n)R}K\1K\2sb.", "{}"),
        ROW("defaultdict", "ccollections\ndefaultdict\ncbuiltins\nint\n\x85RK\1K\2s.", "{\"1\":2}"),
        ROW("Counter", "ccollections\nCounter\n}K\1K\2s\x85R.", "{\"1\":2}"),
        ROW("set", "cbuiltins\nset\n](K\1K\2e\x85R.", "[1,2]"),
        ROW("Size", "ctorch\nSize\nK\1K\2\x86\x85R.", "[1,2]"),
        ROW("encode", REDUCE_BYTES ".", "[97,255]"),
        ROW("bytearray", "cbuiltins\nbytearray\n(" REDUCE_BYTES "tR.", "[97,255]"),
        ROW("bytearray of text", "cbuiltins\nbytearray\n(\x8c\1a\x8c\7latin-1tR.", "[97]"),
        ROW("bytes()", "c__builtin__\nbytes\n)R.", "[]"),
        ROW("encode to UTF-16", "c_codecs\nencode\n\x8c\1a\x8c\5utf16\x86R.",
            "\"_codecs.encode('a', 'utf16')\""),
        ROW("getattr of torch", "cbuiltins\ngetattr\nctorch\nTensor\n\x8c\4half\x86R.",
            "\"torch.half\""),
        ROW("getattr of os", "cbuiltins\ngetattr\ncos\npath\n\x8c\6system\x86R.",
            "\"os.path.system\""),
        ROW("getattr of a result", "cbuiltins\ngetattr\ncos\ngetenv\n)R\x8c\1x\x86R.",
            "\"builtins.getattr\""),
        ROW("__newobj__", "ccopy_reg\n__newobj__\ncm\nC\n\x85R.", "\"m.C\""),
        ROW("__newobj__ of itself", "ccopyreg\n__newobj__\n2\x85R.", "\"copyreg.__newobj__\""),
        ROW("_reconstructor", "ccopy_reg\n_reconstructor\ncm\nC\nc__builtin__\nobject\nN\x87R.",
            "\"m.C\""),
        ROW("a look-alike module", "ccollections_\nOrderedDict\n)R.",
            "\"collections_.OrderedDict\""),
        ROW("numpy scalar",
            "cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\n\x8c\2f4\x85R(K\3\x8c\1<"
            "NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tbC\4\0\0\xc0\x3f\x86R.",
            "1.5"),
        ROW("numpy scalar, big-endian",
            "cnumpy._core.multiarray\nscalar\ncnumpy\ndtype\n\x8c\2i2\x85R(K\3\x8c\1>"
            "tbC\2\xff\xfe\x86R.",
            "-2"),
        ROW("numpy scalar, half",
            "cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\n\x8c\2f2\x85RC\2\0\xbe\x86R.", "-1.5"),
        ROW("numpy scalar, u8",
            "cnumpy.core."
            "multiarray\nscalar\ncnumpy\ndtype\n\x8c\2u8\x85RC\x08\xff\xff\xff\xff\xff\xff\xff\xff"
            "\x86R.",
            "18446744073709551615"),
        ROW("numpy scalar, bool",
            "cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\n\x8c\2b1\x85RC\1\1\x86R.", "true"),
        ROW("numpy scalar, complex",
            "cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\n\x8c\2c8\x85RC\1\1\x86R.",
            "\"numpy.core.multiarray.scalar\""),
    };
    (void)state;
    CHECK_ALL(rows, check_value);
}

#define STATE(cls, items) "c" cls "\n)\x81}(" items "ub."
#define ARRAY(shape, dtype, data)                                                                  \
    "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85"                               \
    "C\1b\x87R(K\1" shape "cnumpy\ndtype\n\x8c\2" dtype "\x85R\x89" data "tb."

/* What is no number, text or container and yet plain data. */
static void test_plain_objects(void **state) {
    static const struct row rows[] = {
        ROW("Namespace", STATE("argparse\nNamespace", "\x8c\2lrK\1"), "{\"lr\":1}"),
        ROW("Namespace of nothing", "cargparse\nNamespace\n)\x81}b.", "{}"),
        ROW("DictConfig",
            STATE("omegaconf.dictconfig\nDictConfig",
                  "\x8c\t_metadata}\x8c\x08_content}\x8c\1aK\1s"),
            "{\"a\":1}"),
        ROW("ListConfig", STATE("omegaconf.listconfig\nListConfig", "\x8c\x08_content]K\1a"),
            "[1]"),
        ROW("AnyNode", STATE("omegaconf.nodes\nAnyNode", "\x8c\4_val\x8c\1x"), "\"x\""),
        ROW("AnyNode of None", STATE("omegaconf.nodes\nAnyNode", "\x8c\4_valN"), "null"),
        ROW("a node without value", STATE("omegaconf.nodes\nAnyNode", "\x8c\1xK\1"), "{\"x\":1}"),
        ROW("date", "cdatetime\ndate\nC\4\x07\xe8\2\x1d\x85R.", "\"2024-02-29\""),
        ROW("datetime", "cdatetime\ndatetime\nC\n\x07\xe8\2\x1d\x0c\1\2\0\0\5\x85R.",
            "\"2024-02-29T12:01:02.000005\""),
        ROW("datetime with a zone",
            "cdatetime\ndatetime\nC\n\x07\xe8\2\x1d\x0c\1\2\0\0\0cdatetime\ntimezone\n"
            "cdatetime\ntimedelta\nJ\xff\xff\xff\xffM\x90\x3dK\0\x87R\x85R\x86R.",
            "\"2024-02-29T12:01:02-19:37\""),
        ROW("datetime of nine bytes", "cdatetime\ndatetime\nC\t123456789\x85R.",
            "\"datetime.datetime\""),
        ROW("time", "cdatetime\ntime\nC\6\x17\x3b\x3b\0\0\0\x85R.", "\"23:59:59\""),
        ROW("timedelta", "cdatetime\ntimedelta\nK\1K\2K\3\x87R.", "\"PT86402.000003S\""),
        ROW("timedelta below zero",
            "cdatetime\ntimedelta\nJ\xff\xff\xff\xffJ\x7f\x51\1\0J\x20\xa1\7\0\x87R.",
            "\"-PT0.500000S\""),
        ROW("timedelta of 2**62 days", "cdatetime\ntimedelta\n\x8a\x08\0\0\0\0\0\0\0\x40\x85R.",
            "\"datetime.timedelta(4611686018427387904)\""),
        ROW("path", "cpathlib\nPosixPath\n\x8c\1/\x8c\1a\x8c\1b\x87R.", "\"/a/b\""),
        ROW("path without parts", "cpathlib\nPosixPath\n)R.", "\".\""),
        ROW("Windows path",
            "cpathlib\nPureWindowsPath\n\x8c\3"
            "C:\\\x8c\1"
            "a\x86R.",
            "\"C:\\\\a\""),
        ROW("device", "ctorch\ndevice\n\x8c\3cpu\x85R.", "\"cpu\""),
        ROW("device with index", "ctorch\ndevice\n\x8c\4cudaK\1\x86R.", "\"cuda:1\""),
        ROW("deque", "ccollections\ndeque\n)K\5\x86RK\1a.", "[1]"),
        ROW("enum", "cm\nColor\nK\1\x85R.", "\"m.Color(1)\""),
        ROW("enum by name", "cbuiltins\ngetattr\ncm\nColor\n\x8c\3RED\x86R.", "\"m.Color.RED\""),
        ROW("xrange", "c__builtin__\nxrange\nK\0K\3K\1\x87R.", "\"builtins.range(0, 3, 1)\""),
        ROW("strings", ARRAY("K\2\x85", "U1", "C\x08x\0\0\0\xe9\0\0\0"), "[\"x\",\"\xc3\xa9\"]"),
        ROW("strings by two", ARRAY("K\2K\1\x86", "S2", "C\4x\0yz"), "[[\"x\"],[\"yz\"]]"),
        ROW("a scalar string", ARRAY(")", "S2", "C\2ab"), "\"numpy.ndarray\""),
        ROW("strings too few", ARRAY("K\3\x85", "S2", "C\4x\0yz"), "\"numpy.ndarray\""),
        ROW("objects", ARRAY("K\2\x85", "O8", "](K\1Ne"), "[1,null]"),
        ROW("objects too many", ARRAY("K\1\x85", "O8", "](K\1Ne"), "\"numpy.ndarray\""),
    };
    (void)state;
    CHECK_ALL(rows, check_value);
}

static void test_damage(void **state) {
    static const struct row rows[] = {
        ROW("empty", "", "ends before its STOP"),
        ROW("no STOP", "N", "ends before its STOP"),
        ROW("unknown opcode", "\xff.", "0xff is no opcode"),
        ROW("protocol 6", "\x80\6N.", "protocol 6"),
        ROW("long frame", "\x80\4\x95\xff\xff\xff\xff\xff\xff\xff\xffN.", "frame"),
        ROW("STOP on nothing", ".", "needs a value"),
        ROW("STOP below a MARK", "N(.", "MARK is still open"),
        ROW("TUPLE without MARK", "Nt.", "needs a MARK"),
        ROW("pop across a MARK", "K\1(\x85.", "above the last MARK"),
        ROW("DUP of nothing", "2.", "needs a value"),
        ROW("PUT of nothing", "q\0.", "needs a value"),
        ROW("GET of nothing", "h\5.", "memo entry 5"),
        ROW("GET -1", "g-1\n.", "not a memo index"),
        ROW("PUT of garbage", "Npx\n.", "not a memo index"),
        ROW("INT garbage", "I1x\n.", "not an integer"),
        ROW("INT empty", "I\n.", "not an integer"),
        ROW("INT without end", "I1", "past the end"),
        ROW("FLOAT garbage", "F1.5x\n.", "not a number"),
        ROW("FLOAT long",
            "F1.000000000000000000000000000000000000000000000000000000000000000000000\n.",
            "not a number"),
        ROW("FLOAT hex", "F0x1p3\n.", "not a number"),
        ROW("STRING unquoted", "Sabc\n.", "quotes"),
        ROW("STRING half quoted", "S'\n.", "quotes"),
        ROW("BINSTRING negative", "T\xff\xff\xff\xff.", "negative length"),
        ROW("LONG4 negative", "\x8b\xff\xff\xff\xff.", "negative length"),
        ROW("LONG4 huge", "\x8b\xff\xff\xff\x7f.", "past the end"),
        ROW("BINUNICODE8 huge", "\x8d\0\0\0\0\0\0\0\x80x.", "past the end"),
        ROW("BINUNICODE not UTF-8", "X\1\0\0\0\xff.", "not UTF-8"),
        ROW("BININT cut", "J\0\0\0", "past the end"),
        ROW("odd items", "}(K\1u.", "other half"),
        ROW("SETITEM on a list", "]K\1K\2s.", "items of a list"),
        ROW("APPEND to a dict", "}K\1a.", "elements to a dict"),
        ROW("ADDITEMS to a list", "](K\1\x90.", "elements to a list"),
        ROW("a list as key", "}]K\1s.", "a list as a dict key"),
        ROW("BUILD of an int", "K\1}b.", "state to an int"),
        ROW("BUILD of a tuple", ")}b.", "state to a tuple"),
        ROW("STACK_GLOBAL of ints", "K\1K\2\x93.", "not strings"),
        ROW("OBJ of nothing", "(o.", "no class"),
        ROW("EXT1", "\x82\1.", "outside the file"),
        ROW("NEXT_BUFFER", "\x97.", "outside the file"),
        ROW("BINPERSID", "K\1Q.", "outside the pickle"),
        ROW("PERSID", "P1\n.", "outside the pickle"),
        ROW("not pairs",
            "ccollections\nOrderedDict\n](K\1K\2"
            "e\x85R.",
            "not a pair"),
    };
    (void)state;
    CHECK_ALL(rows, check_error);
}

/* n times `unit` between head and tail; the arena holds it. */
static struct ckpt_text repeat(struct ckpt_arena *a, const char *head, const char *unit, size_t n,
                               const char *tail) {
    struct ckpt_str s = {0};
    ckpt_str_puts(&s, head);
    for (size_t i = 0; i < n; i++)
        ckpt_str_puts(&s, unit);
    ckpt_str_puts(&s, tail);
    const struct ckpt_text t = ckpt_str_text(&s), copy = ckpt_text_copy(a, t.s, t.n);
    ckpt_str_fini(&s);
    return copy;
}

static void check_limit(const char *head, const char *unit, size_t n, const char *tail,
                        const char *expected) {
    struct ckpt_arena a = {0}, values = {0};
    struct ckpt_value *v;
    struct ckpt_err err = {0};
    size_t consumed;
    const struct ckpt_text t = repeat(&a, head, unit, n, tail);
    const int rc = ckpt_pickle_run((const uint8_t *)t.s, t.n, NULL, &values, &consumed, &v, &err);
    if (expected ? rc == 0 || !strstr(err.text, expected) : rc != 0)
        fail_msg("%zu times \"%s\": rc %d \"%s\", expected \"%s\"", n, unit, rc, err.text,
                 expected ? expected : "success");
    ckpt_arena_fini(&values);
    ckpt_arena_fini(&a);
}

static void test_depth(void **state) {
    (void)state;
    check_limit(")", "\x85", CKPT_LIMIT_PICKLE_DEPTH, ".", NULL);
    check_limit(")", "\x85", CKPT_LIMIT_PICKLE_DEPTH + 1, ".", "1000 deep");
    check_limit("N", "]2a0(N", 100000, ".",
                "MARK is still open"); /* a list in itself is one deep */
}

static void test_object_limit(void **state) {
    (void)state;
    /* None and the two bools are made at the start. */
    check_limit("", "]0", CKPT_LIMIT_PICKLE_OBJECTS - 3, "N.", NULL);
    check_limit("", "]0", CKPT_LIMIT_PICKLE_OBJECTS - 2, "N.", "limit of pickled objects");
    check_limit("", "(", CKPT_LIMIT_PICKLE_OBJECTS + 1, ".", "limit of pickled objects");
}

/* One long string used again and again as a key: hashing it is charged. */
static void test_hashing_is_charged(void **state) {
    struct ckpt_arena a = {0};
    (void)state;
    const char *key = repeat(&a, "}S'", "x", 1 << 20, "'\np1\n0").s;
    check_limit(key, "g1\nNs", 400, ".", "limit of pickled objects");
    ckpt_arena_fini(&a);
}

/* Objects without end that share one large state: each BUILD asks whether it is a module's. */
static void test_build_with_a_large_state(void **state) {
    enum { KEYS = 100000, OBJECTS = 300000 };
    struct ckpt_str s = {0};
    (void)state;
    ckpt_str_puts(&s, "cm\nC\np1\n0}p2\n0g2\n");
    for (int i = 0; i < KEYS; i++)
        ckpt_str_printf(&s, "I%d\nNs", i);
    ckpt_str_puts(&s, "0");
    check_limit(s.s, "g1\n)\x81g2\nb0", OBJECTS, "N.", NULL);
    ckpt_str_fini(&s);
}

/* A dict far beyond where it is searched linearly keeps order and finds every key again. */
static void test_large_dict(void **state) {
    enum { KEYS = 5000 };
    struct ckpt_str s = {0};
    struct ckpt_arena a = {0};
    struct ckpt_value *v;
    struct ckpt_err err = {0};
    size_t consumed;
    (void)state;
    ckpt_str_puts(&s, "}");
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < KEYS; i++)
            ckpt_str_printf(&s, "S'key%d'\nI%d\ns", i, i + round);
    ckpt_str_puts(&s, ".");
    assert_int_equal(ckpt_pickle_run((uint8_t *)s.s, s.n, NULL, &a, &consumed, &v, &err), 0);
    assert_int_equal(v->seq.n, 2 * KEYS);
    for (int i = 0; i < KEYS; i++)
        assert_int_equal(v->seq.item[2 * i + 1]->i, i + 1);
    ckpt_arena_fini(&a);
    ckpt_str_fini(&s);
}

static int echo_id(void *user, const struct ckpt_value *id, struct ckpt_value **out,
                   struct ckpt_err *err) {
    (void)err;
    ++*(int *)user;
    *out = (struct ckpt_value *)id;
    return 0;
}

static void test_persistent_ids(void **state) {
    static const char bytes[] = "(K\7QPx\nt.";
    int calls = 0;
    const struct ckpt_pickle_hooks hooks = {.user = &calls, .persistent_id = echo_id};
    struct ckpt_arena a = {0};
    struct ckpt_value *v;
    struct ckpt_err err = {0};
    size_t consumed;
    (void)state;
    assert_int_equal(
        ckpt_pickle_run((const uint8_t *)bytes, sizeof bytes - 1, &hooks, &a, &consumed, &v, &err),
        0);
    assert_int_equal(calls, 2);
    assert_int_equal(v->seq.item[0]->i, 7);
    assert_true(ckpt_text_is(v->seq.item[1]->text, "x"));
    ckpt_arena_fini(&a);
}

/* Every opcode has a name and a handler or neither; there are 68 in protocols 0 to 5. */
static void test_table_is_complete(void **state) {
    int count = 0;
    (void)state;
    for (int i = 0; i < 256; i++) {
        assert_int_equal(!ckpt_pickle_ops[i].name, !ckpt_pickle_ops[i].run);
        count += ckpt_pickle_ops[i].name != NULL;
    }
    assert_int_equal(count, 68);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars),
        cmocka_unit_test(test_containers),
        cmocka_unit_test(test_stack_and_memo),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_plain_objects),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_object_limit),
        cmocka_unit_test(test_hashing_is_charged),
        cmocka_unit_test(test_build_with_a_large_state),
        cmocka_unit_test(test_large_dict),
        cmocka_unit_test(test_persistent_ids),
        cmocka_unit_test(test_table_is_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
