#include "app/kv_flags.h"

#include <fmt/format.h>

#include <charconv>
#include <CLI/CLI.hpp>
#include <cmath>
#include <limits>

#include "app/flags.h"
#include "base/duration.h"
#include "base/machine.h"

namespace deepinfer {

CLI::Option* AddDurationFlag(CLI::App& flags, const std::string& name, int64_t* seconds, const std::string& help) {
  const auto parse = [name, seconds](const std::string& text) {
    const std::optional<int64_t> parsed = ParseDuration(text);
    if (!parsed.has_value() || *parsed < 1) {
      throw CLI::ValidationError(
          name, fmt::format("expected a number with s, m, h or d, such as 90s or 3d, found '{}'", text));
    }
    *seconds = *parsed;
  };
  return flags.add_option_function<std::string>(name, parse, help)->type_name("TIME");
}

CLI::Option* AddGibFlag(CLI::App& flags, const std::string& name, int64_t* bytes, const std::string& help) {
  constexpr double kMostGib = 1 << 30;
  const auto parse = [name, bytes](const std::string& text) {
    double gib = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), gib);
    if (error != std::errc() || stop != text.data() + text.size() || !(gib >= 0 && gib <= kMostGib)) {
      throw CLI::ValidationError(name, fmt::format("expected a number of GiB such as 0.5 or 64, found '{}'", text));
    }
    *bytes = static_cast<int64_t>(std::llround(gib * (int64_t{1} << 30)));
  };
  return flags.add_option_function<std::string>(name, parse, help)->type_name("GIB");
}

void AddKvTierFlags(CLI::App& flags, EngineOptions* options) {
  AddGibFlag(flags, "--kv-host-gib", &options->kv_host_bytes,
             fmt::format("Host memory for prefixes that the KV pool has no room for (default {})",
                         options->kv_host_bytes == 0 ? "0: none" : HumanBytes(options->kv_host_bytes)));
  flags
      .add_option("--kv-host-file", options->kv_host_file,
                  "Keep that memory in this file, such as /dev/shm/kv, shared by all engines that name it")
      ->type_name("FILE");
  flags.add_option("--kv-disk", options->kv_disk, "Folder for prefixes that outlive the process (default: none)")
      ->type_name("DIR");
  AddGibFlag(flags, "--kv-disk-gib", &options->kv_disk_bytes,
             "Most bytes in that folder, of all engines that use it (default 16)");
  flags
      .add_option("--kv-shared", options->kv_shared,
                  "Folder that several machines mount, or redis://[:PASSWORD@]HOST[:PORT][/DB] (default: none)")
      ->type_name("DIR|URL");
  AddGibFlag(flags, "--kv-shared-gib", &options->kv_shared_bytes,
             "Most bytes in the shared folder (default 64; Redis has its own limit)");
  AddDurationFlag(flags, "--kv-ttl", &options->kv_ttl_seconds,
                  "How long a prefix is kept since it was last used, such as 12h or 7d (default 3d)");
  flags
      .add_option("--kv-key-file", options->kv_key_file,
                  "Encrypt what is kept outside this machine's memory with the key in this file (32 bytes, or 64 "
                  "hexadecimal digits)")
      ->type_name("FILE");
  AddIntegerFlag(flags, "--kv-least-tokens", &options->kv_least_tokens, 1, std::numeric_limits<int64_t>::max(),
                 fmt::format("Shorter prefixes are neither kept nor fetched (default {})", options->kv_least_tokens));
}

}  // namespace deepinfer
