#include "text/pretokenizer.h"

namespace deepinfer {

const std::vector<std::string>& DeepSeekSplitPatterns() {
  static const std::vector<std::string> patterns = {
      "\\p{N}{1,3}",
      "[一-龥぀-ゟ゠-ヿ]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
      "?[\\p{P}\\p{S}]+[\r\n]*"
      "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
  };
  return patterns;
}

Result<PreTokenizer> PreTokenizer::Create(const std::vector<std::string>& patterns, Engine engine) {
  PreTokenizer result;
  if (engine == Engine::kFastest && patterns == DeepSeekSplitPatterns()) {
    result.scanner_ = true;
    return result;
  }
  DEEPINFER_ASSIGN_OR_RETURN(result.splits_, RegexSplits::Compile(patterns));
  return result;
}

}  // namespace deepinfer
