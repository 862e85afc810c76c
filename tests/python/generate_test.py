import dataclasses
import json
import re
import unittest

from deepinfer import InvalidArgumentError, LLM, RequestOutput, SamplingParams
from models import PROSE, open_tiny, settled, tiny

GREEDY = SamplingParams(temperature=0, max_tokens=24, logprobs=2)
PROMPTS = ["a", "The fox", PROSE, PROSE[:70], "def add(a, b):\n", PROSE * 2]


def tokens_and_logprobs(outputs: list[RequestOutput]) -> list:
    return [[(choice.token_ids, choice.logprobs, choice.text) for choice in one.outputs] for one in outputs]


def alone(llm: LLM, prompt, **params) -> RequestOutput:
    return llm.generate(prompt, SamplingParams(**{"temperature": 0, "max_tokens": 24, **params}))[0]


class Equality(unittest.TestCase):
    def test_together_and_alone(self) -> None:
        together = tiny().generate(PROMPTS, GREEDY)
        one_by_one = [tiny().generate(prompt, GREEDY)[0] for prompt in PROMPTS]
        self.assertEqual(tokens_and_logprobs(together), tokens_and_logprobs(one_by_one))
        self.assertEqual([one.prompt for one in together], PROMPTS)
        backwards = tiny().generate(PROMPTS[::-1], GREEDY)
        self.assertEqual(tokens_and_logprobs(backwards)[::-1], tokens_and_logprobs(together))

    def test_seed_decides_the_text(self) -> None:
        params = [SamplingParams(seed=seed, max_tokens=16) for seed in (1, 2, 1)]
        first, second, third = tiny().generate([PROSE] * 3, params)
        self.assertEqual(first.outputs[0].token_ids, third.outputs[0].token_ids)
        self.assertNotEqual(first.outputs[0].token_ids, second.outputs[0].token_ids)
        self.assertEqual((first.seed, second.seed), (1, 2))

    def test_seed_of_the_model_repeats_a_run(self) -> None:
        runs = []
        for _ in range(2):
            with open_tiny(seed=7) as llm:
                runs.append([one.outputs[0].token_ids for one in llm.generate(["a", "a"], SamplingParams(max_tokens=8))])
        self.assertEqual(runs[0], runs[1])
        self.assertNotEqual(runs[0][0], runs[0][1])

    def test_chance_decides_without_a_seed(self) -> None:
        first, second = tiny().generate(["a", "a"], SamplingParams(max_tokens=12))
        self.assertNotEqual(first.seed, second.seed)
        again = alone(tiny(), "a", temperature=1, max_tokens=12, seed=first.seed)
        self.assertEqual(first.outputs[0].token_ids, again.outputs[0].token_ids)

    def test_drafts_change_nothing(self) -> None:
        drafted = tiny().generate(PROMPTS, GREEDY)
        with open_tiny(draft_length=0) as llm:
            plain = llm.generate(PROMPTS, GREEDY)
        self.assertEqual(tokens_and_logprobs(drafted), tokens_and_logprobs(plain))
        self.assertTrue(all(one.acceptance.drafted == 0 and one.acceptance.mean_accepted_length == 1 for one in plain))
        counts = drafted[0].acceptance
        self.assertGreater(counts.verified, 0)
        self.assertLessEqual(counts.accepted, counts.verified)
        self.assertLessEqual(counts.verified, counts.drafted)
        self.assertEqual(counts.mean_accepted_length, 1 + counts.accepted / counts.steps)


class Outputs(unittest.TestCase):
    def test_one_prompt_in_every_form(self) -> None:
        ids = [tiny().bos_token_id, *tiny().tokenize("The fox")]
        text = alone(tiny(), "The fox")
        self.assertEqual(text.prompt_token_ids, ids)
        for prompt in (["The fox"], {"prompt": "The fox"}, {"prompt_token_ids": ids}, [{"prompt_token_ids": tuple(ids)}]):
            self.assertEqual(alone(tiny(), prompt).outputs, text.outputs)
        self.assertIsNone(alone(tiny(), {"prompt_token_ids": ids}).prompt)
        self.assertEqual(tiny().generate([]), [])

    def test_a_text_with_the_control_tokens_spelled_out_stays_text(self) -> None:
        spelled = tiny().detokenize([tiny().bos_token_id])
        self.assertEqual(tiny().tokenize(spelled, special=True), [tiny().bos_token_id])
        ids = alone(tiny(), spelled + "a").prompt_token_ids
        self.assertEqual(ids.count(tiny().bos_token_id), 1)
        self.assertGreater(len(ids), 3)
        self.assertEqual(tiny().detokenize(tiny().tokenize("a\ud800b")), "a\ufffd\ufffd\ufffdb")

    def test_text_tokens_and_finish_reason(self) -> None:
        output = alone(tiny(), PROSE, max_tokens=9, ignore_eos=True)
        choice = output.outputs[0]
        self.assertEqual((len(choice.token_ids), choice.finish_reason, choice.stop_reason), (9, "length", None))
        self.assertEqual(choice.text, tiny().detokenize(choice.token_ids))
        self.assertIsNone(choice.logprobs)
        self.assertIsNone(choice.cumulative_logprob)
        self.assertIsNone(choice.error)
        self.assertEqual((output.replay, output.finished), ("bounded", True))
        self.assertGreaterEqual(output.total_ms, output.first_token_ms)

    def test_stop_text(self) -> None:
        text = alone(tiny(), PROSE).outputs[0].text
        stop = text[6:9]
        before = text[: text.index(stop)]
        choice = alone(tiny(), PROSE, stop=stop).outputs[0]
        self.assertEqual((choice.text, choice.finish_reason, choice.stop_reason), (before, "stop", stop))
        choice = alone(tiny(), PROSE, stop=["not to be found", stop], include_stop_str_in_output=True).outputs[0]
        self.assertEqual((choice.text, choice.stop_reason), (before + stop, stop))

    def test_stop_token(self) -> None:
        ids = alone(tiny(), PROSE).outputs[0].token_ids
        choice = alone(tiny(), PROSE, stop_token_ids=[ids[5]]).outputs[0]
        end = ids.index(ids[5]) + 1
        self.assertEqual((choice.token_ids, choice.finish_reason, choice.stop_reason), (ids[:end], "stop", ids[5]))
        choice = alone(tiny(), PROSE, stop_token_ids=[ids[5]], min_tokens=20).outputs[0]
        self.assertGreaterEqual(len(choice.token_ids), 20)

    def test_end_of_sentence_token(self) -> None:
        choice = alone(tiny(), PROSE, logit_bias={1: 100}).outputs[0]
        self.assertEqual((choice.token_ids, choice.text), ([1], ""))
        self.assertEqual((choice.finish_reason, choice.stop_reason), ("stop", None))

    def test_logprobs(self) -> None:
        choice = alone(tiny(), PROSE, logprobs=3, max_tokens=5).outputs[0]
        self.assertEqual([next(iter(position)) for position in choice.logprobs], choice.token_ids)
        total = 0.0
        for token, position in zip(choice.token_ids, choice.logprobs):
            self.assertEqual([entry.rank for entry in position.values()], [1, 2, 3])
            values = [entry.logprob for entry in position.values()]
            self.assertEqual(values, sorted(values, reverse=True))
            self.assertEqual(position[token].decoded_token, tiny().detokenize([token]))
            total += position[token].logprob
        self.assertAlmostEqual(choice.cumulative_logprob, total)
        unlikely = alone(tiny(), PROSE, logprobs=0, max_tokens=1, logit_bias={4000: 100}).outputs[0]
        self.assertEqual(list(unlikely.logprobs[0]), [4000])
        self.assertIsNone(unlikely.logprobs[0][4000].rank)

    def test_prompt_logprobs(self) -> None:
        output = alone(tiny(), PROSE, prompt_logprobs=1)
        self.assertEqual(output.replay, "exact")
        self.assertEqual(len(output.prompt_logprobs), len(output.prompt_token_ids))
        self.assertIsNone(output.prompt_logprobs[0])
        for token, position in zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:]):
            self.assertEqual(next(iter(position)), token)

    def test_many_answers(self) -> None:
        params = SamplingParams(n=3, seed=5, max_tokens=10)
        output = tiny().generate(PROSE, params)[0]
        self.assertEqual([choice.index for choice in output.outputs], [0, 1, 2])
        self.assertEqual(len({tuple(choice.token_ids) for choice in output.outputs}), 3)
        first = tiny().generate(PROSE, dataclasses.replace(params, n=1))[0]
        self.assertEqual(first.outputs[0], output.outputs[0])

    def test_logit_bias_and_bad_words(self) -> None:
        choice = alone(tiny(), PROSE).outputs[0]
        first = choice.token_ids[0]
        barred = alone(tiny(), PROSE, logit_bias={first: -100}).outputs[0]
        self.assertNotIn(first, barred.token_ids)
        self.assertEqual(alone(tiny(), PROSE, logit_bias={4000: 100}, max_tokens=2).outputs[0].token_ids, [4000, 4000])
        word = next(text for text in map(tiny().detokenize, ([id] for id in choice.token_ids)) if text.strip().isalnum())
        without = alone(tiny(), PROSE, bad_words=[word]).outputs[0]
        self.assertNotEqual(choice.token_ids, without.token_ids)


class PrefixCache(unittest.TestCase):
    def test_structured_output(self) -> None:
        forms = {
            "regex": ("[a-f]{3} [0-9]{2}", lambda text: re.fullmatch("[a-f]{3} [0-9]{2}", text)),
            "json": ({"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"],
                      "additionalProperties": False}, lambda text: json.loads(text)["x"] in (True, False)),
            "ebnf": ('root ::= "yes" | "no" | "(" root ")"', lambda text: text.strip("()") in ("yes", "no")),
        }
        for schema_type, (schema, belongs) in forms.items():
            params = SamplingParams(
                temperature=1, seed=5, max_tokens=300, n=2, so_args={"schema_type": schema_type, "schema": schema}
            )
            for answer in tiny().generate(["Once"], params)[0].outputs:
                self.assertEqual(answer.finish_reason, "stop", answer.text)
                self.assertTrue(belongs(answer.text), answer.text)
        with self.assertRaisesRegex(InvalidArgumentError, "structured_output: character 3"):
            tiny().generate(["x"], SamplingParams(so_args={"schema_type": "regex", "schema": "(a"}))

    def test_hits_are_told_and_change_nothing(self) -> None:
        tiny().clear_prefix_cache()
        prompt = {"prompt": PROSE * 3, "replay": "exact"}
        cold = alone(tiny(), prompt)
        warm = alone(tiny(), prompt)
        self.assertEqual(cold.num_cached_tokens, 0)
        self.assertGreaterEqual(warm.num_cached_tokens, 64)
        self.assertEqual(warm.num_cached_tokens % 64, 0)
        self.assertEqual((cold.replay, warm.replay), ("exact", "exact"))
        self.assertEqual(cold.outputs, warm.outputs)
        salted = alone(tiny(), {**prompt, "cache_salt": "mine"})
        self.assertEqual(salted.num_cached_tokens, 0)
        self.assertEqual(salted.outputs, cold.outputs)

    def test_what_has_just_ended_is_forgotten_too(self) -> None:
        for _ in range(10):
            tiny().clear_prefix_cache()
            self.assertEqual(alone(tiny(), PROSE * 3).num_cached_tokens, 0)

    def test_switched_off(self) -> None:
        with open_tiny(enable_prefix_caching=False) as llm:
            outputs = [alone(llm, PROSE * 3) for _ in range(2)]
        self.assertEqual([output.num_cached_tokens for output in outputs], [0, 0])

    def test_plan_options_and_statistics(self) -> None:
        with open_tiny(
            device="cpu", max_num_seqs=3, kv_memory="4MiB", replay="exact", replay_keep=200, engram="host", gpu_layers=2
        ) as llm:
            self.assertEqual((llm.options["max_num_seqs"], llm.options["replay"]), (3, "exact"))
            self.assertEqual(llm.options["replay_keep"], 200)
            self.assertEqual((llm.options["engram"], llm.options["gpu_layers"]), ("host", 2))
            plan = llm.memory_plan()
            self.assertLessEqual(plan["kv_pool"].bytes, 5 << 20)
            self.assertIn("KV pool", plan["kv_pool"].text)
            self.assertGreater(plan["weights_engram"].bytes, 0)
            self.assertEqual((plan["kv_pool"].at_start, plan["grammars"].at_start), (True, False))
            self.assertEqual({line.on_device for line in plan.values()}, {False})
            self.assertEqual(alone(llm, "a").replay, "exact")
            self.assertEqual((settled(llm)["finished"], settled(llm)["prompt_tokens"]), (1, 2))
