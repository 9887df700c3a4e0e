"""Loads what a run of adapters left in PEFT and in transformers, and compares logits with each other and with the program.

    python tools/check_lora.py BASE FOLDER [PROGRAM]

BASE is the model folder that the run started from, FOLDER a checkpoint of the run or the model of a supervised start,
PROGRAM bin/mempo-train. Float32 on one thread; needs torch, transformers and peft. Exits with 1 where they differ.
"""

import json
import pathlib
import subprocess
import sys

import peft
import torch
import transformers

ROWS = [[5, 17, 3, 42, 8, 99, 100, 7, 11, 2], [1, 2, 3], list(range(3, 60, 2))]
TOLERANCE = 1e-4


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def logits(model):
    with torch.no_grad():
        return [model(input_ids=torch.tensor([row])).logits[0] for row in ROWS]


def largest(a, b):
    return max((x - y).abs().max().item() for x, y in zip(a, b))


def log_probs_of(program, folder):
    """What the program computes for the tokens of each row but the first."""
    given = "".join(json.dumps({"ids": row}) + "\n" for row in ROWS)
    out = subprocess.run([program, "score", "--model", str(folder), "--device", "cpu", "--dtype", "float32"], input=given, text=True, check=True, capture_output=True)
    return [torch.tensor(json.loads(line)["logprobs"][1:]) for line in out.stdout.splitlines()]


def main():
    torch.set_num_threads(1)
    base, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    plain = logits(load(base))
    adapted_model = peft.PeftModel.from_pretrained(load(base), folder / "adapter").eval()
    adapted, merged = logits(adapted_model), logits(load(folder))
    print(f"adapters change logits by up to {largest(adapted, plain):.3g}")
    differences = {"PEFT and the merged model in transformers": largest(adapted, merged)}
    if len(sys.argv) > 3:
        wanted = [x.log_softmax(-1)[:-1].gather(1, torch.tensor(row[1:]).unsqueeze(1)).squeeze(1) for x, row in zip(merged, ROWS)]
        differences["log-probabilities of transformers and the program"] = largest(wanted, log_probs_of(sys.argv[3], folder))
    for what, difference in differences.items():
        print(f"{what} differ by up to {difference:.3g}")
    sys.exit(0 if max(differences.values()) <= TOLERANCE and largest(adapted, plain) > 1e-3 else 1)


if __name__ == "__main__":
    main()
