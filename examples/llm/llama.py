"""llama.cpp as a second witness: llama.py FOLDER RUN.json RUN.f32 ...

Runs the prompts of example_llm through llama.cpp (from the package of requirements-llama.txt) with
the same weights. It writes them to a GGUF file in f32, because llama.cpp rounds its activations to
8 bits beside quantized weights. It compares
  - the first tokens of each run, and every logit of them, within --tolerance (llama.cpp uses
    an f16 table for GELU; long prompts differ most);
  - the text of all tokens of the vocabulary with tokens.txt;
  - the ids of the texts below with those of tokenizer.py.
Exit status 0, or 1 and the differences.
"""

import argparse
import json
import os
import re
import sys

import numpy as np
from cyllama.llama import llama_cpp
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from safetensors.numpy import load_file

from tokenizer import NORMAL, SPACE, USER_DEFINED, Tokenizer

GGUF = "gemma-3-270m-q4_k_m.gguf"
TEXTS = [
    "The capital of France is", "Hello,  world!\n\n\n  two  spaces", "", " ", "\t tab", "naïve café — déjà vu",
    "日本語のテキスト", "Привет, мир", "🙂🤖👩‍👩‍👧", "1234567890 3.14159 1e-9", "x = [i**2 for i in range(10)]",
    "<b>bold</b> &amp; more", "ﬁ ligature, ½, ™, \u200b zero width", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "supercalifragilisticexpialidocious", "ᚠᛇᚻ᛫ᛒᛦᚦ᛫ᚠᚱᚩᚠᚢᚱ", "नमस्ते दुनिया", "مرحبا بالعالم", "\u2581 the sign itself",
]


def write_f32(folder, path):
    """The metadata of the published file with the weights that example_llm reads, in f32."""
    source = GGUFReader(os.path.join(folder, GGUF))
    writer = GGUFWriter(path, "gemma3")
    for field in source.fields.values():
        if field.name == "general.architecture" or field.name.startswith("GGUF."):
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == GGUFValueType.ARRAY else None
        value = field.contents()
        if field.name == "general.file_type":
            value = 0  # All f32.
        writer.add_key_value(field.name, value, kind, sub_type=inner)
    for name, tensor in load_file(os.path.join(folder, "model-f16.safetensors")).items():
        writer.add_tensor(name, tensor.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Model(llama_cpp.LlamaModel):
    """Adds n_vocab, which the package's context needs from its model to return logits."""

    @property
    def n_vocab(self):
        return self.get_vocab().n_vocab


class Llama:
    def __init__(self, path):
        llama_cpp.disable_logging()
        llama_cpp.ggml_backend_load_all()
        options = llama_cpp.LlamaModelParams()
        options.n_gpu_layers = 0
        self.model = Model(path, options)
        self.vocabulary = self.model.get_vocab()

    def logits(self, tokens, count):
        """Returns the logits after each of the last `count` tokens."""
        options = llama_cpp.LlamaContextParams()
        options.n_ctx = options.n_batch = options.n_ubatch = 2048
        options.type_k = options.type_v = 0  # The KV cache in f32 too, and no attention in f16.
        options.flash_attn_type = 0
        context = llama_cpp.LlamaContext(self.model, options)
        batch = llama_cpp.LlamaBatch(n_tokens=len(tokens), embd=0, n_seq_max=1)
        first = len(tokens) - count
        for position, token in enumerate(tokens):
            batch.add(token, position, [0], position >= first)
        context.decode(batch)
        rows = [np.array(context.get_logits_ith(first + i), np.float32) for i in range(count)]
        return np.stack(rows)


def compare_run(llama, run_path, logits_path, most, tolerance):
    with open(run_path, encoding="utf-8") as file:
        run = json.load(file)
    count = min(most, len(run["tokens"]))
    ours = np.fromfile(logits_path, np.float32).reshape(len(run["tokens"]), -1)[:count]
    theirs = llama.logits(run["prompt_ids"] + run["tokens"][:count - 1], count)
    expected = [int(t) for t in np.argmax(theirs, axis=1)]
    worst = float(np.max(np.abs(ours - theirs)))
    if expected != run["tokens"][:count] or not worst <= tolerance:
        sys.exit(f"{run_path}: tokens {run['tokens'][:count]}, llama.cpp says {expected}; logits "
                 f"differ by up to {worst:.2e}, accepted {tolerance:.0e}")
    print(f"llama.cpp: {count} tokens after {len(run['prompt_ids'])} equal, logits within "
          f"{worst:.1e}")


def plain(line):
    """A line of tokens.txt as the bytes it stands for."""
    def byte(match):
        return b"\\" if match[1] == b"\\" else bytes([int(match[1][1:], 16)])
    return re.sub(rb"\\(\\|x[0-9a-f]{2})", byte, line.encode())


def compare_pieces(vocabulary, folder):
    kinds = Tokenizer.from_gguf(GGUFReader(os.path.join(folder, GGUF))).kinds
    with open(os.path.join(folder, "tokens.txt"), encoding="utf-8", newline="\n") as file:
        lines = file.read().split("\n")[:-1]
    compared = 0
    for token, (line, kind) in enumerate(zip(lines, kinds)):
        if kind not in (NORMAL, USER_DEFINED):  # llama.cpp shows others not at all, or cut short.
            continue
        theirs = vocabulary.token_to_piece(token, 0, True).encode()
        ours = plain(line).replace(SPACE.encode(), b" ")
        if theirs != ours:
            sys.exit(f"token {token}: {ours!r}, llama.cpp says {theirs!r}")
        compared += 1
    if compared < 200000:
        sys.exit(f"only {compared} pieces could be compared")
    print(f"llama.cpp: {compared} pieces equal")


def compare_ids(vocabulary, folder):
    tokenizer = Tokenizer.from_gguf(GGUFReader(os.path.join(folder, GGUF)))
    for text in TEXTS:
        ours, theirs = tokenizer.encode(text), list(vocabulary.tokenize(text, True, False))
        if ours != theirs:
            sys.exit(f"{text!r}: ids {ours}, llama.cpp says {theirs}")
    print(f"llama.cpp: {len(TEXTS)} texts have the same ids")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("runs", nargs="+", metavar="RUN.json RUN.f32")
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--tolerance", type=float, default=0.1)
    args = parser.parse_args()
    path = os.path.join(args.folder, f"model-f32.{os.getpid()}.gguf")
    try:
        write_f32(args.folder, path)
        llama = Llama(path)
        compare_ids(llama.vocabulary, args.folder)
        compare_pieces(llama.vocabulary, args.folder)
        for run, logits in zip(args.runs[::2], args.runs[1::2]):
            compare_run(llama, run, logits, args.tokens, args.tolerance)
    finally:
        if os.path.exists(path):
            os.remove(path)


if __name__ == "__main__":
    main()
