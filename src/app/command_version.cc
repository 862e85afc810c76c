// version: what this program is and what it was built from.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "app/command.h"
#include "app/terminal.h"

namespace deepinfer {
namespace {

class VersionCommand : public Command {
 public:
  std::string_view name() const override { return "version"; }
  std::string_view summary() const override { return "Print version and compiler"; }
  void AddFlags(CLI::App&) override {}

  Result<int> Run() override {
    DEEPINFER_RETURN_IF_ERROR(WriteAll(1, fmt::format("deepinfer {}\ncompiler {}\n", DEEPINFER_VERSION, __VERSION__)));
    return kExitOk;
  }
};

}  // namespace

std::unique_ptr<Command> MakeVersionCommand() { return std::make_unique<VersionCommand>(); }

}  // namespace deepinfer
