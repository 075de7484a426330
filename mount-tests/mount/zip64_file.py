"""ZIP archives as torch.save lays them out, but larger than a disk and as wrong as a test needs them. Standard library only."""
import struct


def write_zip(path, entries):
    """Of (name, size, pieces of bytes or None for a hole, crc32 or 0 for not computed, whether deflated): zip64, each at a multiple of 64 bytes as
    torch.save has them."""
    directory = []
    with open(path, "wb") as f:
        for name, nbytes, pieces, crc, deflated in entries:
            at = f.tell()
            pieces = None if pieces is None else list(pieces)
            stored = sum(map(len, pieces)) if deflated else nbytes
            sizes = struct.pack("<HHQQ", 1, 16, nbytes, stored)
            padding = -(at + 30 + len(name) + len(sizes) + 4) % 64
            extra = sizes + b"FB" + struct.pack("<H", padding) + b"Z" * padding
            common = struct.pack("<HHHHIII", 0, 8 if deflated else 0, 0, 0, crc, 0xFFFFFFFF, 0xFFFFFFFF)
            f.write(b"PK\3\4" + struct.pack("<H", 45) + common + struct.pack("<HH", len(name), len(extra)) + name.encode() + extra)
            if pieces is None:
                f.seek(nbytes, 1)
            for piece in pieces or ():
                f.write(piece)
            extra = struct.pack("<HHQQQ", 1, 24, nbytes, stored, at)
            directory.append(b"PK\1\2" + struct.pack("<HH", 45, 45) + common
                             + struct.pack("<HHHHHII", len(name), len(extra), 0, 0, 0, 0, 0xFFFFFFFF) + name.encode() + extra)
        at, n, directory = f.tell(), len(entries), b"".join(directory)
        f.write(directory + b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, n, n, len(directory), at))
        f.write(b"PK\6\7" + struct.pack("<IQI", 0, at + len(directory), 1) + b"PK\5\6" + b"\0" * 4 + b"\xff" * 12 + b"\0\0")
