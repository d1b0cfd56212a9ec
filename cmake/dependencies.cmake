# Options, and the libraries that tiermem uses. Required: fmt, spdlog, xxHash, toml++ and
# nlohmann-json. All others are optional: AUTO uses a library if found, ON requires it, OFF ignores it.
# Makes an interface target for each user, tiermem_<user>_dependencies, and prints the results.
#
# Inside another project (add_subdirectory, FetchContent), only the library is built, and nothing is
# tested or installed. Each part has an option that switches it on.

# With it, AUTO means OFF; each part's own option can still switch it on.
option(TIERMEM_MINIMAL "Only what is required: no optional library, no program, no examples" OFF)
if(TIERMEM_MINIMAL OR NOT PROJECT_IS_TOP_LEVEL)
  set(optional_default OFF)
else()
  set(optional_default ON)
endif()
option(TIERMEM_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(TIERMEM_CORE_TESTS "With a sanitizer: the unit tests and the simulator only" OFF)
option(TIERMEM_CLI "Build the tiermem program" ${optional_default})
option(TIERMEM_GGML "Build libggml-tiermem, the buffer type for llama.cpp" ${optional_default})
option(TIERMEM_EXAMPLES "Build the examples" ${optional_default})
option(TIERMEM_INSTALL "Have something for cmake --install" ${PROJECT_IS_TOP_LEVEL})
option(TIERMEM_PCH "Precompile the standard headers" ${optional_default})
option(TIERMEM_WERROR "Treat warnings as errors" OFF)
option(TIERMEM_CHECKED "Assertions in the library, of ours and of the standard library's" OFF)
option(TIERMEM_FUZZ "Build the fuzz targets (clang only)" OFF)
option(TIERMEM_COVERAGE "Tests tell what their children ran (the preset sets the compiler's flags)" OFF)
option(TIERMEM_DOCS "Check the API reference with doxygen as a test" OFF)
set(TIERMEM_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize= spells them: address,undefined")
set(TIERMEM_SIM_SEEDS 1000 CACHE STRING "Seeds that the simulator test runs")
set(TIERMEM_TEST_PREFIX "" CACHE STRING "Put before each test's name: tells builds apart")

find_package(PkgConfig REQUIRED)
# The static library passes these to the program that links it, even from a subdirectory: GLOBAL.
find_package(Threads REQUIRED GLOBAL)
find_package(fmt REQUIRED GLOBAL)
# Its headers only, because one file uses it.
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET GLOBAL libxxhash)
# Its headers only (see settings.cpp): its target would add a shared library.
find_path(TIERMEM_TOMLPLUSPLUS toml++/toml.h DOC "Where the headers of toml++ are")
if(NOT TIERMEM_TOMLPLUSPLUS)
  message(FATAL_ERROR "toml++/toml.h is not found. Install toml++ (Debian: libtomlplusplus-dev), or "
                      "set TIERMEM_TOMLPLUSPLUS to the folder that contains toml++/.")
endif()

add_library(tiermem_dependencies INTERFACE)
target_link_libraries(tiermem_dependencies INTERFACE
  Threads::Threads ${CMAKE_DL_LIBS} fmt::fmt PkgConfig::XXHASH
  nlohmann_json::nlohmann_json)
target_include_directories(tiermem_dependencies SYSTEM INTERFACE ${TIERMEM_TOMLPLUSPLUS}
  $<TARGET_PROPERTY:spdlog::spdlog_header_only,INTERFACE_INCLUDE_DIRECTORIES>)
target_compile_definitions(tiermem_dependencies INTERFACE SPDLOG_FMT_EXTERNAL)
# For the program and the examples; zlib and zstd decompress traces, for the tests as well.
add_library(tiermem_cli_dependencies INTERFACE)
add_library(tiermem_trace_dependencies INTERFACE)
add_library(tiermem_example_dependencies INTERFACE)
if(TIERMEM_CLI OR TIERMEM_EXAMPLES)
  find_package(CLI11 REQUIRED)
  foreach(user cli example)
    target_link_libraries(tiermem_${user}_dependencies INTERFACE
      CLI11::CLI11 nlohmann_json::nlohmann_json)
  endforeach()
endif()
target_link_libraries(tiermem_cli_dependencies INTERFACE tiermem_trace_dependencies)

# tiermem_with(NAME USER MODULE): an optional library that pkg-config finds. USER, an interface
# target, gets it and the define TIERMEM_HAVE_<NAME>.
set(TIERMEM_SUMMARY "")
function(tiermem_with name user module)
  set(TIERMEM_WITH_${name} AUTO CACHE STRING "Use ${name}: AUTO, ON or OFF")
  set_property(CACHE TIERMEM_WITH_${name} PROPERTY STRINGS AUTO ON OFF)
  set(wish "${TIERMEM_WITH_${name}}")
  if(TIERMEM_MINIMAL AND wish STREQUAL "AUTO")
    set(wish OFF)
  endif()
  set(state "no (switched off)")
  if(wish STREQUAL "AUTO" OR wish)
    pkg_check_modules(TM_${name} QUIET IMPORTED_TARGET GLOBAL ${module})
    if(TM_${name}_FOUND)
      set(state "${TM_${name}_VERSION}")
      target_compile_definitions(${user} INTERFACE TIERMEM_HAVE_${name}=1)
      target_link_libraries(${user} INTERFACE PkgConfig::TM_${name})
    elseif(wish STREQUAL "AUTO")
      set(state "no (not found)")
    else()
      message(FATAL_ERROR "TIERMEM_WITH_${name}=${wish}, but pkg-config does not know ${module}. "
                          "Install its development package, or set TIERMEM_WITH_${name}=OFF.")
    endif()
  endif()
  set(TIERMEM_SUMMARY "${TIERMEM_SUMMARY}" "${name}: ${state}" PARENT_SCOPE)
endfunction()

# The Python package: 3.11 is the first version whose Limited API has the buffer protocol.
set(TIERMEM_PYTHON AUTO CACHE STRING "Build the Python package: AUTO, ON or OFF")
set_property(CACHE TIERMEM_PYTHON PROPERTY STRINGS AUTO ON OFF)
if(TIERMEM_PYTHON STREQUAL "AUTO" AND (NOT optional_default OR TIERMEM_SANITIZE OR TIERMEM_FUZZ))
  set(TIERMEM_PYTHON OFF)
endif()
if(TIERMEM_PYTHON)
  find_package(Python3 3.11 QUIET COMPONENTS Interpreter Development.Module)
  if(NOT Python3_FOUND AND NOT TIERMEM_PYTHON STREQUAL "AUTO")
    message(FATAL_ERROR "TIERMEM_PYTHON=${TIERMEM_PYTHON}, but there is no Python 3.11 or later with its "
                        "headers. Install them (Debian: python3-dev), or set TIERMEM_PYTHON=OFF.")
  endif()
endif()

tiermem_with(URING tiermem_dependencies liburing)
tiermem_with(LZ4 tiermem_dependencies liblz4)
tiermem_with(ZLIB tiermem_trace_dependencies zlib)
tiermem_with(ZSTD tiermem_trace_dependencies libzstd)

function(tiermem_print_summary)
  if(Python3_FOUND)
    list(APPEND TIERMEM_SUMMARY "PYTHON: ${Python3_VERSION}")
  endif()
  message(STATUS "tiermem ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}, ${CMAKE_CXX_COMPILER_ID} "
                 "${CMAKE_CXX_COMPILER_VERSION}")
  foreach(line ${TIERMEM_SUMMARY})
    message(STATUS "  ${line}")
  endforeach()
  foreach(switch MINIMAL TESTS CLI EXAMPLES PCH SANITIZE FUZZ)
    if(TIERMEM_${switch})
      message(STATUS "  TIERMEM_${switch}: ${TIERMEM_${switch}}")
    endif()
  endforeach()
endfunction()
