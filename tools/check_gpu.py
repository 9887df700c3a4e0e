#!/usr/bin/env python3
"""The checks behind check_gpu.sh, which finds the libraries and then runs this. Only Python's standard library is needed."""
import argparse
import datetime
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

BUDGET = 290  # seconds of all checks together
STEPS = 8  # of the short run
LEARNED = 0.3  # by how much the short run raises the share of well-formed trajectories (0.41 to 0.86 on a CPU)
# Metrics of step 1 on the device against those on the CPU. Their tokens are the same: a draw turns out differently only
# where it falls into the rounding of a probability, about once in a hundred runs.
RELATIVE, ABSOLUTE = 1e-3, 1e-5
ROLLOUT_DIFFERENCE = {"float32": 1e-4, "bfloat16": 0.1}  # largest mean |log p of sampling - log p of scoring|


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", required=True)
    parser.add_argument("--device", required=True)
    return parser.parse_args()


class Failure(Exception):
    """A check that did not pass, with what was found."""


class Checks:
    """Runs programs of the bundle and collects one row of the table for each check."""

    def __init__(self, bundle, device, work):
        self.bundle, self.device, self.work = bundle, device, work
        self.started = time.monotonic()
        self.rows = []  # (check, passed, figures, seconds)

    def row(self, name, passed, figures, seconds):
        self.rows.append((name, passed, figures, seconds))
        print(f"{'pass' if passed else 'FAIL'}  {name}: {figures}", file=sys.stderr, flush=True)

    def check(self, name, body):
        begun = time.monotonic()
        try:
            passed, figures = True, body()
        except Failure as failure:
            passed, figures = False, str(failure)
        self.row(name, passed, figures, time.monotonic() - begun)

    def program(self, name, *args, log, env=None):
        """Runs a program; returns its exit code and what it wrote to stdout and stderr, of which a log is kept."""
        left = max(1, BUDGET - (time.monotonic() - self.started))
        folder = os.path.join(self.bundle, "bin")
        try:
            done = subprocess.run(
                [os.path.join(folder, name), *args], cwd=folder, env={**os.environ, **(env or {})},
                capture_output=True, text=True, errors="replace", timeout=left,
            )
        except subprocess.TimeoutExpired:
            raise Failure(f"not done after {left:.0f} s") from None
        with open(os.path.join(self.work, log), "w") as file:
            file.write(done.stdout + done.stderr)
        return done.returncode, done.stdout, done.stderr

    def must(self, *args, log):
        code, out, err = self.program("mempo-train", *args, log=log)
        if code != 0:
            raise Failure(f"exit code {code}: {(err.strip().splitlines() or ['no output'])[-1]}")
        return out

    # ---- the checks ----

    def version(self):
        """Ends everything with exit code 3 where the device cannot be used at all."""
        begun = time.monotonic()
        code, out, err = self.program("mempo-train", "version", "--check", "--device", self.device, log="version.log")
        if code == 127:
            sys.exit(unusable("the libraries of torch 2.11 are not found: LIBTORCH must name the folder that holds its lib folder"))
        if code != 0:
            sys.exit(unusable(err))
        found = dict(re.findall(r"^(libtorch|CUDA|device)\s+(\S+)", out, re.MULTILINE))
        self.row("version --check", True, ", ".join(f"{key} {value}" for key, value in found.items()), time.monotonic() - begun)

    def engine_tests(self):
        """One row for each test of the engine, with the comparison that came closest to its tolerance."""
        figures_path = os.path.join(self.work, "figures.tsv")
        env = {"MEMPO_TEST_DEVICE": self.device, "MEMPO_TEST_FIGURES": figures_path}
        try:
            code, text, err = self.program("engine.test", "-test.v", "-test.timeout=150s", log="engine.log", env=env)
        except Failure as failure:
            self.row("engine tests", False, str(failure), 0)
            return
        figures = {}
        if os.path.exists(figures_path):
            with open(figures_path) as lines:
                figures = {name: (largest, allowed) for name, largest, allowed in (line.split() for line in lines)}
        results = re.findall(r"^--- (PASS|FAIL): (\w+) \(([\d.]+)s\)", text, re.MULTILINE)
        for result, name, seconds in results:
            figure = "largest deviation {}, allowed {}".format(*figures[name]) if name in figures else ""
            self.row(name, result == "PASS", figure, float(seconds))
        if code != 0 and all(result == "PASS" for result, _, _ in results):
            self.row("engine tests", False, f"exit code {code} after {len(results)} tests", 0)
        if code != 0:
            told = [line for line in text.splitlines() if "_test.go:" in line][:40] + err.splitlines()[:20]
            print(*told, sep="\n", file=sys.stderr)

    def train(self, name, device, dtype, steps):
        """Trains the small model; returns the metrics of its steps and the ids of step 1's trajectories."""
        run = os.path.join(self.work, name)
        self.must(*self.settings(device, dtype), "--set", f"run.dir={run}", "--set", f"run.steps={steps}", log=name + ".log")
        metrics = read_lines(os.path.join(run, "metrics.jsonl"))
        if [line["step"] for line in metrics] != list(range(1, steps + 1)):
            raise Failure(f"metrics of {len(metrics)} steps, want {steps}")
        for line in metrics:
            strange = [key for key, value in line.items() if isinstance(value, float) and not math.isfinite(value)]
            if strange or line["train/nonfinite_steps"]:
                raise Failure(f"step {line['step']}: not finite: {', '.join(strange) or 'the gradient'}")
        return metrics, [line["response_ids"] for line in read_lines(os.path.join(run, "trajectories/step_000001.jsonl"))]

    def settings(self, device, dtype):
        """The example's config and the options that put it on a device; the schedule repeats."""
        values = {
            "model.path": "model", "data.train": "questions.jsonl", "tools.search.corpus": "corpus.jsonl",
            "model.device": device, "model.dtype": dtype, "rollout.schedule": "fixed",
        }
        files = ("model.path", "data.train", "tools.search.corpus")
        example = os.path.join(self.bundle, "example")
        values = {key: os.path.join(example, value) if key in files else value for key, value in values.items()}
        return [os.path.join(example, "run.toml")] + [part for key, value in values.items() for part in ("--set", f"{key}={value}")]

    def learns(self, metrics):
        first, last = metrics[0]["score/format"], metrics[-1]["score/format"]
        seconds = sorted(line["time/step_s"] for line in metrics)[len(metrics) // 2]
        figures = f"well-formed {first:.2f} → {last:.2f} in {len(metrics)} steps of {seconds:.2f} s"
        if last < first + LEARNED:
            raise Failure(figures + f", want {LEARNED} more")
        return figures

    def first_update(self, line, dtype):
        """Before the first update the policy is the reference and the one that sampled."""
        found = {key: line[key] for key in ("loss/kl", "loss/clip_fraction", "loss/rollout_difference")}
        figures = ", ".join(f"{key} {value:.2g}" for key, value in found.items())
        if found["loss/kl"] != 0 or found["loss/clip_fraction"] != 0 or found["loss/rollout_difference"] > ROLLOUT_DIFFERENCE[dtype]:
            raise Failure(f"{figures}; allowed 0, 0, {ROLLOUT_DIFFERENCE[dtype]:g}")
        return figures

    def short_runs(self):
        runs = {}

        def run(name, device, dtype, steps):
            runs[name] = self.train(name, device, dtype, steps)
            return self.learns(runs[name][0]) if steps == STEPS else f"{steps} steps"

        self.check("short run on cpu, float32", lambda: run("train_cpu", "cpu", "float32", STEPS))
        self.check(f"short run on {self.device}, float32", lambda: run("train_float32", self.device, "float32", STEPS))
        self.check(f"short run on {self.device}, bfloat16", lambda: run("train_bfloat16", self.device, "bfloat16", 2))
        for name, dtype in (("train_float32", "float32"), ("train_bfloat16", "bfloat16")):
            if name in runs:
                self.check(f"first update, {dtype}", lambda: self.first_update(runs[name][0][0], dtype))
        if "train_cpu" in runs and "train_float32" in runs:
            self.check("step 1 as on the CPU, float32", lambda: same_step(runs["train_float32"], runs["train_cpu"]))

    def bench(self):
        """Speed and memory of each stage on a small shape, in the device's own dtype."""
        sets = ["--set", "rollout.questions_per_step=4", "--set", "bench.repeats=2"]
        text = self.must("bench", "--json", *self.settings(self.device, "auto"), *sets, log="bench.log")
        report = json.loads(text)
        speeds = [f"{stage['stage']} {stage['tokens_per_second']:.0f}" for stage in report["stages"]]
        peaks = {stage["stage"]: stage["peak_memory_bytes"] for stage in report["stages"] if not stage["stage"].startswith("rollout/")}
        figures = ", ".join(f"{stage} {peak / 2**20:.0f}" for stage, peak in peaks.items())
        self.row(f"memory in the bench, {report['dtype']}", all(peak > 0 for peak in peaks.values()), "peak MiB: " + figures, 0)
        return "tokens/s: " + ", ".join(speeds)


def unusable(sentence):
    print(sentence.strip(), file=sys.stderr)
    return 3


def read_lines(path):
    with open(path) as lines:
        return [json.loads(line) for line in lines]


def same_step(found, wanted):
    """Compares the first step of two runs, all that is no time and no memory."""
    (metrics, tokens), (others, other_tokens) = found, wanted
    equal = sum(a == b for a, b in zip(tokens, other_tokens))
    figures = f"{equal} of {len(other_tokens)} trajectories equal"
    worst, where, apart = 0.0, "none", []
    for key, want in others[0].items():
        if key.startswith(("time/", "memory_bytes/")) or key in ("tools/latency_s", "loss/rollout_difference"):
            continue
        got = metrics[0][key]
        if got is None or want is None:
            apart += [key] if got != want else []
            continue
        deviation = abs(got - want) / (RELATIVE * max(abs(got), abs(want)) + ABSOLUTE)
        if deviation > worst:
            worst, where = deviation, key
        if deviation > 1:
            apart.append(f"{key} {got:.6g} for {want:.6g}")
    if apart:
        raise Failure(f"{figures}; differing: {', '.join(apart[:5])}" + (f" and {len(apart) - 5} more" if len(apart) > 5 else ""))
    return f"{figures}; metrics apart by {worst:.1%} of what is allowed at most ({where})"


def machine(device):
    """The GPU and its driver, as nvidia-smi names them, or the processor."""
    if device == "cpu":
        return f"CPU, {os.cpu_count()} cores"
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        lines = subprocess.run(query, capture_output=True, text=True, timeout=30).stdout.strip().splitlines()
    except (OSError, subprocess.TimeoutExpired):
        lines = []
    number = int(device.partition(":")[2] or 0)
    return lines[number] + " (driver)" if number < len(lines) else "GPU unknown to nvidia-smi"


def table(checks, commit):
    failed = sum(not passed for _, passed, _, _ in checks.rows)
    lines = [
        f"### GPU check of {commit}, {datetime.date.today()}", "",
        f"{machine(checks.device)}; device {checks.device}; {len(checks.rows) - failed} passed, {failed} failed, "
        f"{time.monotonic() - checks.started:.0f} s.", "", "| check | result | figures | s |", "|---|---|---|---|",
    ]
    for name, passed, figures, seconds in checks.rows:
        figures = figures.replace("|", "\\|").replace("\n", " ")
        lines.append(f"| {name} | {'pass' if passed else '**FAIL**'} | {figures} | {seconds:.1f} |")
    return "\n".join(lines) + "\n"


def keep(work, text):
    """Leaves the table and the logs in the folder that OUT names."""
    out = os.environ.get("OUT")
    if not out:
        return
    with open(os.path.join(out, "check_gpu.md"), "w") as file:
        file.write(text)
    for name in sorted(os.listdir(work)):
        if name.endswith(".log"):
            shutil.copy(os.path.join(work, name), out)


def main():
    given = arguments()
    with open(os.path.join(given.bundle, "commit")) as file:
        commit = file.read().strip()
    with tempfile.TemporaryDirectory() as work:
        checks = Checks(given.bundle, given.device, work)
        checks.version()
        checks.engine_tests()
        checks.short_runs()
        checks.check("bench", checks.bench)
        text = table(checks, commit)
        keep(work, text)
    print(text, end="")
    return 0 if all(passed for _, passed, _, _ in checks.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
