import deepinfer
from deepinfer import SamplingParams
from models import AsyncTest, nano

HELLO = [{"role": "user", "content": "Hello, who are you?"}]
GREEDY = SamplingParams(temperature=0, max_tokens=40)


class Chat(AsyncTest):
    async def test_an_answer(self) -> None:
        output = nano().chat(HELLO, GREEDY)[0]
        choice = output.outputs[0]
        self.assertIn("Hello, who are you?", output.prompt)
        self.assertEqual(nano().tokenize(output.prompt, special=True), output.prompt_token_ids)
        self.assertEqual((choice.finish_reason, choice.stop_reason, choice.reasoning), ("stop", None, ""))
        self.assertRegex(choice.text, r"^[A-Z].*\.$")

        streamed = [delta.text async for delta in nano().stream_chat(HELLO, GREEDY)]
        self.assertEqual("".join(streamed), choice.text)

        system = [{"role": "system", "content": "You are a pirate."}, *HELLO]
        both = nano().chat([HELLO, system], GREEDY)
        self.assertEqual(both[0].outputs[0], choice)
        self.assertIn("You are a pirate.", both[1].prompt)

    def test_thinking_is_told_apart(self) -> None:
        params = SamplingParams(temperature=0, max_tokens=200)
        output = nano().chat([{"role": "user", "content": "What is 2 + 3?"}], params, thinking=True)[0]
        choice = output.outputs[0]
        self.assertTrue(output.prompt.endswith("<think>"))
        self.assertNotEqual(choice.reasoning, "")
        self.assertNotIn("</think>", choice.text + choice.reasoning)
        low = nano().chat(HELLO, SamplingParams(temperature=0, max_tokens=1), effort="low")[0].prompt
        self.assertTrue(low.endswith("<think>"))
        number = nano().chat(HELLO, SamplingParams(temperature=0, max_tokens=1), effort=50, thinking=True)[0].prompt
        self.assertEqual(low, number)

    def test_tools_are_shown(self) -> None:
        parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
        function = {"name": "get_weather", "description": "Tells the weather.", "parameters": parameters}
        tool = {"type": "function", "function": function}
        output = nano().chat(HELLO, SamplingParams(max_tokens=1), tools=[tool])[0]
        self.assertIn("get_weather", output.prompt)
        hidden = nano().chat(HELLO, SamplingParams(max_tokens=1), tools=[tool], tool_choice="none")[0]
        self.assertNotIn("get_weather", hidden.prompt)

    def test_errors(self) -> None:
        for pattern, arguments, named in (
            (r"^messages: expected a list of messages, found 'hi'$", ["hi"], {}),
            (r"^messages\[0\]\.role: expected ", [[{"role": "robot", "content": "a"}]], {}),
            (r"^messages\[0\]\.content: ", [[{"role": "user"}]], {}),
            (r"^messages: ", [[]], {}),
            (r"^messages, tools: expected what JSON can hold: ", [[{"role": "user", "content": b"a"}]], {}),
            (r"^tools\[0\]\.function: ", [HELLO], {"tools": [{"type": "function"}]}),
            (r"^effort: expected low, medium, high, max or 1 to 100, found 'x'$", [HELLO], {"effort": "x"}),
            (r"^effort: expected low, medium, high, max or 1 to 100, found 101$", [HELLO], {"effort": 101}),
            (r"^effort: needs thinking=True, found thinking=False$", [HELLO], {"effort": 5, "thinking": False}),
        ):
            with self.subTest(pattern), self.assertRaisesRegex(deepinfer.InvalidArgumentError, pattern):
                nano().chat(*arguments, **named)
        image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
        with self.assertRaisesRegex(deepinfer.UnsupportedError, "^messages: this build has no vision encoder"):
            nano().chat([{"role": "user", "content": [image]}])
