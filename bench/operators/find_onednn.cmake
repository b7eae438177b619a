# Debian's package of oneDNN ends the configuration of whoever asks for it without OpenCL's headers and loader, which it does not depend
# on. Whoever has it for other work must not lose this build.
find_package(OpenCL QUIET)
if(OpenCL_FOUND)
  find_package(dnnl CONFIG QUIET)
else()
  message(STATUS "oneDNN is left out of the benchmarks: it needs OpenCL, which deploy/setup.sh --bench installs")
endif()
