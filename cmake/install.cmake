# What `cmake --install` copies: library, headers, program, and the two ways to find them.
include(CMakePackageConfigHelpers)

# Debug information is 300 MB. -DCMAKE_INSTALL_DO_STRIP=OFF at configuration keeps it.
if(NOT DEFINED CMAKE_INSTALL_DO_STRIP OR CMAKE_INSTALL_DO_STRIP)
  install(CODE "set(CMAKE_INSTALL_DO_STRIP TRUE)")
endif()

install(TARGETS tiermem EXPORT tiermemTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/tiermem DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.hpp)
if(EXISTS ${PROJECT_SOURCE_DIR}/bindings/c/tiermem.h)
  install(FILES bindings/c/tiermem.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
if(TARGET tiermem_cli)
  install(TARGETS tiermem_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

install(TARGETS tiermem_cufile_probe RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/tiermem)

if(TARGET tiermem_preload)
  install(FILES bindings/c/tiermem_preload.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(TARGETS tiermem_preload LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

# Our licence, and those of what is compiled in: the words of the packages that it was built with.
set(doc_dir ${CMAKE_INSTALL_DATAROOTDIR}/doc/tiermem)
install(FILES LICENSE DESTINATION ${doc_dir})
foreach(package libxxhash-dev libfmt-dev libspdlog-dev libtoml11-dev nlohmann-json3-dev libcli11-dev
        libjemalloc-dev liburing-dev libhwloc-dev libnuma-dev)
  if(EXISTS /usr/share/doc/${package}/copyright)
    install(FILES /usr/share/doc/${package}/copyright DESTINATION ${doc_dir}/third-party
      RENAME ${package}.txt)
  endif()
endforeach()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tiermem)
install(EXPORT tiermemTargets NAMESPACE tiermem:: DESTINATION ${package_dir})
configure_package_config_file(cmake/tiermemConfig.cmake.in ${PROJECT_BINARY_DIR}/tiermemConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may break what was there.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tiermemConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tiermemConfig.cmake
              ${PROJECT_BINARY_DIR}/tiermemConfigVersion.cmake DESTINATION ${package_dir})

# The prefix is told relative to the .pc file, so an installed tree can be moved.
set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/tiermem.pc.in ${PROJECT_BINARY_DIR}/tiermem.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tiermem.pc DESTINATION ${pc_dir})
