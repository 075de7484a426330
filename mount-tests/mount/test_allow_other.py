"""Who may enter: only who mounted, unless allow_other or allow_root; and then owner and mode count, as uid=, gid= and umask= set
them. Others than root may give allow_other only where /etc/fuse.conf says so, and are told."""
from private import *
from mounted import *

WORK = enter()
install()
SOURCE = copy_of("a1", "a1_full.pt")
OWNER, FRIEND = 1000, 1001


def can_read(user, directory, groups=()):
    """Whether somebody can list the tree and read a file of it; half of both is an error of ours."""
    space = ["setpriv", "--reuid", str(user), "--regid", str(user), *(["--groups", ",".join(map(str, groups))] if groups else ["--clear-groups"]), "--inh-caps=-all"]
    listed = sh(*space, "ls", f"{directory}/fc1")
    got = sh(*space, "cat", f"{directory}/fc1/weight", encoding=None, errors=None)
    for p in (listed, got):
        assert p.returncode == 0 or "Permission denied" in str(p.stderr), p
    assert (listed.returncode == 0) == (got.returncode == 0), (listed, got)
    assert got.returncode or (listed.stdout, len(got.stdout)) == ("bias\nweight\n", 128), (listed, got)
    return got.returncode == 0


def readers(directory, users=(0, OWNER, FRIEND, NOBODY)):
    return [u for u in users if can_read(u, directory)]


def mount_by(user, directory, *opts):
    return as_user(HELPER, SOURCE, directory, *options(*opts), user=user)


def shown(directory):
    return must("stat", "-c", "%u %g %a", directory, f"{directory}/fc1", f"{directory}/fc1/weight").splitlines()


def by_root(*opts):
    """(who can read, owner and modes of root folder, folder and file)"""
    with Point() as d:
        must(HELPER, SOURCE, d, *options(*opts))
        return readers(d), shown(d)


def test_of_root():
    open_to_all = ["0 0 555", "0 0 555", "0 0 444"]
    assert by_root() == ([0], open_to_all)
    assert by_root("allow_root") == ([0], open_to_all)
    assert by_root("allow_other") == ([0, OWNER, FRIEND, NOBODY], open_to_all)


def test_owner_and_mode_count():
    assert by_root("allow_other,umask=077") == ([0], ["0 0 500", "0 0 500", "0 0 400"])
    assert by_root(f"allow_other,uid={OWNER},umask=077") == ([0, OWNER], [f"{OWNER} 0 500"] * 2 + [f"{OWNER} 0 400"])
    assert by_root(f"allow_other,uid={OWNER},gid={FRIEND},umask=027") == ([0, OWNER, FRIEND], [f"{OWNER} {FRIEND} 550"] * 2 + [f"{OWNER} {FRIEND} 440"])
    assert by_root("allow_other,uid=nobody,gid=nogroup,umask=0077")[0] == [0, NOBODY]


def test_supplementary_groups():
    with Point() as d:
        must(HELPER, SOURCE, d, "-o", f"allow_other,gid={FRIEND},umask=027")
        assert can_read(NOBODY, d, groups=[FRIEND]) and not can_read(NOBODY, d, groups=[OWNER])


def test_others_must_be_allowed_to():
    for text in ("", "#user_allow_other\n", "mount_max = 100\n"):
        write("/etc/fuse.conf", text)
        for option in ("allow_other", "allow_root"):
            with Point(OWNER) as d:
                p = mount_by(OWNER, d, option)
                assert p.returncode == 1 and len(p.stderr.splitlines()) == 1 and not mounted_on(d), p
                for word in ("mount.ckpt: ", "allow_other", "user_allow_other", "/etc/fuse.conf"):
                    assert word in p.stderr, p.stderr
            with Point() as d:
                must(HELPER, SOURCE, d, "-o", option)


def test_allowed_to():
    write("/etc/fuse.conf", "# ours\nuser_allow_other\n")
    for opts, expected in (([], [OWNER]), (["allow_other"], [0, OWNER, FRIEND, NOBODY]), (["allow_root"], [0, OWNER]), (["allow_other", "umask=077"], [0, OWNER])):
        with Point(OWNER) as d:
            p = mount_by(OWNER, d, *opts)
            assert p.returncode == 0, p
            assert readers(d) == expected, (opts, readers(d))
            assert as_user("umount", d, user=OWNER).returncode == 0


def test_fstab():
    write("/etc/fuse.conf", "user_allow_other\n")
    with Point(OWNER) as d:
        write("/etc/fstab", f"{SOURCE} {d} ckpt noauto,user,allow_other,umask=0 0 0\n")
        assert as_user("mount", d, user=OWNER).returncode == 0
        assert readers(d) == [0, OWNER, FRIEND, NOBODY]


if __name__ == "__main__":
    main(__name__)
