"""A GGUF model with a quarter of its size as memory: gguf_model.py MODEL [--text TEXT] [--tokens N] [--dram BYTES].

Needs tiermem and llama-cpp-python (docs/python/llama.md).
"""

import argparse
import glob
import os
import re
import time

import tiermem
from tiermem.llama import Llama


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--text", default="The capital of France is")
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--dram", type=int, help="bytes; default: a quarter of the model")
    options = parser.parse_args()
    parts = re.sub(r"-00001-of-(\d{5})\.gguf$", r"-?????-of-\1.gguf", glob.escape(options.model))
    size = sum(map(os.path.getsize, glob.glob(parts)))
    budget = options.dram or size // 4
    folder = os.path.dirname(os.path.abspath(options.model))
    context = tiermem.Context(f"dram={budget}; nvme={folder}:{budget}", name="gguf")  # Nothing is written there.
    model = Llama(options.model, context=context, n_ctx=512, verbose=False)
    began = time.perf_counter()
    done = model(options.text, max_tokens=options.tokens, temperature=0)
    seconds = time.perf_counter() - began
    print(options.text + done["choices"][0]["text"])
    moved = context.stats()
    read = moved["promoted"] + moved["prefetched"]
    print(f"{done['usage']['completion_tokens'] / seconds:.1f} tokens/s; {budget >> 20} MiB of memory for "
          f"{size >> 20} MiB of weights; {read >> 20} MiB were read, {moved['prefetched'] * 100 // max(read, 1)} % "
          "before they were touched")  # fmt: skip
    model.close()


if __name__ == "__main__":
    main()
