"""Prints the token ids of a text, with commas: encode.py GGUF TEXT. For `--ids` of example_llm."""

import sys

from gguf import GGUFReader

from tokenizer import Tokenizer

if __name__ == "__main__":
    print(",".join(map(str, Tokenizer.from_gguf(GGUFReader(sys.argv[1])).encode(sys.argv[2]))))
