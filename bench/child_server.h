// ChildServer: a server program as a child process, with what the kernel counts of it.
//
// Thread-safety: one thread, but Cpu and Resident are for any. Ownership: the child is killed at the end. Errors: a
// message on standard error and the end of the program: this is for benchmarks.
#ifndef DEEPINFER_BENCH_CHILD_SERVER_H_
#define DEEPINFER_BENCH_CHILD_SERVER_H_

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

class ChildServer {
 public:
  /// Starts it and reads what it prints (to both outputs) until `before` and the address behind it.
  ChildServer(std::vector<std::string> arguments, std::string_view before);
  ~ChildServer();
  ChildServer(const ChildServer&) = delete;
  ChildServer& operator=(const ChildServer&) = delete;

  const std::string& address() const { return address_; }
  int port() const;
  /// Writes a line and reads the line that answers it.
  std::string Ask(const std::string& line);
  void Tell(const std::string& line);
  /// User and system time so far, in seconds.
  double Cpu() const;
  /// Of it, the time of threads of this name.
  double CpuOf(std::string_view thread_name) const;
  /// Resident bytes.
  int64_t Resident() const;
  void Signal(int signal_number) const;
  /// Waits for the end: the exit status, or 128 + the signal.
  int Wait();

 private:
  /// Reads a line; the program ends when there is none.
  std::string ReadLine();

  pid_t pid_ = -1;
  int input_ = -1;
  int output_ = -1;
  std::string pending_;
  std::string address_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_BENCH_CHILD_SERVER_H_
