"""tiermem.llama beside llama_cpp.Llama: a small mixture of experts, and a real model where one is.

Skipped without llama-cpp-python, gguf or numpy: scripts/wheel --llama installs them. TIERMEM_TEST_GGUF
names a real model, such as Gemma of examples/llm/prepare; without it its test is skipped.
"""

import os
import shutil
import sys
import tempfile
import threading
import unittest

import tiermem

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "llm"))
try:
    import llama_cpp
    import mixture
    import numpy as np

    from tiermem import llama
except ModuleNotFoundError:
    llama_cpp = None

OPTIONS = {"n_ctx": 128, "n_batch": 64, "n_threads": 1, "n_threads_batch": 1, "verbose": False, "logits_all": True}


def peer(path, **options):
    """A llama_cpp.Llama that does not repack weights, which would change the order of additions."""

    class Plain(llama_cpp.Llama):
        @property
        def model_params(self):
            return self._params

        @model_params.setter
        def model_params(self, params):
            params.use_extra_bufts = False
            self._params = params

    return Plain(path, **{**OPTIONS, **options})


def logits_of(model, tokens):
    """All logits: of a prompt of half of the tokens, and of each other token by itself."""
    half = len(tokens) // 2
    model.reset()
    model.eval(tokens[:half])
    for token in tokens[half:]:
        model.eval([token])
    return np.array(model.scores[: len(tokens)])


@unittest.skipUnless(llama_cpp, "llama-cpp-python, gguf or numpy is not installed")
class Mixture(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.path = os.path.join(cls.folder, "mixture.gguf")
        mixture.write(cls.path, layers=3, experts=8, width=256, inner=512)
        cls.bytes = os.path.getsize(cls.path)
        cls.tokens = [int(t) for t in np.random.default_rng(3).integers(3, mixture.WORDS, 24)]
        model = peer(cls.path)
        cls.expected = logits_of(model, cls.tokens)
        model.close()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def setUp(self):
        self.context = tiermem.Context(f"dram={self.bytes // 4}; nvme={self.folder}:64M", name="llama")

    def tearDown(self):
        self.context.close(force=True)

    def open(self, path=None, **options):
        model = llama.Llama(path or self.path, **{**OPTIONS, "context": self.context, **options})
        self.addCleanup(model.close)
        return model

    def test_all_logits_are_equal_with_a_quarter_of_the_size(self):
        model = self.open()
        for _ in range(2):
            self.assertTrue(np.array_equal(logits_of(model, self.tokens), self.expected))
        stats, moved = model.file.stats(), self.context.stats()
        self.assertGreater(stats["routed"], 0)
        self.assertGreater(stats["kept_bytes"], 0)
        self.assertGreater(moved["prefetched"], 0)
        self.assertLessEqual(moved["dram_used"], self.bytes // 4)
        self.assertGreater(moved["promoted"] + moved["prefetched"], self.bytes)
        self.assertEqual(moved["demoted"], 0)  # Nothing is written.

    def test_all_logits_are_equal_without_read_ahead(self):
        model = self.open(ahead=False)
        self.assertTrue(np.array_equal(logits_of(model, self.tokens), self.expected))
        self.assertEqual(model.file.stats()["ahead_calls"], 0)

    def test_all_logits_are_equal_without_a_block_tier(self):
        with tiermem.Context(f"dram={self.bytes // 4}; nvme=off") as context:
            model = self.open(context=context)
            self.assertTrue(np.array_equal(logits_of(model, self.tokens), self.expected))
            model.close()

    def test_all_logits_are_equal_in_a_read_only_window(self):
        model = self.open(read_only=True)
        self.assertTrue(np.array_equal(logits_of(model, self.tokens), self.expected))

    def test_all_logits_are_equal_beside_a_full_block_tier(self):
        with tiermem.Context(f"dram={self.bytes // 2}; nvme={self.folder}:8M") as context:
            other = context.alloc(8 << 20)
            other.write(b"x" * (8 << 20))
            other.evict()  # The block tier has no room now.
            model = self.open(context=context)
            for _ in range(2):
                self.assertTrue(np.array_equal(logits_of(model, self.tokens), self.expected))
            model.close()

    def test_experts_alone_may_be_placed(self):
        model = self.open(tensors="_exps")
        self.assertEqual(model.file.stats()["tensors"], 9)
        self.assertTrue(np.array_equal(logits_of(model, self.tokens), self.expected))

    def test_small_extents_and_two_threads_give_the_same_logits(self):
        model = self.open(extent_bytes=4096, n_threads=2, n_threads_batch=2)
        self.assertTrue(np.array_equal(logits_of(model, self.tokens), self.expected))

    def test_a_dense_model_streams_in_the_order_of_its_layers(self):
        path = os.path.join(self.folder, "dense.gguf")
        mixture.write(path, layers=6, experts=0, width=512, inner=2048)
        model = peer(path)
        expected = logits_of(model, self.tokens)
        model.close()
        self.context.set_budget("dram", os.path.getsize(path) // 4)
        model = self.open(path, extent_bytes=128 << 10)
        self.assertTrue(np.array_equal(logits_of(model, self.tokens), expected))
        stats = model.file.stats()
        self.assertEqual(stats["expert_bytes"], 0)
        self.assertGreater(stats["ahead_bytes"], 0)
        self.assertGreater(stats["kept_bytes"], 0)

    def test_two_threads_evaluate_with_one_model(self):
        path = os.path.join(self.folder, "threads.gguf")
        mixture.write(path, layers=4, experts=0, width=256, inner=1024)
        self.context.set_budget("dram", os.path.getsize(path) // 4)
        model = self.open(path, extent_bytes=64 << 10)
        results = [None, None]

        def evaluate(number):
            context = llama_cpp._internals.LlamaContext(
                model=model._model, params=model.context_params, verbose=False
            )
            rows = []
            for token in self.tokens:
                one = (llama_cpp.llama_token * 1)(token)
                batch = llama_cpp.llama_batch_get_one(one, 1)
                self.assertEqual(llama_cpp.llama_decode(context.ctx, batch), 0)
                logits = llama_cpp.llama_get_logits(context.ctx)
                rows.append(np.ctypeslib.as_array(logits, (mixture.WORDS,)).copy())
            results[number] = np.array(rows)
            context.close()

        threads = [threading.Thread(target=evaluate, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        alone = peer(path)
        expected = []
        for token in self.tokens:
            alone.eval([token])
            expected.append(np.array(alone.scores[alone.n_tokens - 1]))
        alone.close()
        for result in results:
            self.assertTrue(np.array_equal(result, expected))

    def test_two_models_share_a_file(self):
        first, second = self.open(), self.open()
        self.assertTrue(np.array_equal(logits_of(first, self.tokens), self.expected))
        first.close()
        self.assertTrue(np.array_equal(logits_of(second, self.tokens), self.expected))

    def test_a_model_is_closed_after_its_context(self):
        model = self.open()
        model.eval(self.tokens[:2])
        model.close()
        model.close()
        with self.assertRaises(TypeError):
            model.__getstate__()

    def cut(self, length):
        path = os.path.join(self.folder, "cut.gguf")
        shutil.copyfile(self.path, path)
        os.truncate(path, length)
        return path

    def test_a_cut_file_is_refused_with_the_tensor(self):
        with self.assertRaisesRegex(ValueError, r"tm_ggml_open: .*cut.gguf is cut: tensor .* ends at byte"):
            self.open(self.cut(self.bytes - 4096))

    def test_a_cut_header_and_another_format_are_refused(self):
        with self.assertRaisesRegex(ValueError, "has no GGUF header that llama.cpp can read"):
            self.open(self.cut(100))
        with self.assertRaisesRegex(ValueError, "has no GGUF header"):
            self.open(__file__)

    def test_a_missing_file_is_not_found(self):
        with self.assertRaises(FileNotFoundError):
            self.open(os.path.join(self.folder, "missing.gguf"))

    def write_parts(self, name, **options):
        """Write the mixture in several files. Return their paths."""
        folder = os.path.join(self.folder, name)
        os.mkdir(folder)
        mixture.write(os.path.join(folder, "m.gguf"), layers=3, experts=8, width=256, inner=512, **options)
        return sorted(os.path.join(folder, file) for file in os.listdir(folder))

    def test_all_logits_are_equal_with_a_model_in_several_files(self):
        for name, options in (("five", {"per_file": 8}), ("empty", {"per_file": 20, "empty_first": True})):
            paths = self.write_parts(name, **options)
            self.assertGreater(len(paths), 2)
            for extent in (0, 4096):
                with self.subTest(name, extent=extent):
                    model = self.open(paths[0], extent_bytes=extent)
                    for _ in range(2):
                        self.assertTrue(np.array_equal(logits_of(model, self.tokens), self.expected))
                    stats = model.file.stats()
                    self.assertEqual(stats["files"], len(paths))
                    self.assertEqual(stats["bytes"], sum(map(os.path.getsize, paths)))
                    self.assertGreater(stats["kept_bytes"], 0)
                    self.assertGreater(stats["ahead_bytes"], 0)
                    model.close()

    def test_a_dense_model_in_several_files_streams_in_the_order_of_its_layers(self):
        folder = os.path.join(self.folder, "dense_parts")
        os.mkdir(folder)
        mixture.write(os.path.join(folder, "m.gguf"), layers=6, experts=0, width=512, inner=2048, per_file=15)
        paths = sorted(os.path.join(folder, file) for file in os.listdir(folder))
        model = peer(paths[0])
        expected = logits_of(model, self.tokens)
        model.close()
        self.context.set_budget("dram", sum(map(os.path.getsize, paths)) // 4)
        model = self.open(paths[0], extent_bytes=128 << 10)
        for _ in range(2):
            self.assertTrue(np.array_equal(logits_of(model, self.tokens), expected))
        self.assertGreater(model.file.stats()["ahead_bytes"], 0)
        self.assertGreater(self.context.stats()["prefetched"], 0)

    def test_files_of_a_model_that_do_not_belong_together_are_refused(self):
        paths = self.write_parts("wrong", per_file=8)
        with self.assertRaisesRegex(ValueError, "is part 2 of .* give the path of the first part"):
            self.open(paths[1])
        renamed = os.path.join(self.folder, "wrong", "renamed.gguf")
        os.rename(paths[0], renamed)
        with self.assertRaisesRegex(ValueError, "found by their names; name it MODEL-00001-of-"):
            self.open(renamed)
        os.rename(renamed, paths[0])
        shutil.copyfile(paths[2], paths[1])
        with self.assertRaisesRegex(ValueError, "is part 3 of .* in the place of part 2"):
            self.open(paths[0])
        os.truncate(paths[1], os.path.getsize(paths[1]) - 4096)
        os.rename(paths[1], paths[2])
        with self.assertRaisesRegex(OSError, "cannot be opened: No such file"):
            self.open(paths[0])
        shutil.copyfile(self.path, paths[1])
        with self.assertRaisesRegex(ValueError, "is part 1 of 1 of a model, in the place of part 2"):
            self.open(paths[0])

    def test_a_cut_part_is_refused_with_its_tensor(self):
        paths = self.write_parts("cut", per_file=8)
        os.truncate(paths[2], os.path.getsize(paths[2]) - 4096)
        with self.assertRaisesRegex(ValueError, r"m-00003-of-\d+.gguf is cut: tensor .* ends at byte"):
            self.open(paths[0])

    def test_other_bytes_in_a_part_are_refused(self):
        paths, others = self.write_parts("these", per_file=8), self.write_parts("those", per_file=8, seed=2)
        file = llama.File(paths[0], context=self.context)
        params = llama_cpp.llama_model_default_params()
        file.place_weights(params)
        model = llama_cpp.llama_model_load_from_file(others[0].encode(), params)
        with self.assertRaisesRegex(ValueError, "with other bytes than .*load the adopted file"):
            file.check()
        llama_cpp.llama_model_free(model)
        file.close()

    def test_another_file_of_the_same_shape_is_refused(self):
        other = os.path.join(self.folder, "other.gguf")
        mixture.write(other, layers=3, experts=8, width=256, inner=512, seed=2)
        file = llama.File(self.path, context=self.context)
        params = llama_cpp.llama_model_default_params()
        file.place_weights(params)
        model = llama_cpp.llama_model_load_from_file(other.encode(), params)
        with self.assertRaisesRegex(ValueError, "with other bytes than .*load the adopted file"):
            file.check()
        llama_cpp.llama_model_free(model)
        file.close()

    def test_a_file_of_another_shape_is_refused(self):
        other = os.path.join(self.folder, "other_shape.gguf")
        mixture.write(other, layers=4, experts=4, width=256, inner=512)
        file = llama.File(self.path, context=self.context)
        params = llama_cpp.llama_model_default_params()
        file.place_weights(params)
        self.assertIsNone(llama_cpp.llama_model_load_from_file(other.encode(), params))
        with self.assertRaisesRegex(ValueError, "load the adopted file"):
            file.check()
        file.close()

    def test_a_file_that_no_model_uses_fails_the_check(self):
        file = llama.File(self.path, context=self.context)
        with self.assertRaisesRegex(ValueError, "has placed no tensor"):
            file.check()
        file.close()

    def test_options_that_need_memory_of_their_own_are_refused(self):
        for options in ({"use_mmap": False}, {"use_mlock": True}, {"lora_path": "adapter.gguf"}):
            with self.subTest(options), self.assertRaisesRegex(ValueError, "leave it out"):
                self.open(**options)

    def test_a_version_without_the_fields_is_refused(self):
        class Older:
            load_mode = tensor_buft_overrides = None

        original, llama_cpp.llama_model_params = llama_cpp.llama_model_params, Older
        try:
            with self.assertRaisesRegex(tiermem.Unsupported, "has no llama_model_params.use_extra_bufts"):
                self.open()
        finally:
            llama_cpp.llama_model_params = original


@unittest.skipUnless(llama_cpp and os.environ.get("TIERMEM_TEST_GGUF"), "TIERMEM_TEST_GGUF names no real model")
class RealModel(unittest.TestCase):
    def test_tokens_and_logits_are_equal_with_a_quarter_of_the_size(self):
        path = os.environ["TIERMEM_TEST_GGUF"]
        budget = os.path.getsize(path) // 4
        with tempfile.TemporaryDirectory() as folder, tiermem.Context(f"dram={budget}; nvme={folder}:64M") as context:
            texts, scores = [], []
            for make in (peer, lambda path: llama.Llama(path, context=context, **OPTIONS)):
                model = make(path)
                texts.append(model("The capital of France is", max_tokens=16, temperature=0)["choices"][0]["text"])
                scores.append(np.array(model.scores[: model.n_tokens]))
                model.close()
            self.assertEqual(*texts)
            self.assertTrue(np.array_equal(*scores))
            self.assertLessEqual(context.stats()["dram_used"], budget)


if __name__ == "__main__":
    unittest.main()
