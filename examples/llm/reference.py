"""The same network in NumPy, as an independent check: float32 from the f16 weights, no KV cache.

reference.py FOLDER [--prompt NAME] [--tokens N]
    prints the greedy tokens.
reference.py FOLDER --against RUN.json --logits RUN.f32 [--tokens N]
    takes the prompt of a run of example_llm and compares its first N tokens and their logits.
    Exit status 1 if a token differs or a logit differs by more than --tolerance.

It processes the whole sequence again for every token: slow, but without state that could be wrong.
"""

import argparse
import json
import os
import sys

import numpy as np
from safetensors.numpy import load_file


class Gemma3:
    def __init__(self, folder):
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            self.c = json.load(file)
        f16 = load_file(os.path.join(folder, "model-f16.safetensors"))
        self.w = {name: tensor.astype(np.float32) for name, tensor in f16.items()}

    def norm(self, x, weight):
        """RMS norm. GGUF stores Gemma's 1 + w, so the weight is used as it is."""
        square = np.mean(x * x, axis=-1, keepdims=True) + np.float32(self.c["rms_epsilon"])
        return x / np.sqrt(square) * self.w[weight]

    def rotate(self, x, base):
        """Rotary embedding of x[head, position, width]: first half against second half."""
        half = x.shape[-1] // 2
        angle = np.arange(x.shape[1])[:, None] * base ** -(np.arange(half) / half)
        cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    def attention(self, layer, x):
        c, name, n = self.c, f"blk.{layer}.", len(x)
        is_global = (layer + 1) % c["global_layer_period"] == 0
        base = c["rope_base_global" if is_global else "rope_base_local"]

        def heads(y, count):
            return y.reshape(n, count, c["head_width"]).transpose(1, 0, 2)

        q = heads(x @ self.w[name + "attn_q.weight"].T, c["heads"])
        k = heads(x @ self.w[name + "attn_k.weight"].T, c["kv_heads"])
        v = heads(x @ self.w[name + "attn_v.weight"].T, c["kv_heads"])
        q = self.rotate(self.norm(q, name + "attn_q_norm.weight"), base)
        k = self.rotate(self.norm(k, name + "attn_k_norm.weight"), base)
        k, v = (np.repeat(y, c["heads"] // c["kv_heads"], axis=0) for y in (k, v))
        scores = q @ k.transpose(0, 2, 1) / np.float32(np.sqrt(c["head_width"]))
        back = np.arange(n)[:, None] - np.arange(n)[None, :]
        hidden = (back < 0) | ((back >= c["sliding_window"]) & (not is_global))
        scores = np.where(hidden, -np.inf, scores)
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = (p / p.sum(axis=-1, keepdims=True)) @ v
        return mixed.transpose(1, 0, 2).reshape(n, -1) @ self.w[name + "attn_output.weight"].T

    def feed_forward(self, layer, x):
        name = f"blk.{layer}."
        g = x @ self.w[name + "ffn_gate.weight"].T
        bend = np.float32(np.sqrt(2 / np.pi)) * (g + np.float32(0.044715) * g**3)
        gelu = 0.5 * g * (1 + np.tanh(bend))
        return (gelu * (x @ self.w[name + "ffn_up.weight"].T)) @ self.w[name + "ffn_down.weight"].T

    def logits(self, tokens):
        """Returns the logits of the token after the last one."""
        x = self.w["token_embd.weight"][tokens] * np.float32(self.c["embedding_scale"])
        for i in range(self.c["layers"]):
            name = f"blk.{i}."
            y = self.attention(i, self.norm(x, name + "attn_norm.weight"))
            x = x + self.norm(y, name + "post_attention_norm.weight")
            y = self.feed_forward(i, self.norm(x, name + "ffn_norm.weight"))
            x = x + self.norm(y, name + "post_ffw_norm.weight")
        return self.w["token_embd.weight"] @ self.norm(x[-1], "output_norm.weight")


def compare(model, run, logits_path, count, tolerance):
    with open(run, encoding="utf-8") as file:
        run = json.load(file)
    count = min(count, len(run["tokens"]))
    theirs = np.fromfile(logits_path, np.float32).reshape(-1, model.c["vocabulary"])
    tokens, worst = list(run["prompt_ids"]), 0.0
    for step in range(count):
        ours = model.logits(tokens)
        expected, got = int(np.argmax(ours)), run["tokens"][step]
        difference = float(np.max(np.abs(ours - theirs[step])))
        worst = max(worst, difference)
        if got != expected or not difference <= tolerance:
            sys.exit(f"step {step}: token {got}, the reference says {expected}; logits differ by "
                     f"up to {difference:.2e}, accepted {tolerance:.0e}")
        tokens.append(got)
    print(f"reference: {count} tokens equal, logits within {worst:.1e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--prompt", default="capital")
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--against", metavar="RUN.json")
    parser.add_argument("--logits", metavar="RUN.f32")
    parser.add_argument("--tolerance", type=float, default=2e-3)
    args = parser.parse_args()
    if (args.against is None) != (args.logits is None):
        parser.error("--against and --logits go together")
    model = Gemma3(args.folder)
    if args.against:
        return compare(model, args.against, args.logits, args.tokens, args.tolerance)
    with open(os.path.join(args.folder, "prompts.json"), encoding="utf-8") as file:
        tokens = json.load(file)[args.prompt]["ids"]
    begin = len(tokens)
    for _ in range(args.tokens):
        tokens.append(int(np.argmax(model.logits(tokens))))
    print(json.dumps(tokens[begin:]))


if __name__ == "__main__":
    main()
