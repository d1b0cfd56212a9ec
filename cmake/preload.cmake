# The preload library: tiermem's objects, src/preload, and jemalloc from its static archive with its
# public names changed. With a sanitizer, malloc is the sanitizer's, and only mappings are tiered. Not
# built inside another project unless that requests it.
find_library(TIERMEM_JEMALLOC_PIC NAMES libjemalloc_pic.a)
set(TIERMEM_WITH_PRELOAD AUTO CACHE STRING "Build the preload library: AUTO, ON or OFF")
set(preload_wish ${TIERMEM_WITH_PRELOAD})
if(preload_wish STREQUAL AUTO AND (TIERMEM_MINIMAL OR TIERMEM_FUZZ OR NOT PROJECT_IS_TOP_LEVEL))
  set(preload_wish OFF)
endif()
if(NOT TIERMEM_JEMALLOC_PIC AND preload_wish STREQUAL AUTO)
  message(STATUS "  preload library: no (libjemalloc_pic.a not found; package libjemalloc-dev)")
  set(preload_wish OFF)
elseif(NOT TIERMEM_JEMALLOC_PIC AND preload_wish)
  message(FATAL_ERROR "TIERMEM_WITH_PRELOAD=${preload_wish}, but libjemalloc_pic.a is not found. "
                      "Install libjemalloc-dev, or set TIERMEM_WITH_PRELOAD=OFF.")
endif()
if(NOT preload_wish)
  return()
endif()

set(jemalloc ${PROJECT_BINARY_DIR}/jemalloc_renamed.a)
set(jemalloc_symbols ${PROJECT_SOURCE_DIR}/src/preload/jemalloc.symbols)
# Its constructor would start it in each process. start_heap() does that when it is needed.
add_custom_command(OUTPUT ${jemalloc}
  COMMAND ${CMAKE_OBJCOPY} --redefine-syms=${jemalloc_symbols} --remove-section=.init_array
    --remove-section=.rela.init_array ${TIERMEM_JEMALLOC_PIC} ${jemalloc}
  DEPENDS ${jemalloc_symbols} ${TIERMEM_JEMALLOC_PIC} VERBATIM)
add_custom_target(jemalloc_renamed DEPENDS ${jemalloc})

file(GLOB preload_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/preload/*.cpp)
if(TIERMEM_SANITIZE)
  # malloc is the sanitizer's. Before it has its own memory, it calls dlsym and setrlimit and registers
  # handlers of fork.
  list(FILTER preload_sources EXCLUDE REGEX "/(malloc|dlsym|rlimits|fork_handlers|own_fmt)\\.cpp$")
endif()
add_library(tiermem_preload SHARED ${preload_sources})
add_dependencies(tiermem_preload jemalloc_renamed)

# Every process under `tiermem run` loads the library, so it contains what it uses: a shell that starts
# many short programs takes 0.6 ms less for each. The shared libraries after the archives are then not
# needed, and --as-needed drops them. libgcc_s remains shared, because one process has one unwinder.
set(own_libraries)
if(NOT TIERMEM_SANITIZE)
  find_library(TIERMEM_XXHASH_ARCHIVE NAMES libxxhash.a)
  if(TIERMEM_XXHASH_ARCHIVE)
    list(APPEND own_libraries ${TIERMEM_XXHASH_ARCHIVE})
  endif()
  find_library(TIERMEM_LZ4_ARCHIVE NAMES liblz4.a)
  if(TIERMEM_LZ4_ARCHIVE AND TARGET PkgConfig::TM_LZ4)
    list(APPEND own_libraries ${TIERMEM_LZ4_ARCHIVE})
  endif()
  # On x86-64 the library also replaces liburing's functions that make rings (raw_calls.cpp), so its own
  # have other names. Elsewhere liburing is shared.
  find_library(TIERMEM_URING_ARCHIVE NAMES liburing.a)
  if(TIERMEM_URING_ARCHIVE AND TARGET PkgConfig::TM_URING AND CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64)
    set(own_uring ${PROJECT_BINARY_DIR}/uring_renamed.a)
    add_custom_command(OUTPUT ${own_uring}
      COMMAND ${CMAKE_OBJCOPY} --redefine-sym io_uring_queue_init=tiermem_uring_queue_init
        --redefine-sym io_uring_queue_init_params=tiermem_uring_queue_init_params
        ${TIERMEM_URING_ARCHIVE} ${own_uring}
      DEPENDS ${TIERMEM_URING_ARCHIVE} VERBATIM)
    add_custom_target(uring_renamed DEPENDS ${own_uring})
    add_dependencies(tiermem_preload uring_renamed)
    list(APPEND own_libraries ${own_uring})
    target_compile_definitions(tiermem_preload PRIVATE TIERMEM_OWN_URING)
  endif()
  target_link_options(tiermem_preload PRIVATE -static-libstdc++ -Wl,--exclude-libs,ALL -Wl,--as-needed)
endif()
target_link_libraries(tiermem_preload PRIVATE ${own_libraries} tiermem_objects ${jemalloc})
# Thread-local variables need one instruction, and no call of the dynamic linker, which may allocate.
target_compile_options(tiermem_preload PRIVATE -fomit-frame-pointer -ftls-model=initial-exec -fno-builtin-malloc
  -fno-builtin-calloc -fno-builtin-realloc -fno-builtin-free ${no_narrowing})
# libc's signal may cancel threads in these files at any instruction. Their frames must have no
# exception table, because that instruction would be missing in it.
set(cancelled wrapped_calls.cpp transfers.cpp cancellation.cpp)
list(TRANSFORM cancelled PREPEND ${PROJECT_SOURCE_DIR}/src/preload/)
set_source_files_properties(${cancelled} PROPERTIES
  COMPILE_OPTIONS "-fno-exceptions;-fasynchronous-unwind-tables" SKIP_PRECOMPILE_HEADERS ON)
# glibc 2.41 declares that mlock() and its relatives read nothing at the address, so gcc 14 concludes
# that earlier writes there are unused.
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/preload/mapping.cpp PROPERTIES
  COMPILE_OPTIONS $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
set(preload_script ${PROJECT_SOURCE_DIR}/src/preload/preload.map)
# Bound at start: binding at the first call would take the dynamic linker's lock, which the program
# may hold while it waits for a page.
target_link_options(tiermem_preload PRIVATE -Wl,--version-script=${preload_script}
  -Wl,-Bsymbolic-functions -Wl,-z,now -Wl,-z,nodelete -Wl,--no-undefined)
set_target_properties(tiermem_preload PROPERTIES LINK_DEPENDS ${preload_script})
tiermem_precompile(tiermem_preload)
