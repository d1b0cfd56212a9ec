# The files of `cmake --install`: libraries, headers, program, licences, and two ways to find them. The
# component `runtime` is the part of them that the wheel has.
include(CMakePackageConfigHelpers)

# Debug information is 400 MB. -DCMAKE_INSTALL_DO_STRIP=OFF at configuration keeps it.
set(strip OFF)
if(NOT DEFINED CMAKE_INSTALL_DO_STRIP OR CMAKE_INSTALL_DO_STRIP)
  set(strip ON)
  install(CODE "set(CMAKE_INSTALL_DO_STRIP TRUE)")
endif()

# With BUILD_SHARED_LIBS=OFF only the static one, as tiermem::tiermem, too.
get_target_property(not_shared tiermem EXCLUDE_FROM_ALL)
if(NOT not_shared)
  install(TARGETS tiermem EXPORT tiermemTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    COMPONENT runtime NAMELINK_COMPONENT development)
endif()
install(TARGETS tiermem_static EXPORT tiermemStaticTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(strip)  # CMake does not strip archives, because that would remove all symbols.
  install(CODE "execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-debug
    \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/libtiermem.a\" COMMAND_ERROR_IS_FATAL ANY)")
endif()
install(DIRECTORY include/tiermem DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.hpp)
if(EXISTS ${PROJECT_SOURCE_DIR}/bindings/c/tiermem.h)
  install(FILES bindings/c/tiermem.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
if(TARGET tiermem_cli)
  install(TARGETS tiermem_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
  if(TARGET tiermem_share)
    install(DIRECTORY ${share_dir}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR})
    foreach(part bash-completion zsh fish)
      install(DIRECTORY ${share_dir}/${part} DESTINATION ${CMAKE_INSTALL_DATADIR})
    endforeach()
  endif()
endif()

install(TARGETS tiermem_cufile_probe RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/tiermem
  COMPONENT runtime)

if(TARGET tiermem_preload)
  install(FILES bindings/c/tiermem_preload.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(TARGETS tiermem_preload LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime)
endif()

if(TARGET tiermem_ggml)
  install(FILES bindings/ggml/tiermem_ggml.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(TARGETS tiermem_ggml LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime)
endif()

# tiermem's licence, and those of the libraries compiled in, from the packages of the build. Only Debian
# has them at these paths; elsewhere the distributor of the libraries adds them.
set(doc_dir ${CMAKE_INSTALL_DOCDIR})
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${doc_dir})
foreach(package libxxhash-dev libfmt-dev libspdlog-dev libtomlplusplus-dev nlohmann-json3-dev libcli11-dev
        libjemalloc-dev liburing-dev liblz4-dev)
  if(EXISTS /usr/share/doc/${package}/copyright)
    install(FILES /usr/share/doc/${package}/copyright DESTINATION ${doc_dir}/third-party
      RENAME ${package}.txt COMPONENT runtime)
  endif()
endforeach()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tiermem)
if(NOT not_shared)
  install(EXPORT tiermemTargets NAMESPACE tiermem:: DESTINATION ${package_dir})
endif()
install(EXPORT tiermemStaticTargets NAMESPACE tiermem:: DESTINATION ${package_dir})
foreach(optional URING LZ4)
  string(TOLOWER ${optional} name)
  set(with_${name} OFF)
  if(TARGET PkgConfig::TM_${optional})
    set(with_${name} ON)
  endif()
endforeach()
configure_package_config_file(cmake/tiermemConfig.cmake.in ${PROJECT_BINARY_DIR}/tiermemConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may break the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tiermemConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tiermemConfig.cmake
              ${PROJECT_BINARY_DIR}/tiermemConfigVersion.cmake DESTINATION ${package_dir})

# The prefix is relative to the .pc file, so an installed tree can be moved.
set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
# As names of libraries: with Requires.private, a program that links the shared library would also need
# their development packages.
set(pc_libs_private " -lfmt -lxxhash -lstdc++ -lm -lpthread")
foreach(name uring lz4)
  if(with_${name})
    string(PREPEND pc_libs_private " -l${name}")
  endif()
endforeach()
set(pc_libs "")
if(not_shared)
  set(pc_libs "${pc_libs_private}")
  set(pc_libs_private "")
endif()
configure_file(cmake/tiermem.pc.in ${PROJECT_BINARY_DIR}/tiermem.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tiermem.pc DESTINATION ${pc_dir})
