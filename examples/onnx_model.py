"""ONNX Runtime with a quarter of the memory that its weights need, beside ONNX Runtime alone.

usage: python3 examples/onnx_model.py        needs onnxruntime, onnx and tiermem (docs/python/onnxruntime.md)

Makes a model with 256 MiB of external data, runs it in place under a budget of 64 MiB, and compares the
results bit for bit.
"""
import os
import tempfile
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import tiermem.ort

WIDTH, LAYERS = 2048, 16

with tempfile.TemporaryDirectory() as folder:
    rng = np.random.default_rng(0)
    nodes, weights = [], []
    for i in range(LAYERS):
        matrix = rng.standard_normal((WIDTH, WIDTH), dtype=np.float32) * np.float32(0.03)
        weights.append(onnx.numpy_helper.from_array(matrix, f"w{i}"))
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"m{i}"]))
        nodes.append(helper.make_node("Relu", [f"m{i}"], [f"x{i + 1}"]))
    graph = helper.make_graph(
        nodes, "chain",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [None, WIDTH])],
        [helper.make_tensor_value_info(f"x{LAYERS}", TensorProto.FLOAT, [None, WIDTH])], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = os.path.join(folder, "model.onnx")
    onnx.save(model, path, save_as_external_data=True, location="weights.bin")

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_prepacking", "1")
    plain = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    context = tiermem.Context(f"dram=64M; nvme={folder}:64M")
    tiered = tiermem.ort.session(path, context=context)

    batch = {"x0": rng.standard_normal((8, WIDTH), dtype=np.float32)}
    [expected] = plain.run(None, batch)
    for _ in range(3):
        begin = time.monotonic()
        [result] = tiered.run(None, batch)
        seconds = time.monotonic() - begin
        equal = np.array_equal(result, expected)
        print(f"{seconds:.2f} s, {context.tiers[0]['used'] >> 20} of 256 MiB in memory, equal: {equal}")
        if not equal:
            raise SystemExit("onnx_model: the results differ")
    del tiered
    context.close()
