import os
import signal
import threading
import unittest
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import deepinfer
from deepinfer import LLM, SamplingParams
from models import PROSE, TINY, linked, open_tiny, settled, tiny


class Kinds(unittest.TestCase):
    def test_they_are_also_what_python_calls_them(self) -> None:
        for ours, theirs in (
            (deepinfer.InvalidArgumentError, ValueError),
            (deepinfer.NotFoundError, FileNotFoundError),
            (deepinfer.ResourceExhaustedError, MemoryError),
            (deepinfer.UnsupportedError, NotImplementedError),
            (deepinfer.IoError, OSError),
            (deepinfer.CorruptionError, Exception),
            (deepinfer.CancelledError, Exception),
            (deepinfer.InternalError, RuntimeError),
        ):
            self.assertTrue(issubclass(ours, theirs) and issubclass(ours, deepinfer.DeepInferError))
            self.assertEqual(str(ours("what: it says")), "what: it says")

    def refused(self, kind: type, message: str, call, *arguments, **named) -> None:
        with self.assertRaises(kind) as caught:
            call(*arguments, **named)
        self.assertEqual(str(caught.exception), message)

    def test_sampling_params(self) -> None:
        refused = lambda message, **params: self.refused(
            deepinfer.InvalidArgumentError, message, SamplingParams, **params
        )
        refused("temperature: expected a number of at least 0 and at most 2, found 2.5", temperature=2.5)
        refused("temperature: expected a number, found 'hot'", temperature="hot")
        refused("top_p: expected a number above 0 and at most 1, found 0", top_p=0)
        refused("n: expected 1 to 128, found 0", n=0)
        refused("max_tokens: expected 1 or more, found 0", max_tokens=0)
        refused("max_tokens: expected an integer or None, found 1.5", max_tokens=1.5)
        refused("min_tokens: expected 0 to max_tokens = 4, found 5", min_tokens=5, max_tokens=4)
        refused("seed: expected an integer or None, found -1", seed=-1)
        refused("seq_seed: differs from seed; give only one of them", seed=1, seq_seed=2)
        refused("logprobs: expected 0 to 20, or -1 for none, found 21", logprobs=21)
        refused("stop: expected a list of texts, found [1]", stop=[1])
        refused("stop: expected at most 16 texts, found 17", stop=["a"] * 17)
        refused("logit_bias: expected a number of at least -100 and at most 100, found 101", logit_bias={5: 101})
        refused("logit_bias: expected a dictionary of token ids and numbers, found {'x': 1}", logit_bias={"x": 1})
        refused("so_args.schema_type: expected regex, json or ebnf, found 'xml'", so_args={"schema_type": "xml"})
        refused("so_args.schema: expected a text, found None", so_args={"schema_type": "json"})
        refused("so_args: expected schema_type and schema, found 'x'", so_args={"x": 1})
        refused("so_args.schema: expected a text, found {}", so_args={"schema_type": "regex", "schema": {}})

    def test_seq_seed_is_seed(self) -> None:
        params = SamplingParams(seq_seed=3)
        self.assertEqual((params.seed, params.seq_seed), (3, 3))
        params.seq_seed = 4
        self.assertEqual((params.seed, params.seq_seed), (4, 4))
        self.assertEqual((SamplingParams().seed, SamplingParams().max_tokens), (None, 256))

    def test_models(self) -> None:
        with mock.patch.dict(os.environ, {"DEEPINFER_MODEL": ""}):
            self.refused(
                deepinfer.NotFoundError, "no model: neither model nor $DEEPINFER_MODEL is given", LLM
            )
        with self.assertRaisesRegex(deepinfer.NotFoundError, "no-such-model"):
            LLM("no-such-model")
        with TemporaryDirectory() as folder:
            for file in linked(TINY).iterdir():
                if file.suffix == ".safetensors":
                    (Path(folder) / file.name).write_bytes(file.read_bytes()[:1000])
                else:
                    (Path(folder) / file.name).symlink_to(file.resolve())
            with self.assertRaisesRegex(deepinfer.CorruptionError, "safetensors"):
                LLM(folder)

    def test_options(self) -> None:
        model = linked(TINY)
        refused = lambda message, **options: self.refused(
            deepinfer.InvalidArgumentError, message, LLM, model, **options
        )
        refused("threads: expected 0 or more (0: all), found -1", threads=-1)
        refused("max_num_seqs: expected an integer, found 'many'", max_num_seqs="many")
        refused("gpu_layers: expected -1 or more (-1: all), found -2", gpu_layers=-2)
        refused("engram: expected disk, host or device, found 'ram'", engram="ram")
        refused("replay: expected bounded or exact, found 'none'", replay="none")
        refused("speculation_rule: expected coupled or rejection, found 'x'", speculation_rule="x")
        refused("activation_quant: expected official or off, found 'fp8'", activation_quant="fp8")
        for size in ("2 GiX", "GiB", "", "1.2.3G"):
            refused(
                f"kv_memory: expected a size such as 512MiB, 1.5G or a number of bytes, found {size!r}", kv_memory=size
            )
        refused(
            "kv_ttl: expected 1 s to 365 d, as whole seconds or a text such as 90s, 30m, 12h or 3d, found '3 days'",
            kv_ttl="3 days",
        )
        refused(
            "kv_disk_size: expected a size such as 512MiB, 1.5G or a number of bytes, found 'big'", kv_disk_size="big"
        )
        with self.assertRaises(deepinfer.ResourceExhaustedError):
            LLM(model, kv_memory="9000TiB", profile_steps=False)
        with self.assertRaises(TypeError):
            LLM(model, tensor_parallel=2)

    def test_environment(self) -> None:
        model = linked(TINY)
        with mock.patch.dict(os.environ, {"DEEPINFER_USE_NEXTN_DECODE": "some"}):
            self.refused(
                deepinfer.InvalidArgumentError,
                "$DEEPINFER_USE_NEXTN_DECODE: expected a number of 0 to 1000, found 'some'",
                LLM,
                model,
            )
        variables = {
            "DEEPINFER_MODEL": str(model),
            "DEEPINFER_USE_NEXTN_DECODE": "3",
            "DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE": "off",
        }
        with mock.patch.dict(os.environ, variables), LLM(profile_steps=False, replay="bounded") as llm:
            self.assertEqual((llm.options["draft_length"], llm.options["replay"]), (3, "bounded"))

    def test_prompts(self) -> None:
        refused = lambda message, *arguments: self.refused(
            deepinfer.InvalidArgumentError, message, tiny().generate, *arguments
        )
        refused("prompts: expected a text or a dictionary with prompt or prompt_token_ids, found 1", [1, 2])
        refused("prompts: expected either prompt or prompt_token_ids", {})
        refused("prompts: expected prompt, prompt_token_ids, cache_salt, cache_ttl, no_store, priority, replay, found 'text'", {"text": "a"})
        refused("prompt: expected a text, found 5", {"prompt": 5})
        refused("prompt: expected at least one token, found none", {"prompt_token_ids": []})
        refused("prompt: expected token ids of 0 to 8191, found 8192", {"prompt_token_ids": [8192]})
        refused("prompt_token_ids: expected a list of token ids, found ['a']", {"prompt_token_ids": ["a"]})
        refused("replay: expected bounded or exact, found 'x'", {"prompt": "a", "replay": "x"})
        for ttl in ("forever", "366d", 0, 1.5, True, ""):
            expected = "1 s to 365 d, as whole seconds or a text such as 90s, 30m, 12h or 3d"
            refused(f"cache_ttl: expected {expected}, found {ttl!r}", {"prompt": "a", "cache_ttl": ttl})
        refused("no_store: expected True or False, found 'yes'", {"prompt": "a", "no_store": "yes"})
        refused("priority: expected an integer, found 'x'", {"prompt": "a", "priority": "x"})
        refused("sampling_params: expected one, or one for each of 2 prompts, found 1", ["a", "b"], [SamplingParams()])
        refused("sampling_params: expected SamplingParams, found 5", ["a"], [5])
        params = SamplingParams(stop_token_ids=[9000])
        refused("stop_token_ids: expected token ids of 0 to 8191, found 9000", "a", params)

    def test_what_never_fits(self) -> None:
        with open_tiny(max_model_len=64) as llm:
            with self.assertRaisesRegex(deepinfer.InvalidArgumentError, "leave no room in the context of 64 tokens"):
                llm.generate({"prompt_token_ids": [5] * 64})
        with open_tiny(kv_memory=300_000) as llm:
            with self.assertRaisesRegex(deepinfer.ResourceExhaustedError, "can never fit into the KV pool"):
                llm.generate({"prompt_token_ids": [5] * 4000})

    def test_a_refused_request_takes_its_batch_with_it_and_nothing_else(self) -> None:
        before = settled(tiny())
        with self.assertRaises(deepinfer.InvalidArgumentError):
            tiny().generate(["a", {"prompt_token_ids": [-1]}], SamplingParams(max_tokens=None, ignore_eos=True))
        output = tiny().generate("a", SamplingParams(max_tokens=8, ignore_eos=True))[0]
        self.assertEqual(len(output.outputs[0].token_ids), 8)
        self.assertEqual(settled(tiny())["cancelled"] - before["cancelled"], 1)

    def test_closed(self) -> None:
        llm = open_tiny()
        llm.close()
        llm.close()
        self.refused(deepinfer.CancelledError, "the engine is closed", llm.generate, "a")


class Interrupt(unittest.TestCase):
    def test_ctrl_c_cancels_the_batch(self) -> None:
        before = settled(tiny())
        stop = threading.Event()

        def press() -> None:
            # In the midst: all of them are in, and some of them have answered.
            while not stop.is_set():
                now = tiny().statistics()
                everybody = now["running"] + now["waiting"] == 200
                if everybody and now["generated_tokens"] > before["generated_tokens"]:
                    break
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=press)
        thread.start()
        try:
            # Without the interruption this takes many minutes.
            with self.assertRaises(KeyboardInterrupt):
                tiny().generate([PROSE] * 200, SamplingParams(max_tokens=4000, ignore_eos=True, temperature=0))
        finally:
            stop.set()
            thread.join()
        self.assertEqual(settled(tiny())["cancelled"] - before["cancelled"], 200)
        self.assertEqual(len(tiny().generate("a", SamplingParams(max_tokens=8, ignore_eos=True))), 1)
