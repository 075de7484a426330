"""A check that takes long, in a mount: computed once for all readers while other files are served; user.ckpt.verify looks without starting it;
it ends when its last reader has left, and with the mount; Ctrl-C ends --verify. Also where a single operation takes long."""
import graph_file, signal
from graph_file import *
from mounted import *
from report_schema import parse_report
from test_signals import daemon_of, gone, wait

SECONDS = 5  # until something that was told to stop has stopped, with a sanitizer and other work on the machine
WEIGHTS = {"fc.weight": (3, 3)}
X = {"x": (256, 256)}


def write_model(folder, nodes, out, inputs):
    path = os.path.join(folder, "m.safetensors")
    with open(path, "wb") as f:
        f.write(graph_file.safetensors({k: floats(s) for k, s in WEIGHTS.items()}))
    with open(os.path.join(folder, "m.graph.json"), "w") as f:
        json.dump(graph(nodes, [out], inputs, WEIGHTS), f)
    return path


def many_steps(folder, n=20_000):
    """Minutes of small products."""
    return write_model(folder, [node("mm.default", f"y{i + 1}", self=tensor(f"y{i}" if i else "x"), mat2=tensor("x")) for i in range(n)], f"y{n}", X)


# operation, its arguments, and the shape of x: each alone takes far longer than SECONDS
LONG = {
    "mm": (node("mm.default", "y", self=tensor("x"), mat2=tensor("x")), (12288, 12288)),
    "conv2d": (node("conv2d.default", "y", input=tensor("x"), weight=tensor("x"), padding=integers(15, 15)), (1024, 1024, 16, 16)),
    "einsum": (node("einsum.default", "y", equation={"as_string": "ij,kj->ik"}, tensors=tensors("x", "x")), (8192, 16384)),
    "scaled_dot_product_attention": (node("scaled_dot_product_attention.default", "y", query=tensor("x"), key=tensor("x"), value=tensor("x")), (1, 8, 16384, 256)),
    "max_pool2d": (node("max_pool2d.default", "y", self=tensor("x"), kernel_size=integers(255, 255), stride=integers(1, 1), padding=integers(127, 127)), (8, 4, 512, 512)),
}


def cpu(pid):
    fields = read("/proc", str(pid), "stat").rsplit(b")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle(pid):
    """Not a tick of the CPU; a busy machine gives it few."""
    before = cpu(pid)
    time.sleep(0.7)
    return cpu(pid) == before


def busy(pid):
    return not idle(pid)


def reader(directory):
    return subprocess.Popen(["cat", os.path.join(directory, "verify.json")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def status(directory):
    return os.getxattr(directory, "user.ckpt.verify").decode()


def kill(process):
    process.kill()
    process.wait(SECONDS)


def test_readers_of_one_computation():
    with tempfile.TemporaryDirectory() as d, Mount(many_steps(d)) as m:
        pid = daemon_of(m)
        assert status(m) == "PENDING" and os.stat(os.path.join(m, "verify.json")).st_size > 1000
        wait(lambda: idle(pid), "a look at the status starts nothing", SECONDS)
        first, second = reader(m), reader(m)
        wait(lambda: busy(pid), "the check to begin", SECONDS)
        start = time.monotonic()
        assert len(read(m, "fc", "weight")) == 36 and status(m) == "PENDING"
        read(m, "index.json"), read(m, "model.safetensors"), os.listdir(m)
        assert time.monotonic() - start < SECONDS
        kill(first)
        assert busy(pid) and second.poll() is None, "one reader is left"
        kill(second)
        wait(lambda: idle(pid), "the check to stop", SECONDS)
        assert status(m) == "PENDING"
        third = reader(m)
        wait(lambda: busy(pid), "the check to begin again", SECONDS)
        os.kill(pid, signal.SIGINT)  # at once; SIGTERM lets open files be read to their end
        wait(lambda: gone(pid), "the daemon to end", SECONDS)
        third.wait(SECONDS)


def test_unmount_while_it_computes():
    with tempfile.TemporaryDirectory() as d, Mount(many_steps(d)) as m:
        pid, one = daemon_of(m), reader(m)
        wait(lambda: busy(pid), "the check to begin", SECONDS)
        subprocess.run(["umount", "-l", m] if os.geteuid() == 0 else ["fusermount3", "-u", "-z", m], check=True)
        kill(one)
        wait(lambda: gone(pid), "the daemon to end", SECONDS)


def test_interrupted_in_the_terminal():
    with tempfile.TemporaryDirectory() as d:
        p = subprocess.Popen([BINARY, "--verify", many_steps(d)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(1)
        p.send_signal(signal.SIGINT)
        assert p.wait(SECONDS) == -signal.SIGINT and not SANITIZER.search(p.stderr.read().decode())
        p.stderr.close()


def test_single_operations():
    for name, (step, shape) in LONG.items():
        with tempfile.TemporaryDirectory() as d, Mount(write_model(d, [step], "y", {"x": shape}), "verify_memory=6G") as m:
            pid, one = daemon_of(m), reader(m)
            time.sleep(4)
            assert one.poll() is None and busy(pid), f"{name}: it ends too soon to tell"
            kill(one)
            wait(lambda: idle(pid), f"{name} to stop", SECONDS)


def test_statuses():
    with Mount(fixture("verify", "mlp.safetensors")) as m:
        assert status(m) == "PENDING"
        readers = [subprocess.Popen(["cat", os.path.join(m, "verify.json")], stdout=subprocess.PIPE) for _ in range(8)]
        texts = {p.communicate()[0] for p in readers}
        assert len(texts) == 1 and parse_report(texts.pop().decode())["status"] == status(m) == "PASS"
    with tempfile.TemporaryDirectory() as d:
        source = write_model(d, [node("mm.default", "y", self=tensor("x"), mat2=tensor("x"))], "y", {"x": (2, 2)})
        with open(os.path.join(d, "m.reference.safetensors"), "wb") as f:
            f.write(graph_file.safetensors({"input.0": floats((2, 2)), "output.0": floats((2, 2), 7.0)}))
        with Mount(source) as m:
            assert parse_report(read(m, "verify.json").decode())["status"] == status(m) == "DIFF"


if __name__ == "__main__":
    main(__name__)
