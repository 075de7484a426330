#!/usr/bin/env python3
"""mount.ckpt --verify: exit codes, and reports that keep to docs/verify.schema.json."""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile

from mounted import sanitizer
from report_schema import parse_report

MOUNT_CKPT = os.environ["MOUNT_CKPT"]
FIXTURES = pathlib.Path(os.environ["FIXTURES"])
def verify(source, options, status, code):
    """Runs --verify; the report must fit the schema and have this status, the exit this code."""
    args = [MOUNT_CKPT, "--verify"] + (["-o", options] if options else []) + [str(source)]
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    report = parse_report(done.stdout)
    assert report["status"] == status, (args, report["status"], done.stdout)
    assert done.returncode == code, (args, done.returncode)
    print("ok", " ".join(args[1:]).replace(str(FIXTURES), "FIXTURES"), "->", status, code)
    return report


def verbose(source, code, *words):
    """What people read goes to stderr, the report still to stdout, unless that is a terminal."""
    args = [MOUNT_CKPT, "--verify", "--verbose", str(source)]
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    assert done.returncode == code, done
    parse_report(done.stdout)
    missing = [w for w in words if w not in done.stderr]
    assert not missing and not any(line != line.rstrip() for line in done.stderr.split("\n")), (missing, done.stderr)
    master, slave = os.openpty()
    shown = subprocess.run(args, stdout=slave, stderr=subprocess.PIPE, text=True, check=False)
    os.set_blocking(master, False)
    try:
        printed = os.read(master, 1)
    except BlockingIOError:
        printed = b""
    os.close(master), os.close(slave)
    assert shown.returncode == code and not printed and "tensors as served" in shown.stderr, (printed, shown)


def verbose_of_odd_numbers(folder):
    """Statistics of what is finite, and the places of the largest differences."""
    model = FIXTURES / "verify" / "square.safetensors"
    source, reference = pathlib.Path(folder, "m.safetensors"), pathlib.Path(folder, "m.reference.safetensors")
    data = bytearray(model.read_bytes())
    data[-16:-12] = b"\0\0\xc0\x7f"  # NaN
    data[-12:-8] = b"\0\0\x80\xff"   # -inf
    source.write_bytes(data)
    verbose(source, 0, "m.safetensors: ", " 1      1  ")
    source.write_bytes(model.read_bytes())
    shutil.copy(FIXTURES / "verify" / "square.pt2", pathlib.Path(folder, "m.pt2"))
    recorded = bytearray((FIXTURES / "verify" / "square.reference.safetensors").read_bytes())
    at = 8 + int.from_bytes(recorded[:8], "little")
    header = json.loads(recorded[8:at])
    begin = at + header["output.0"]["data_offsets"][0]
    recorded[begin + 4:begin + 8] = struct.pack("<f", 1000.0)
    reference.write_bytes(recorded)
    verbose(source, 1, "m.safetensors: DIFF", "output.0 torch-vs-recorded", "largest at  [0, 1] ", ">=1e+01: 1", "PyTorch's side")


def max_abs(report):
    return {run["name"]: run["diff"]["max_abs"] for run in report["runs"]}


def main():
    a1 = FIXTURES / "a1"
    chain = f"chain=fc1:relu:fc2,reference={a1}/a1.reference.safetensors"
    errors = max_abs(verify(a1 / "a1_full.pt", chain, "PASS", 0))
    assert errors.keys() == {"torch-vs-recorded", "burn-vs-recorded", "torch-vs-burn"}
    assert all(e <= 1e-6 for e in errors.values()), errors
    verify(a1 / "a1_state.pt", None, "PASS", 0)
    verify(a1 / "a1_full.pt", "chain=fc1:relu:fc3", "TEST_FAIL", 2)
    verify(a1 / "a1_full.pt", f"graph={a1}/a1.safetensors", "TEST_SKIP", 2)
    probes = FIXTURES / "verify"
    layers = verify(probes / "probe_layers_full.pt", f"reference={probes}/probe_layers.reference.safetensors", "PASS", 0)
    assert {layer["status"] for layer in layers["layers"]} == {"PASS"}
    verify(probes / "probe_layers.safetensors", None, "PASS", 0)
    verify(probes / "layers_burn_lacks_full.pt", f"reference={probes}/layers_burn_lacks.reference.safetensors", "DIFF", 1)
    burn_nn = FIXTURES / "burn-nn"
    encoder = verify(burn_nn / "encoder_pre_gelu_full.pt", f"reference={burn_nn}/encoder_pre_gelu.reference.safetensors", "PASS", 0)
    assert [layer["path"] for layer in encoder["layers"]][:3] == ["", "layers.0", "layers.0.self_attn"], encoder["layers"]
    assert encoder["layers"][0]["recorded"]["status"] == "PASS", encoder["layers"][0]

    with tempfile.TemporaryDirectory() as folder:
        verbose_of_odd_numbers(folder)
    if not sanitizer():
        little = subprocess.run(["sh", "-c", 'ulimit -v 300000; exec "$@"', "sh", MOUNT_CKPT, "--verify", str(a1 / "a1_full.pt")],
                                capture_output=True, text=True, timeout=60, check=False)
        assert little.returncode in (0, 2) and (little.returncode == 0 or "address space" in little.stderr), little
    else:
        print("skipped: little address space, of which sanitizers take terabytes")

    with tempfile.TemporaryDirectory() as folder:
        damaged = pathlib.Path(folder, "damaged.pt")
        shutil.copy(a1 / "a1_full.pt", damaged)
        data = bytearray(damaged.read_bytes())
        plain = (a1 / "a1.safetensors").read_bytes()
        weight = plain[8 + int.from_bytes(plain[:8], "little") + 32:][:32]  # behind fc1.bias
        data[data.index(weight) + 3] ^= 0x40
        damaged.write_bytes(data)
        report = verify(damaged, chain, "DIFF", 1)
        wrong = report["bytes"]["checksums"]["wrong"]
        assert [(w["entry"], w["tensors"]) for w in wrong] == [("data/0", ["fc1.weight"])], wrong
        assert [run["output"] for run in report["runs"] if run["status"] == "DIFF"] == ["output.0"] * 2


if __name__ == "__main__":
    main()
