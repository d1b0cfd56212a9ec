"""llama.cpp: generate.py MODEL.gguf. Reads the file into memory instead of mapping it, and prints
the likeliest tokens after a prompt, each as soon as it is known, and a digest of all logits. THREADS in
the environment says with how many threads (2)."""
import hashlib
import os
import sys

import numpy as np
from cyllama.llama import llama_cpp

# "Once upon a time, there was a little robot who"
PROMPT = [2, 14946, 3324, 496, 990, 236764, 993, 691, 496, 2268, 16775, 1015]
TOKENS = 48


class Model(llama_cpp.LlamaModel):
    """The package's context asks its model for n_vocab, which the model lacks."""

    @property
    def n_vocab(self):
        return self.get_vocab().n_vocab


llama_cpp.disable_logging()
llama_cpp.ggml_backend_load_all()
options = llama_cpp.LlamaModelParams()
options.n_gpu_layers = 0
options.use_mmap = False
model = Model(sys.argv[1], options)
options = llama_cpp.LlamaContextParams()
options.n_ctx = 4096
options.n_batch = options.n_ubatch = 512
options.n_threads = options.n_threads_batch = int(os.environ.get("THREADS", "2"))
context = llama_cpp.LlamaContext(model, options)
tokens, new, total = list(PROMPT), list(PROMPT), hashlib.sha256()
for _ in range(TOKENS):
    batch = llama_cpp.LlamaBatch(n_tokens=len(new), embd=0, n_seq_max=1)
    for i, token in enumerate(new):
        batch.add(token, len(tokens) - len(new) + i, [0], i == len(new) - 1)
    context.decode(batch)
    logits = np.array(context.get_logits_ith(len(new) - 1), np.float32)
    total.update(logits)
    new = [int(np.argmax(logits))]
    tokens += new
    print(new[0], flush=True)
print(total.hexdigest())
