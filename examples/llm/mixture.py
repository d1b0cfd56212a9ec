"""Writes a mixture of experts with random weights as a GGUF file: mixture.py PATH [OPTIONS].

The architecture is "llama" with experts, as Mixtral has it: each token uses 2 of 16 experts in each
layer. Weights are Q8_0. The words of its texts mean nothing; what it shows is the movement of weights.
Needs the packages gguf and numpy. The same options write the same bytes.
"""

import argparse
import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, TokenType

BLOCK = 32  # Values of a block of Q8_0: a scale in f16, and 32 numbers of 8 bits.
WORDS = 512


def quantized(rng, rows, columns, deviation):
    """Return random rows in Q8_0. Values are uniform, with about this standard deviation."""
    blocks = np.empty((rows, columns // BLOCK, 2 + BLOCK), np.uint8)
    scale = np.float16(deviation * 3**0.5 / 127)
    blocks[:, :, :2] = np.frombuffer(scale.tobytes(), np.uint8)
    numbers = rng.integers(-127, 128, (rows, columns // BLOCK, BLOCK), np.int8)
    blocks[:, :, 2:] = numbers.view(np.uint8)
    return blocks.reshape(rows, -1)


def write(path, *, layers=8, experts=16, used=2, width=1024, inner=2048, heads=8, seed=1, per_file=0,
          empty_first=False):  # fmt: skip
    """Write the file. width, inner: multiples of 32. experts: 0 for a dense model.

    per_file: the most tensors of a file; 0: all are in one. MODEL.gguf is then the files
    MODEL-00001-of-00003.gguf and so on. empty_first: the first of them has no tensors.
    """
    rng = np.random.default_rng(seed)
    writer = GGUFWriter(path, "llama", split_max_tensors=per_file, small_first_shard=empty_first)
    writer.add_name("random mixture")
    writer.add_block_count(layers)
    writer.add_context_length(2048)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width // heads)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(used)
    writer.add_vocab_size(WORDS)
    add_vocabulary(writer)

    def add(name, *shape, deviation=None):
        *outer, columns = shape
        rows = int(np.prod(outer))
        data = quantized(rng, rows, columns, deviation or columns**-0.5)
        writer.add_tensor(name, data.reshape(*outer, -1), raw_dtype=GGMLQuantizationType.Q8_0)

    add("token_embd.weight", WORDS, width, deviation=1.0)
    for layer in range(layers):
        block = f"blk.{layer}."
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"{block}{norm}.weight", np.ones(width, np.float32))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"{block}{name}.weight", width, width)
        if experts:
            router = rng.standard_normal((experts, width), np.float32) * np.float32(width**-0.5)
            writer.add_tensor(f"{block}ffn_gate_inp.weight", router)
        kind, outer = ("_exps", [experts]) if experts else ("", [])
        add(f"{block}ffn_gate{kind}.weight", *outer, inner, width)
        add(f"{block}ffn_up{kind}.weight", *outer, inner, width)
        add(f"{block}ffn_down{kind}.weight", *outer, width, inner)
    writer.add_tensor("output_norm.weight", np.ones(width, np.float32))
    add("output.weight", WORDS, width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_vocabulary(writer):
    """Add a vocabulary of bytes, and of words without a meaning."""
    special = ["<unk>", "<s>", "</s>"]
    tokens = special + [f"<0x{byte:02X}>" for byte in range(256)]
    kinds = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL] + [TokenType.BYTE] * 256
    words = [f"\u2581w{i}" for i in range(WORDS - len(tokens))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens + words)
    writer.add_token_scores([0.0] * len(tokens) + [-float(i) for i in range(len(words))])
    writer.add_token_types(kinds + [TokenType.NORMAL] * len(words))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("path")
    for name, default in (("layers", 8), ("experts", 16), ("used", 2), ("width", 1024), ("inner", 2048),
                          ("heads", 8), ("seed", 1), ("per-file", 0)):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    options = vars(parser.parse_args())
    if options["width"] % BLOCK or options["inner"] % BLOCK:
        sys.exit(f"mixture: --width and --inner must be multiples of {BLOCK}")
    write(options.pop("path"), **options)


if __name__ == "__main__":
    main()
