"""The results of check_gpu.py: rows, as a table in Markdown and as JSON."""
import datetime
import json
import os
import subprocess

# Dense bfloat16 operations a second and bytes of memory a second of whole GPUs, by NVIDIA's data sheets.
PEAKS = {
    "B200": (2250e12, 8.0e12), "H200": (989e12, 4.8e12), "H100": (989e12, 3.35e12), "A100": (312e12, 2.04e12),
}


class Failure(Exception):
    """A check that did not pass, with what was found."""


class Results:
    """Rows of finished checks; what is there so far is written after each part."""

    def __init__(self, device, commit, out):
        self.device, self.commit, self.out = device, commit, out
        self.rows = []  # dicts: part, check, passed, figures, seconds, and values for programs to read
        self.machine, self.name, self.memory = machine(device)
        self.seconds = 0.0

    def row(self, part, check, passed, figures, seconds, values=None):
        self.rows.append({"part": part, "check": check, "passed": passed, "figures": figures, "seconds": round(seconds, 1), "values": values or {}})

    def failed(self):
        return sum(not row["passed"] for row in self.rows)

    def peaks(self):
        """(operations, bytes) a second that the GPU can reach at most, None where they are not known."""
        return next((peaks for name, peaks in PEAKS.items() if name in self.name), (None, None))

    def table(self):
        lines = [
            f"### GPU check of {self.commit}, {datetime.date.today()}", "",
            f"{self.machine}; device {self.device}; {len(self.rows) - self.failed()} passed, {self.failed()} failed, {self.seconds:.0f} s.",
            "", "| part | check | result | figures | s |", "|---|---|---|---|---|",
        ]
        for row in self.rows:
            figures = row["figures"].replace("|", "\\|").replace("\n", " ")
            lines.append(f"| {row['part']} | {row['check']} | {'pass' if row['passed'] else '**FAIL**'} | {figures} | {row['seconds']:.1f} |")
        return "\n".join(lines) + "\n"

    def save(self, seconds):
        self.seconds = seconds
        report = {
            "commit": self.commit, "date": str(datetime.date.today()), "device": self.device, "machine": self.machine,
            "passed": len(self.rows) - self.failed(), "failed": self.failed(), "seconds": round(seconds, 1), "checks": self.rows,
        }
        for name, text in (("check_gpu.json", json.dumps(report, indent=1) + "\n"), ("check_gpu.md", self.table())):
            path = os.path.join(self.out, name)
            with open(path + ".tmp", "w") as file:
                file.write(text)
            os.replace(path + ".tmp", path)


def machine(device):
    """The GPU with its driver as nvidia-smi names them, its name, and its memory in bytes; or the processor."""
    if device == "cpu":
        return f"CPU, {os.cpu_count()} cores", "", 0
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(query, capture_output=True, text=True, timeout=30).stdout.strip().splitlines()
    except (OSError, subprocess.TimeoutExpired):
        lines = []
    number = int(device.partition(":")[2] or 0)
    if number >= len(lines):
        return "GPU unknown to nvidia-smi", "", 0
    name, memory, driver = (word.strip() for word in lines[number].split(","))
    return f"{name}, {memory} MiB, driver {driver}", name, int(memory) << 20
