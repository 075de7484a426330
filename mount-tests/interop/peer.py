"""What the tests against real peers share: where their tools are kept, and how a test says it can't run."""
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "mount"))

CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "mount.ckpt")


def skip(reason):
    print(f"skipped: {reason}", flush=True)
    sys.exit(77)


def last_line(text):
    """The last line with something on it: where most tools say what went wrong."""
    return ([line.strip() for line in text.splitlines() if line.strip()] or ["no output"])[-1]


def judge():
    """The path of the burn judge, built here if it isn't; skips where it can't be.

    The sources are copied to the user's cache and built there, so that neither Cargo.lock nor target/
    appears in the source tree and so that the ten minutes are spent once a machine.
    """
    if not shutil.which("cargo"):
        skip("no cargo here, so burn can't be asked")
    source = os.path.join(CACHE, "judge-src")
    env = dict(os.environ, CARGO_TARGET_DIR=os.path.join(CACHE, "judge"), CARGO_TERM_COLOR="never")
    shutil.copytree(os.path.join(HERE, "judge"), source, dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns("target", "Cargo.lock"))

    def cargo(*args):
        return subprocess.run(["cargo", *args], cwd=source, env=env, capture_output=True, text=True)

    # Offline first: a machine that has built it once needs no registry again.
    built = cargo("build", "--release", "--offline")
    if built.returncode != 0:
        fetched = cargo("fetch")
        if fetched.returncode != 0:
            skip(f"cargo can't reach its registry: {last_line(fetched.stderr)}")
        built = cargo("build", "--release")
    if built.returncode != 0:
        print(built.stderr)
        sys.exit(f"the judge doesn't build: {last_line(built.stderr)}")
    return os.path.join(CACHE, "judge", "release", "judge")


def python_with(packages):
    """A Python interpreter with these packages, in a virtual environment of its own in the cache."""
    python = os.path.join(CACHE, "venv", "bin", "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if not os.path.exists(python):
        made = subprocess.run([sys.executable, "-m", "venv", os.path.join(CACHE, "venv")],
                              capture_output=True, text=True)
        if made.returncode != 0:
            skip(f"python3 -m venv: {last_line(made.stdout + made.stderr)}")
    got = subprocess.run([*pip, *packages], capture_output=True, text=True)
    if got.returncode != 0:
        skip(f"pip can't install {' '.join(packages)}: {last_line(got.stderr)}")
    return python
