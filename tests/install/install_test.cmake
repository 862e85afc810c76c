# cmake -D BUILD=... -D SOURCE=... -D WORK=... -D COMPILER=... -D GENERATOR=... -P install_test.cmake
#
# Installs, moves the result elsewhere, builds examples/cpp against it with plain CMake, and lets the example and the
# installed program continue the same text on Nano: they must agree.
function(run out)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE status TIMEOUT 600)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGN}: status ${status}\n${output}\n${errors}")
  endif()
  set(${out} "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK})
run(ignored ${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
file(RENAME ${WORK}/first ${WORK}/prefix)
foreach(file bin/deepinfer share/doc/deepinfer/LICENSE share/doc/deepinfer/THIRD_PARTY.md)
  if(NOT EXISTS ${WORK}/prefix/${file})
    message(FATAL_ERROR "not installed: ${file}")
  endif()
endforeach()

run(ignored ${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE}/examples/cpp -B ${WORK}/example
  -D CMAKE_PREFIX_PATH=${WORK}/prefix -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_CXX_FLAGS=-Wall\ -Wextra\ -Werror)
run(ignored ${CMAKE_COMMAND} --build ${WORK}/example)
set(text "Once upon a time")
run(answer ${WORK}/example/answer ${SOURCE}/models/nano ${text})
run(generated ${WORK}/prefix/bin/deepinfer generate --model ${SOURCE}/models/nano --temperature 0 --max-tokens 40 ${text})
string(STRIP "${generated}" generated)
set(expected "${generated}\n5 prompt tokens, 40 generated, length\n")
if(generated STREQUAL "" OR NOT answer STREQUAL expected)
  message(FATAL_ERROR "the example printed\n${answer}\nbut expected is\n${expected}")
endif()

execute_process(COMMAND ${WORK}/example/answer ${WORK}/no-model ${text} ERROR_VARIABLE errors RESULT_VARIABLE status)
if(NOT status EQUAL 1 OR NOT errors MATCHES "^answer: .*no-model")
  message(FATAL_ERROR "a folder that is not there: status ${status}, ${errors}")
endif()
file(REMOVE_RECURSE ${WORK})
