"""The parts of check_gpu.py: what each runs, and what must come out."""
import json
import math
import os
import re

from report import Failure

STEPS = 8  # of the short run
LEARNED = 0.3  # by how much the short run raises the share of well-formed trajectories (0.41 to 0.86 on a CPU)
# Metrics of step 1 on the device against those on the CPU. Their tokens are the same: a draw turns out differently only
# where it falls into the rounding of a probability, about once in a hundred runs.
RELATIVE, ABSOLUTE = 1e-3, 1e-5
ROLLOUT_DIFFERENCE = {"float32": 1e-4, "bfloat16": 0.1}  # largest mean |log p of sampling - log p of scoring|
KL = {"float32": 1e-8, "bfloat16": 5e-3}  # half the square of what the two may be apart by rounding
QUICKSTART_STEPS = 30
QUICKSTART_EM = 0.7  # mean exact match of the last five steps, from 0.36 before; 0.8 to 0.95 on a CPU
# Bytes that training all of 7 billion weights takes with room to spare: on the GPU alone, and where the optimiser is in
# the machine's memory, on the GPU and there.
FULL_ALONE, FULL_BESIDE_HOST, FULL_ON_HOST = 150 << 30, 70 << 30, 100 << 30


def versions(text):
    found = dict(re.findall(r"^(libtorch|CUDA|NVIDIA driver|device)\s+(\S+)", text, re.MULTILINE))
    return ", ".join(f"{key} {value}" for key, value in found.items())


def kernels(checks):
    """One row for each kernel and dtype: the CPU's form against the device's."""
    code, out, err = checks.program("kernels.test", "--device", checks.device)
    rows = re.findall(r"^(ok|FAIL)[ \t]+([^:\n]+?)(?::[ \t]*(.*))?$", out, re.MULTILINE)
    for result, name, figures in rows:
        checks.row(name, result == "ok", figures)
    if code != 0 or not rows:
        last = (err.strip() or out.strip() or "no output").splitlines()[-1]
        raise Failure(f"{'not done in its time' if code is None else f'exit code {code}'} after {len(rows)} kernels: {last}")


def engine(checks):
    """One row for each test of the engine, with the comparison that came closest to its tolerance. Golden numbers are
    among them, and decoding against scoring, also in bfloat16."""
    path = os.path.join(checks.work, "figures.tsv")
    env = {"MEMPO_TEST_DEVICE": checks.device, "MEMPO_TEST_FIGURES": path}
    code, text, err = checks.program("engine.test", "-test.v", env=env)
    figures = {}
    if os.path.exists(path):
        with open(path) as lines:
            figures = {name: (largest, allowed) for name, largest, allowed in (line.split() for line in lines)}
    results = re.findall(r"^--- (PASS|FAIL): (\w+) \(([\d.]+)s\)", text, re.MULTILINE)
    for result, name, seconds in results:
        figure = "largest deviation {}, allowed {}".format(*figures[name]) if name in figures else ""
        if result == "FAIL":
            told = re.findall(r"^\s+(\w+_test\.go:\d+: .*)$", text[text.find(f"=== RUN   {name}\n"):], re.MULTILINE)
            figure = told[0] if told else figure
        checks.row(name, result == "PASS", figure, float(seconds))
    if code is None:
        raise Failure(f"not done in its time, after {len(results)} tests")
    if code != 0 and all(result == "PASS" for result, _, _ in results):
        raise Failure(f"exit code {code} after {len(results)} tests: {(err.strip() or 'no output').splitlines()[-1]}")


def read_lines(path):
    with open(path) as lines:
        return [json.loads(line) for line in lines]


def train(checks, name, config, sets, steps):
    """Trains; returns the metrics of the steps, which must be finite, and the ids of step 1's trajectories."""
    run = os.path.join(checks.work, name)
    sets = {**sets, "run.dir": run, "run.steps": steps}
    path = os.path.join(run, "metrics.jsonl")
    try:
        checks.must("mempo-train", config, *[part for key, value in sets.items() for part in ("--set", f"{key}={value}")])
    except Failure as failure:
        if os.path.exists(path) and (done := read_lines(path)):
            raise Failure(f"{failure}; {len(done)} of {steps} steps of {middle_seconds(done):.2f} s were done") from None
        raise
    metrics = read_lines(path)
    if [line["step"] for line in metrics] != list(range(1, steps + 1)):
        raise Failure(f"metrics of {len(metrics)} steps, want {steps}")
    for line in metrics:
        strange = [key for key, value in line.items() if isinstance(value, float) and not math.isfinite(value)]
        if strange or line["train/nonfinite_steps"]:
            raise Failure(f"step {line['step']}: not finite: {', '.join(strange) or 'the gradient'}")
    return metrics, [line["response_ids"] for line in read_lines(os.path.join(run, "trajectories/step_000001.jsonl"))]


def middle_seconds(metrics):
    """The median time of a step."""
    return sorted(line["time/step_s"] for line in metrics)[len(metrics) // 2]


def short_runs(checks):
    """A few steps of a small random model: on the CPU, and the same on the device in both dtypes."""
    example = os.path.join(checks.bundle, "example")
    files = {"model.path": "model", "data.train": "questions.jsonl", "tools.search.corpus": "corpus.jsonl"}
    files = {key: os.path.join(example, name) for key, name in files.items()}
    runs = {}

    def run(name, device, dtype, steps):
        sets = {**files, "model.device": device, "model.dtype": dtype, "rollout.schedule": "fixed"}  # repeats
        runs[name] = train(checks, name, os.path.join(example, "run.toml"), sets, steps)
        return learns(runs[name][0]) if steps == STEPS else f"{steps} steps of {middle_seconds(runs[name][0]):.2f} s"

    checks.check("on cpu, float32", lambda: run("cpu", "cpu", "float32", STEPS))
    checks.check(f"on {checks.device}, float32", lambda: run("float32", checks.device, "float32", STEPS))
    checks.check(f"on {checks.device}, bfloat16", lambda: run("bfloat16", checks.device, "bfloat16", 2))
    for dtype in ("float32", "bfloat16"):
        if dtype in runs:
            checks.check(f"first update, {dtype}", lambda: first_update(runs[dtype][0][0], dtype))
    if "cpu" in runs and "float32" in runs:
        checks.check("step 1 as on the CPU, float32", lambda: same_step(runs["float32"], runs["cpu"]))


def learns(metrics):
    first, last = metrics[0]["score/format"], metrics[-1]["score/format"]
    figures = f"well-formed {first:.2f} → {last:.2f} in {len(metrics)} steps of {middle_seconds(metrics):.2f} s"
    if last < first + LEARNED:
        raise Failure(figures + f", want {LEARNED} more")
    return figures


def first_update(line, dtype):
    """Before the first update the policy is the reference and the one that sampled, but for rounding."""
    found = {key: line[key] for key in ("loss/kl", "loss/clip_fraction", "loss/rollout_difference")}
    figures = ", ".join(f"{key} {value:.2g}" for key, value in found.items())
    if found["loss/kl"] > KL[dtype] or found["loss/clip_fraction"] != 0 or found["loss/rollout_difference"] > ROLLOUT_DIFFERENCE[dtype]:
        raise Failure(f"{figures}; allowed {KL[dtype]:g}, 0, {ROLLOUT_DIFFERENCE[dtype]:g}")
    return figures


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


def quickstart(checks):
    """MemPO in the made-up world, from the supervised start that the bundle carries, as `make run` trains it."""
    world = os.path.join(checks.bundle, "world")
    files = {"model.path": "model", "data.train": "train.jsonl", "data.eval": "eval.jsonl", "tools.search.corpus": "corpus.jsonl"}
    sets = {key: os.path.join(world, name) for key, name in files.items()}
    sets |= {"model.device": checks.device, "model.dtype": "float32", "eval.every": QUICKSTART_STEPS}

    def body():
        metrics, _ = train(checks, "quickstart", os.path.join(world, "mempo.toml"), sets, QUICKSTART_STEPS)
        first, last = metrics[0]["score/em"], sum(line["score/em"] for line in metrics[-5:]) / 5
        held_out = {context: metrics[-1][f"eval/{context}/em"] for context in ("limited", "full")}
        figures = f"exact match {first:.2f} → {last:.2f}, held out {held_out['limited']:.2f} limited, {held_out['full']:.2f} full; {middle_seconds(metrics):.2f} s a step"
        if last < QUICKSTART_EM:
            raise Failure(f"{figures}; want {QUICKSTART_EM}")
        return figures, {"first_em": first, "last_em": last, "held_out": held_out, "step_seconds": middle_seconds(metrics)}

    checks.check(f"{QUICKSTART_STEPS} steps, float32", body)


def training_forms(gpu_memory, host_memory):
    """What is trained of the large model, and the settings for it: first what any GPU has room for. Of a CPU, whose
    gpu_memory is 0, all."""
    adapters = {"adapters": ["lora.rank=16", "lora.alpha=32"]}
    alone, beside = {"full": []}, {"full, optimiser on the host": ["model.optimizer_offload=cpu"]}
    if gpu_memory == 0:
        return adapters | alone | beside
    if gpu_memory >= FULL_ALONE:
        return adapters | alone
    return adapters | (beside if gpu_memory >= FULL_BESIDE_HOST and host_memory >= FULL_ON_HOST else {})


def large_model(checks):
    """Two steps of a model of the shape of Qwen2.5-7B with random weights; on a CPU, of a small shape."""
    shape = "cpu" if checks.device == "cpu" else "7b"
    folder = os.path.join(checks.bundle, "shapes", shape)
    host_memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for form, settings in training_forms(checks.results.memory, host_memory).items():
        command = ["bench", os.path.join(folder, "bench.toml"), "--json", "--stages", "rollout,update,step"]
        for setting in [f"model.device={checks.device}", f"model.path={folder}", *settings]:
            command += ["--set", setting]
        report = {}

        def body():
            report.update(json.loads(checks.must("mempo-train", *command)))
            return f"{report['dtype']}, matrix products at {report['matrix_rate'] / 1e12:.3g} TFLOP/s", report

        if checks.check(f"{shape}, {form}", body):
            for stage in report["stages"]:
                stage_row(checks, form, stage, report["matrix_rate"])


def stage_row(checks, form, stage, matrix_rate):
    """What a stage of the benchmark reached, beside what the machine can reach."""
    operations, memory = checks.results.peaks()
    figures = [f"{stage['median_seconds']:.3g} s", f"{stage['tokens']} tokens", f"{stage['tokens_per_second']:.0f} tokens/s"]
    if rate := stage.get("rate", 0):
        shares = [f"{rate / matrix_rate:.1%} of measured products"] + ([f"MFU {rate / operations:.1%}"] if operations else [])
        figures.append(f"{rate / 1e12:.3g} TFLOP/s ({', '.join(shares)})")
    if bandwidth := stage.get("bandwidth", 0):
        figures.append(f"reads {bandwidth / 1e9:.4g} GB/s" + (f" ({bandwidth / memory:.1%} of the memory's)" if memory else ""))
    figures.append(f"peak {stage['peak_memory_bytes'] / 2**30:.3g} GiB")
    passed = stage["peak_memory_bytes"] > 0 and math.isfinite(stage["median_seconds"])
    checks.row(f"{stage['stage']}, {form}", passed, ", ".join(figures), sum(stage["seconds"]))


# Name, limit in seconds, and what is run. The limits and the 20 seconds that come before stay below eight minutes.
PARTS = [
    ("kernels", 50, kernels),
    ("engine", 75, engine),
    ("short run", 60, short_runs),
    ("quickstart", 115, quickstart),
    ("large model", 140, large_model),
]
