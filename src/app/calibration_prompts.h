// The prompts that `deepinfer calibrate` runs: short samples of what models are asked for, in our own words.
//
// Thread-safety: constants and pure functions.
#ifndef DEEPINFER_APP_CALIBRATION_PROMPTS_H_
#define DEEPINFER_APP_CALIBRATION_PROMPTS_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "deepinfer/status.h"
#include "text/prompt_segments.h"

namespace deepinfer {

enum class CalibrationKind : uint8_t {
  kProse,      ///< a text to continue
  kCode,       ///< a program to continue
  kChat,       ///< a question
  kReasoning,  ///< a question to reason about first
  kJson,       ///< a question whose answer is a JSON object
  kTools,      ///< a question that a tool can answer
};

struct CalibrationPrompt {
  CalibrationKind kind = CalibrationKind::kProse;
  std::string_view text;
};

std::span<const CalibrationPrompt> CalibrationPrompts();

Result<Prompt> RenderCalibrationPrompt(const CalibrationPrompt& prompt);

}  // namespace deepinfer

#endif  // DEEPINFER_APP_CALIBRATION_PROMPTS_H_
