// `dlsym` is interposed, but the calling library still matters: RTLD_NEXT and RTLD_DEFAULT give
// results that depend on the library of the call.
#include <string>

#include "preload_cuda/program.hpp"

extern "C" int layers();

namespace tiermem::test {
namespace {

void* module() {
  return ::dlopen(TIERMEM_TEST_MODULE, RTLD_NOW | RTLD_LOCAL);
}

template <typename Function>
Function find(void* handle, const char* name) {
  return reinterpret_cast<Function>(::dlsym(handle, name));
}

TEST(Dlsym, next_is_what_comes_after_who_asks) {
  EXPECT_EQ(layers(), 2);
}

TEST(Dlsym, by_default_who_asks_sees_its_own) {
  void* const library = module();
  ASSERT_NE(library, nullptr) << ::dlerror();
  EXPECT_EQ(::dlsym(RTLD_DEFAULT, "of_the_module"), nullptr);
  EXPECT_NE(find<void* (*)()>(library, "find_of_the_module")(), nullptr);
}

TEST(Dlsym, what_is_missing_is_told_of) {
  for (const char* name : {"of_nobody", "cuOfNobody"}) {
    (void)::dlerror();
    EXPECT_EQ(::dlsym(RTLD_DEFAULT, name), nullptr);
    const char* const error = ::dlerror();
    ASSERT_NE(error, nullptr);
    EXPECT_NE(std::string(error).find(name), std::string::npos) << error;
  }
}

TEST(Dlsym, a_library_that_is_not_the_driver_keeps_its_functions) {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(::dlsym(driver, "cuMemAlloc_v2"), nullptr);
  unsigned long long at = 0;
  const auto allocate =
      find<int (*)(unsigned long long*, unsigned long)>(module(), "cuMemAlloc_v2");
  EXPECT_EQ(allocate(&at, 5), 77);
  EXPECT_EQ(at, 5u);
}

TEST(Dlsym, functions_that_are_not_replaced_are_the_driver_s) {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  Dl_info found{};
  ASSERT_NE(::dladdr(::dlsym(driver, "cuMemsetD8_v2"), &found), 0);
  EXPECT_NE(std::string(found.dli_fname).find("libcuda.so"), std::string::npos);
  ASSERT_NE(::dladdr(::dlsym(driver, "cuMemFree_v2"), &found), 0);
  EXPECT_NE(std::string(found.dli_fname).find("libtiermem_preload.so"), std::string::npos);
}

}  // namespace
}  // namespace tiermem::test
