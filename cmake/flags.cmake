# Compile flags as a target, so that nothing is set globally. CKPT_SANITIZE: address, thread or "".
set(CKPT_SANITIZE "" CACHE STRING "address (with undefined), thread, or empty")
option(CKPT_WERROR "warnings are errors" OFF)
option(CKPT_COVERAGE "instrument for gcov" OFF)
option(CKPT_FUZZ "build the libFuzzer programs (clang)" OFF)

# What every C file here is held to, our tools for tests as well.
add_library(ckpt_warnings INTERFACE)
target_compile_features(ckpt_warnings INTERFACE c_std_17)
target_compile_definitions(ckpt_warnings INTERFACE _GNU_SOURCE _FILE_OFFSET_BITS=64)
target_compile_options(ckpt_warnings INTERFACE
  -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wconversion -Wformat=2 -Wundef
  -Wvla -Wwrite-strings -Wpointer-arith)
if(CKPT_WERROR)
  target_compile_options(ckpt_warnings INTERFACE -Werror)
endif()

add_library(ckpt_flags INTERFACE)
target_link_libraries(ckpt_flags INTERFACE ckpt_warnings)
target_include_directories(ckpt_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_definitions(ckpt_flags INTERFACE CKPT_VERSION="${PROJECT_VERSION}")
target_compile_options(ckpt_flags INTERFACE -fstack-protector-strong -fstack-clash-protection -fPIE)
target_link_options(ckpt_flags INTERFACE -Wl,-z,relro,-z,now -pie)
if(CKPT_COVERAGE)
  target_compile_options(ckpt_flags INTERFACE --coverage)
  target_link_options(ckpt_flags INTERFACE --coverage)
endif()
if(CKPT_SANITIZE STREQUAL "address")
  target_compile_options(ckpt_flags INTERFACE -fsanitize=address,undefined
                         -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  target_link_options(ckpt_flags INTERFACE -fsanitize=address,undefined)
  target_compile_options(ckpt_flags INTERFACE -UNDEBUG)
elseif(CKPT_SANITIZE STREQUAL "thread")
  target_compile_options(ckpt_flags INTERFACE -fsanitize=thread)
  target_link_options(ckpt_flags INTERFACE -fsanitize=thread)
else()
  target_compile_definitions(ckpt_flags INTERFACE $<$<NOT:$<CONFIG:Debug>>:_FORTIFY_SOURCE=2>)
endif()

# Coverage feedback for libFuzzer; only the fuzz programs themselves bring its main.
if(CKPT_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "CKPT_FUZZ needs clang: cmake --preset fuzz")
  endif()
  target_compile_options(ckpt_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# A folder's library: every .c in it, but main.c and those named in EXCEPT.
function(ckpt_library name)
  cmake_parse_arguments(ARG "" "" "EXCEPT;LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} *.c)
  list(REMOVE_ITEM sources main.c ${ARG_EXCEPT})
  add_library(ckpt_${name} STATIC ${sources})
  set_target_properties(ckpt_${name} PROPERTIES C_EXTENSIONS ON)
  target_link_libraries(ckpt_${name} PUBLIC ckpt_flags ${ARG_LINK})
endfunction()
