"""Writes testdata/golden/lora: adapters on tiny models in PEFT, and one step of training them in PyTorch.

    python tools/golden_lora.py testdata/golden

The adapters start from random numbers, B among them, so that every gradient is more than noise. The loss is the mean of
-log p over the learned tokens of ragged rows, one row at a time, in float32 on one thread. Names are PEFT's without what it
puts in front of them. Needs torch, transformers and peft.
"""

import json
import pathlib
import random
import sys

import peft
import safetensors.torch
import torch
import transformers

OPTIONS = {"learning_rate": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01, "clip_norm": 1.0}
ADAPTERS = {
    "qwen2-tiny": {"rank": 3, "alpha": 5, "targets": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]},
    "llama-tiny": {"rank": 4, "alpha": 8, "targets": ["q_proj", "v_proj"]},
    "qwen3-tiny": {"rank": 2, "alpha": 3, "targets": ["k_proj", "o_proj", "up_proj", "down_proj"]},
}


def rows(rng, vocabulary):
    made = []
    for length in (19, 2, 41, 30):
        ids = [rng.randrange(vocabulary) for _ in range(length)]
        positions = [p for p in range(1, length) if p == 1 or rng.random() < 0.6]
        made.append({"ids": ids, "positions": positions})
    return made


def log_probs(model, row):
    ids = torch.tensor([row["ids"]])
    all_ids = model(input_ids=ids).logits[0].log_softmax(-1)
    return torch.stack([all_ids[p - 1, ids[0, p]] for p in row["positions"]])


def numbers(model, batch):
    with torch.no_grad():
        return [log_probs(model, row).tolist() for row in batch]


def adapters_of(model):
    found = {}
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            found[name.removeprefix("base_model.model.").replace(".default", "")] = parameter
    return found


def step(folder, adapters):
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model = peft.get_peft_model(model, peft.LoraConfig(
        r=adapters["rank"], lora_alpha=adapters["alpha"], target_modules=adapters["targets"], lora_dropout=0.0, task_type="CAUSAL_LM"))
    trained = adapters_of(model)
    with torch.no_grad():
        for name, parameter in trained.items():
            if "lora_B" in name:
                parameter.normal_(std=0.3)
    tensors = {f"start.{name}": p.detach().clone() for name, p in trained.items()}
    batch = rows(random.Random(folder.name), model.config.vocab_size)
    told = {"adapters": adapters, "options": OPTIONS, "rows": batch, "log_probs": numbers(model, batch)}
    with model.disable_adapter():
        told["log_probs_without"] = numbers(model, batch)

    model.train()
    optimizer = torch.optim.AdamW(trained.values(), lr=OPTIONS["learning_rate"], betas=tuple(OPTIONS["betas"]), eps=OPTIONS["eps"], weight_decay=OPTIONS["weight_decay"])
    total = sum(len(row["positions"]) for row in batch)
    loss = -sum(log_probs(model, row).sum() for row in batch) / total
    loss.backward()
    tensors |= {f"gradient.{name}": p.grad.clone() for name, p in trained.items()}
    told["loss"] = loss.item()
    told["grad_norm"] = torch.nn.utils.clip_grad_norm_(trained.values(), OPTIONS["clip_norm"]).item()
    optimizer.step()
    tensors |= {f"after.{name}": p.detach().clone() for name, p in trained.items()}
    told["log_probs_after"] = numbers(model, batch)
    merged = model.merge_and_unload().state_dict()
    tensors |= {f"merged.{name}": t.clone() for name, t in merged.items() if name.startswith("model.layers.1.") and name.endswith("_proj.weight")}
    return told, tensors


def main():
    torch.set_num_threads(1)
    golden = pathlib.Path(sys.argv[1])
    (golden / "lora").mkdir(exist_ok=True)
    for name, adapters in ADAPTERS.items():
        told, tensors = step(golden / "models" / name, adapters)
        (golden / "lora" / f"{name}.json").write_text(json.dumps(told) + "\n")
        safetensors.torch.save_file({key: t.contiguous() for key, t in tensors.items()}, golden / "lora" / f"{name}.safetensors")


if __name__ == "__main__":
    main()
