"""`python -m tiermem demo`: a PyTorch model trained with a third of the memory that its state needs.

The same program runs twice, in a process of its own each: in plain memory, and with its parameters and
moments in mapped buffers. Both print their losses and the checksum of the whole state at the end.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time


def _parser():
    parser = argparse.ArgumentParser(prog="python -m tiermem demo", description=__doc__.split("\n\n")[0])
    parser.add_argument("--width", type=int, default=2048, help="neurons per layer (default: 2048)")
    parser.add_argument("--layers", type=int, default=12, help="number of layers (default: 12)")
    parser.add_argument("--steps", type=int, default=4, help="steps of training (default: 4)")
    parser.add_argument("--directory", help="where tiermem may store bytes (default: the folder for "
                        "temporary files)")
    parser.add_argument("--mode", choices=["plain", "tiermem"], help=argparse.SUPPRESS)
    return parser


def main(arguments):
    """Run the demonstration. Return the exit status."""
    options = _parser().parse_args(arguments)
    if options.mode:
        print(json.dumps(_train(options)))
        return 0
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError:
        print("tiermem demo: PyTorch is not installed; pip install torch", file=sys.stderr)
        return 1
    print(f"{options.layers} layers of {options.width} x {options.width}, Adam: parameters and moments "
          f"have {_state_bytes(options) >> 20} MiB")
    print(f"{'':9}{'memory for them':>16}{'peak of the process':>21}{'seconds per step':>18}  losses")
    results = [_run(mode, arguments, options) for mode in ("plain", "tiermem")]
    if results[0]["losses"] != results[1]["losses"] or results[0]["digest"] != results[1]["digest"]:
        print("The results differ. This is a defect of tiermem: please report it.", file=sys.stderr)
        return 1
    print(f"Losses and all {_state_bytes(options) >> 20} MiB of state are equal, bit for bit.")
    return 0


def _state_bytes(options):
    return 3 * 4 * options.layers * (options.width + 1) * options.width


def _run(mode, arguments, options):
    command = [sys.executable, "-m", "tiermem", "demo", *arguments, "--mode", mode]
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        done = subprocess.run([*command, "--directory", folder], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"tiermem demo: the {mode} run failed with status {done.returncode}")
    told = json.loads(done.stdout)
    memory = f"{told['memory'] >> 20} MiB"
    peak = f"+{(told['peak_kib'] - told['begin_kib']) >> 10} MiB"
    losses = " ".join(f"{loss:.6f}" for loss in told["losses"])
    print(f"{mode:9}{memory:>16}{peak:>21}{told['seconds']:>18.2f}  {losses}", flush=True)
    return told


def _train(options):
    import hashlib

    import torch

    begin_kib = _peak_kib()
    torch.manual_seed(1)
    memory = _state_bytes(options)
    context = None
    if options.mode == "tiermem":
        import tiermem
        import tiermem.torch

        memory //= 3
        context = tiermem.Context(f"dram={memory}; nvme={options.directory}:{4 * 3 * memory}")
    parts = []
    for _ in range(options.layers):
        layer = torch.nn.Linear(options.width, options.width)
        parts += [layer, torch.nn.Tanh()]
        if context is not None:  # Layer by layer: the model is never in memory as a whole.
            tiermem.torch.place(layer, context=context)
    model = torch.nn.Sequential(*parts)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    if context is not None:
        optimizer = tiermem.torch.tier(optimizer, model, context=context)
    losses, seconds = [], []
    for _ in range(options.steps):
        start = time.monotonic()
        batch = torch.randn(64, options.width)
        loss = (model(batch) - batch.roll(1, 1)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        seconds.append(time.monotonic() - start)
    peak_kib = _peak_kib()
    digest = hashlib.sha256()
    for parameter in model.parameters():
        state = optimizer.state[parameter]
        for tensor in (parameter.detach(), state["exp_avg"], state["exp_avg_sq"]):
            digest.update(memoryview(tensor.reshape(-1).numpy()))
    return {"memory": memory, "begin_kib": begin_kib, "peak_kib": peak_kib, "losses": losses,
            "seconds": sorted(seconds)[len(seconds) // 2], "digest": digest.hexdigest()}  # fmt: skip


def _peak_kib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
