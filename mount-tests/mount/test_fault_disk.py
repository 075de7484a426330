"""A disk with bad sectors below the source: EIO for who reads them, one line in the log, everything else goes on, and nothing
is wrong once the sectors can be read again."""
import errno, os, shutil, subprocess
from mounted import *
from faulty import FaultFs


def test_the_injector_fails_as_told():
    with FaultFs() as disk:
        data = os.urandom(100_000)
        with open(os.path.join(disk.below, "a"), "wb") as f:
            f.write(data)
        assert read(disk.path("a")) == data
        with open(disk.path("a"), "rb") as f:
            disk.fail("a", "read EIO 50000 10")
            for off, fails in ((0, False), (50000, True), (90000, False)):
                try:
                    assert os.pread(f.fileno(), 100, off) == data[off : off + 100] and not fails
                except OSError as e:
                    assert fails and e.errno == errno.EIO
            disk.heal("a")
            assert os.pread(f.fileno(), 100_000, 0) == data
            disk.fail("a", "read hang 0")
            p = subprocess.Popen(["cat", disk.path("a")], stdout=subprocess.PIPE)
            disk.wait_for_waiting("a")
            assert p.poll() is None
            disk.heal("a")
            assert p.communicate()[0] == data


if __name__ == "__main__":
    main(__name__)
