#!/usr/bin/env python3
"""Unpacks the pinned wheels of a lock file into one folder.

    python3 fetch_wheels.py LOCK.json CACHE NAME

The folder is CACHE/NAME; downloads are kept in CACHE/dl, so that a second folder or a repeated run fetches nothing.
Every wheel is checked against its SHA-256. Downloads and folders are made under temporary names and renamed when they
are complete: an interrupted run leaves nothing that a later one would take for whole. The host's Python only runs pip;
the wheels asked for are those of the platform below, whatever its own version is (3.9 or newer).
"""
import contextlib
import fcntl
import fnmatch
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import venv
import zipfile

PLATFORM = ["--python-version", "3.11", "--implementation", "cp", "--only-binary=:all:"]
for tag in ("manylinux_2_28", "manylinux_2_27", "manylinux_2_25", "manylinux_2_18", "manylinux_2_17", "manylinux2014", "manylinux_2_12", "manylinux2010"):
    PLATFORM += ["--platform", f"{tag}_x86_64"]


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def pip(cache):
    """The command line of a pip that works: the host's own, else that of a virtual environment in the cache."""
    own = [sys.executable, "-m", "pip"]
    if subprocess.run([*own, "--version"], capture_output=True).returncode == 0:
        return own
    folder = cache / "pip"
    python = folder / "bin" / "python"
    if not python.exists() or subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode != 0:
        shutil.rmtree(folder, ignore_errors=True)
        try:
            venv.create(folder, with_pip=True)
        except (subprocess.CalledProcessError, SystemExit) as e:
            sys.exit(f"{sys.executable} has neither pip nor a working venv ({e}): install python3-pip or python3-venv")
    return [str(python), "-m", "pip"]


def is_wheel_of(path, requirement):
    name, version = requirement.split("==")
    return fnmatch.fnmatch(path.name, f"{name.replace('-', '_')}-{version}-*.whl")


def download(wheel, cache):
    """The path of the wheel in CACHE/dl, fetched when it is not there or not the one that the lock names."""
    folder, requirement = cache / "dl", wheel["requirement"]
    for path in folder.glob("*.whl"):
        if is_wheel_of(path, requirement) and sha256(path) == wheel["sha256"]:
            return path
    part = folder / "part"
    shutil.rmtree(part, ignore_errors=True)
    print(f"fetching {requirement}", file=sys.stderr, flush=True)
    command = [*pip(cache), "download", "--quiet", "--disable-pip-version-check", "--no-deps", *PLATFORM, "--dest", part, requirement]
    if subprocess.run(command).returncode != 0:
        sys.exit(f"pip could not download {requirement}; is the package index reachable?")
    (path,) = part.glob("*.whl")
    if (found := sha256(path)) != wheel["sha256"]:
        sys.exit(f"{path.name}: SHA-256 is {found}, the lock file wants {wheel['sha256']}")
    path = path.replace(folder / path.name)
    part.rmdir()
    return path


def unpack(path, wheel, target):
    """Unpacks the members that the lock keeps; zipfile drops permissions, so the executable bit is set again."""
    matches = lambda name, patterns: any(fnmatch.fnmatchcase(name, p) for p in patterns)
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.is_dir() or not matches(member.filename, wheel["keep"]) or matches(member.filename, wheel["drop"]):
                continue
            out = archive.extract(member, target)
            if member.external_attr >> 16 & 0o111:
                os.chmod(out, 0o755)


@contextlib.contextmanager
def locked(cache):
    """One fetch at a time, also between several checkouts that share a cache."""
    (cache / "dl").mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def build_folder(lock_path, cache, name):
    text = lock_path.read_text(encoding="utf-8")
    folder, made_from = cache / name, cache / name / "wheels.json"
    if made_from.exists() and made_from.read_text(encoding="utf-8") == text:
        made_from.touch()  # make compares times: the lock file of a new checkout is younger than the cache
        return
    new, old = cache / f"{name}.new", cache / f"{name}.old"
    for leftover in (new, old):
        shutil.rmtree(leftover, ignore_errors=True)
    for wheel in json.loads(text)["wheels"]:
        unpack(download(wheel, cache), wheel, new)
    (new / "wheels.json").write_text(text, encoding="utf-8")
    if folder.exists():
        folder.replace(old)
    new.replace(folder)
    shutil.rmtree(old, ignore_errors=True)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    cache = pathlib.Path(sys.argv[2])
    try:
        with locked(cache):
            build_folder(pathlib.Path(sys.argv[1]), cache, sys.argv[3])
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
