// Which sanitizer this program was built with.
#pragma once

namespace tiermem::test {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif
inline constexpr bool kSanitized = kThreadSanitizer || kAddressSanitizer;

}  // namespace tiermem::test
