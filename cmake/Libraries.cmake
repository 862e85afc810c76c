# Third-party libraries, all from Debian 12; static archives where Debian ships them, so that the binary can be copied.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 REQUIRED)

# deepinfer_static(TARGET archive...): an interface target that links the given archives of the system library folder.
function(deepinfer_static target)
  add_library(${target} INTERFACE)
  foreach(archive ${ARGN})
    find_library(${target}_${archive} NAMES lib${archive}.a ${archive} REQUIRED)
    target_link_libraries(${target} INTERFACE ${${target}_${archive}})
  endforeach()
endfunction()

# Highway and fmt have no archive in Debian: base/fmt_runtime.cc compiles what of fmt is not in its headers once, and
# ops/cpu/highway_runtime.cc stands in for Highway's small library.
add_library(lib_fmt INTERFACE)
target_link_libraries(lib_fmt INTERFACE deepinfer_base)
deepinfer_static(lib_pcre2 pcre2-8)
deepinfer_static(lib_icu icuuc icudata)
target_link_libraries(lib_icu INTERFACE dl)
deepinfer_static(lib_edit edit bsd md tinfo)
deepinfer_static(lib_sqlite sqlite3)
target_link_libraries(lib_sqlite INTERFACE m dl Threads::Threads)
deepinfer_static(lib_openssl ssl crypto)
target_link_libraries(lib_openssl INTERFACE dl Threads::Threads)
deepinfer_static(lib_uring uring)
deepinfer_static(lib_hiredis hiredis)
# Asio and Beast are headers; server/asio_runtime.cc compiles once what need not be in them.
find_package(Boost 1.81 REQUIRED)
add_library(lib_asio INTERFACE)
target_link_libraries(lib_asio INTERFACE Boost::headers lib_openssl)
target_compile_definitions(lib_asio INTERFACE BOOST_ASIO_SEPARATE_COMPILATION BOOST_BEAST_SEPARATE_COMPILATION
                                              BOOST_ASIO_NO_DEPRECATED)
# Where sanitizers change what is inlined, GCC 12 sees malloc in the new of Asio's coroutine frames, but not their delete.
target_compile_options(lib_asio INTERFACE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-mismatched-new-delete>")
if(DEEPINFER_TESTS)
  find_package(GTest REQUIRED)
endif()
if(DEEPINFER_BENCH)
  find_package(benchmark REQUIRED)
endif()
