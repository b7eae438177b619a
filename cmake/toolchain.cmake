# Compiler launcher, linker, warnings and sanitizers: what every target shares.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# -O2, not -O3: nothing of ours is hot enough to pay for the longer build; generated code has its own optimiser.
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
set(CMAKE_C_FLAGS_RELEASE "-O2")

find_program(HEDDLE_CCACHE ccache)
if(HEDDLE_CCACHE)
  # base_dir and hash_dir make hits independent of the build directory and of the place of the clone.
  # The sloppiness is what precompiled headers ask for (ccache's manual).
  set(launcher ${CMAKE_COMMAND} -E env "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}" CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${HEDDLE_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()

find_program(HEDDLE_MOLD mold)
if(HEDDLE_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# Lets ccache see through precompiled headers.
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
add_compile_options(-Wall -Wextra -Wno-unused-parameter -Werror=return-type)

set(HEDDLE_SANITIZE "" CACHE STRING "Sanitizers for every target, as -fsanitize takes them")
option(HEDDLE_FUZZ "Instruments every target for libFuzzer, which drives the programs of tests/fuzz; needs Clang" OFF)
if(HEDDLE_SANITIZE)
  # A finding ends the program. `vptr` needs RTTI, which LLVM lacks.
  set(sanitize -fsanitize=${HEDDLE_SANITIZE} -fno-sanitize-recover=all -fno-sanitize=vptr -fno-omit-frame-pointer)
  add_compile_options(${sanitize})
  add_link_options(${sanitize})
  # The standard library checks indices, iterators and optionals.
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
endif()
if(HEDDLE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
