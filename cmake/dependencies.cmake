# Every third-party package, each as one imported target.

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(Protobuf REQUIRED)
find_package(absl REQUIRED CONFIG)
find_package(spdlog REQUIRED CONFIG)
find_package(CLI11 REQUIRED CONFIG)
find_package(nlohmann_json REQUIRED CONFIG)
find_package(SQLite3 REQUIRED)
find_package(GTest REQUIRED)
find_package(ZLIB REQUIRED)
find_package(CURL REQUIRED)  # spans for a collector of OpenTelemetry
find_package(OpenSSL REQUIRED)  # SHA-256 digests of uploads
find_library(Z3_LIBRARY z3 REQUIRED)  # the SMT solver of heddle-rules
pkg_check_modules(GRPCPP REQUIRED IMPORTED_TARGET grpc++)
find_library(GRPCPP_REFLECTION grpc++_reflection REQUIRED)  # no pkg-config file
pkg_check_modules(LIBPQ REQUIRED IMPORTED_TARGET libpq)  # the store in PostgreSQL
pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd)  # pages and metrics
pkg_check_modules(PROMETHEUS REQUIRED IMPORTED_TARGET prometheus-cpp-core)  # counters and their text format
find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)

# A fixed path: find_package(LLVM 19) refuses Debian's version file, and another LLVM may be installed beside it.
find_package(LLVM REQUIRED CONFIG PATHS /usr/lib/llvm-19/lib/cmake/llvm NO_DEFAULT_PATH)
add_library(heddle::llvm INTERFACE IMPORTED)
target_include_directories(heddle::llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
target_link_libraries(heddle::llvm INTERFACE LLVM)

# LLD as a library links a kernel's object code to a shared object in under a millisecond.
find_library(LLD_ELF lldELF PATHS /usr/lib/llvm-19/lib REQUIRED NO_DEFAULT_PATH)
find_library(LLD_COMMON lldCommon PATHS /usr/lib/llvm-19/lib REQUIRED NO_DEFAULT_PATH)
add_library(heddle::lld INTERFACE IMPORTED)
target_link_libraries(heddle::lld INTERFACE ${LLD_ELF} ${LLD_COMMON} heddle::llvm z zstd)

# Debian's XGBoost CMake config wants a binary that is not packaged.
find_path(XGBOOST_INCLUDE xgboost/c_api.h REQUIRED)
find_library(XGBOOST_LIBRARY xgboost REQUIRED)
add_library(heddle::xgboost INTERFACE IMPORTED)
target_include_directories(heddle::xgboost SYSTEM INTERFACE ${XGBOOST_INCLUDE})
target_link_libraries(heddle::xgboost INTERFACE ${XGBOOST_LIBRARY})

find_path(XXHASH_INCLUDE xxhash.h REQUIRED)  # used header-only (XXH_INLINE_ALL)
find_path(TOMLPLUSPLUS_INCLUDE toml++/toml.h REQUIRED)  # used header-only

find_package(CUDAToolkit QUIET)  # optional; the CUDA back end needs NVRTC only
