#include "child_server.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>

namespace deepinfer {
namespace {

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "server_bench: %s\n", why.c_str());
  std::exit(1);
}

}  // namespace

ChildServer::ChildServer(std::vector<std::string> arguments, std::string_view before) {
  std::array<int, 2> in, out;
  if (pipe2(in.data(), O_CLOEXEC) != 0 || pipe2(out.data(), O_CLOEXEC) != 0) Die("no pipes");
  std::vector<char*> words;
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  pid_ = fork();
  if (pid_ < 0) Die("cannot fork");
  if (pid_ == 0) {
    dup2(in[0], 0);
    dup2(out[1], 1);
    dup2(out[1], 2);
    execv(words[0], words.data());
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  input_ = in[1];
  output_ = out[0];
  for (size_t at = std::string::npos; at == std::string::npos;) {
    const std::string line = ReadLine();
    at = line.find(before);
    if (at == std::string::npos) continue;
    address_ = line.substr(at + before.size());
    address_.resize(std::min(address_.find(' '), address_.size()));
  }
}

ChildServer::~ChildServer() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(input_);
  close(output_);
}

int ChildServer::port() const { return std::atoi(address_.substr(address_.rfind(':') + 1).c_str()); }

std::string ChildServer::ReadLine() {
  for (;;) {
    const size_t end = pending_.find('\n');
    if (end != std::string::npos) {
      std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return line;
    }
    std::array<char, 4096> buffer;
    const ssize_t count = read(output_, buffer.data(), buffer.size());
    if (count <= 0) Die("the server has ended: " + pending_);
    pending_.append(buffer.data(), static_cast<size_t>(count));
  }
}

void ChildServer::Tell(const std::string& line) {
  const std::string bytes = line + "\n";
  if (write(input_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) Die("the server has ended");
}

std::string ChildServer::Ask(const std::string& line) {
  Tell(line);
  return ReadLine();
}

double ChildServer::Cpu() const {
  clockid_t clock;
  timespec time{};
  if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &time) != 0) Die("no CPU clock of the server");
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double ChildServer::CpuOf(std::string_view thread_name) const {
  double seconds = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid_) + "/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    int64_t nanoseconds = 0;
    if (name == thread_name && std::ifstream(task.path() / "schedstat") >> nanoseconds) {
      seconds += 1e-9 * static_cast<double>(nanoseconds);
    }
  }
  return seconds;
}

int64_t ChildServer::Resident() const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/statm");
  int64_t all = 0;
  int64_t resident = 0;
  file >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

void ChildServer::Signal(int signal_number) const { kill(pid_, signal_number); }

int ChildServer::Wait() {
  std::array<char, 4096> buffer;
  while (read(output_, buffer.data(), buffer.size()) > 0) {
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace deepinfer
