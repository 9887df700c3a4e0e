#!/usr/bin/env python3
"""Time mempo-train against the same step in PyTorch and transformers, stage by stage, in turns.

Each stage runs in the peer's program (baseline.py of the folder --peers) and in `mempo-train bench`, one after the other,
--rounds times, so that both see the same load of the machine. Shapes are the peer's: prompts of 128 tokens, turns of 64,
tool results of 96 (none behind the last turn), memories of 24, answers of 8. Printed are, over all rounds, median and
shortest time, peak memory, and the peer's time over ours: above 1 ours is faster.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

# Our stage, the peer's name for it, its key in the peer's results, and whether its first repeat there is cold.
STAGES = [
    ("rollout", "gen", "gen", False),
    ("old_log_prob", "old", "old_log_prob", True),
    ("memory_score/naive", "extra", "extra_naive (full logits)", True),
    ("memory_score/naive", "extraZ", "extra_naive (LM head on Z only)", True),
    ("ref_log_prob", "ref", "ref_log_prob", True),
    ("update", "update", "update", False),
]

CONFIG = """
[run]
dir = "unused"
steps = 1
[model]
path = {model}
device = "cpu"
threads = {threads}
[data]
train = "unused"
[rollout]
questions_per_step = {questions}
group_size = {group}
[tools]
enabled = []
[advantage]
min_group = 1
[optimizer]
micro_batch_tokens = {micro_batch_tokens}
[bench]
prompt_tokens = 128
turns = {turns}
turn_tokens = 64
tool_tokens = 96
memory_tokens = 24
answer_tokens = 8
repeats = {repeats}
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="bin/mempo-train")
    parser.add_argument("--peers", required=True, help="folder of baseline.py")
    parser.add_argument("--python", default=sys.executable, help="a Python with torch and transformers")
    parser.add_argument("--model", required=True, help="HuggingFace folder")
    parser.add_argument("--questions", type=int, default=2)
    parser.add_argument("--group", type=int, default=8, help="trajectories of each question")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=2, help="in each round")
    parser.add_argument("--peer-rows", type=int, default=2, help="rows of the peer's batches; 0: it tries and takes the fastest")
    parser.add_argument("--micro-batch-tokens", type=int, default=1024, help="of ours")
    parser.add_argument("--stages", default=",".join(stage[1] for stage in STAGES), help="by the peer's names")
    parser.add_argument("--out", help="JSON file for all figures")
    return parser.parse_args()


def run_json(command, out):
    """Runs a command that writes JSON into a file, or to standard output where out is None."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    if out is None:
        return json.loads(done.stdout)
    with open(out) as file:
        return json.load(file)


def peer_times(a, stage, folder):
    _, name, key, cold = stage
    out = os.path.join(folder, "peer.json")
    result = run_json([
        a.python, os.path.join(a.peers, "baseline.py"), "--model", a.model, "--questions", str(a.questions), "--group", str(a.group),
        "--turns", str(a.turns), "--threads", str(a.threads), "--mb", str(a.peer_rows), "--reps", str(a.repeats + cold),
        "--no-last-tool", "--stages", name, "--out", out,
    ], out)["stages"][key]
    return result["times_s"][cold:], result["peak_rss_MiB"]


def our_times(a, stage, folder):
    path = os.path.join(folder, "bench.toml")
    with open(path, "w") as file:
        file.write(CONFIG.format(**{**vars(a), "model": json.dumps(a.model)}))
    results = run_json([a.program, "bench", path, "--json", "--stages", stage[0]], None)["stages"]
    result = next(r for r in results if r["stage"] == stage[0])
    return result["seconds"], result["peak_memory_bytes"] >> 20


def measure(a, stage, folder):
    figures = {"stage": stage[0], "peer_stage": stage[2], "peer_s": [], "our_s": [], "peer_peak_mib": 0, "our_peak_mib": 0}
    for _ in range(a.rounds):
        for who, times in (("peer", peer_times), ("our", our_times)):
            seconds, peak = times(a, stage, folder)
            figures[f"{who}_s"] += seconds
            figures[f"{who}_peak_mib"] = max(figures[f"{who}_peak_mib"], peak)
    for who in ("peer", "our"):
        figures[f"{who}_median_s"], figures[f"{who}_min_s"] = statistics.median(figures[f"{who}_s"]), min(figures[f"{who}_s"])
    for kind in ("median", "min"):
        figures[f"ratio_{kind}"] = figures[f"peer_{kind}_s"] / figures[f"our_{kind}_s"]
    return figures


def main():
    a = arguments()
    wanted = a.stages.split(",")
    unknown = set(wanted) - {stage[1] for stage in STAGES}
    if unknown:
        sys.exit(f"no stage is called {', '.join(sorted(unknown))}; stages are {', '.join(stage[1] for stage in STAGES)}")
    print(f"{'stage (peer)':52} {'peer s: median':>14} {'min':>8} {'ours s: median':>14} {'min':>8} {'peer/ours: median':>17} {'min':>6}"
          f" {'MiB: peer':>9} {'ours':>6}", flush=True)
    everything = []
    with tempfile.TemporaryDirectory() as folder:
        for stage in STAGES:
            if stage[1] not in wanted:
                continue
            f = measure(a, stage, folder)
            everything.append(f)
            name = f["stage"] if f["stage"] == f["peer_stage"] else f"{f['stage']} ({f['peer_stage']})"
            print(f"{name:52} {f['peer_median_s']:14.2f} {f['peer_min_s']:8.2f} {f['our_median_s']:14.2f} {f['our_min_s']:8.2f}"
                  f" {f['ratio_median']:17.2f} {f['ratio_min']:6.2f} {f['peer_peak_mib']:9d} {f['our_peak_mib']:6d}", flush=True)
    if a.out:
        with open(a.out, "w") as file:
            json.dump({"arguments": vars(a), "stages": everything}, file, indent=1)


if __name__ == "__main__":
    main()
