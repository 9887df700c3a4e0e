#!/usr/bin/env python3
"""Time mempo-train against the same step in PyTorch and transformers (the reference), in turns.

Targets, each of which can be run alone:
  scores      extra forward pass and old log-probs: ours as one tree over the reference's two passes, at 3 and at 5 turns
  cached      what measuring memories against the rollout's caches adds to a whole step (ours alone)
  turns       cost of the memory reward at 11 turns over that at 6, in both forms (ours alone)
  generation  tokens a second of rollouts, under both schedules, over those of HuggingFace generate
  update      seconds and peak memory of one update
  step        a whole step against the sum of the reference's stages, and its peak memory
  programs    stages of two programs of ours, --program given twice, where their names agree

The reference is baseline.py in the folder --peers, with --no-last-tool: prompts of 128 tokens, turns of 64, tool results of 96
between them, memories of 24, answers of 8. Each program runs once in every round, one after the other, so that all see the same
load of the machine; a round's figure is the median of --repeats. Printed are the figures of all rounds and the ratio of their
medians, behind it the ratios of the single rounds.
"""
import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile

# Stages of the reference: its name for it, the key in its results, and whether its first repeat is cold.
PEER_STAGES = {
    "gen": ("gen", False),
    "old": ("old_log_prob", True),
    "ref": ("ref_log_prob", True),
    "extra": ("extra_naive (full logits)", True),
    "extraZ": ("extra_naive (LM head on Z only)", True),
    "update": ("update", False),
}

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
    parser.add_argument("targets", nargs="*", metavar="target", help=f"of {', '.join(TARGETS)}; all but programs where none is given")
    parser.add_argument("--program", action="append", help="bin/mempo-train; a second one is compared with by the target programs")
    parser.add_argument("--peers", help="folder of baseline.py")
    parser.add_argument("--python", default=sys.executable, help="a Python with torch and transformers")
    parser.add_argument("--model", required=True, help="HuggingFace folder")
    parser.add_argument("--questions", type=int, help="default: that of the target")
    parser.add_argument("--group", type=int, help="trajectories of each question; default: that of the target")
    parser.add_argument("--turns", type=int, help="default: that, or those, of the target")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=1, help="in each round")
    parser.add_argument("--peer-rows", type=int, default=2, help="rows of the reference's batches; 0: it tries and takes the fastest")
    parser.add_argument("--micro-batch-tokens", type=int, default=1024, help="of ours")
    parser.add_argument("--set", action="append", default=[], help="key=value for ours, as in mempo-train bench")
    parser.add_argument("--stages", default="rollout,memory_score/naive,update", help="of the target programs")
    parser.add_argument("--out", help="JSON file for all figures")
    a = parser.parse_args()
    a.program = a.program or ["bin/mempo-train"]
    a.targets = a.targets or [name for name in TARGETS if name != "programs"]
    unknown = [name for name in a.targets if name not in TARGETS]
    if unknown:
        parser.error(f"no target is called {', '.join(unknown)}; targets are {', '.join(TARGETS)}")
    if not a.peers and set(a.targets) & {"scores", "generation", "update", "step"}:
        parser.error("--peers is needed for the targets scores, generation, update and step")
    if (len(a.program) == 2) != ("programs" in a.targets) or len(a.program) > 2:
        parser.error("--program is given twice for the target programs, and only for it")
    return a


class Machine:
    """Runs the programs on steps of one shape."""

    def __init__(self, a, folder, questions, group, turns):
        self.a, self.folder = a, folder
        self.questions, self.group, self.turns = a.questions or questions, a.group or group, a.turns or turns

    def shape(self):
        return f"{self.questions} × {self.group}, {self.turns} turns"

    def run(self, command, accept=None):
        """Standard output of a command; None where it was refused with the text accept."""
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0 and accept and accept in done.stderr:
            return None
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
        return done.stdout

    def peer(self, *names):
        """Median seconds of the reference's stages by their names, and peak MiB as NAME_mib."""
        a, out = self.a, os.path.join(self.folder, "peer.json")
        cold = int(any(PEER_STAGES[name][1] for name in names))
        self.run([
            a.python, os.path.join(a.peers, "baseline.py"), "--model", a.model, "--questions", str(self.questions), "--group", str(self.group),
            "--turns", str(self.turns), "--threads", str(a.threads), "--mb", str(a.peer_rows), "--reps", str(a.repeats + cold),
            "--gen-reps", str(a.repeats), "--no-last-tool", "--stages", ",".join(names), "--out", out,
        ])
        with open(out) as file:
            stages = json.load(file)["stages"]
        figures = {}
        for name in names:
            key, first_is_cold = PEER_STAGES[name]
            figures[name] = statistics.median(stages[key]["times_s"][int(first_is_cold):])
            figures[name + "_mib"] = stages[key]["peak_rss_MiB"]
        return figures

    def report(self, stages, *sets, program=None, accept=None):
        """What `mempo-train bench --json` prints."""
        a, path = self.a, os.path.join(self.folder, "bench.toml")
        with open(path, "w") as file:
            file.write(CONFIG.format(
                model=json.dumps(os.path.abspath(a.model)), threads=a.threads, questions=self.questions, group=self.group,
                micro_batch_tokens=a.micro_batch_tokens, turns=self.turns, repeats=a.repeats))
        overrides = [word for setting in [*a.set, *sets] for word in ("--set", setting)]
        text = self.run([program or a.program[0], "bench", path, "--json", "--stages", ",".join(stages), *overrides], accept)
        return None if text is None else json.loads(text)

    def ours(self, *stages, sets=()):
        """Median seconds of our stages, and peak MiB as NAME_mib."""
        figures = {}
        for stage in self.report(stages, *sets)["stages"]:
            figures[stage["stage"]] = stage["median_seconds"]
            figures[stage["stage"] + "_mib"] = stage["peak_memory_bytes"] >> 20
        return figures


class Table:
    """Collects and prints figures of rounds and their ratios."""

    def __init__(self):
        self.rows = []

    def title(self, text):
        print(f"\n{text}", flush=True)

    def figures(self, label, values, unit="s"):
        self.rows.append({"label": label, "unit": unit, "rounds": values, "median": statistics.median(values)})
        print(f"  {label:58} {statistics.median(values):10.2f} {unit:9} ({', '.join(f'{v:.2f}' for v in values)})", flush=True)

    def ratio(self, label, top, bottom, target):
        """The ratio of medians; top and bottom are figures of the same rounds."""
        value = statistics.median(top) / statistics.median(bottom)
        singles = [t / b for t, b in zip(top, bottom)]
        self.rows.append({"label": label, "ratio": value, "rounds": singles, "target": target})
        print(f"  {label:58} {value:10.3f} {target:9} ({', '.join(f'{s:.3f}' for s in singles)})", flush=True)


def rounds(a, **programs):
    """Runs each program once in every round; the figures of a program by name, a list over rounds."""
    collected = {name: [] for name in programs}
    for _ in range(a.rounds):
        for name, run in programs.items():
            collected[name].append(run())
    return {name: {key: [one[key] for one in runs] for key in runs[0]} for name, runs in collected.items()}


def added(*lists):
    return [sum(values) for values in zip(*lists)]


def scores(a, folder, table):
    for turns, target in ((a.turns, ""),) if a.turns else ((3, "≤ 0.25"), (5, "≤ 0.15")):
        m = Machine(a, folder, 1, 2, turns)
        table.title(f"extra forward pass and old log-probs, {m.shape()}")
        r = rounds(a, peer=lambda: m.peer("old", "extra", "extraZ"), ours=lambda: m.ours("scores", "memory_score/naive", "memory_score/shared"))
        for name in ("old", "extra", "extraZ"):
            table.figures(f"reference {name}", r["peer"][name])
        for name in ("scores/naive", "scores/shared", "memory_score/naive", "memory_score/shared"):
            table.figures(f"ours {name}", r["ours"][name])
        shared = r["ours"]["scores/shared"]
        table.ratio("scores/shared / (old + extra)", shared, added(r["peer"]["old"], r["peer"]["extra"]), target)
        table.ratio("scores/shared / (old + extraZ)", shared, added(r["peer"]["old"], r["peer"]["extraZ"]), "")
        table.ratio("scores/shared / scores/naive", shared, r["ours"]["scores/naive"], "")


def cached(a, folder, table):
    m = Machine(a, folder, 2, 8, 3)
    table.title(f"the memory reward in a step, cached, {m.shape()}")
    r = rounds(a, ours=lambda: m.ours("step", sets=["scoring.form=cached"]))["ours"]
    table.figures("ours step", r["step"])
    table.figures("ours memory_score of it", r["step/memory_score"])
    rest = [step - memory for step, memory in zip(r["step"], r["step/memory_score"])]
    table.ratio("memory_score / the rest of the step", r["step/memory_score"], rest, "≤ 0.05")


def turns(a, folder, table):
    few, many = Machine(a, folder, 1, 2, 6), Machine(a, folder, 1, 2, 11)
    few.turns, many.turns = 6, 11
    table.title(f"the memory reward at 11 turns over that at 6, {few.questions} × {few.group}")
    stages = ("memory_score/shared", "memory_score/cached")  # the naive form takes minutes and leaves the machine in another state
    r = rounds(a, few=lambda: few.ours(*stages), many=lambda: many.ours(*stages))
    costs = {}
    for name, figures in r.items():
        at = {"few": 6, "many": 11}[name]
        for stage in stages:
            table.figures(f"{at} turns: {stage}", figures[stage])
        costs[name] = figures
    for stage in stages:
        table.ratio(f"cost at 11 turns / at 6, {stage}", costs["many"][stage], costs["few"][stage], "≤ 2.3")


def generation(a, folder, table):
    m = Machine(a, folder, 2, 8, 3)
    table.title(f"generation, {m.shape()}")
    tokens = m.questions * m.group * m.turns * 64
    schedules = {schedule: lambda s=schedule: m.ours("rollout", sets=[f"rollout.schedule={s}"]) for schedule in ("fixed", "eager")}
    r = rounds(a, peer=lambda: m.peer("gen"), **schedules)
    rates = {name: [tokens / seconds for seconds in r[name]["gen" if name == "peer" else "rollout"]] for name in r}
    table.figures("reference gen", rates["peer"], "tokens/s")
    for schedule in schedules:
        table.figures(f"ours rollout, schedule {schedule}", rates[schedule], "tokens/s")
        table.figures(f"ours rollout/decode of it, schedule {schedule}", r[schedule]["rollout/decode"])
    for schedule in schedules:
        table.ratio(f"tokens/s, schedule {schedule} / reference", rates[schedule], rates["peer"], "≥ 3")


def update(a, folder, table):
    m = Machine(a, folder, 1, 2, 3)
    table.title(f"update, {m.shape()}")
    r = rounds(a, peer=lambda: m.peer("update"), ours=lambda: m.ours("update"))
    compare_update(table, m, r)
    table.figures("reference peak", r["peer"]["update_mib"], "MiB")
    table.figures("ours peak", r["ours"]["update_mib"], "MiB")
    table.ratio("peak, ours / reference", r["ours"]["update_mib"], r["peer"]["update_mib"], "")


def compare_update(table, m, r, key="update"):
    table.figures("reference update", r["peer"]["update"])
    table.figures("ours update", r["ours"][key])
    table.ratio("update, reference / ours", r["peer"]["update"], r["ours"][key], "≥ 1.25")


def step(a, folder, table):
    m = Machine(a, folder, 2, 8, 3)
    table.title(f"a whole step, {m.shape()}")
    stages = ("gen", "old", "ref", "extra", "update")
    r = rounds(a, peer=lambda: m.peer(*stages), ours=lambda: m.ours("step"))
    for name in stages:
        table.figures(f"reference {name}", r["peer"][name])
    for name in r["ours"]:
        if not name.endswith("_mib"):
            table.figures(f"ours {name}", r["ours"][name])
    table.ratio("reference's sum / step", added(*(r["peer"][name] for name in stages)), r["ours"]["step"], "≥ 2.5")
    compare_update(table, m, r, "step/update")
    weights = 4 * parameters(a.model) / 2**20
    table.figures("one copy of the weights", [weights] * a.rounds, "MiB")
    table.figures("reference peak of update", r["peer"]["update_mib"], "MiB")
    table.figures("ours peak of the step", r["ours"]["step_mib"], "MiB")
    allowed = [peak + weights for peak in r["peer"]["update_mib"]]
    table.ratio("peak, ours / (reference + one copy)", r["ours"]["step_mib"], allowed, "≤ 0.7")


def parameters(folder):
    """The number of parameters in the safetensors files of a model folder."""
    total = 0
    for name in os.listdir(folder):
        if not name.endswith(".safetensors"):
            continue
        with open(os.path.join(folder, name), "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        for tensor, entry in header.items():
            if tensor != "__metadata__":
                size = 1
                for extent in entry["shape"]:
                    size *= extent
                total += size
    return total


def programs(a, folder, table):
    m = Machine(a, folder, 2, 8, 3)
    table.title(f"{a.program[0]} against {a.program[1]}, {m.shape()}")
    for stage in a.stages.split(","):
        seconds = {program: [] for program in a.program}
        peaks = {program: [] for program in a.program}
        for _ in range(a.rounds):
            for program in a.program:
                report = m.report([stage], program=program, accept="there is no stage")
                for measured in report["stages"] if report else []:
                    if measured["stage"] == stage:
                        seconds[program].append(measured["median_seconds"])
                        peaks[program].append(measured["peak_memory_bytes"] >> 20)
        ours, other = a.program
        if not seconds[ours] or not seconds[other]:
            print(f"  {stage}: not in both programs")
            continue
        for program in a.program:
            table.figures(f"{stage}, {program}", seconds[program])
            table.figures(f"{stage}, {program}, peak", peaks[program], "MiB")
        table.ratio(f"{stage}, second / first", seconds[other], seconds[ours], "")


TARGETS = {
    "scores": scores, "cached": cached, "turns": turns, "generation": generation, "update": update, "step": step, "programs": programs,
}


def main():
    a = arguments()
    table = Table()
    everything = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in a.targets:
            table.rows = []
            TARGETS[name](a, folder, table)
            everything[name] = table.rows
    if a.out:
        with open(a.out, "w") as file:
            json.dump({"arguments": vars(a), "targets": everything}, file, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    main()
