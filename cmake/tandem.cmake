# Programs land in <build>/bin, shared objects in <build>/lib, test programs in <build>/bin/tests.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

# Line tables are enough for a backtrace, and a quarter of the compile time and half of the objects
# less than full information, which the debug preset has.
if(TANDEM_SANITIZE OR NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  add_compile_options(-g1)
endif()

# For a folder in which programs and tests spend their time. Sanitized code elsewhere, and all tests,
# are not optimised, which takes half as long to compile.
macro(tandem_hot_folder)
  set(tandem_hot TRUE)
  if(TANDEM_SANITIZE)
    add_compile_options(-O1)
  endif()
endmacro()

# What most files include, compiled once for libraries and once for tests: parsing it is half of what
# a small file costs. The debug preset has none, so that there, and for clang-tidy,
# every file must include what it needs.
set(CMAKE_CXX_COMPILE_OPTIONS_PIE -fPIC)  # one kind of code, so that one set of headers will do
set(common_headers
  <algorithm> <array> <atomic> <chrono> <condition_variable> <cstring> <deque> <functional> <map>
  <memory> <mutex> <optional> <random> <set> <span> <string> <string_view> <thread> <unordered_map>
  <unordered_set> <variant> <vector>)
file(CONFIGURE OUTPUT headers.cc CONTENT "// Where compiled headers belong.\n")
add_library(library_headers OBJECT ${CMAKE_BINARY_DIR}/headers.cc)
target_precompile_headers(library_headers PRIVATE ${common_headers})
add_library(test_headers OBJECT ${CMAKE_BINARY_DIR}/headers.cc)
target_link_libraries(test_headers PRIVATE GTest::gtest)
target_compile_options(test_headers PRIVATE -O0)
target_precompile_headers(test_headers PRIVATE ${common_headers} <filesystem> <fstream> <gtest/gtest.h>)

# Several files as one, which compiles faster (asan: 583 s of CPU time for 810): all tests, everything under a
# sanitizer, and libraries. What they keep to themselves must bear different names then.
# Not in the debug preset.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)
if(TANDEM_SANITIZE OR NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(tandem_unity ON)
endif()

# One target per test tier, so that a sanitizer build makes only the test programs it will run.
add_custom_target(unit_tests)
add_custom_target(driver_tests)

# tandem_library(NAME SOURCES... DEPS...): a static library, src/<folder> or softgpu, with its unit tests.
#
#   tandem_library(core SOURCES arbiter.cc DEPS base TESTS arbiter_test.cc)
#
# makes tandem_core, linked to tandem_base, and one test program core_test, registered with CTest
# under the label `unit`. SHARDS 2: CTest runs it as two processes, with half of the tests each. HEADERS: the library's own that nearly all its files include, compiled once.
function(tandem_library name)
  cmake_parse_arguments(ARG "" "SHARDS" "SOURCES;HEADERS;DEPS;LIBS;TESTS" ${ARGN})
  add_library(tandem_${name} STATIC ${ARG_SOURCES})
  foreach(dep ${ARG_DEPS})
    target_link_libraries(tandem_${name} PUBLIC tandem_${dep})
  endforeach()
  target_link_libraries(tandem_${name} PUBLIC ${ARG_LIBS} Threads::Threads)
  set_target_properties(tandem_${name} PROPERTIES LINKER_LANGUAGE CXX)
  if(tandem_unity)
    set_target_properties(tandem_${name} PROPERTIES UNITY_BUILD ON)
  endif()
  if(ARG_HEADERS)
    target_precompile_headers(tandem_${name} PRIVATE ${common_headers} ${ARG_HEADERS})
  elseif(NOT TANDEM_SANITIZE OR NOT tandem_hot)
    target_precompile_headers(tandem_${name} REUSE_FROM library_headers)
  endif()
  if(ARG_TESTS)
    tandem_test(${name}_test LABEL unit SHARDS ${ARG_SHARDS} SOURCES ${ARG_TESTS} DEPS ${name})
  endif()
endfunction()

# tandem_test(NAME LABEL unit SOURCES ... DEPS ...): a GoogleTest program, run as one CTest test.
# LABEL is `unit` or `driver`; driver tests share a device, so they never run beside each other.
# Where tandem_one_thread is set, the tested code has no threads that the thread sanitizer could watch.
function(tandem_test name)
  if(tandem_one_thread AND TANDEM_SANITIZE MATCHES "thread")
    return()
  endif()
  cmake_parse_arguments(ARG "" "LABEL;SHARDS" "SOURCES;DEPS;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  foreach(dep ${ARG_DEPS})
    target_link_libraries(${name} PRIVATE tandem_${dep})
  endforeach()
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/tests)
  if(tandem_unity)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON)
  endif()
  # SHELL: or it would be left out where it was said before. Tests with shards run for minutes, not optimised.
  if(ARG_SHARDS)
    target_compile_options(${name} PRIVATE "SHELL:-O1")
  else()
    target_compile_options(${name} PRIVATE "SHELL:-O0")
    target_precompile_headers(${name} REUSE_FROM test_headers)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT 1200)
  if(ARG_SHARDS EQUAL 2)
    # The report of the second half has a name of its own, which tools/tally.py counts as the same program's.
    add_test(NAME ${name}_1 COMMAND sh -c
      "GTEST_OUTPUT=\${GTEST_OUTPUT:+\${GTEST_OUTPUT}${name}_1.xml} exec $<TARGET_FILE:${name}>")
    set_tests_properties(${name}_1 PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT 1200)
    set_property(TEST ${name} ${name}_1 PROPERTY ENVIRONMENT GTEST_TOTAL_SHARDS=2)
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT GTEST_SHARD_INDEX=0)
    set_property(TEST ${name}_1 APPEND PROPERTY ENVIRONMENT GTEST_SHARD_INDEX=1)
  endif()
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

# A unit of systemd, which names the programs. The prefix of the installation may not be the build's.
function(tandem_unit kind unit)
  set(template ${PROJECT_SOURCE_DIR}/packaging/systemd/${kind}/${unit}.in)
  configure_file(${template} ${PROJECT_BINARY_DIR}/systemd/${kind}/${unit} @ONLY)
  install(CODE "
    set(CMAKE_INSTALL_FULL_BINDIR \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")
    configure_file(\"${template}\" \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/systemd/${kind}/${unit}\" @ONLY)")
endfunction()
