"""Tiers behind the KV pool: prefixes outlive the LLM, as long and as far as their request says."""

import unittest
from pathlib import Path
from tempfile import TemporaryDirectory

from deepinfer import LLM, RequestOutput, SamplingParams
from models import PROSE, open_tiny, settled, tiny

PROMPT = {"prompt": PROSE * 4, "replay": "exact"}
TRIES = 20  # a fetch that a busy machine ends at its deadline is no error


def alone(llm: LLM, prompt) -> RequestOutput:
    return llm.generate(prompt, SamplingParams(temperature=0, max_tokens=16, logprobs=1))[0]


class KvTiers(unittest.TestCase):
    def test_without_tiers(self) -> None:
        tiny().clear_prefix_cache()
        self.assertEqual(alone(tiny(), PROMPT).cached_tokens_by_tier, {})
        warm = alone(tiny(), {**PROMPT, "cache_ttl": "2h", "no_store": True})
        self.assertGreater(warm.num_cached_tokens, 0)
        self.assertEqual(warm.cached_tokens_by_tier, {"device": warm.num_cached_tokens})
        statistics = settled(tiny())
        self.assertEqual(statistics["kv_tiers"], [])
        self.assertEqual(statistics["kv_transfers"]["fetches"], 0)
        options = tiny().options
        self.assertEqual((options["kv_disk"], options["kv_host_bytes"], options["kv_ttl_seconds"]), ("", 0, 259_200))

    def open_with_disk(self, folder: str) -> LLM:
        llm = open_tiny(kv_disk=Path(folder), kv_disk_size="64MiB", kv_ttl="12h", kv_least_tokens=64)
        if not llm.statistics()["kv_tiers"]:
            llm.close()
            self.skipTest("this build has no disk tier")
        self.assertEqual(llm.options["kv_disk_bytes"], 64 << 20)
        self.assertEqual((llm.options["kv_ttl_seconds"], llm.options["kv_least_tokens"]), (43_200, 64))
        return llm

    def test_a_prefix_on_disk_outlives_the_llm(self) -> None:
        with TemporaryDirectory() as folder:
            with self.open_with_disk(folder) as llm:
                cold = alone(llm, PROMPT)
            self.assertEqual(cold.cached_tokens_by_tier, {})
            for _ in range(TRIES):
                with self.open_with_disk(folder) as llm:
                    warm = alone(llm, PROMPT)
                    self.assertEqual(warm.outputs, cold.outputs)
                    statistics = settled(llm)
                if "disk" in warm.cached_tokens_by_tier:
                    break
            self.assertGreater(warm.cached_tokens_by_tier["disk"], 0)
            self.assertEqual(sum(warm.cached_tokens_by_tier.values()), warm.num_cached_tokens)
            (disk,) = statistics["kv_tiers"]
            self.assertEqual((disk["name"], disk["up"], disk["reason"]), ("disk", True, ""))
            self.assertEqual(disk["cached_tokens"], warm.cached_tokens_by_tier["disk"])
            self.assertGreater(disk["records"], 0)
            self.assertLessEqual(disk["bytes"], disk["budget_bytes"])
            self.assertGreater(statistics["kv_transfers"]["fetched_tokens"], 0)

    def test_what_must_not_be_kept_is_not(self) -> None:
        with TemporaryDirectory() as folder:
            with self.open_with_disk(folder) as llm:
                alone(llm, {**PROMPT, "no_store": True})
                self.assertEqual(settled(llm)["kv_transfers"]["persisted_tokens"], 0)
            with self.open_with_disk(folder) as llm:
                self.assertEqual(alone(llm, PROMPT).num_cached_tokens, 0)
                self.assertEqual(settled(llm)["kv_tiers"][0]["hits"], 0)
