"""Writes what the program reads, from the published GGUF file: convert.py GGUF FOLDER.

model-f16.safetensors  every tensor dequantized to f16, under its GGUF name
config.json            the shape of the network, from the GGUF metadata
tokens.txt             the text of every token, one a line, escaped
prompts.json           a few prompts as token ids

Each file appears under its name only when it is complete.
"""

import json
import os
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors.numpy import save_file

from tokenizer import Tokenizer

PROMPTS = {
    "capital": "The capital of France is",
    "story": "Once upon a time, there was a little robot who",
    "water": "Water boils at 100 degrees Celsius because",
    # Longer than the sliding window of 512 tokens, so that local and global layers differ.
    "count": ", ".join(str(n) for n in range(1, 151)) + ",",
}

# Gemma 3 has these in its code, not in the file's metadata (the same constants as in llama.cpp).
LOCAL_ROPE_BASE = 10000.0
GLOBAL_LAYER_PERIOD = 6  # Every sixth layer sees everything; the others, the sliding window.


def publish(path, write):
    write(path + ".partial")
    os.chmod(path + ".partial", 0o644)
    os.replace(path + ".partial", path)
    print(f"  wrote {os.path.basename(path)}, {os.path.getsize(path):,} bytes", flush=True)


def write_text(text):
    def write(path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return write


def config_of(reader, tokenizer):
    def value(name):
        return reader.get_field("gemma3." + name).contents()

    if reader.get_field("general.architecture").contents() != "gemma3":
        raise SystemExit("the GGUF file is not of architecture gemma3")
    end = reader.get_field("tokenizer.ggml.eos_token_id").contents()
    turn_end = [i for i, piece in enumerate(tokenizer.pieces) if piece == "<end_of_turn>"]
    return {
        "name": reader.get_field("general.name").contents(),
        "vocabulary": len(tokenizer.pieces),
        "width": value("embedding_length"),
        "layers": value("block_count"),
        "feed_forward": value("feed_forward_length"),
        "heads": value("attention.head_count"),
        "kv_heads": value("attention.head_count_kv"),
        "head_width": value("attention.key_length"),
        "sliding_window": value("attention.sliding_window"),
        "global_layer_period": GLOBAL_LAYER_PERIOD,
        "rope_base_global": value("rope.freq_base"),
        "rope_base_local": LOCAL_ROPE_BASE,
        "rms_epsilon": value("attention.layer_norm_rms_epsilon"),
        "embedding_scale": float(np.sqrt(np.float32(value("embedding_length")))),
        "context": value("context_length"),
        "end_tokens": [end] + turn_end,
    }


def main():
    gguf_path, folder = sys.argv[1:]
    reader = GGUFReader(gguf_path)
    tokenizer = Tokenizer.from_gguf(reader)

    prompts = {name: {"text": text, "ids": tokenizer.encode(text)}
               for name, text in PROMPTS.items()}
    config = config_of(reader, tokenizer)
    tensors = {}
    for t in reader.tensors:
        rows = tuple(int(n) for n in reversed(t.shape))  # GGUF names the fastest dimension first.
        tensors[t.name] = dequantize(t.data, t.tensor_type).reshape(rows).astype(np.float16)

    def file(name):
        return os.path.join(folder, name)

    publish(file("config.json"), write_text(json.dumps(config, indent=2) + "\n"))
    publish(file("prompts.json"), write_text(json.dumps(prompts, indent=2) + "\n"))
    publish(file("tokens.txt"), write_text("".join(line + "\n" for line in tokenizer.lines())))
    publish(file("model-f16.safetensors"), lambda path: save_file(tensors, path))


if __name__ == "__main__":
    main()
