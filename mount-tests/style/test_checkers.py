#!/usr/bin/env python3
"""The checkers themselves: each must catch what it is for, in a small tree made here."""
import contextlib
import os
import tempfile
import unittest

import check_includes
import check_lengths
import check_limits
import check_options
import check_text

LONG = "int f(void) {\n" + "    ;\n" * 100 + "}\n"


@contextlib.contextmanager
def tree(files):
    """A temporary project with these files."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                f.write(text)
        yield root


class Includes(unittest.TestCase):
    def complaints(self, path, text):
        with tree({path: text}) as root:
            return list(check_includes.complaints(root))

    def test_upward_include_is_caught(self):
        found = self.complaints("base/x.c", '#include "fs/tree.h"\n')
        self.assertEqual(len(found), 1)
        self.assertIn("base/x.c:1: base/ may not include fs/", found[0])

    def test_upward_include_in_angle_brackets_is_caught(self):
        self.assertEqual(len(self.complaints("formats/x.h", "\n# include <verify/op.h>\n")), 1)

    def test_a_library_has_one_owner(self):
        for path, header in [("fs/main.c", "fuse3/fuse_lowlevel.h"), ("adapters/x.c", "zip.h"),
                             ("fs/x.c", "cblas.h"), ("formats/x.c", "pcre2.h"), ("verify/x.c", "cjson/cJSON.h")]:
            self.assertEqual(len(self.complaints(path, f"#include <{header}>\n")), 1, path)

    def test_what_is_allowed(self):
        for path, line in [("fs/x.c", '"base/err.h"'), ("fs/fuse_ops.c", "<fuse3/fuse_lowlevel.h>"),
                           ("formats/z.c", "<zip.h>"), ("verify/blas.c", "<cblas.h>"), ("base/x.c", "<stdio.h>"),
                           ("mount-tests/unit/test_x.c", '"fs/tree.h"')]:
            self.assertEqual(self.complaints(path, f"#include {line}\n"), [], path)

    def test_own_header_comes_first(self):
        with tree({"base/x.h": "", "base/x.c": '#include <stdio.h>\n#include "base/x.h"\n'}) as root:
            self.assertEqual(len(list(check_includes.own_header_first(root))), 1)


class Lengths(unittest.TestCase):
    def complaints(self, path, text):
        return list(check_lengths.check_file(path, text, []))

    def test_long_function(self):
        self.assertIn("f has 102 lines", self.complaints("base/x.c", LONG)[0])

    def test_braces_in_strings_and_comments_do_not_count(self):
        text = 'int f(void) {\n    /* { */ puts("{"); putchar(\'{\');\n}\nint g(void) {\n}\n'
        self.assertEqual([f[2] for f in check_lengths.functions(text)], [3, 2])

    def test_tables_are_not_functions(self):
        self.assertEqual(list(check_lengths.functions("static const int t[] = {\n1,\n};\n")), [])

    def test_long_file_and_line(self):
        self.assertEqual(len(self.complaints("base/x.c", "\n" * 701)), 1)
        self.assertEqual(len(self.complaints("base/x.c", "/*" + "x" * 99 + "*/\n")), 1)


class Limits(unittest.TestCase):
    HEADER = "#define CKPT_LIMIT_A 5u /* of */\n#define CKPT_LIMIT_B ((uint64_t)1 << 20)\n#define CKPT_LIMITS_H\n"

    def complaints(self, *rows):
        limits = check_limits.defined(self.HEADER)
        return list(check_limits.complaints(limits, limits, "".join(f"| {r} | of what |\n" for r in rows)))

    def test_what_is_right(self):
        self.assertEqual(self.complaints("`CKPT_LIMIT_A` | 5", "`CKPT_LIMIT_B` | 1 MiB"), [])
        self.assertEqual(self.complaints("`CKPT_LIMIT_A`, `CKPT_LIMIT_B` | 5; 1,048,576"), [])

    def test_what_is_caught(self):
        b = "`CKPT_LIMIT_B` | 1 MiB"
        for rows, part in [((b,), "LIMIT_A (5) is not in the table"), (("`CKPT_LIMIT_A` | 6", b), "is 6, but 5"),
                           (("`CKPT_LIMIT_A` | 5 or so", b), "is None, but 5"), (("`CKPT_LIMIT_A`, `CKPT_LIMIT_B` | 5",), "2 names"),
                           (("`CKPT_LIMIT_A` | 5", b, "`CKPT_LIMIT_C` | 5"), "LIMIT_C is not defined"),
                           (("`CKPT_LIMIT_A` | 5", "`CKPT_LIMIT_A` | 5", b), "twice")]:
            self.assertIn(part, " ".join(self.complaints(*rows)), rows)


class Options(unittest.TestCase):
    FILES = {
        check_options.OPTIONS: 'static const struct choice casts[] = {{"f16", 1}, {"f32", 2}, {NULL, 0}};\n'
                               'static const struct row rows[] = {\n    {"cast", VALUE, set_choice, AT(x), casts},\n'
                               '    {"strict", NO_VALUE, set_flag, AT(y), NULL},\n    {"remount", NO_VALUE, set_remount, 0, NULL},\n};\n',
        check_options.COMMAND: '{"json", no_argument, NULL, 1}\n    "options:\\n"\n    "  cast=f16, strict   floats\\n"\n    "See mount.ckpt(8).\\n";\n',
        check_options.MANUAL: ".It Fl -json\n.Sh OPTIONS\n.It Cm cast Ns = Ns Cm f16 | f32\n.It Cm strict\n.Sh FILES\n",
        check_options.BASH: "_mount_ckpt_options='cast= strict'\n--json\n    cast) compgen -W 'f16 f32' -- \n",
        check_options.ZSH: "        'cast[floats]:dtype:(f16 f32)' \\\n        'strict[so]' \\\n    '--json[x]'\n",
        check_options.FISH: 'printf "%s\\t%s\\n" \\\n        cast=f16 "x" cast=f32 "y" \\\n        strict "z"\nend\ncomplete -l json\n',
    }

    def complaints(self, path=None, old="", new=""):
        files = dict(self.FILES)
        if path:
            self.assertIn(old, files[path])
            files[path] = files[path].replace(old, new)
        with tree(files) as root:
            return list(check_options.complaints(root))

    def test_what_is_right(self):
        self.assertEqual(self.complaints(), [])

    def test_a_new_option_is_missing_everywhere(self):
        found = self.complaints(check_options.OPTIONS, '    {"remount', '    {"fresh", NO_VALUE, set_flag, AT(z), NULL},\n    {"remount')
        self.assertEqual([line.split(":")[0] for line in found],
                         [check_options.MANUAL, check_options.COMMAND, check_options.BASH, check_options.ZSH, check_options.FISH])

    def test_what_is_caught(self):
        for path, old, new in [(check_options.BASH, "f16 f32", "f16 f64"), (check_options.ZSH, "'strict[", "'strikt["), (check_options.FISH, "cast=f32", "cast=f23"),
                               (check_options.MANUAL, "f16 | f32", "f16"), (check_options.COMMAND, "strict", "lax"), (check_options.BASH, "--json", "")]:
            self.assertTrue(self.complaints(path, old, new), (path, old))


class Text(unittest.TestCase):
    def complaints(self, text):
        with tree({"docs/x.md": text}) as root:
            return list(check_text.check_file(root, "docs/x.md"))

    def test_what_is_caught(self):
        for text in ["blank \n", "no newline", "see /%s/main\n" % "work", "in /%s/.cache\n" % "root"]:
            self.assertEqual(len(self.complaints(text)), 1, text)

    def test_what_is_not(self):
        text = "mount it on /mnt/m, see ~/%s/x and https://e.org/%s/x\n" % ("work", "work")
        self.assertEqual(self.complaints(text), [])


if __name__ == "__main__":
    unittest.main()
