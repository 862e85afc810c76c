#include "app/line_editor.h"

#include <fcntl.h>
#include <histedit.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <filesystem>

#include "app/interrupt.h"

namespace deepinfer {
namespace {

constexpr int kHistoryLines = 1000;
constexpr wchar_t kControlC = 3;

/// Reads one character. libedit's own reader retries after a signal; this one turns Ctrl-C into a key.
int ReadCharacter(EditLine*, wchar_t* character) {
  std::mbstate_t state = {};
  while (true) {
    if (!Interrupt::WaitForInput(STDIN_FILENO)) {
      *character = kControlC;
      return 1;
    }
    char byte = 0;
    const ssize_t count = read(STDIN_FILENO, &byte, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return static_cast<int>(count);
    const size_t used = std::mbrtowc(character, &byte, 1, &state);
    if (used == static_cast<size_t>(-2)) continue;  // inside a character
    if (used == static_cast<size_t>(-1)) {          // not UTF-8: skipped
      state = {};
      continue;
    }
    return 1;
  }
}

unsigned char EndInterruptedLine(EditLine*, int) { return CC_NEWLINE; }

}  // namespace

struct LineEditor::State {
  std::string history_file;
  std::string prompt;
  EditLine* editor = nullptr;
  History* history = nullptr;
  HistEvent event = {};

  static char* Prompt(EditLine* editor) {
    void* state = nullptr;
    el_get(editor, EL_CLIENTDATA, &state);
    return static_cast<State*>(state)->prompt.data();
  }
};

LineEditor::LineEditor(std::string history_file) : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.history_file = std::move(history_file);
  state.history = history_init();
  history(state.history, &state.event, H_SETSIZE, kHistoryLines);
  history(state.history, &state.event, H_SETUNIQUE, 1);
  if (!state.history_file.empty()) history(state.history, &state.event, H_LOAD, state.history_file.c_str());

  // Everything the editor shows goes to standard error; answers alone go to standard output.
  state.editor = el_init("deepinfer", stdin, stderr, stderr);
  el_set(state.editor, EL_CLIENTDATA, &state);
  el_set(state.editor, EL_PROMPT, &State::Prompt);
  el_set(state.editor, EL_EDITOR, "emacs");
  el_set(state.editor, EL_SIGNAL, 1);  // window size, suspend and resume
  el_set(state.editor, EL_HIST, &history, state.history);
  el_set(state.editor, EL_GETCFN, &ReadCharacter);
  el_set(state.editor, EL_ADDFN, "end-interrupted-line", "Ends the line after Ctrl-C", &EndInterruptedLine);
  el_set(state.editor, EL_BIND, "^C", "end-interrupted-line", nullptr);
  el_set(state.editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  // What terminals send for Home, End, Delete and word movement.
  el_set(state.editor, EL_BIND, "\\e[H", "ed-move-to-beg", nullptr);
  el_set(state.editor, EL_BIND, "\\e[F", "ed-move-to-end", nullptr);
  el_set(state.editor, EL_BIND, "\\e[3~", "ed-delete-next-char", nullptr);
  el_set(state.editor, EL_BIND, "\\e[1;5D", "ed-prev-word", nullptr);
  el_set(state.editor, EL_BIND, "\\e[1;5C", "em-next-word", nullptr);
}

LineEditor::~LineEditor() {
  el_end(state_->editor);
  history_end(state_->history);
}

LineEditor::Event LineEditor::ReadLine(const std::string& prompt, std::string* line) {
  state_->prompt = prompt;
  Interrupt::Clear();
  // Before the prompt shows, so that a key pressed at once is already the editor's.
  el_set(state_->editor, EL_PREP_TERM, 1);
  int length = 0;
  const char* text = el_gets(state_->editor, &length);
  if (Interrupt::flag()) {
    Interrupt::Clear();
    std::fputs("\n", stderr);
    return Event::kInterrupted;
  }
  if (text == nullptr || length <= 0) {
    std::fputs("\n", stderr);
    return Event::kEndOfInput;
  }
  // In bytes; `length` may count characters.
  line->assign(text);
  while (line->ends_with('\n') || line->ends_with('\r')) line->pop_back();
  return Event::kLine;
}

void LineEditor::Remember(const std::string& line) {
  history(state_->history, &state_->event, H_ENTER, line.c_str());
  if (state_->history_file.empty()) return;
  const std::filesystem::path path = state_->history_file;
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  const std::string temporary = path.string() + "." + std::to_string(getpid());
  // Conversations are private.
  const int descriptor = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (descriptor < 0) return;
  std::FILE* file = fdopen(descriptor, "w");
  const bool saved = history(state_->history, &state_->event, H_SAVE_FP, file) >= 0;
  if (std::fclose(file) != 0 || !saved || std::rename(temporary.c_str(), path.c_str()) != 0) {
    std::remove(temporary.c_str());
  }
}

std::string DefaultHistoryFile() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path folder;
  if (state != nullptr && *state == '/') {
    folder = state;
  } else if (home != nullptr && *home == '/') {
    folder = std::filesystem::path(home) / ".local/state";
  } else {
    return {};
  }
  return folder / "deepinfer/chat_history";
}

}  // namespace deepinfer
