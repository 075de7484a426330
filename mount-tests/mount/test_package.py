"""The Debian package: what is in it, as lintian would look at it; that `cmake --install` puts the same in place; and that it can be
installed, used through mount(8), installed again and removed without a trace, on a machine of the test's own."""
import filecmp, gzip, stat
from private import *
from mounted import *

BUILD = os.path.dirname(os.path.abspath(BINARY))
CONFIG = os.path.join(BUILD, "CPackConfig.cmake")
DOC = "usr/share/doc/mount.ckpt"
FILES = {
    "usr/sbin/mount.ckpt": 0o755,
    "usr/lib/systemd/system/mount.ckpt@.service": 0o644,
    "usr/share/man/man8/mount.ckpt.8.gz": 0o644,
    f"{DOC}/changelog.gz": 0o644,
    "usr/share/bash-completion/completions/mount.ckpt": 0o644,
    "usr/share/zsh/vendor-completions/_mount.ckpt": 0o644,
    "usr/share/fish/vendor_completions.d/mount.ckpt.fish": 0o644,
    f"{DOC}/copyright": 0o644,
    f"{DOC}/README.md": 0o644,
    **{f"{DOC}/examples/{name}": 0o644 for name in ("fstab", "auto.ckpt", "mnt-model.mount", "mnt-model.automount")},
    **{f"{DOC}/examples/{name}": 0o755 for name in ("ckpt-reference.py", "ckpt-matrix")},
}
LINKS = {"usr/sbin/mount.fuse.ckpt": "mount.ckpt", "usr/share/man/man8/mount.fuse.ckpt.8.gz": "mount.ckpt.8.gz"}


def need(*programs):
    for program in programs:
        if not shutil.which(program):
            skip(f"there is no {program} here")
    if not os.path.exists(CONFIG):
        skip(f"{CONFIG} is not there: the binary was not built by this project's CMake")


need("cpack", "cmake", "dpkg", "dpkg-deb", "dpkg-shlibdeps", "file")
WORK = enter()


def build():
    """The package and its contents, unpacked. The build folder is overlaid, since cmake leaves a manifest in it."""
    overlay(WORK, BUILD)
    out = os.path.join(WORK, "out")
    must("cpack", "-G", "DEB", "--config", CONFIG, "-B", out, cwd=WORK)
    (name,) = [n for n in os.listdir(out) if n.endswith(".deb")]
    tree = os.path.join(WORK, "tree")
    must("dpkg-deb", "-x", os.path.join(out, name), tree)
    return os.path.join(out, name), tree


def paths(root):
    """{path below root: its lstat} of all but folders."""
    return {os.path.relpath(os.path.join(w, n), root): os.lstat(os.path.join(w, n)) for w, dirs, names in os.walk(root)
            for n in names + [d for d in dirs if os.path.islink(os.path.join(w, d))]}


DEB, TREE = build()


def test_name_and_fields():
    fields = {f: must("dpkg-deb", "-f", DEB, f).strip() for f in ("Package", "Version", "Architecture", "Maintainer", "Section", "Priority", "Depends", "Description", "Installed-Size")}
    assert os.path.basename(DEB) == f"mount.ckpt_{fields['Version']}_{fields['Architecture']}.deb", DEB
    assert must(BINARY, "--version").split() == ["mount.ckpt", fields["Version"]]
    assert fields["Architecture"] == must("dpkg", "--print-architecture").strip()
    assert re.fullmatch(r"[^<>]+ <[^<>@]+@[^<>@]+>", fields["Maintainer"])
    for library in ("fuse3", "libopenblas0", "libc6", "libfuse3", "libzip", "zlib1g", "libpcre2"):
        assert any(d.startswith(library) for d in fields["Depends"].split(", ")), (library, fields["Depends"])
    summary, *long = fields["Description"].split("\n")
    assert 20 < len(summary) < 80 and not summary.endswith(".") and len(long) >= 3 and all(len(line) <= 80 for line in long), fields["Description"]
    assert int(fields["Installed-Size"]) * 1024 >= sum(st.st_size for st in paths(TREE).values())


def test_contents():
    found = paths(TREE)
    documents = {p for p in found if p.startswith(f"{DOC}/docs/")}
    assert {p.rsplit("/", 1)[1] for p in documents} >= {"adapters.md", "formats.md", "verification.md", "verify.schema.json"}
    assert set(found) - documents == set(FILES) | set(LINKS), set(found) - documents ^ (set(FILES) | set(LINKS))
    for path, st in found.items():
        mode = FILES.get(path, 0o644)
        assert path in LINKS or (stat.S_ISREG(st.st_mode) and stat.S_IMODE(st.st_mode) == mode), (path, oct(st.st_mode))
    for path, target in LINKS.items():
        assert os.readlink(os.path.join(TREE, path)) == target
    for line in must("dpkg-deb", "-c", DEB).splitlines():
        kind, owner = line.split()[:2]
        assert owner == "root/root" and kind in ("drwxr-xr-x", "-rw-r--r--", "-rwxr-xr-x", "lrwxrwxrwx"), line


def test_checksums():
    control = os.path.join(WORK, "control")
    must("dpkg-deb", "-e", DEB, control)
    assert sorted(os.listdir(control)) == ["control", "md5sums"], "no scripts are needed"
    must("md5sum", "--quiet", "-c", os.path.join(control, "md5sums"), cwd=TREE)
    assert len(read(control, "md5sums").splitlines()) == len(paths(TREE)) - len(LINKS)


def test_texts():
    manual, changes = (read(TREE, path) for path in ("usr/share/man/man8/mount.ckpt.8.gz", f"{DOC}/changelog.gz"))
    for packed in (manual, changes):
        assert packed[4:8] == bytes(4) and packed[8] == 2 and not packed[3] & 8, "gzip -9n: no time, no name"
    assert gzip.decompress(manual).startswith(b".Dd ")
    assert gzip.decompress(changes).decode().startswith(f"mount.ckpt ({must('dpkg-deb', '-f', DEB, 'Version').strip()}) "), "the newest entry is of this version"
    for viewer in (["man", "-l"], ["mandoc", "-T", "utf8"]):
        if shutil.which(viewer[0]):
            text = must(*viewer, os.path.join(TREE, "usr/share/man/man8/mount.ckpt.8.gz"), env={**os.environ, "MANPAGER": "cat", "MANWIDTH": "80"})
            text = re.sub(".\b", "", text)  # bold is a letter over itself
            assert "SYNOPSIS" in text and "keep_going" in text, viewer
    copyright = read(TREE, DOC, "copyright").decode()
    assert copyright.startswith("Format: https://www.debian.org/doc/packaging-manuals/copyright-format/") and "License:" in copyright
    for line in re.findall(r"\]\(([^)#]+)", read(TREE, DOC, "README.md").decode()):
        assert "//" in line or line.endswith(".8") or os.path.exists(os.path.join(TREE, DOC, line)), f"README.md links {line}, which is not in the package"


def test_program():
    program = os.path.join(TREE, "usr/sbin/mount.ckpt")
    said = must("file", "-b", program)
    assert "ELF" in said and "pie" in said and "not stripped" not in said, said
    if shutil.which("readelf"):
        dynamic = must("readelf", "-d", program)
        assert "BIND_NOW" in dynamic and "RPATH" not in dynamic and "RUNPATH" not in dynamic, dynamic


def test_program_is_of_no_machine():
    if sanitizer():
        print("     skipped: a sanitizer reports where in the sources, by the paths of the machine that built it")
        return
    program = read(TREE, "usr/sbin/mount.ckpt")
    for folder in re.search('CPACK_BUILD_SOURCE_DIRS "(.+)"', read(CONFIG).decode())[1].split(";"):
        assert os.fsencode(folder) not in program, folder


def test_cmake_install_puts_the_same_in_place():
    other = os.path.join(WORK, "installed")
    must("cmake", "--install", BUILD, "--prefix", "/usr", "--strip", env={**os.environ, "DESTDIR": other})
    ours, theirs = paths(TREE), paths(other)
    assert set(ours) == set(theirs), set(ours) ^ set(theirs)
    for path, st in ours.items():
        a, b = os.path.join(TREE, path), os.path.join(other, path)
        assert st.st_mode == theirs[path].st_mode, path
        assert os.readlink(a) == os.readlink(b) if os.path.islink(a) else filecmp.cmp(a, b, shallow=False), path


def installed():
    return sh("dpkg-query", "-W", "-f", "${db:Status-Status}", "mount.ckpt").stdout


def is_kept(path):
    """Whether dpkg may install it: images for containers leave manuals and documents out."""
    return not path.startswith(("usr/share/man/", "usr/share/doc/")) or path.endswith("/copyright")


def test_install_use_remove():
    before = set(os.listdir("/usr/sbin"))
    source = copy_of("a1", "a1_full.pt")
    p = sh("dpkg", "-i", DEB)
    assert p.returncode == 0 and installed() == "installed", p
    assert not [line for line in sh("dpkg", "-V", "mount.ckpt").stdout.splitlines() if not line.startswith("missing")]
    for path in filter(is_kept, FILES):
        assert os.path.isfile(os.path.join("/", path)), path
    with Point() as d:
        must("mount", "-t", "ckpt", source, d)
        assert len(read(d, "fc1", "weight")) == 128
        must("dpkg", "-i", DEB)  # over a running daemon
        assert len(read(d, "fc2", "weight")) == 96
        must("umount", d)
        must("mount", "-t", "fuse.ckpt", source, d, "-o", "layout=torch")
        assert read_json(d, "index.json")["layout"] == "torch"
    with Point(NOBODY) as d:
        assert as_user("/usr/sbin/mount.ckpt", source, d).returncode == 0
    assert '"PASS"' in must("mount.ckpt", "--verify", source)
    must("dpkg", "-r", "mount.ckpt")
    assert installed() in ("", "not-installed"), installed()
    assert not [path for path in (*FILES, *LINKS) if os.path.lexists(os.path.join("/", path))]
    assert set(os.listdir("/usr/sbin")) == before and not os.path.exists(os.path.join("/", DOC))
    assert sh("mount", "-t", "ckpt", source, "/mnt").returncode != 0


if __name__ == "__main__":
    main(__name__)
