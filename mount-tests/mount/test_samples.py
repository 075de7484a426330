"""contrib's samples do what they say: fstab, systemd's units, autofs' map; their paths are those of files made here."""
import configparser, re, socket
from private import *
from mounted import *

CONTRIB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "contrib")
MANUAL = os.path.join(CONTRIB, "..", "docs", "mount.ckpt.8")
WORK = enter()
install()
MODELS, POINTS = os.path.join(WORK, "models"), os.path.join(WORK, "points")


def sample(*names):
    """Its text, with our folders for /srv/models and /mnt; all files and mount points that it names are made."""
    with open(os.path.join(CONTRIB, *names), encoding="utf-8") as f:
        text = f.read()
    for folder in (MODELS, POINTS):
        os.makedirs(folder, exist_ok=True)
    for model in re.findall(r"/srv/models/([\w.]+)", text):
        shutil.copy(fixture("a1", "a1_full.pt"), os.path.join(MODELS, model))
        os.chmod(os.path.join(MODELS, model), 0o644)
    for point in re.findall(r"/mnt/(\w+)", text):
        os.makedirs(os.path.join(POINTS, point), exist_ok=True)
    return text.replace("/srv/models", MODELS).replace("/mnt", POINTS)


def unit(text):
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str
    parser.read_string(text)
    return parser


def is_read_by(user, *path):
    p = as_user("wc", "-c", os.path.join(POINTS, *path), user=user)
    return p.returncode == 0 and p.stdout.split()[0] == "128"


def unmount_all():
    for m in mounts():
        must("umount", m.target)


def test_fstab():
    write("/etc/fstab", sample("fstab"))
    own = os.path.join(POINTS, "own")
    os.chown(own, NOBODY, NOBODY)
    for _ in range(2):
        p = sh("mount", "-a")
        assert (p.returncode, p.stdout, p.stderr) == (0, "", ""), p
    assert [m.target for m in mounts()] == [os.path.join(POINTS, "model")] and is_read_by(NOBODY, "model", "fc1", "weight")
    assert as_user("mount", own).returncode == 0 and is_read_by(NOBODY, "own", "fc1", "weight")
    assert as_user("umount", own).returncode == 0
    must("mount", os.path.join(POINTS, "large"))
    assert is_read_by(NOBODY, "large", "fc1", "weight")
    unmount_all()
    os.unlink(os.path.join(MODELS, "model.pt"))
    must("mount", "-a")
    assert not mounts(), "a missing file is no error"


def test_fstab_as_systemd_reads_it():
    generator = "/usr/lib/systemd/system-generators/systemd-fstab-generator"
    if not os.path.exists(generator):
        print("     not tried: there is no systemd here")
        return
    write("/etc/fstab", sample("fstab"))
    units = os.path.join(WORK, "units")
    os.mkdir(units)
    must(generator, units, units, units, env={**os.environ, "SYSTEMD_IN_INITRD": "0"})
    def generated(point, kind):
        name = must("systemd-escape", "--path", f"--suffix={kind}", os.path.join(POINTS, point)).strip()
        with open(os.path.join(units, name), encoding="utf-8") as f:
            return unit(f.read())[kind.capitalize()]
    assert generated("model", "mount")["Type"] == "ckpt"
    assert generated("large", "mount")["What"] == os.path.join(MODELS, "large.pt")
    assert generated("large", "automount")["Where"] == os.path.join(POINTS, "large")
    assert generated("large", "automount")["TimeoutIdleSec"].startswith("10min")


def test_units_are_what_systemd_expects():
    if not shutil.which("systemd-analyze"):
        print("     not tried: there is no systemd-analyze here")
        return
    os.makedirs("/usr/share/man/man8", exist_ok=True)
    shutil.copy(MANUAL, "/usr/share/man/man8/mount.ckpt.8")
    names = sorted(os.listdir(os.path.join(CONTRIB, "systemd")))
    for name in names:
        shutil.copy(os.path.join(CONTRIB, "systemd", name), "/etc/systemd/system")
    with_tmp = "mount --no-mtab -t tmpfs tmpfs /tmp && cd /etc/systemd/system && exec systemd-analyze verify \"$@\""
    p = sh("unshare", "--mount", "sh", "-c", with_tmp, "sh", *names)
    ours = [line for line in p.stderr.splitlines() if re.search(r"mount\.ckpt@|mnt-model", line)]
    assert not [line for line in ours if shutil.which("man") or "Command 'man" not in line], p.stderr
    assert "Failed to setup" not in p.stderr, f"it did not get to our units: {p.stderr}"


def test_mount_unit():
    """As systemd mounts a unit: mount WHAT WHERE -t TYPE -o OPTIONS."""
    u = unit(sample("systemd", "mnt-model.mount"))["Mount"]
    must("mount", u["What"], u["Where"], "-t", u["Type"], "-o", u["Options"])
    assert is_read_by(NOBODY, "model", "fc1", "weight")
    must("umount", u["Where"])
    with open(os.path.join(CONTRIB, "systemd", "mnt-model.automount"), encoding="utf-8") as f:
        automount = unit(f.read())
    original = unit(sample("systemd", "mnt-model.mount").replace(POINTS, "/mnt"))
    assert automount["Automount"]["Where"] == original["Mount"]["Where"] == "/mnt/model", "a unit is called as its mount point"


def expanded(text, source, name):
    """systemd's specifiers of an instance."""
    return text.replace("%f", source).replace("%t", WORK).replace("%i", name)


def test_service():
    """The line of ExecStart=, run as the manager would: it says when it is ready, and ends on SIGTERM; killed, it leaves nothing."""
    service = unit(sample("systemd", "mount.ckpt@.service"))["Service"]
    assert service["Type"] == "notify" and "PrivateTmp" not in service and "ProtectSystem" not in service
    name, value = service["Environment"].split("=", 1)
    sample("fstab")
    directory = os.path.join(WORK, expanded(service["RuntimeDirectory"], "", "model"))
    os.makedirs(directory)
    address = os.path.join(WORK, "notify")
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.settimeout(30)
    manager.bind(address)
    command = [expanded(word, os.path.join(MODELS, "model.pt"), "model").replace("${%s}" % name, value) for word in service["ExecStart"].split()]
    assert command[-1] == directory, "it is mounted on the folder that systemd makes for it"
    for how in ("terminate", "kill"):
        p = subprocess.Popen(command, env={**os.environ, "NOTIFY_SOCKET": address})
        assert b"READY=1" in manager.recv(4096)
        assert len(read(directory, "fc1", "weight")) == 128
        getattr(p, how)()
        p.wait(30)
        wait(lambda: not mounted_on(directory), f"the mount to go after {how}")
        if how == "terminate":
            assert p.returncode == 0 and manager.recv(4096) == b"STOPPING=1"


def test_map_of_autofs():
    """As autofs mounts: mount -n -s -t TYPE -o OPTIONS SOURCE DIR; its key is the first column, a local source begins with a colon."""
    lines = [line.split() for line in sample("auto.ckpt").splitlines() if line and line[0] != "#"]
    assert len(lines) == 2
    for key, opts, location in lines:
        opts = opts.removeprefix("-").split(",")
        kind = [o for o in opts if o.startswith("fstype=")]
        assert kind == ["fstype=ckpt"] and location[0] == ":"
        with Point() as d:
            must("mount", "-n", "-s", "-t", "ckpt", "-o", ",".join(o for o in opts if o not in kind), location[1:], d)
            assert as_user("cat", f"{d}/fc1/weight").returncode == 0, key


if __name__ == "__main__":
    main(__name__)
