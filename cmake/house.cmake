# The three kinds of target. A library is named after its folder: compiler/ir is heddle_ir.

# What nearly every file includes is compiled once: the standard library's containers and Abseil's status. Rooms that speak proto add the
# generated messages, tests add GoogleTest.
# A header still includes what it uses: tests/house/headers.py checks that.
function(heddle_precompile name flags)
  file(WRITE ${CMAKE_BINARY_DIR}/precompiled/${name}.cc "")
  add_library(${name} OBJECT ${CMAKE_BINARY_DIR}/precompiled/${name}.cc)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE ${flags})
  get_target_property(launcher ${name} CXX_COMPILER_LAUNCHER)
  if(launcher)
    set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER "${CMAKE_SOURCE_DIR}/cmake/make_anew.sh;${launcher}")
  endif()
  target_precompile_headers(${name} PRIVATE <algorithm> <cstdint> <functional> <map> <memory> <optional> <set> <string> <string_view>
    <unordered_map> <utility> <variant> <vector> <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/strings/str_join.h>
    <absl/time/time.h> ${ARGN})
endfunction()
set(messages <deque> <mutex> <unordered_set> <absl/synchronization/mutex.h> <proto/common.pb.h> <proto/jobs.pb.h> <proto/store.pb.h> <proto/tracker.pb.h>
  <proto/worker.pb.h>)
set(google_test <gtest/gtest.h> <gmock/gmock.h>)
heddle_precompile(heddle_precompiled -fPIC)
heddle_precompile(heddle_precompiled_proto -fPIC ${messages})
heddle_precompile(heddle_precompiled_test -fPIE ${google_test})
heddle_precompile(heddle_precompiled_proto_test -fPIE ${google_test} ${messages})
foreach(name heddle_precompiled_test heddle_precompiled_proto_test)
  target_link_libraries(${name} PRIVATE GTest::gmock GTest::gtest)  # the same macros as the tests
endforeach()
foreach(name heddle_precompiled_proto heddle_precompiled_proto_test)
  target_link_libraries(${name} PRIVATE heddle_proto_messages)
endforeach()

# Whether one of these libraries has the generated messages in its interface.
function(heddle_speaks_proto result)
  set(${result} FALSE PARENT_SCOPE)
  foreach(library ${ARGN})
    if(library STREQUAL "heddle_proto_messages")
      set(${result} TRUE PARENT_SCOPE)
      return()
    elseif(library MATCHES "^heddle_" AND TARGET ${library})
      get_target_property(behind ${library} INTERFACE_LINK_LIBRARIES)
      if(behind)
        heddle_speaks_proto(found ${behind})
        if(found)
          set(${result} TRUE PARENT_SCOPE)
          return()
        endif()
      endif()
    endif()
  endforeach()
endfunction()

# Gives the target the precompiled header for what it links. `suffix`: "_test" for tests.
function(heddle_reuse_precompiled name suffix)
  heddle_speaks_proto(proto ${ARGN})
  if(proto)
    target_precompile_headers(${name} REUSE_FROM heddle_precompiled_proto${suffix})
  else()
    target_precompile_headers(${name} REUSE_FROM heddle_precompiled${suffix})
  endif()
endfunction()

# Several sources of a target are compiled as one file, which parses a header and instantiates a template once for all of them. So names
# outside of functions, in unnamed namespaces too, differ among the sources of a target, and a macro ends where it was needed (#undef).
option(HEDDLE_UNITY "Compiles several sources as one: all is built sooner, a source that is edited again and again later" ON)

# heddle_unite(TARGET MOST [ALONE ..]): at most MOST sources are one file; those that are ALONE stay by themselves. MOST bounds the memory
# of a compiler (1.5 GB), and leaves files enough for two cores.
function(heddle_unite name most)
  get_target_property(sources ${name} SOURCES)
  if(ARGN)
    set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    list(REMOVE_ITEM sources ${ARGN})
  endif()
  list(FILTER sources INCLUDE REGEX "\\.cc$")
  list(LENGTH sources count)
  if(NOT HEDDLE_UNITY OR count LESS 2)
    return()
  endif()
  # Files of about the same number of sources.
  math(EXPR files "(${count} + ${most} - 1) / ${most}")
  math(EXPR size "(${count} + ${files} - 1) / ${files}")
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
  # GCC takes a source that is included for a header, whose classes should have no members of unnamed namespaces.
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endfunction()
set(heddle_most_of_library 9)
set(heddle_most_of_test 5)  # tests are longer than other sources

# Programs under ThreadSanitizer: what tells it of Abseil's locks.
if(HEDDLE_SANITIZE STREQUAL "thread")
  add_library(heddle_absl_mutex OBJECT ${CMAKE_SOURCE_DIR}/tests/sanitizers/absl_mutex.cc)
  target_link_libraries(heddle_absl_mutex PRIVATE absl::synchronization)
  set(sanitizer_objects $<TARGET_OBJECTS:heddle_absl_mutex>)
endif()

# heddle_library(name [FOLDERS ..] [EXCLUDE ..] [SOURCES ..] [ALONE ..] LINK .. PRIVATE_LINK ..): without SOURCES, every .cc of this
# folder and of FOLDERS below it but main.cc and EXCLUDE, so that a new file needs no line here. ALONE: as heddle_unite says.
function(heddle_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;FOLDERS;EXCLUDE;ALONE;LINK;PRIVATE_LINK" ${ARGN})
  if(NOT arg_SOURCES)
    set(patterns ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
    foreach(folder ${arg_FOLDERS})
      list(APPEND patterns ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cc)
    endforeach()
    file(GLOB arg_SOURCES CONFIGURE_DEPENDS ${patterns})
    list(REMOVE_ITEM arg_SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/main.cc)
    foreach(file ${arg_EXCLUDE})
      list(REMOVE_ITEM arg_SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/${file})
    endforeach()
  endif()
  add_library(${name} STATIC ${arg_SOURCES})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${arg_LINK} PRIVATE ${arg_PRIVATE_LINK})
  heddle_reuse_precompiled(${name} "" ${arg_LINK})
  if(arg_ALONE)
    list(TRANSFORM arg_ALONE PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  endif()
  heddle_unite(${name} ${heddle_most_of_library} ${arg_ALONE})
endfunction()

function(heddle_binary name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES} ${sanitizer_objects})
  target_link_libraries(${name} PRIVATE ${arg_LINK})
  # -fPIC, to share the precompiled headers of libraries. -O1, since a program's own files wire and print; what takes time is in libraries.
  target_compile_options(${name} PRIVATE -fPIC $<$<CONFIG:Release>:-O1>)
  heddle_reuse_precompiled(${name} "" ${arg_LINK})
  heddle_unite(${name} ${heddle_most_of_library})
  # All binaries in one place, so that --embedded finds its siblings next to itself.
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endfunction()

# Of tests that ctest runs two at a time, these have the machine for themselves: what they measure, or the real time of several daemons,
# would be something else beside another test.
function(heddle_runs_alone)
  set_tests_properties(${ARGN} PROPERTIES PROCESSORS 2)
endfunction()

# heddle_test(name SOURCES ... LINK ... [TIMEOUT s] [LABELS ...]): one GoogleTest program, one ctest entry.
function(heddle_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LINK;LABELS" ${ARGN})
  add_executable(${name} ${arg_SOURCES} ${sanitizer_objects})
  target_link_libraries(${name} PRIVATE ${arg_LINK} GTest::gmock GTest::gtest GTest::gtest_main)
  heddle_reuse_precompiled(${name} "_test" ${arg_LINK})
  # Tests are a half of what is compiled, and a quarter of their time is the second level of optimisation.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  heddle_unite(${name} ${heddle_most_of_test})
  add_test(NAME ${name} COMMAND ${name})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
endfunction()
