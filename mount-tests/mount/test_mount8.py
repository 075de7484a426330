"""Through mount(8): -t ckpt and its other names, /etc/fstab with user, nofail and the rest, mount -a, umount, remount, autofs."""
from private import *
from mounted import *

WORK = enter()
install()
SOURCE = copy_of("a1", "a1_full.pt")


def fstab(*lines):
    write("/etc/fstab", "".join(f"{line}\n" for line in lines))


def is_served(directory, weight=128):
    assert len(mounted_on(directory)) == 1, [m.target for m in mounts()]
    assert len(read(directory, "fc1", "weight")) == weight


def works_as(*arguments):
    with Point() as d:
        p = sh("mount", *(d if a is Point else a for a in arguments))
        assert (p.returncode, p.stdout, p.stderr) == (0, "", ""), (arguments, p)
        is_served(d)
        must("umount", d)
        assert not mounted_on(d)


def test_names_of_the_type():
    works_as("-t", "ckpt", SOURCE, Point)
    works_as("-t", "ckpt", "-o", "layout=torch,noatime", SOURCE, Point)
    works_as("-t", "fuse.ckpt", SOURCE, Point)  # as /proc/mounts has it; by the link mount.fuse.ckpt
    works_as("-t", "fuse", f"mount.ckpt#{SOURCE}", Point)  # by mount.fuse3, which finds us in PATH


def test_mount_fuse3():
    if not shutil.which("mount.fuse3"):
        print("     not tried: there is no mount.fuse3 here")
        return
    with Point() as d:
        must("mount.fuse3", SOURCE, d, "-t", "fuse.mount.ckpt", "-o", "ro,layout=torch")
        is_served(d)


def test_flags_of_autofs_and_verbose():
    works_as("-n", "-s", "-t", "ckpt", "-o", "bogus_of_an_old_map", SOURCE, Point)
    with Point() as d:
        assert "bogus" in sh("mount", "-t", "ckpt", "-o", "bogus", SOURCE, d).stderr
        assert "4 tensors" in must("mount", "-v", "-t", "ckpt", SOURCE, d)


def test_fake_checks_and_mounts_nothing():
    with Point() as d:
        must("mount", "-f", "-t", "ckpt", SOURCE, d)
        assert not mounted_on(d)


def test_table_of_mounts():
    with Point() as d:
        must("mount", "-t", "ckpt", SOURCE, d)
        (m,) = mounted_on(d)
        assert (m.source, m.type) == (SOURCE, "fuse.ckpt"), vars(m)
        assert {"ro", "nosuid", "nodev", "noexec", "noatime", "default_permissions"} <= set(m.options), m.options
        assert f"{SOURCE} on {d} type fuse.ckpt (ro," in must("mount")
        assert must("findmnt", "-n", "-t", "fuse.ckpt", "-o", "SOURCE,TARGET").split() == [SOURCE, d]
        assert must("findmnt", "-n", "-o", "TARGET", SOURCE).strip() == d
        must("umount", SOURCE)
        assert not mounted_on(d)


def test_odd_names_in_the_table():
    odd = os.path.join(os.path.dirname(SOURCE), "a b,c\\d\t#%é.pt")
    shutil.copy(SOURCE, odd)
    with Point() as d:
        must("mount", "-t", "ckpt", odd, d)
        assert mounted_on(d)[0].source == odd, mounted_on(d)[0].source
        assert must("findmnt", "-n", "--raw", "-o", "TARGET", d).strip() == d
        must("df", d)
        must("umount", odd)
        must("mount", "-t", "ckpt", "-o", r"fsname=two words\,and a comma", SOURCE, d)
        assert mounted_on(d)[0].source == "two words,and a comma", mounted_on(d)[0].source
        assert mounted_on(d)[0].type == "fuse.ckpt"


def test_symbolic_links_of_the_source():
    link = os.path.join(WORK, "to.pt")
    os.symlink(SOURCE, link)
    said = []
    for flags in ([], ["-c"]):
        with Point() as d:
            said.append(must("mount", *flags, "-v", "-t", "ckpt", link, d).split(":")[0])
    assert said == ["a1_full.pt", "to.pt"], f"mount(8) resolves them, mount -c does not: {said}"


def test_a_relative_source_is_shown_in_full():
    with Point() as d:
        assert run(os.path.basename(SOURCE), d, cwd=os.path.dirname(SOURCE)).returncode == 0
        assert mounted_on(d)[0].source == SOURCE


def test_fstab_with_everything():
    with Point() as d:
        fstab(f"{SOURCE} {d} ckpt ro,noauto,user,nofail,_netdev,noatime,x-systemd.automount,x-systemd.idle-timeout=60,comment=ours,layout=torch 0 0")
        must("mount", "-a")
        assert not mounted_on(d), "noauto was mounted"
        must("mount", d)
        is_served(d)
        p = sh("mount", d)
        assert p.returncode == 32 and "busy" in p.stderr, p
        assert len(mounted_on(d)) == 1
        must("umount", d)
        must("mount", SOURCE)  # by its first column
        is_served(d)


def test_fstab_of_another_name():
    with Point() as d:
        table = os.path.join(WORK, "my.fstab")
        write(table, f"{SOURCE} {d} ckpt ro 0 0\n")
        for _ in range(2):
            must("mount", "-T", table, "-a")
            is_served(d)


def test_mount_a_twice():
    link = os.path.join(os.path.dirname(SOURCE), "link.pt")
    os.symlink(os.path.basename(SOURCE), link)
    odd = os.path.join(os.path.dirname(SOURCE), "my model.pt")
    shutil.copy(SOURCE, odd)
    with Point() as a, Point() as b, Point() as c:
        fstab(f"{SOURCE} {a} ckpt ro 0 0", f"{link} {b} ckpt defaults,cast=f32 0 0", f"{odd.replace(' ', chr(92) + '040')} {c} ckpt rw,user 0 0")
        for _ in range(2):
            p = sh("mount", "-a")
            assert (p.returncode, p.stdout, p.stderr) == (0, "", ""), p
            for d in (a, b, c):
                is_served(d)


def test_nofail():
    missing = os.path.join(WORK, "missing.pt")
    with Point() as a, Point() as b:
        fstab(f"{missing} {a} ckpt ro,nofail 0 0", f"{SOURCE} {b} ckpt ro,nofail 0 0")
        for _ in range(2):
            p = sh("mount", "-a")
            assert (p.returncode, p.stdout, p.stderr) == (0, "", ""), p
            assert not mounted_on(a)
            is_served(b)
        fstab(f"{missing} {a} ckpt ro 0 0")
        p = sh("mount", "-a")
        assert p.returncode == 32 and p.stderr.startswith("mount.ckpt: ") and "missing.pt" in p.stderr, p
        bad = os.path.join(WORK, "bad.pt")
        write(bad, "this is no checkpoint")
        fstab(f"{bad} {a} ckpt ro,nofail 0 0")
        assert sh("mount", "-a").returncode == 32, "nofail excuses a missing source, not a bad one"


def test_user():
    with Point(NOBODY) as d, Point() as roots:
        fstab(f"{SOURCE} {d} ckpt ro,noauto,user 0 0", f"{SOURCE} {roots} ckpt ro,noauto 0 0")
        p = as_user("mount", d)
        assert (p.returncode, p.stderr) == (0, ""), p
        (m,) = mounted_on(d)
        assert f"user_id={NOBODY}" in m.options, m.options
        assert as_user("cat", f"{d}/fc1/weight").returncode == 0
        assert as_user("stat", "-c", "%u %g %a", f"{d}/fc1/weight").stdout == f"{NOBODY} {NOBODY} 444\n"
        assert as_user("umount", d, user=1000).returncode != 0, "somebody else unmounted it"
        p = as_user("umount", d)
        assert p.returncode == 0 and not mounted_on(d), p
        wait(lambda: not processes(), "the daemon to end")
        for command in (["mount", roots], ["mount", "-t", "ckpt", SOURCE, roots]):
            assert as_user(*command).returncode != 0 and not mounted_on(roots), "without `user` it is root's"


def test_users_and_root_unmounts_for_a_user():
    with Point(NOBODY) as d:
        fstab(f"{SOURCE} {d} ckpt noauto,users 0 0")
        assert as_user("mount", d).returncode == 0
        must("umount", d)
        assert not mounted_on(d)


def test_remount():
    with Point() as d:
        must("mount", "-t", "ckpt", SOURCE, d)
        for options in ("remount", "remount,ro", "remount,rw", "remount,layout=torch"):
            p = sh("mount", "-o", options, d)
            assert p.returncode == 1 and len(p.stderr.splitlines()) == 1 and "unmount it first" in p.stderr, p
            is_served(d)


def test_bind_and_move():
    with Point() as d, Point() as e:
        must("mount", "-t", "ckpt", SOURCE, d)
        must("mount", "--bind", d, e)
        assert read(d, "index.json") == read(e, "index.json")
        must("umount", d)
        assert len(read(e, "fc1", "weight")) == 128, "the daemon serves as long as one of them is there"
        must("umount", e)
        wait(lambda: not processes(), "the daemon to end")


if __name__ == "__main__":
    main(__name__)
