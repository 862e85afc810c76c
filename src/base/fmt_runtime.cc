// The part of the fmt library that is not in its headers, compiled into the program: Debian ships it only as a shared
// object, and the program must run where only libc is (docs/architecture.md, "Libraries"). Header-only use of fmt would
// compile the same code into every file that formats.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

// What fmt/format.h declares as instantiated elsewhere.
template dragonbox::decimal_fp<float> dragonbox::to_decimal(float value) noexcept;
template dragonbox::decimal_fp<double> dragonbox::to_decimal(double value) noexcept;
template locale_ref::locale_ref(const std::locale& locale);
template std::locale locale_ref::get<std::locale>() const;
template thousands_sep_result<char> thousands_sep_impl(locale_ref);
template char decimal_point_impl(locale_ref);
template void buffer<char>::append(const char* begin, const char* end);
template void vformat_to(buffer<char>&, string_view, basic_format_args<FMT_BUFFER_CONTEXT(char)>, locale_ref);

}  // namespace detail
FMT_END_NAMESPACE
