#include "grammar/json_format.h"

#include <map>

namespace deepinfer {
namespace {

using std::string;

string Date() {
  const string leap_century = "(?:[02468][048]|[13579][26])00";
  const string leap_year = "[0-9]{2}(?:0[48]|[2468][048]|[13579][26])";
  return "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
         "02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:" +
         leap_century + "|" + leap_year + ")-02-29)";
}

string Time() {
  // A leap second is at 23:59:60 UTC; with an offset other than Z it is left out.
  const string offset = "(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
  const string fraction = R"((?:\.[0-9]+)?)";
  return "(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]" + fraction + offset + "|23:59:60" + fraction +
         "(?:[Zz]|[+-]00:00))";
}

string Duration() {
  const string time = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
  const string date = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)";
  return "P(?:" + date + "(?:" + time + ")?|" + time + "|[0-9]+W)";
}

const string kIpv4Part = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";

string Ipv4() { return kIpv4Part + "(?:\\." + kIpv4Part + "){3}"; }

string Ipv6() {
  const string h = "[0-9A-Fa-f]{1,4}";
  const string low = "(?:" + h + ":" + h + "|" + Ipv4() + ")";
  const auto leading = [&h](int most) { return "(?:(?:" + h + ":){0," + std::to_string(most) + "}" + h + ")?"; };
  return "(?:(?:" + h + ":){6}" + low + "|::(?:" + h + ":){5}" + low + "|(?:" + h + ")?::(?:" + h + ":){4}" + low +
         "|" + leading(1) + "::(?:" + h + ":){3}" + low + "|" + leading(2) + "::(?:" + h + ":){2}" + low + "|" +
         leading(3) + "::" + h + ":" + low + "|" + leading(4) + "::" + low + "|" + leading(5) + "::" + h + "|" +
         leading(6) + "::)";
}

// Labels of 1 to 63 characters. The whole name's limit of 253 is enforced beside the pattern by the caller.
const string kLabel = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";

string Hostname() { return kLabel + "(?:\\." + kLabel + ")*"; }

string Email() {
  const string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
  const string quoted = R"("(?:[ !#-\[\]-~]|\\[ -~])*")";
  // Most validators want a dot in the name of the host.
  return "(?:" + atom + "(?:\\." + atom + ")*|" + quoted + ")@(?:(?:" + kLabel + "\\.)+" + kLabel + "|\\[" + Ipv4() +
         "\\]|\\[IPv6:" + Ipv6() + "\\])";
}

/// The pieces of RFC 3986, with more characters for IRIs.
struct Uri {
  explicit Uri(bool international) {
    const string more = international ? R"(\u00A0-\uD7FF\uF900-\uFDCF\uFDF0-\uFFEF\u{10000}-\u{1FFFD})" : "";
    const string escaped = "%[0-9A-Fa-f]{2}";
    const string plain = "A-Za-z0-9._~!$&'()*+,;=\\-" + more;
    const string character = "(?:[" + plain + ":@]|" + escaped + ")";
    const string authority = "(?:(?:[" + plain + ":]|" + escaped + ")*@)?(?:\\[(?:" + Ipv6() +
                             "|[vV][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:\\-]+)\\]|(?:[" + plain + "]|" + escaped +
                             ")*)(?::[0-9]*)?";
    const string slashes = "(?:/" + character + "*)*";
    const string rooted = "/(?:" + character + "+" + slashes + ")?";
    const string tail = "(?:\\?(?:" + character + "|[/?])*)?(?:#(?:" + character + "|[/?])*)?";
    absolute = "[A-Za-z][A-Za-z0-9+.\\-]*:(?://" + authority + slashes + "|" + rooted + "|" + character + "+" +
               slashes + ")" + tail;
    relative =
        "(?://" + authority + slashes + "|" + rooted + "|(?:[" + plain + "@]|" + escaped + ")+" + slashes + "|)" + tail;
  }
  string absolute;
  string relative;
};

std::map<string, string, std::less<>> MakePatterns() {
  std::map<string, string, std::less<>> patterns;
  patterns["date"] = Date();
  patterns["time"] = Time();
  patterns["date-time"] = Date() + "[Tt]" + Time();
  patterns["duration"] = Duration();
  patterns["ipv4"] = Ipv4();
  patterns["ipv6"] = Ipv6();
  patterns["hostname"] = Hostname();
  patterns["host-name"] = patterns["hostname"];
  patterns["email"] = Email();
  patterns["uuid"] = "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}";
  patterns["uri"] = Uri(false).absolute;
  patterns["uri-reference"] = "(?:" + Uri(false).absolute + "|" + Uri(false).relative + ")";
  patterns["iri"] = Uri(true).absolute;
  patterns["iri-reference"] = "(?:" + Uri(true).absolute + "|" + Uri(true).relative + ")";
  patterns["json-pointer"] = R"((?:/(?:[^/~]|~[01])*)*)";
  patterns["relative-json-pointer"] = R"((?:0|[1-9][0-9]*)(?:#|(?:/(?:[^/~]|~[01])*)*))";
  return patterns;
}

}  // namespace

bool IsKnownFormat(std::string_view format) {
  return PatternOfFormat(format).has_value() || RangeOfFormat(format).has_value();
}

std::optional<IntegerRange> RangeOfFormat(std::string_view format) {
  if (format == "int32") return IntegerRange{"-2147483648", "2147483647"};
  if (format == "int64") return IntegerRange{"-9223372036854775808", "9223372036854775807"};
  if (format == "uint32") return IntegerRange{"0", "4294967295"};
  if (format == "uint64") return IntegerRange{"0", "18446744073709551615"};
  return std::nullopt;
}

std::optional<std::string> PatternOfFormat(std::string_view format) {
  static const auto patterns = MakePatterns();
  const auto found = patterns.find(format);
  if (found == patterns.end()) return std::nullopt;
  return found->second;
}

}  // namespace deepinfer
