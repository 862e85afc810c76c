# cmake --install: the program, the C++ library with its headers and package (docs/cpp-api.md), the licences.
#
# The library is one archive, libdeepinfer.a: the rooms below the engine and the archives of the third parties they use, so
# that whoever links it needs to know none of them.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Appends to `archives` and `libraries` what linking `item` takes: files for the archive, and names for the linker.
function(deepinfer_collect item archives libraries)
  set(found_archives ${${archives}})
  set(found_libraries ${${libraries}})
  if(item MATCHES "^\\$<" OR item IN_LIST found_libraries OR item IN_LIST found_archives)
    # Compile-time only, or known.
  elseif(item STREQUAL "Threads::Threads")
    list(APPEND found_libraries ${item})
  elseif(TARGET ${item})
    get_target_property(type ${item} TYPE)
    if(NOT "$<TARGET_FILE:${item}>" IN_LIST found_archives)
      if(type STREQUAL "STATIC_LIBRARY")
        list(APPEND found_archives "$<TARGET_FILE:${item}>")
      endif()
      get_target_property(links ${item} INTERFACE_LINK_LIBRARIES)
      foreach(link ${links})
        if(link)
          deepinfer_collect("${link}" found_archives found_libraries)
        endif()
      endforeach()
    endif()
  elseif(item MATCHES "\\.a$")
    list(APPEND found_archives ${item})
  elseif(NOT item MATCHES "^-")
    list(APPEND found_libraries ${item})
  endif()
  set(${archives} ${found_archives} PARENT_SCOPE)
  set(${libraries} ${found_libraries} PARENT_SCOPE)
endfunction()

set(engine_archives)
set(engine_libraries)
deepinfer_collect(deepinfer_engine engine_archives engine_libraries)
list(TRANSFORM engine_archives PREPEND "ADDLIB ")
list(JOIN engine_archives "\n" add_archives)
set(merged ${PROJECT_BINARY_DIR}/install/libdeepinfer.a)
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/install/merge.mri
  CONTENT "CREATE ${merged}\n${add_archives}\nSAVE\nEND\n")
# Merged when it is installed: builds for tests do without.
install(CODE "execute_process(COMMAND \"${CMAKE_AR}\" -M INPUT_FILE \"${PROJECT_BINARY_DIR}/install/merge.mri\"
  COMMAND_ERROR_IS_FATAL ANY)" COMPONENT development)
install(FILES ${merged} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(DIRECTORY include/deepinfer DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)

set(DEEPINFER_LINK_LIBRARIES ${engine_libraries})
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/deepinfer)
configure_package_config_file(cmake/deepinferConfig.cmake.in ${PROJECT_BINARY_DIR}/install/deepinferConfig.cmake
  INSTALL_DESTINATION ${package} PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/install/deepinferConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/install/deepinferConfig.cmake ${PROJECT_BINARY_DIR}/install/deepinferConfigVersion.cmake
  DESTINATION ${package} COMPONENT development)

install(TARGETS deepinfer RUNTIME COMPONENT program)
foreach(component program development)
  install(FILES LICENSE THIRD_PARTY.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT ${component})
  # Their terms ask that binaries come with them.
  foreach(third_party libpcre2-dev libicu-dev libfmt-dev libhwy-dev nlohmann-json3-dev libxxhash-dev)
    install(FILES /usr/share/doc/${third_party}/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR}
      RENAME copyright-${third_party} COMPONENT ${component} OPTIONAL)
  endforeach()
endforeach()
foreach(third_party libcli11-dev libedit-dev libbsd-dev libmd-dev libncurses-dev)
  install(FILES /usr/share/doc/${third_party}/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR}
    RENAME copyright-${third_party} COMPONENT program OPTIONAL)
endforeach()
