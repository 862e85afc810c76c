#include "program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>

namespace deepinfer {
namespace {

constexpr int kDeadline = 120'000;  // milliseconds without any output: generous, for slow and sanitized builds

/// In the child: the environment of a test, then the program.
[[noreturn]] void Execute(const std::vector<std::string>& arguments, const std::vector<std::string>& environment) {
  unsetenv("DEEPINFER_MODEL");
  unsetenv("NO_COLOR");
  setenv("DEEPINFER", DEEPINFER_PROGRAM, 1);
  setenv("LC_ALL", "C.UTF-8", 1);
  setenv("TERM", "xterm", 1);
  for (const std::string& entry : environment) putenv(const_cast<char*>(entry.c_str()));
  std::vector<char*> words;
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  execv(words[0], words.data());
  _exit(127);
}

ProgramResult RunPiped(const std::vector<std::string>& arguments, const std::string& input,
                       const std::vector<std::string>& environment) {
  std::signal(SIGPIPE, SIG_IGN);  // the program may end before it has read its input
  std::array<int, 2> in, out, err;
  EXPECT_EQ(pipe2(in.data(), O_CLOEXEC), 0);
  EXPECT_EQ(pipe2(out.data(), O_CLOEXEC), 0);
  EXPECT_EQ(pipe2(err.data(), O_CLOEXEC), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(in[0], 0);
    dup2(out[1], 1);
    dup2(err[1], 2);
    Execute(arguments, environment);
  }
  close(in[0]);
  close(out[1]);
  close(err[1]);

  ProgramResult result;
  size_t sent = 0;
  std::array<pollfd, 3> polls = {{{in[1], POLLOUT, 0}, {out[0], POLLIN, 0}, {err[0], POLLIN, 0}}};
  std::array<std::string*, 3> texts = {nullptr, &result.out, &result.err};
  const auto finish = [](pollfd* entry) {
    close(entry->fd);
    entry->fd = -1;
  };
  fcntl(in[1], F_SETFL, O_NONBLOCK);
  if (input.empty()) finish(&polls[0]);
  while (polls[1].fd >= 0 || polls[2].fd >= 0) {
    if (poll(polls.data(), polls.size(), kDeadline) <= 0) {
      ADD_FAILURE() << "the program hangs: " << arguments.back();
      kill(pid, SIGKILL);
      break;
    }
    if (polls[0].fd >= 0 && polls[0].revents != 0) {
      const ssize_t count = write(polls[0].fd, input.data() + sent, input.size() - sent);
      if (count > 0) sent += static_cast<size_t>(count);
      if (count < 0 || sent == input.size()) finish(&polls[0]);
    }
    for (size_t i = 1; i < polls.size(); ++i) {
      if (polls[i].fd < 0 || polls[i].revents == 0) continue;
      std::array<char, 1 << 16> buffer;
      const ssize_t count = read(polls[i].fd, buffer.data(), buffer.size());
      if (count > 0) {
        texts[i]->append(buffer.data(), static_cast<size_t>(count));
      } else {
        finish(&polls[i]);
      }
    }
  }
  for (pollfd& entry : polls) {
    if (entry.fd >= 0) finish(&entry);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  if (WIFEXITED(status)) result.exit_status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

std::vector<std::string> Words(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {DEEPINFER_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  // One thread unless a test says otherwise: other tests run at the same time.
  const bool runs_model = words.size() > 2 && (words[1] == "chat" || words[1] == "generate" || words[1] == "serve");
  if (runs_model && std::find(words.begin(), words.end(), "--threads") == words.end()) {
    words.insert(words.begin() + 2, {"--threads", "1"});
  }
  return words;
}

}  // namespace

ProgramResult RunProgram(const std::vector<std::string>& arguments, const std::string& input,
                         const std::vector<std::string>& environment) {
  return RunPiped(Words(arguments), input, environment);
}

ProgramResult RunShell(const std::string& command, const std::string& input) {
  return RunPiped({"/bin/bash", "-c", command}, input, {});
}

TerminalProgram::TerminalProgram(const std::vector<std::string>& arguments,
                                 const std::vector<std::string>& environment) {
  winsize size = {};
  size.ws_col = 200;
  size.ws_row = 50;
  pid_ = forkpty(&terminal_, nullptr, nullptr, &size);
  if (pid_ == 0) Execute(Words(arguments), environment);
  EXPECT_GT(pid_, 0);
}

TerminalProgram::~TerminalProgram() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(terminal_);
}

void TerminalProgram::Send(const std::string& keys) {
  EXPECT_EQ(write(terminal_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
}

void TerminalProgram::Signal(int signal_number) { EXPECT_EQ(kill(pid_, signal_number), 0); }

bool TerminalProgram::ReadMore() {
  pollfd entry = {terminal_, POLLIN, 0};
  if (poll(&entry, 1, kDeadline) <= 0) {
    ADD_FAILURE() << "the program hangs; its terminal shows:\n" << screen_;
    return false;
  }
  std::array<char, 4096> buffer;
  const ssize_t count = read(terminal_, buffer.data(), buffer.size());
  if (count <= 0) return false;  // EIO: the other side is closed
  screen_.append(buffer.data(), static_cast<size_t>(count));
  return true;
}

bool TerminalProgram::Expect(const std::string& text) {
  while (true) {
    const size_t at = screen_.find(text, found_);
    if (at != std::string::npos) {
      found_ = at + text.size();
      return true;
    }
    if (!ReadMore()) return false;
  }
}

int TerminalProgram::Wait() {
  while (ReadMore()) {
  }
  int status = 0;
  if (waitpid(pid_, &status, 0) != pid_) return -1;
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace deepinfer
