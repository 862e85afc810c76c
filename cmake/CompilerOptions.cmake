# One interface target with the warnings and numerics flags of every translation unit.
add_library(deepinfer_options INTERFACE)
target_include_directories(deepinfer_options INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
# -ffp-contract=off: fused multiply-adds happen only where the code asks for them, so that two instantiations of one
# kernel (decode and prefill) round alike. Promise 1 of docs/architecture.md depends on it.
target_compile_options(deepinfer_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Werror;-ffp-contract=off;-fno-math-errno>")
if(DEEPINFER_SANITIZE)
  target_compile_options(deepinfer_options INTERFACE -fsanitize=${DEEPINFER_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(deepinfer_options INTERFACE -fsanitize=${DEEPINFER_SANITIZE})
  if(DEEPINFER_SANITIZE MATCHES "undefined")
    target_compile_options(deepinfer_options INTERFACE -fno-sanitize-recover=undefined)
  endif()
endif()

# deepinfer_room(NAME sources... [LINK libs...]): the static library of one room under src/.
function(deepinfer_room name)
  cmake_parse_arguments(ROOM "" "" "LINK" ${ARGN})
  add_library(deepinfer_${name} STATIC ${ROOM_UNPARSED_ARGUMENTS})
  target_link_libraries(deepinfer_${name} PUBLIC deepinfer_options ${ROOM_LINK})
endfunction()

# deepinfer_test(NAME sources... LINK libs...): one GoogleTest binary, registered with CTest as a whole.
function(deepinfer_test name)
  cmake_parse_arguments(TEST "" "" "LINK" ${ARGN})
  add_executable(${name} ${TEST_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE deepinfer_options ${TEST_LINK} GTest::gtest GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})  # tests/allocation_counter.h
  target_compile_definitions(${name} PRIVATE DEEPINFER_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 900 ENVIRONMENT
    "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tools/leaks.supp:print_suppressions=0")
endfunction()
