# Programs land in <build>/bin, shared objects in <build>/lib, test programs in <build>/bin/tests.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

# Line tables are enough for a backtrace, and a quarter of the compile time and half of the objects
# less than full information, which the debug preset has.
if(TANDEM_SANITIZE OR NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  add_compile_options(-g1)
endif()

# For a folder in which programs or tests spend their time. Elsewhere tests and sanitized code are not
# optimised, which takes half as long to compile.
macro(tandem_hot_folder)
  set(tandem_hot TRUE)
  if(TANDEM_SANITIZE)
    add_compile_options(-O1)
  endif()
endmacro()

# Sanitized code finds the large headers compiled. The release build has none, so that every file
# includes what it needs.
if(TANDEM_SANITIZE)
  set(CMAKE_CXX_COMPILE_OPTIONS_PIE -fPIC)  # one kind of code, so that one set of headers will do
  add_compile_definitions(GTEST_HAS_PTHREAD=1)  # as gtest has it in its programs
  file(WRITE ${CMAKE_BINARY_DIR}/headers.cc "")
  add_library(tandem_headers OBJECT ${CMAKE_BINARY_DIR}/headers.cc)
  target_precompile_headers(tandem_headers PRIVATE
    <algorithm> <array> <atomic> <chrono> <condition_variable> <deque> <functional> <map> <memory>
    <mutex> <optional> <random> <set> <span> <string> <string_view> <thread> <unordered_map>
    <unordered_set> <variant> <vector> <gtest/gtest.h>)
endif()
function(tandem_take_headers target)
  if(TANDEM_SANITIZE AND NOT tandem_hot)
    target_precompile_headers(${target} REUSE_FROM tandem_headers)
  endif()
endfunction()

# One target per test tier, so that a sanitizer build makes only the test programs it will run.
add_custom_target(unit_tests)
add_custom_target(driver_tests)

# tandem_library(NAME SOURCES... DEPS...): a static library src/<folder> with its unit tests.
#
#   tandem_library(core SOURCES arbiter.cc DEPS base TESTS arbiter_test.cc)
#
# makes tandem_core, linked to tandem_base, and one test program core_test, registered with CTest
# under the label `unit`.
function(tandem_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LIBS;TESTS" ${ARGN})
  add_library(tandem_${name} STATIC ${ARG_SOURCES})
  foreach(dep ${ARG_DEPS})
    target_link_libraries(tandem_${name} PUBLIC tandem_${dep})
  endforeach()
  target_link_libraries(tandem_${name} PUBLIC ${ARG_LIBS} Threads::Threads)
  set_target_properties(tandem_${name} PROPERTIES LINKER_LANGUAGE CXX)
  tandem_take_headers(tandem_${name})
  if(ARG_TESTS)
    tandem_test(${name}_test LABEL unit SOURCES ${ARG_TESTS} DEPS ${name})
  endif()
endfunction()

# tandem_test(NAME LABEL unit SOURCES ... DEPS ...): a GoogleTest program, run as one CTest test.
# LABEL is `unit` or `driver`; driver tests share a device, so they never run beside each other.
# Where tandem_one_thread is set, what is tested has no threads that the thread sanitizer could watch.
function(tandem_test name)
  if(tandem_one_thread AND TANDEM_SANITIZE MATCHES "thread")
    return()
  endif()
  cmake_parse_arguments(ARG "" "LABEL" "SOURCES;DEPS;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  foreach(dep ${ARG_DEPS})
    target_link_libraries(${name} PRIVATE tandem_${dep})
  endforeach()
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/tests)
  if(TANDEM_SANITIZE OR NOT tandem_hot)
    # SHELL: or it would be left out where it was said before.
    target_compile_options(${name} PRIVATE "SHELL:-O0")
  endif()
  if(TANDEM_SANITIZE)
    target_precompile_headers(${name} REUSE_FROM tandem_headers)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT 300)
  if(ARG_LABEL STREQUAL "driver")
    set_tests_properties(${name} PROPERTIES RESOURCE_LOCK device)
  endif()
  add_dependencies(${ARG_LABEL}_tests ${name})
endfunction()

# tandem_bench(NAME SOURCES ... DEPS ... LIBS ...): a benchmark, the program bench_NAME, run by
# `./dev bench NAME`.
function(tandem_bench name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LIBS" ${ARGN})
  add_executable(bench_${name} ${ARG_SOURCES})
  foreach(dep ${ARG_DEPS})
    target_link_libraries(bench_${name} PRIVATE tandem_${dep})
  endforeach()
  target_link_libraries(bench_${name} PRIVATE ${ARG_LIBS} benchmark::benchmark)
endfunction()
