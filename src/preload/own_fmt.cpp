// fmt's functions, compiled into the preload library. Every process under `tiermem run` loads that
// library, so it depends on as few others as possible (cmake/preload.cmake).
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

template auto decimal_point_impl(locale_ref) -> char;
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
#if FMT_VERSION >= 100000
template void vformat_to<char>(buffer<char>&, basic_string_view<char>, vformat_args<char>::type,
                               locale_ref);
#endif

}  // namespace detail
FMT_END_NAMESPACE
