"""PyTorch and accelerate over tiermem's memory, beside the same programs in plain memory.

Skipped without PyTorch. scripts/wheel --frameworks installs it from PyPI and runs this.
"""

import copy
import gc
import hashlib
import json
import os
import struct
import tempfile
import unittest
import warnings

import tiermem

try:
    import torch

    import tiermem.torch
except ModuleNotFoundError:
    torch = None
try:
    import accelerate
    import safetensors.torch

    import tiermem.hf
except ModuleNotFoundError:
    accelerate = None


def digest(tensors):
    """Return one checksum of the bytes of all tensors."""
    summary = hashlib.sha256()
    for tensor in tensors:
        summary.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return summary.hexdigest()


def network(width=512, layers=6, seed=7):
    torch.manual_seed(seed)
    parts = []
    for _ in range(layers):
        parts += [torch.nn.Linear(width, width), torch.nn.Tanh()]
    return torch.nn.Sequential(*parts)


def train(model, step, steps=3, width=512):
    """Train, and return the losses. `step(loss)` makes one step of the optimizer."""
    torch.manual_seed(11)
    losses = []
    for _ in range(steps):
        batch = torch.randn(64, width)
        losses.append(step(lambda: (model(batch) - batch.roll(1, 1)).square().mean()))
    return losses


def state_of(model, optimizer):
    moments = [value for p in model.parameters() for value in optimizer.state[p].values()]
    return [*model.parameters(), *moments]


@unittest.skipUnless(torch, "PyTorch is not installed")
class Torch(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        # Parameters and moments of network() have 19 MB.
        self.context = tiermem.Context(f"dram=6M; nvme={self.folder.name}:256M")
        if not self.context.can_map:
            self.skipTest("this machine has no mapped buffers")

    def tearDown(self):
        if hasattr(self, "context"):
            gc.collect()
            self.context.close(force=True)
            self.folder.cleanup()

    def check_training(self, make_optimizer, **options):
        plain = network()
        optimizer = make_optimizer(plain.parameters())

        def plain_step(loss):
            loss = loss()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.item()

        expected = train(plain, plain_step)
        model = network()
        tiered = tiermem.torch.tier(
            make_optimizer(model.parameters()), model, context=self.context, **options
        )

        def tiered_step(loss):
            with tiermem.torch.offload_activations(context=self.context, least=1 << 16):
                loss = loss()
            loss.backward()
            tiered.step()
            tiered.zero_grad()
            return loss.item()

        self.assertEqual(train(model, tiered_step), expected)
        self.assertEqual(digest(state_of(model, tiered)), digest(state_of(plain, optimizer)))
        large = [p for p in model.parameters() if p.numel() > 10_000]
        self.assertTrue(all(tiermem.torch.buffer_of(p) is not None for p in large))
        return model, tiered

    def test_adam_at_a_third_of_its_memory(self):
        self.check_training(lambda p: torch.optim.Adam(p, fused=True))
        stats = self.context.stats()
        self.assertGreater(stats["demoted"], 0)
        self.assertLessEqual(self.context.tiers[0]["used"], 6 << 20)

    def test_gradients_kept_until_the_step(self):
        self.check_training(lambda p: torch.optim.AdamW(p, lr=1e-2), step_in_backward=False)

    def test_sgd_with_momentum_and_groups(self):
        def make(parameters):
            parameters = list(parameters)
            return torch.optim.SGD(
                [{"params": parameters[::2], "lr": 0.1}, {"params": parameters[1::2]}], 0.01, momentum=0.9
            )

        self.check_training(make)

    def test_a_scheduler_sees_the_optimizer(self):
        model = network(layers=1)
        tiered = tiermem.torch.tier(torch.optim.AdamW(model.parameters()), model, context=self.context)
        scheduler = torch.optim.lr_scheduler.StepLR(tiered.optimizer, 1, 0.5)
        train(model, lambda loss: loss().backward() or tiered.step() or scheduler.step(), steps=2)
        self.assertEqual(tiered.param_groups[0]["lr"], 1e-3 / 4)

    def check_scheduler(self, make_scheduler, make_optimizer, **options):
        """Compare rates, losses and parameters with those of the plain optimizer."""
        rates = []

        def run(model, optimizer):
            scheduler = make_scheduler(optimizer)

            def step(loss):
                loss = loss()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                scheduler.step()
                rates.append([group["lr"] for group in optimizer.param_groups])
                return loss.item()

            return train(model, step, steps=4)

        plain, model = network(layers=2), network(layers=2)
        optimizer = make_optimizer(plain.parameters())
        expected = run(plain, optimizer)
        expected_rates = rates[:]
        rates.clear()
        tiered = tiermem.torch.tier(
            make_optimizer(model.parameters()), model, context=self.context, **options
        )
        self.assertIsInstance(tiered, torch.optim.Optimizer)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Schedulers warn if they do not see the steps.
            self.assertEqual(run(model, tiered), expected)
        self.assertEqual(rates, expected_rates)
        self.assertGreater(len({rate for (rate, *_) in rates}), 1)
        self.assertEqual(digest(state_of(model, tiered)), digest(state_of(plain, optimizer)))

    def test_schedulers_of_pytorch(self):
        schedulers = torch.optim.lr_scheduler
        for make in (
            lambda o: schedulers.StepLR(o, 1, 0.5),
            lambda o: schedulers.CosineAnnealingLR(o, 10),
            lambda o: schedulers.OneCycleLR(o, 0.01, total_steps=10),
            lambda o: schedulers.SequentialLR(
                o, [schedulers.LinearLR(o, 0.1, total_iters=2), schedulers.ExponentialLR(o, 0.5)], [2]
            ),
        ):
            for options in ({}, {"step_in_backward": False}):
                with self.subTest(options=options):
                    self.check_scheduler(make, lambda p: torch.optim.AdamW(p, lr=1e-3), **options)

    def test_a_grad_scaler(self):
        def run(model, optimizer):
            scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

            def step(loss):
                loss = loss()
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                return loss.item()

            return train(model, step)

        for make in (lambda p: torch.optim.SGD(p, 0.1), lambda p: torch.optim.Adam(p, fused=True)):
            plain, model = network(layers=2), network(layers=2)
            optimizer = make(plain.parameters())
            expected = run(plain, optimizer)
            tiered = tiermem.torch.tier(make(model.parameters()), model, context=self.context,
                                        step_in_backward=False)
            self.assertEqual(run(model, tiered), expected)
            self.assertEqual(digest(model.parameters()), digest(plain.parameters()))

    def test_groups_that_are_added_later_are_stepped(self):
        def add(optimizer, new):
            optimizer.add_param_group({"params": [new], "lr": 0.5})

        def assign(optimizer, new):
            group = {**optimizer.param_groups[0], "params": [new], "lr": 0.5}
            optimizer.param_groups = [*optimizer.param_groups, group]

        def append(optimizer, new):
            group = {**optimizer.param_groups[0], "params": [new], "lr": 0.5}
            optimizer.param_groups.append(group)

        for way in (add, assign, append):
            for in_backward in (True, False):
                with self.subTest(way.__name__, in_backward=in_backward):
                    results = []
                    for tiers in (False, True):
                        model = network(layers=1)
                        new = torch.nn.Parameter(torch.ones(512, 512))
                        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
                        if tiers:
                            optimizer = tiermem.torch.tier(
                                optimizer, model, context=self.context, step_in_backward=in_backward
                            )
                        way(optimizer, new)

                        def step(loss, optimizer=optimizer, new=new):
                            loss = loss() + new.square().mean()
                            loss.backward()
                            optimizer.step()
                            optimizer.zero_grad()
                            return loss.item()

                        results.append((train(model, step), digest([*model.parameters(), new])))
                        if tiers:
                            self.assertIsNotNone(tiermem.torch.buffer_of(new))
                            self.assertIsNotNone(
                                tiermem.torch.buffer_of(optimizer.state[new]["momentum_buffer"])
                            )
                    self.assertEqual(results[0], results[1])

    def test_frozen_parameters_and_parameters_that_leave(self):
        model = network(layers=2)
        for p in model[0].parameters():
            p.requires_grad_(False)
        tiered = tiermem.torch.tier(torch.optim.SGD(model.parameters(), 0.1), context=self.context)
        before = [p.clone() for p in model.parameters()]
        model(torch.ones(1, 512)).sum().backward()
        tiered.step()
        same = [torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True)]
        self.assertEqual(same, [True, True, False, False])
        for p in model[0].parameters():  # Thawed: step() sees its gradient.
            p.requires_grad_(True)
        model(torch.ones(1, 512)).sum().backward()
        tiered.step()
        self.assertFalse(torch.equal(model[0].weight, before[0]))
        self.assertIsNone(model[0].weight.grad)
        tiered.param_groups = [{**tiered.param_groups[0], "params": [model[0].weight]}]
        kept = model[2].weight.detach().clone()
        model(torch.ones(1, 512)).sum().backward()
        tiered.step()
        self.assertTrue(torch.equal(model[2].weight, kept))
        self.assertIsNotNone(model[2].weight.grad)

    def test_hooks_of_steps_run_once(self):
        model = network(layers=2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        ran = []
        optimizer.register_step_post_hook(lambda *_: ran.append("before tier()"))
        tiered = tiermem.torch.tier(optimizer, model, context=self.context)
        tiered.register_step_pre_hook(lambda *_: ran.append("pre"))
        tiered.register_step_post_hook(lambda o, *_: ran.append(o is tiered))
        tiered.register_state_dict_post_hook(lambda o, state: {**state, "more": 1})
        model(torch.ones(1, 512)).sum().backward()
        tiered.step()
        self.assertEqual(ran, ["pre", "before tier()", True])
        self.assertEqual(tiered.state_dict()["more"], 1)

    def test_what_an_optimizer_has(self):
        model = network(layers=1)
        tiered = tiermem.torch.tier(torch.optim.Adam(model.parameters(), 0.5), context=self.context)
        self.assertEqual(tiered.defaults["lr"], 0.5)
        self.assertIn("Adam", repr(tiered))
        self.assertFalse(hasattr(tiered, "no_such_name"))
        with self.assertRaisesRegex(TypeError, "save its state_dict"):
            copy.deepcopy(tiered)
        for wrong in (tiered, 5):
            with self.assertRaisesRegex(TypeError, "tiered already|must be a torch.optim"):
                tiermem.torch.tier(wrong, context=self.context)
        tiered.state = {}
        self.assertEqual(tiered.optimizer.state, {})

    def test_a_checkpoint(self):
        model, tiered = self.check_training(lambda p: torch.optim.Adam(p, fused=True))
        path = os.path.join(self.folder.name, "checkpoint")
        torch.save({"model": model.state_dict(), "optimizer": tiered.state_dict()}, path)
        saved = torch.load(path)
        other = network(seed=1)
        again = tiermem.torch.tier(torch.optim.Adam(other.parameters(), fused=True), other,
                                   context=self.context)
        other.load_state_dict(saved["model"])
        again.load_state_dict(saved["optimizer"])
        self.assertEqual(digest(state_of(other, again)), digest(state_of(model, tiered)))

    def test_what_is_refused(self):
        model = network(layers=1)
        with self.assertRaisesRegex(TypeError, "LBFGS"):
            tiermem.torch.tier(torch.optim.LBFGS(model.parameters()), context=self.context)
        with self.assertRaisesRegex(TypeError, "has no type"):
            tiermem.torch.zeros(3, dtype=torch.qint8, context=self.context)
        tiered = tiermem.torch.tier(torch.optim.SGD(model.parameters()), context=self.context)
        with self.assertRaises(NotImplementedError):
            tiered.step(lambda: 0)

    def test_tensors(self):
        tensor = tiermem.torch.zeros(1000, 2000, dtype=torch.bfloat16, context=self.context, label="t")
        tensor.add_(1)
        self.assertEqual(float(tensor.float().sum()), 2e6)
        self.assertEqual(tiermem.torch.buffer_of(tensor).info()["label"], "t")
        self.assertEqual(tiermem.torch.zeros((0, 4), context=self.context).shape, (0, 4))
        self.assertEqual(tensor.data_ptr() % 64, 0)
        del tensor
        gc.collect()
        self.assertEqual(self.context.stats()["buffers"], 0)

    def check_placed(self, tensor, placed):
        buffer = tiermem.torch.buffer_of(tensor)
        self.assertEqual(buffer is not None, placed)
        if placed:
            self.assertLessEqual(buffer.address, tensor.data_ptr())
            self.assertLess(tensor.data_ptr(), buffer.address + buffer.nbytes)
        del buffer
        gc.collect()
        self.assertEqual(self.context.stats()["buffers"], placed)

    def test_a_parameter_leaves_its_buffer_then_it_can_be_placed_again(self):
        for name, convert in {
            "to": lambda layer: layer.to(torch.bfloat16),
            "share_memory": lambda layer: layer.share_memory(),
            "data": lambda layer: setattr(layer.weight, "data", torch.zeros(256, 256)),
        }.items():
            with self.subTest(name):
                layer = torch.nn.Linear(256, 256, bias=False)
                tiermem.torch.place(layer, context=self.context)
                self.check_placed(layer.weight, True)
                convert(layer)
                self.check_placed(layer.weight, False)
                value = layer.weight.detach().clone()
                tiermem.torch.place(layer, context=self.context)
                self.check_placed(layer.weight, True)
                self.assertTrue(torch.equal(layer.weight, value))
                del layer

    def test_a_parameter_leaves_its_buffer_then_the_optimizer_places_it_again(self):
        layer = torch.nn.Linear(256, 256, bias=False)
        optimizer = tiermem.torch.tier(torch.optim.SGD(layer.parameters(), lr=0.1), layer,
                                       context=self.context)  # fmt: skip
        layer.to(torch.bfloat16)
        layer(torch.ones(2, 256, dtype=torch.bfloat16)).sum().backward()
        self.check_placed(layer.weight, False)
        optimizer.step()
        self.check_placed(layer.weight, True)

    def test_workers_of_a_data_loader(self):
        tensor = tiermem.torch.zeros(64, 1 << 16, context=self.context)
        tensor += torch.arange(64.0)[:, None]
        data = torch.utils.data.TensorDataset(torch.arange(32.0))
        loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2)
        self.assertEqual(sum(float(batch.sum()) for (batch,) in loader), 496)
        self.assertEqual(tensor[:, 0].tolist(), list(range(64)))

    def test_activations_leave_memory(self):
        model = network(width=256, layers=8)
        batch = torch.randn(4096, 256, requires_grad=True)
        model(batch).sum().backward()
        expected = [p.grad.clone() for p in model.parameters()] + [batch.grad.clone()]
        model.zero_grad()
        batch.grad = None
        with tiermem.torch.offload_activations(context=self.context):
            output = model(batch)
        self.assertGreater(self.context.stats()["demoted"], 0)
        output.sum().backward()
        self.assertEqual(digest([p.grad for p in model.parameters()] + [batch.grad]), digest(expected))
        del output
        gc.collect()
        self.assertEqual(self.context.stats()["buffers"], 0)

    @unittest.skipUnless(accelerate, "accelerate and safetensors are not installed")
    def test_a_model_of_hugging_face(self):
        plain = network()
        path = os.path.join(self.folder.name, "model.safetensors")
        safetensors.torch.save_file(plain.state_dict(), path)
        inputs = torch.randn(8, 512)
        expected = plain(inputs)
        with accelerate.init_empty_weights():
            model = network()
        weights = tiermem.hf.open(self.folder.name, context=self.context)
        self.assertEqual(set(weights), set(plain.state_dict()))
        accelerate.cpu_offload(model, execution_device="cpu", state_dict=weights)
        for _ in range(3):
            with torch.no_grad():
                self.assertTrue(torch.equal(model(inputs), expected))
        gc.collect()
        self.assertEqual(self.context.tiers[0]["pinned"], 0)
        self.assertEqual(self.context.stats()["demoted"], 0)

    def test_a_model_at_a_path_that_is_not_utf8(self):
        import tiermem.hf

        folder = os.fsencode(self.folder.name) + b"/\xff"
        os.mkdir(folder)
        header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
        with open(folder + b"/model.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header + struct.pack("<2f", 1, 2))
        for path in (folder, os.fsdecode(folder), folder + b"/model.safetensors"):
            weights = tiermem.hf.open(path, context=self.context)
            self.assertEqual(weights["w"].tolist(), [1, 2])
        with self.assertRaisesRegex(FileNotFoundError, r"/\\xff/\.\. has neither"):
            tiermem.hf.open(folder + b"/..", context=self.context)

    @unittest.skipUnless(accelerate, "accelerate and safetensors are not installed")
    def test_a_model_in_shards(self):
        plain = network().state_dict()
        names = list(plain)
        index = {"metadata": {}, "weight_map": {}}
        for shard in range(2):
            part = {name: plain[name] for name in names[shard::2]}
            safetensors.torch.save_file(part, os.path.join(self.folder.name, f"part{shard}.safetensors"))
            index["weight_map"] |= {name: f"part{shard}.safetensors" for name in part}
        with open(os.path.join(self.folder.name, "model.safetensors.index.json"), "w") as file:
            json.dump(index, file)
        weights = tiermem.hf.open(self.folder.name, context=self.context)
        for _ in range(2):
            for name in names:
                self.assertTrue(torch.equal(weights[name], plain[name]))
        held = weights[names[0]]
        self.assertIs(weights[names[0]], held)
        with self.assertRaises(FileNotFoundError):
            tiermem.hf.open(os.path.join(self.folder.name, ".."), context=self.context)

    @unittest.skipUnless(accelerate, "accelerate and safetensors are not installed")
    def test_indexes_that_are_damaged(self):
        path = os.path.join(self.folder.name, "model.safetensors.index.json")
        for text in ("", "{", "[]", "5", "{}", '{"weight_map": []}', '{"weight_map": {}}',
                     '{"weight_map": {"a": 5}}', '{"weight_map": {"a": "/etc/passwd"}}',
                     '{"weight_map": {"a": "../b"}}', "[" * 100_000, '{"weight_map": {"a": ""}}',
                     "\ufffe"):  # fmt: skip
            with open(path, "w") as file:
                file.write(text)
            with self.subTest(text[:30]), self.assertRaisesRegex(ValueError, "index.json"):
                tiermem.hf.open(path, context=self.context)

    @unittest.skipUnless(accelerate, "accelerate and safetensors are not installed")
    def test_weights_that_stay_in_use_end_the_wait_for_others(self):
        path = os.path.join(self.folder.name, "model.safetensors")
        tensors = {f"w{i}": torch.full((1 << 20,), float(i)) for i in range(4)}  # 4 MiB each, of 6.
        safetensors.torch.save_file(tensors, path)
        weights = tiermem.hf.open(path, context=self.context, timeout=0.2)
        held = weights["w0"]
        with self.assertRaises(tiermem.NoCapacity) as caught:
            weights["w1"]
        self.assertRegex(str(caught.exception), "model.safetensors.*0.2 s.*torch.no_grad")
        self.assertEqual(caught.exception.holder, "model.safetensors")
        del held
        self.assertEqual(float(weights["w3"][5]), 3)



@unittest.skipIf(torch is None, "needs PyTorch")
class GpuFaces(unittest.TestCase):
    """PyTorch makes the allocator also without a GPU. test_gpu.py has the rest."""

    def test_allocator_of_torch_is_made(self):
        allocator = tiermem.torch.cuda_allocator()
        self.assertIsInstance(allocator, torch.cuda.memory.CUDAPluggableAllocator)
        self.assertIsNotNone(allocator.allocator())
        with tiermem.Context("dram=16M; nvme=off") as context:
            with self.assertRaisesRegex(tiermem.Unsupported, "no GPU"):
                tiermem.torch.cuda_pool(context)


if __name__ == "__main__":
    unittest.main()
