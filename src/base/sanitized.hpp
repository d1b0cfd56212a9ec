// Whether a sanitizer with a runtime of its own is in this build.
#pragma once

namespace tiermem {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace tiermem
