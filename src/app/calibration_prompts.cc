#include "app/calibration_prompts.h"

#include <string>

#include "text/prompt_renderer.h"

namespace deepinfer {
namespace {

constexpr CalibrationPrompt kPrompts[] = {
    {CalibrationKind::kProse, "Long ago, in a small village by the sea, there lived"},
    {CalibrationKind::kProse, "The rain had not stopped for three days, and the river"},
    {CalibrationKind::kProse, "When the old clock in the hall struck nine, Martha put down her book and"},
    {CalibrationKind::kProse, "Bread is made from flour, water, salt and yeast. First,"},
    {CalibrationKind::kProse, "The captain looked at the chart once more. \"If we keep to this course,\" he said,"},
    {CalibrationKind::kProse, "A lever is a stiff bar that turns about a fixed point. With a long lever"},
    {CalibrationKind::kProse, "Nobody in the office knew who had left the blue umbrella behind. On Monday"},
    {CalibrationKind::kProse, "Water boils at a lower temperature on a high mountain, because"},
    {CalibrationKind::kProse, "The fox and the crow met at the edge of the field. The fox said"},
    {CalibrationKind::kProse, "In the year that my grandfather was born, most farms in the valley"},
    {CalibrationKind::kProse, "Dear Anna,\n\nthank you for your letter. We have arrived safely and"},
    {CalibrationKind::kProse, "The museum opens at ten. Visitors who come early may"},
    {CalibrationKind::kProse, "Light travels faster than sound. That is why, in a storm,"},
    {CalibrationKind::kProse, "Tim had a red ball and a green kite. One windy morning"},

    {CalibrationKind::kCode, "def is_prime(n):\n    \"\"\"Whether n is a prime number.\"\"\"\n"},
    {CalibrationKind::kCode, "def count_words(text):\n    counts = {}\n    for word in text.split():\n"},
    {CalibrationKind::kCode,
     "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n"},
    {CalibrationKind::kCode, "#include <stdio.h>\n\nint main(void) {\n    for (int i = 0; i < 10; i++) {\n"},
    {CalibrationKind::kCode,
     "// Returns the largest element of a vector that is not empty.\nint Largest(const std::vector<int>& v) {\n"},
    {CalibrationKind::kCode,
     "import os\n\ndef list_files(folder):\n    result = []\n    for name in os.listdir(folder):\n"},
    {CalibrationKind::kCode, "function greet(name) {\n  if (!name) {\n    return \"Hello!\";\n  }\n"},
    {CalibrationKind::kCode, "def fibonacci(n):\n    a, b = 0, 1\n"},
    {CalibrationKind::kCode,
     "try:\n    with open(path) as file:\n        text = file.read()\nexcept OSError as error:\n"},
    {CalibrationKind::kCode, "def test_add():\n    assert add(1, 2) == 3\n    assert add(-1, 1) == 0\n"},

    {CalibrationKind::kChat, "What is the capital of France?"},
    {CalibrationKind::kChat, "Tell me a short story about a fox and a bear."},
    {CalibrationKind::kChat, "How do I boil an egg?"},
    {CalibrationKind::kChat, "Name three animals that can fly."},
    {CalibrationKind::kChat, "Why is the sky blue?"},
    {CalibrationKind::kChat, "Write a poem about the sea in four lines."},
    {CalibrationKind::kChat, "Hello! Who are you, and what can you do?"},
    {CalibrationKind::kChat, "Give me two tips for sleeping better."},
    {CalibrationKind::kChat, "Translate \"good morning\" into German and French."},
    {CalibrationKind::kChat, "What is the difference between a lake and a river?"},
    {CalibrationKind::kChat, "Make this sentence polite: Close the window."},
    {CalibrationKind::kChat, "Explain in simple words what a computer program is."},

    {CalibrationKind::kReasoning, "Tom has 9 apples. Anna gives Tom 4 more. How many apples does Tom have now?"},
    {CalibrationKind::kReasoning, "A train leaves at 8:15 and arrives at 10:05. How long does the trip take?"},
    {CalibrationKind::kReasoning, "What is 17 plus 26?"},
    {CalibrationKind::kReasoning, "Lisa is older than Max, and Max is older than Ben. Who is the youngest?"},
    {CalibrationKind::kReasoning, "A box holds 6 eggs. How many boxes are needed for 20 eggs?"},
    {CalibrationKind::kReasoning, "Which is heavier, a kilogram of iron or a kilogram of feathers?"},
    {CalibrationKind::kReasoning, "If today is Tuesday, what day will it be in ten days?"},
    {CalibrationKind::kReasoning, "Is 51 a prime number?"},

    {CalibrationKind::kJson, "Give the name and the age of a made-up person as JSON."},
    {CalibrationKind::kJson, "List three fruits with their colours as a JSON object."},
    {CalibrationKind::kJson,
     "Answer in JSON with the keys \"city\" and \"country\": where does the Eiffel Tower stand?"},
    {CalibrationKind::kJson, "Extract as JSON: The meeting with Paul is on Friday at 3 pm in room 12."},
    {CalibrationKind::kJson,
     "Give a JSON object with the keys \"title\", \"author\" and \"year\" for a book you know."},
    {CalibrationKind::kJson,
     "Is this review good or bad? Answer as JSON. \"The soup was cold, but the waiter was kind.\""},
    {CalibrationKind::kJson, "Describe a cat as JSON with the keys \"name\", \"weight\" and \"likes\"."},
    {CalibrationKind::kJson, "Convert to JSON: red, green and blue are colours; square and circle are shapes."},

    {CalibrationKind::kTools, "What is the weather in Paris today?"},
    {CalibrationKind::kTools, "Will it rain in Oslo? I need to know whether to take an umbrella."},
    {CalibrationKind::kTools, "How warm is it in Rome and in Madrid?"},
    {CalibrationKind::kTools, "Search the web for the height of the Matterhorn."},
    {CalibrationKind::kTools, "Find out who won the last chess world championship."},
    {CalibrationKind::kTools, "Look up how to remove a coffee stain, please."},
    {CalibrationKind::kTools, "Tell me the weather in Berlin in Fahrenheit."},
    {CalibrationKind::kTools, "Thank you, that was all."},
};

constexpr std::string_view kWeatherParameters =
    "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}, "
    "\"unit\": {\"type\": \"string\", \"enum\": [\"celsius\", \"fahrenheit\"]}}, \"required\": [\"city\"]}";
constexpr std::string_view kSearchParameters =
    "{\"type\": \"object\", \"properties\": {\"query\": {\"type\": \"string\"}}, \"required\": [\"query\"]}";

Result<Tool> MakeTool(std::string name, std::string description, std::string_view parameters) {
  Tool tool;
  tool.local_name = name;
  tool.name = std::move(name);
  tool.description = std::move(description);
  DEEPINFER_ASSIGN_OR_RETURN(tool.parameters, ParseJson(parameters));
  return tool;
}

}  // namespace

std::span<const CalibrationPrompt> CalibrationPrompts() { return kPrompts; }

Result<Prompt> RenderCalibrationPrompt(const CalibrationPrompt& prompt) {
  if (prompt.kind == CalibrationKind::kProse || prompt.kind == CalibrationKind::kCode) {
    return RenderCompletion(prompt.text);
  }
  Conversation conversation = NewChat("", prompt.kind == CalibrationKind::kReasoning);
  AppendUserTurn(std::string(prompt.text), &conversation);
  if (prompt.kind == CalibrationKind::kJson) conversation.response_format = ResponseFormat::kJsonObject;
  if (prompt.kind == CalibrationKind::kTools) {
    DEEPINFER_ASSIGN_OR_RETURN(Tool weather, MakeTool("get_weather", "The weather in a city now", kWeatherParameters));
    DEEPINFER_ASSIGN_OR_RETURN(Tool search, MakeTool("web_search", "Searches the web", kSearchParameters));
    conversation.tools.push_back(std::move(weather));
    conversation.tools.push_back(std::move(search));
  }
  return RenderPrompt(conversation);
}

}  // namespace deepinfer
