#!/usr/bin/env python3
"""The checks behind check_gpu.sh, which finds the libraries and then runs this. Only Python's standard library is needed."""
import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time

import parts
from report import Failure, Results

SLOWER = 10  # how much more time parts have on a CPU, where they are tried out only


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--out", required=True)
    return parser.parse_args()


class Checks:
    """Runs programs of the bundle for the parts and collects their rows."""

    def __init__(self, given, commit, work):
        self.bundle, self.device, self.out, self.work = given.bundle, given.device, given.out, work
        self.results = Results(given.device, commit, given.out)
        self.started = time.monotonic()
        self.part, self.ends = "", 0.0
        self.unsaved = None  # why the results could not be written

    def begin(self, part, limit):
        """Starts a part, which has `limit` seconds."""
        self.part = part
        self.ends = time.monotonic() + limit * (SLOWER if self.device == "cpu" else 1)

    def row(self, check, passed, figures, seconds=0.0, values=None):
        self.results.row(self.part, check, passed, figures, seconds, values)
        print(f"{'pass' if passed else 'FAIL'}  {self.part}: {check}: {figures}", file=sys.stderr, flush=True)

    def check(self, name, body):
        """One row: body returns its figures, or figures and values, and raises Failure where it does not pass."""
        begun, values = time.monotonic(), None
        try:
            passed, figures = True, body()
            if isinstance(figures, tuple):
                figures, values = figures
        except Failure as failure:
            passed, figures = False, str(failure)
        self.row(name, passed, figures, time.monotonic() - begun, values)
        return passed

    def program(self, name, *args, env=None):
        """Runs a program until it ends or the part's time is over; returns its exit code (None: it was stopped) and what
        it wrote to stdout and stderr. Both are kept in check_gpu.log, however it ended."""
        command = [os.path.join(self.bundle, "bin", name), *args]
        if not os.path.exists(command[0]):
            raise Failure(f"bin/{name} is not in the bundle")
        paths = [os.path.join(self.work, name) for name in ("stdout", "stderr")]
        with open(paths[0], "w") as out, open(paths[1], "w") as err:
            process = subprocess.Popen(command, cwd=os.path.dirname(command[0]), env={**os.environ, **(env or {})}, stdout=out, stderr=err)
            try:
                code = process.wait(timeout=max(1.0, self.ends - time.monotonic()))
            except subprocess.TimeoutExpired:
                code = None
            finally:  # also when this script is interrupted
                if process.poll() is None:
                    process.kill()
                    process.wait()
        texts = []
        for path in paths:
            with open(path, errors="replace") as file:
                texts.append(file.read())
        with open(os.path.join(self.out, "check_gpu.log"), "a") as log:
            print(f"== {self.part}: {name} {' '.join(args)}: exit code {code}", *texts, sep="\n", file=log)
        return code, *texts

    def must(self, name, *args, env=None):
        """The stdout of a program that must end well."""
        code, out, err = self.program(name, *args, env=env)
        if code is None:
            raise Failure("not done when its time was over")
        if code != 0:
            raise Failure(f"exit code {code}: {(err.strip().splitlines() or ['no output'])[-1]}")
        return out

    def save(self):
        """Leaves the results so far in the folder; where that fails the table is still printed at the end."""
        try:
            self.results.save(time.monotonic() - self.started)
            self.unsaved = None
        except OSError as problem:
            self.unsaved = problem


def usable(checks):
    """Whether the device can be used at all; else the sentence that says why not has been printed."""
    code, out, err = checks.program("mempo-train", "version", "--check", "--device", checks.device)
    if code == 0:
        checks.row("version --check", True, parts.versions(out))
        return True
    if code == 127:
        err = "the libraries of torch 2.11 are not found: LIBTORCH must name the folder that holds its lib folder"
    print(err.strip() or f"mempo-train version ended with {code}", file=sys.stderr)
    return False


def run_parts(checks):
    """All parts, whatever fails in one of them."""
    for part, limit, body in parts.PARTS:
        checks.begin(part, limit)
        try:
            body(checks)
        except Failure as failure:
            checks.row("all of it", False, str(failure))
        except (OSError, KeyError, ValueError, IndexError) as problem:  # a program wrote something else than it should
            checks.row("all of it", False, f"its results cannot be read: {problem!r}")
        checks.save()


def interrupt(number, frame):
    raise KeyboardInterrupt


def unwritable(out, problem):
    print(f"check_gpu.py: the folder of results {out} cannot be written ({problem.strerror}); OUT names another one", file=sys.stderr)
    return 3


def main():
    given = arguments()
    try:
        os.makedirs(given.out, exist_ok=True)
        open(os.path.join(given.out, "check_gpu.log"), "w").close()
    except OSError as problem:
        return unwritable(given.out, problem)
    signal.signal(signal.SIGTERM, interrupt)
    with open(os.path.join(given.bundle, "commit")) as file:
        commit = file.read().strip()
    with tempfile.TemporaryDirectory() as work:
        checks = Checks(given, commit, work)
        interrupted = False
        try:
            checks.begin("device", 20)
            if not usable(checks):
                return 3
            run_parts(checks)
        except KeyboardInterrupt:
            interrupted = True
            checks.row("interrupted", False, "this part and those behind it have no results")
        checks.save()
    print(checks.results.table(), end="", flush=True)
    if checks.unsaved:
        return unwritable(given.out, checks.unsaved)
    if interrupted:
        return 130
    return 1 if checks.results.failed() else 0


if __name__ == "__main__":
    sys.exit(main())
