# Debian's package of oneDNN asks for OpenCL's headers and loader, on which it does not depend, and ends the configuration of whoever lacks
# them. Whoever has it for other work must not lose this build.
find_file(HEDDLE_DNNL_CONFIG dnnl-config.cmake HINTS ${dnnl_DIR} PATHS ${CMAKE_PREFIX_PATH} ${CMAKE_SYSTEM_PREFIX_PATH}
  PATH_SUFFIXES lib/${CMAKE_LIBRARY_ARCHITECTURE}/cmake/dnnl lib/cmake/dnnl)
if(HEDDLE_DNNL_CONFIG)
  file(READ ${HEDDLE_DNNL_CONFIG} config)
  find_package(OpenCL QUIET)
  if(config MATCHES "OpenCL" AND NOT OpenCL_FOUND)
    message(STATUS "oneDNN is left out of the benchmarks: it needs OpenCL, which deploy/setup.sh --bench installs")
  else()
    find_package(dnnl CONFIG QUIET)
  endif()
endif()
