#include "tests/cache/redis_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

namespace deepinfer {
namespace {

constexpr int kStartMilliseconds = 60'000;

std::string Program() {
  for (const char* path : {"/usr/bin/redis-server", "/usr/bin/redis-check-rdb"}) {
    if (access(path, X_OK) == 0) return path;
  }
  return {};
}

}  // namespace

bool RedisServer::IsInstalled() { return !Program().empty(); }

RedisServer::~RedisServer() { Kill(); }

bool RedisServer::Start() {
  std::vector<std::string> words = {
      "redis-server",          "--port",      "0", "--unixsocket", socket(), "--save", "", "--dir",
      folder_.path().string(), "--daemonize", "no"};
  words.insert(words.end(), settings_.begin(), settings_.end());
  const std::string program = Program();
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::array<int, 2> log;
  if (pipe2(log.data(), O_CLOEXEC) != 0) return false;
  process_ = fork();
  if (process_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(log[1], 1);
    dup2(log[1], 2);
    execv(program.c_str(), arguments.data());
    _exit(127);
  }
  close(log[1]);
  std::string text;
  bool ready = false;
  while (!ready) {
    std::array<char, 4096> buffer;
    pollfd entry = {log[0], POLLIN, 0};
    if (poll(&entry, 1, kStartMilliseconds) <= 0) break;
    const ssize_t count = read(log[0], buffer.data(), buffer.size());
    if (count <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(count));
    ready = text.find("ready to accept connections") != std::string::npos;
  }
  close(log[0]);
  return ready;
}

void RedisServer::Kill() {
  if (process_ <= 0) return;
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  process_ = -1;
}

void RedisServer::Signal(int signal) const { kill(process_, signal); }

std::string RedisServer::url(const std::string& user_and_password) const {
  return "redis+unix://" + (user_and_password.empty() ? "" : user_and_password + "@") + socket();
}

}  // namespace deepinfer
