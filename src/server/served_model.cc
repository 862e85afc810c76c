#include "server/served_model.h"

#include <ctime>

#include "text/prompt_segments.h"

namespace deepinfer {

ServedModel ServedModel::Of(Engine* engine, const Tokenizer* tokenizer) {
  ServedModel model;
  model.engine = engine;
  model.tokenizer = tokenizer;
  model.max_model_len = engine->options().max_model_len;
  model.created_unix_seconds = std::time(nullptr);
  model.end_of_sentence = tokenizer->IdOfAddedToken(special_token::kEndOfSentence).value_or(-1);
  model.end_think = tokenizer->IdOfAddedToken(special_token::kEndThink).value_or(-1);
  model.dsml = tokenizer->IdOfAddedToken(special_token::kDsml).value_or(-1);
  return model;
}

}  // namespace deepinfer
