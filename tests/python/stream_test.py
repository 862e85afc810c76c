import asyncio
import unittest

import deepinfer
from deepinfer import SamplingParams
from models import PROSE, AsyncTest, open_tiny, settled, tiny

GREEDY = SamplingParams(temperature=0, max_tokens=20, logprobs=1)
ENDLESS = SamplingParams(temperature=0, max_tokens=5000, ignore_eos=True)


def cancelled() -> int:
    return settled(tiny())["cancelled"]


class Asynchronous(AsyncTest):
    async def test_deltas_join_to_the_whole(self) -> None:
        whole = tiny().generate(PROSE, GREEDY)[0].outputs[0]
        text, ids, logprobs, ends = "", [], [], 0
        stream = tiny().stream(PROSE, GREEDY)
        async for delta in stream:
            text += delta.text
            ids += delta.token_ids
            logprobs += delta.logprobs
            ends += delta.finished
        self.assertEqual((text, ids, logprobs, ends), (whole.text, whole.token_ids, whole.logprobs, 1))
        self.assertEqual(stream.output.outputs[0], whole)

    async def test_many_at_once(self) -> None:
        prompts = [PROSE[i:] for i in range(0, 120, 5)]
        expected = [one.outputs[0].text for one in tiny().generate(prompts, GREEDY)]

        async def read(prompt: str) -> str:
            return "".join([delta.text async for delta in tiny().stream(prompt, GREEDY)])

        self.assertEqual(await asyncio.gather(*map(read, prompts)), expected)

    async def test_answers_are_told_apart(self) -> None:
        params = SamplingParams(n=3, seed=1, max_tokens=12)
        stream = tiny().stream(PROSE, params)
        ids: dict[int, list[int]] = {0: [], 1: [], 2: []}
        async for delta in stream:
            ids[delta.index] += delta.token_ids
        self.assertEqual([one.token_ids for one in stream.output.outputs], [ids[0], ids[1], ids[2]])

    async def test_cancelling_the_reader_cancels_the_request(self) -> None:
        before = cancelled()
        started = asyncio.Event()

        async def read() -> None:
            async for _ in tiny().stream(PROSE, ENDLESS):
                started.set()

        task = asyncio.create_task(read())
        await started.wait()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertEqual(cancelled() - before, 1)

    async def test_leaving_the_loop_cancels_the_request(self) -> None:
        before = cancelled()
        async for _ in tiny().stream(PROSE, ENDLESS):
            break
        async with tiny().stream(PROSE, ENDLESS) as stream:
            await anext_(stream)
        self.assertEqual(cancelled() - before, 2)
        self.assertEqual(stream.output.outputs[0].finish_reason, "cancelled")

    async def test_cancel_keeps_what_was_made(self) -> None:
        stream = tiny().stream(PROSE, ENDLESS)
        ids = (await anext_(stream)).token_ids
        stream.cancel()
        async for delta in stream:
            ids += delta.token_ids
        choice = stream.output.outputs[0]
        self.assertEqual((choice.token_ids, choice.finish_reason), (ids, "cancelled"))

    async def test_closing_ends_the_streams(self) -> None:
        llm = open_tiny()
        stream = llm.stream(PROSE, ENDLESS)
        await anext_(stream)
        llm.close()
        self.assertEqual(stream.output.outputs[0].finish_reason, "cancelled")

    async def test_closing_ends_those_who_read(self) -> None:
        llm = open_tiny()
        started = asyncio.Event()

        async def read() -> str:
            stream = llm.stream(PROSE, ENDLESS)
            async for _ in stream:
                started.set()
            return stream.output.outputs[0].finish_reason

        tasks = [asyncio.create_task(read()) for _ in range(4)]
        await started.wait()
        llm.close()
        self.assertEqual(await asyncio.gather(*tasks), ["cancelled"] * 4)

    async def test_a_bad_request_is_refused_at_once(self) -> None:
        with self.assertRaisesRegex(deepinfer.InvalidArgumentError, "^prompt: expected token ids"):
            tiny().stream({"prompt_token_ids": [-5]})


class Synchronous(unittest.TestCase):
    def test_deltas_join_to_the_whole(self) -> None:
        stream = tiny().stream(PROSE, GREEDY)
        text = "".join(delta.text for delta in stream)
        self.assertEqual(text, stream.output.outputs[0].text)
        self.assertEqual(text, tiny().generate(PROSE, GREEDY)[0].outputs[0].text)

    def test_output_alone_waits_for_the_end(self) -> None:
        self.assertEqual(tiny().stream(PROSE, GREEDY).output.outputs[0].finish_reason, "length")


def anext_(stream):
    """anext() of Python 3.10."""
    return stream.__anext__()
