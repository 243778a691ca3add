# The three helpers of this project. One interface target holds everything that is common to a build:
# language standard, warnings, sanitizers, hardening and the root include path.

set(VGPU_SANITIZE "" CACHE STRING "sanitizers for everything that can carry them: empty, 'address,undefined' or 'thread'")
option(VGPU_WERROR "warnings are errors" OFF)

find_program(VGPU_CCACHE ccache)
if(VGPU_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${VGPU_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${VGPU_CCACHE})
endif()

# What an installed file's path depends on. The limiter's directory carries the version, so that an upgrade never
# touches a file that a running container has mapped.
set(VGPU_LIBRARY_DIR /usr/lib/vgpu/${PROJECT_VERSION})
set(VGPU_LIBEXEC_DIR /usr/libexec/vgpu)

# Warnings and language standard: for all code, the limiter and the stand-in driver included.
add_library(vgpu_language INTERFACE)
target_compile_features(vgpu_language INTERFACE cxx_std_20 c_std_11)
target_include_directories(vgpu_language INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(vgpu_language INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor -Woverloaded-virtual>
  $<$<BOOL:${VGPU_WERROR}>:-Werror>)

add_library(vgpu_options INTERFACE)
target_link_libraries(vgpu_options INTERFACE vgpu_language)
target_compile_definitions(vgpu_options INTERFACE
  VGPU_VERSION="${PROJECT_VERSION}" VGPU_LIBRARY_DIR="${VGPU_LIBRARY_DIR}" VGPU_LIBEXEC_DIR="${VGPU_LIBEXEC_DIR}")
target_compile_options(vgpu_options INTERFACE -fstack-protector-strong)
if(VGPU_SANITIZE)
  target_compile_options(vgpu_options INTERFACE -fsanitize=${VGPU_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(vgpu_options INTERFACE -fsanitize=${VGPU_SANITIZE})
else()
  target_compile_definitions(vgpu_options INTERFACE $<$<NOT:$<CONFIG:Debug>>:_FORTIFY_SOURCE=2>)
endif()

# vgpu_library(name sources... [LINK libraries...]): static library vgpu_<name>, alias vgpu::<name>.
function(vgpu_library name)
  cmake_parse_arguments(PARSE_ARGV 1 A "" "" "LINK")
  add_library(vgpu_${name} STATIC ${A_UNPARSED_ARGUMENTS})
  add_library(vgpu::${name} ALIAS vgpu_${name})
  target_link_libraries(vgpu_${name} PUBLIC ${A_LINK} PRIVATE vgpu_options)
  target_include_directories(vgpu_${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_compile_features(vgpu_${name} PUBLIC cxx_std_20)
endfunction()

# vgpu_test(name sources... [LINK libraries...] [LABELS labels...]): a GoogleTest program, run by ctest.
function(vgpu_test name)
  cmake_parse_arguments(PARSE_ARGV 1 A "" "" "LINK;LABELS")
  find_package(GTest REQUIRED)
  add_executable(${name} ${A_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${A_LINK} vgpu_options GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  if(NOT A_LABELS)
    set(A_LABELS unit)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${A_LABELS}" TIMEOUT 300)
endfunction()

# vgpu_man(page.scd COMPONENT package): a manual page from scdoc source, installed with its package.
function(vgpu_man page)
  cmake_parse_arguments(PARSE_ARGV 1 A "" "COMPONENT" "")
  find_program(VGPU_SCDOC scdoc)
  if(NOT VGPU_SCDOC)
    return()
  endif()
  get_filename_component(base ${page} NAME_WLE)
  string(REGEX MATCH "[0-9]$" section ${base})
  add_custom_command(OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${base}
    COMMAND sh -c "scdoc < '${CMAKE_CURRENT_SOURCE_DIR}/${page}' > '${CMAKE_CURRENT_BINARY_DIR}/${base}'"
    DEPENDS ${page} VERBATIM)
  add_custom_target(man-${base} ALL DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/${base})
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${base} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section} COMPONENT ${A_COMPONENT})
endfunction()
