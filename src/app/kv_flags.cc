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

CLI::Option* AddGibFlag(CLI::App& flags, const std::string& name, int64_t* bytes, const std::string& help,
                        int64_t least) {
  constexpr double kMostGib = 1 << 30;
  const auto parse = [name, bytes, least](const std::string& text) {
    double gib = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), gib);
    if (error != std::errc() || stop != text.data() + text.size() || !(gib >= 0 && gib <= kMostGib)) {
      throw CLI::ValidationError(name, fmt::format("expected a number of GiB such as 0.5 or 64, found '{}'", text));
    }
    *bytes = static_cast<int64_t>(std::llround(gib * (int64_t{1} << 30)));
    if (*bytes < least)
      throw CLI::ValidationError(name, fmt::format("expected more than 0 GiB, such as 0.5 or 64, found '{}'", text));
  };
  return flags.add_option_function<std::string>(name, parse, help)->type_name("GIB");
}

CLI::Option* AddPathFlag(CLI::App& flags, const std::string& name, std::string* path, const std::string& type,
                         const std::string& help) {
  const auto parse = [name, path](const std::string& text) {
    if (text.empty())
      throw CLI::ValidationError(name.substr(0, name.find(',')),
                                 "expected a path, found ''; leave the flag out for none");
    *path = text;
  };
  return flags.add_option_function<std::string>(name, parse, help)->type_name(type);
}

void AddKvTierFlags(CLI::App& flags, EngineOptions* options) {
  AddGibFlag(flags, "--kv-host-gib", &options->kv_host_bytes,
             fmt::format("Host memory for prefixes that the KV pool has no room for (default {})",
                         options->kv_host_bytes == 0 ? "0: none" : HumanBytes(options->kv_host_bytes)));
  AddPathFlag(flags, "--kv-host-file", &options->kv_host_file, "FILE",
              "Keep that memory in this file, such as /dev/shm/kv, shared by all engines that name it");
  AddPathFlag(flags, "--kv-disk", &options->kv_disk, "DIR",
              "Folder for prefixes that outlive the process (default: none)");
  AddGibFlag(flags, "--kv-disk-gib", &options->kv_disk_bytes,
             "Most bytes in that folder, of all engines that use it (default 16)", 1);
  AddPathFlag(flags, "--kv-shared", &options->kv_shared, "DIR|URL",
              "Folder that several machines mount, or redis://[:PASSWORD@]HOST[:PORT][/DB] (default: none)");
  AddGibFlag(flags, "--kv-shared-gib", &options->kv_shared_bytes,
             "Most bytes in the shared folder (default 64; Redis has its own limit)", 1);
  AddDurationFlag(flags, "--kv-ttl", &options->kv_ttl_seconds,
                  "How long a prefix is kept since it was last used, such as 12h or 7d (default 3d)");
  AddPathFlag(flags, "--kv-key-file", &options->kv_key_file, "FILE",
              "Encrypt what is kept outside this machine's memory with the key in this file (32 bytes, or 64 "
              "hexadecimal digits)");
  AddIntegerFlag(flags, "--kv-least-tokens", &options->kv_least_tokens, 1, std::numeric_limits<int64_t>::max(),
                 fmt::format("Shorter prefixes are neither kept nor fetched (default {})", options->kv_least_tokens));
}

}  // namespace deepinfer
