#!/usr/bin/env python3
"""Keeps what ptxas says of each kernel: registers, spills, memory.

    python3 ptxas_report.py check|write REPORT LOG...

Each LOG holds the output of `nvcc -Xptxas -v` for the file of kernels of its name. `write` brings REPORT up to date; `check`
fails where REPORT says something else, and in both a spill in a kernel that must not have one is an error.
"""
import difflib
import pathlib
import re
import subprocess
import sys

ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\S+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(?:.*?, (\d+) bytes smem)?")
# nvcc names the anonymous namespace of a file after its path.
ANONYMOUS = re.compile(r"(?:mempo::kernels::cuda::)?(?:_GLOBAL__N__\w+|\(anonymous namespace\))::|mempo::kernels::cuda::")

# Attention and log-probabilities run longest, and on this GPU.
NO_SPILLS = re.compile(r"attention|logits")
NO_SPILLS_ON = "sm_90"


def text_of(path):
    """What is in a file; one that cannot be read ends the program."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}")
    except UnicodeDecodeError as error:
        sys.exit(f"{path}: byte {error.start} is not UTF-8, so it is not what nvcc has written")


def short_names(mangled):
    """Names as they stand in the sources, with template arguments and without parameters."""
    try:
        done = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True, check=True)
    except OSError as error:
        sys.exit(f"c++filt, of binutils, is needed: {error.strerror}")
    names = {}
    for symbol, name in zip(mangled, done.stdout.splitlines()):
        name = ANONYMOUS.sub("", name).removeprefix("void ")
        end, depth = len(name), 0
        for place, character in enumerate(name):
            depth += {"<": 1, ">": -1}.get(character, 0)
            if character == "(" and depth == 0:
                end = place
                break
        names[symbol] = name[:end]
    return names


def read(log):
    """The rows (file, kernel, GPU, registers, spilled bytes, stack bytes, shared bytes) of one log."""
    rows, entry, frame = [], None, None
    for line in text_of(log).splitlines():
        if found := ENTRY.search(line):
            entry, frame = found.groups(), None
        elif found := STACK.search(line):
            frame = [int(number) for number in found.groups()]
        elif (found := USED.search(line)) and entry and frame:
            rows.append((log.stem, *entry, int(found[1]), frame[1] + frame[2], frame[0], int(found[2] or 0)))
            entry = frame = None
    names = short_names([row[1] for row in rows])
    return [(row[0], names[row[1]], *row[2:]) for row in rows]


def as_text(rows):
    head = ("file", "kernel", "GPU", "registers", "spilled bytes", "stack bytes", "shared bytes")
    table = [head, *sorted(tuple(str(value) for value in row) for row in rows)]
    lines = ["\t".join(row) for row in table]
    return "# Written by `make kernels-report`; shared bytes are those that are known when compiling.\n" + "\n".join(lines) + "\n"


def main():
    if len(sys.argv) < 4 or sys.argv[1] not in ("check", "write"):
        sys.exit(__doc__)
    report = pathlib.Path(sys.argv[2])
    rows = [row for log in sys.argv[3:] for row in read(pathlib.Path(log))]
    if not rows:
        sys.exit("ptxas says nothing of any kernel: is -Xptxas -v among nvcc's flags?")
    spilling = [row for row in rows if NO_SPILLS.search(row[0]) and row[2] == NO_SPILLS_ON and row[4] > 0]
    for file, kernel, gpu, _, spilled, _, _ in spilling:
        print(f"kernels/{file}.cu: {kernel} spills {spilled} bytes on {gpu}", file=sys.stderr)
    if spilling:
        sys.exit(1)
    text = as_text(rows)
    if sys.argv[1] == "write":
        try:
            report.write_text(text, encoding="utf-8")
        except OSError as error:
            sys.exit(f"{report}: {error.strerror}")
        return
    kept = text_of(report)
    if kept != text:
        sys.stderr.writelines(line for line in difflib.unified_diff(kept.splitlines(True), text.splitlines(True), str(report), "compiled now", n=0))
        sys.exit(f"{report} differs from what ptxas says now; if that is meant, `make kernels-report` writes it anew")


if __name__ == "__main__":
    main()
