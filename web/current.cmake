# Whether src/server/web/index.html was built from the sources of web/. Needs neither node nor npm.
#
#   cmake -P web/current.cmake                 fails when it was not
#   cmake -D REBUILD=1 -P web/current.cmake    builds it anew when esbuild is there, else warns
cmake_minimum_required(VERSION 3.25)

set(web ${CMAKE_CURRENT_LIST_DIR})
set(page ${web}/../src/server/web/index.html)

# What build.mjs lists.
file(GLOB sources RELATIVE ${web} ${web}/src/*.ts)
list(APPEND sources build.mjs index.template.html package-lock.json style.css)
list(SORT sources)
set(list "")
foreach(source ${sources})
  file(SHA256 ${web}/${source} hash)
  string(APPEND list "${source} ${hash}\n")
endforeach()
string(SHA256 wanted "${list}")

file(STRINGS ${page} found REGEX "^<!-- sources [0-9a-f]+ -->$")
if(found STREQUAL "<!-- sources ${wanted} -->")
  return()
endif()
set(remedy "src/server/web/index.html is older than web/: run `npm ci && npm run build` in web/")
if(NOT REBUILD)
  message(FATAL_ERROR "${remedy}")
endif()
find_program(node node)
if(NOT node OR NOT IS_DIRECTORY ${web}/node_modules/esbuild)
  message(WARNING "${remedy}")
  return()
endif()
execute_process(COMMAND ${node} ${web}/build.mjs RESULT_VARIABLE failed OUTPUT_QUIET)
if(failed)
  message(WARNING "web/build.mjs failed: the old page stays")
endif()
