"""Writes random tiny encoders and what PyTorch and transformers make of texts with them, for the tests of package engine.

    python tools/golden_encoder.py testdata/golden model/tokenizer/testdata/wordpiece/tokenizer.json

With --folder DIR it takes that encoder instead and prints, as one JSON object, texts with their token ids and vectors.
"""

import argparse
import json
import pathlib
import random
import shutil

import tokenizers
import torch
import transformers

CHARACTERS = "abcdefghijklmnopqrstuvwxyz      the of and  0123456789.,;:!?'-éüßñ東京大学\u0301"


def texts(count, longest):
    rng = random.Random(3)
    fixed = ["", "a", "query: Who wrote Straße and Café?", "passage: " + "the university of water falls " * 40, "[SEP] [CLS] inside"]
    return fixed + ["".join(rng.choice(CHARACTERS) for _ in range(rng.randint(1, longest))) for _ in range(count - len(fixed))]


def encode(model, tokenizer, lines, most, pooling, normalize):
    """Ids and vectors by the recipe of the models' cards: a padded batch, the mean over the attention mask."""
    tokenizer.encode_special_tokens = True  # what stands in a text is text
    tokenizer.no_padding()
    tokenizer.enable_truncation(most)
    ids = [tokenizer.encode(line).ids for line in lines]
    width = max(map(len, ids))
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in ids])
    padded = torch.tensor([row + [0] * (width - len(row)) for row in ids])
    with torch.no_grad():
        hidden = model(input_ids=padded, attention_mask=mask).last_hidden_state
    if pooling == "mean":
        weight = mask.unsqueeze(-1).float()
        vectors = (hidden * weight).sum(1) / weight.sum(1)
    else:
        vectors = hidden[:, 0]
    if normalize:
        vectors = torch.nn.functional.normalize(vectors, p=2, dim=1)
    return {"texts": lines, "ids": ids, "vectors": [[round(x, 7) for x in row] for row in vectors.tolist()]}


def tiny(vocab, **changes):
    config = transformers.BertConfig(**{
        "vocab_size": vocab + 3, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "max_position_embeddings": 48, "layer_norm_eps": 1e-12, **changes,
    })
    made = transformers.BertForMaskedLM(config)
    for name, parameter in made.named_parameters():
        torch.nn.init.normal_(parameter, 1.0 if name.endswith("LayerNorm.weight") else 0.0, 0.3)
    return made.eval()


def write(golden, name, made, stored, tokenizer_file, pooling, modules):
    folder = golden / "models" / name
    shutil.rmtree(folder, ignore_errors=True)
    stored.save_pretrained(folder)
    shutil.copy(tokenizer_file, folder / "tokenizer.json")
    if modules:
        kinds = [("", "Transformer"), ("1_Pooling", "Pooling")]
        (folder / "modules.json").write_text(json.dumps([
            {"idx": k, "name": str(k), "path": path, "type": "sentence_transformers.models." + kind} for k, (path, kind) in enumerate(kinds)
        ]))
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({
            "word_embedding_dimension": 32, "pooling_mode_cls_token": pooling == "cls", "pooling_mode_mean_tokens": pooling == "mean",
        }))
    tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_file))
    result = encode(made.bert, tokenizer, texts(40, 200), 48, pooling, normalize=not modules)
    (golden / "encoder").mkdir(exist_ok=True)
    (golden / "encoder" / f"{name}.json").write_text(json.dumps(result) + "\n")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("golden", nargs="?", type=pathlib.Path)
    arguments.add_argument("tokenizer", nargs="?", type=pathlib.Path)
    arguments.add_argument("--folder", type=pathlib.Path)
    given = arguments.parse_args()
    torch.set_num_threads(1)
    if given.folder:
        tokenizer = tokenizers.Tokenizer.from_file(str(given.folder / "tokenizer.json"))
        model = transformers.BertModel.from_pretrained(given.folder, add_pooling_layer=False, attn_implementation="eager").eval()
        print(json.dumps(encode(model, tokenizer, texts(16, 1500), 512, "mean", normalize=True)))
        return
    vocab = tokenizers.Tokenizer.from_file(str(given.tokenizer)).get_vocab_size()
    torch.manual_seed(17)
    first, second = tiny(vocab), tiny(vocab, hidden_act="gelu_new", num_attention_heads=2, layer_norm_eps=1e-5)
    write(given.golden, "bert-tiny", first, first.bert, given.tokenizer, "mean", modules=False)
    write(given.golden, "bert-tiny-prefixed", second, second, given.tokenizer, "cls", modules=True)


if __name__ == "__main__":
    main()
