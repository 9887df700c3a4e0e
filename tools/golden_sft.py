"""Writes testdata/golden/sft: the loss of ten steps of supervised training in PyTorch and transformers.

    python tools/golden_sft.py testdata/golden

Each step has rows of its own, of different lengths, some of whose tokens are learned: the loss is the mean of -log p
over them. AdamW with weight decay, a gradient norm that is clipped, warm-up and then half a cosine to a share of the
rate. One row at a time, without padding, in float32 on one thread.
"""

import json
import math
import pathlib
import random
import sys

import torch
import transformers

OPTIONS = {
    "learning_rate": 3e-3, "warmup_steps": 3, "final_share": 0.1, "betas": [0.9, 0.98], "eps": 1e-8,
    "weight_decay": 0.1, "clip_norm": 0.7,
}
STEPS = 10
MODELS = ["qwen2-tiny", "llama-tiny", "qwen3-tiny"]


def rows(rng, vocabulary):
    """Ragged rows; learned are stretches of tokens, never the first of a row."""
    made = []
    for _ in range(rng.randint(3, 6)):
        ids = [rng.randrange(vocabulary) for _ in range(rng.randint(4, 48))]
        start = rng.randint(1, len(ids) - 1)
        end = rng.randint(start + 1, len(ids))
        positions = [p for p in range(start, end) if p == start or rng.random() < 0.8]
        made.append({"ids": ids, "positions": positions})
    return made


def rate(step):
    base, warmup, share = OPTIONS["learning_rate"], OPTIONS["warmup_steps"], OPTIONS["final_share"]
    if step <= warmup:
        return base * step / warmup
    progress = (step - warmup - 1) / (STEPS - warmup - 1)
    return base * (share + (1 - share) * (1 + math.cos(math.pi * progress)) / 2)


def loss_of(model, batch):
    """The sum of -log p over learned tokens by their number."""
    total = sum(len(row["positions"]) for row in batch)
    loss = torch.zeros(())
    for row in batch:
        ids = torch.tensor([row["ids"]])
        log_probs = model(input_ids=ids).logits[0].log_softmax(-1)
        for p in row["positions"]:
            loss = loss - log_probs[p - 1, ids[0, p]] / total
    return loss


def curve(folder):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model.train()
    optimizer = torch.optim.AdamW(
        model.parameters(), betas=tuple(OPTIONS["betas"]), eps=OPTIONS["eps"], weight_decay=OPTIONS["weight_decay"])
    rng = random.Random(folder.name)
    steps = []
    for step in range(1, STEPS + 1):
        batch = rows(rng, model.config.vocab_size)
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), OPTIONS["clip_norm"])
        optimizer.param_groups[0]["lr"] = rate(step)
        optimizer.step()
        steps.append({"rows": batch, "learning_rate": rate(step), "loss": loss.item(), "grad_norm": norm.item()})
    with torch.no_grad():
        return {"options": OPTIONS, "steps": steps, "loss_after": loss_of(model, steps[0]["rows"]).item()}


def main():
    torch.set_num_threads(1)
    golden = pathlib.Path(sys.argv[1])
    (golden / "sft").mkdir(exist_ok=True)
    for name in MODELS:
        text = json.dumps(curve(golden / "models" / name))
        (golden / "sft" / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
