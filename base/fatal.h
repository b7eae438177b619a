// For mistakes of the programmer that no input can cause.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace heddle {

// Prints the line to standard error and ends the process.
[[noreturn]] inline void Fatal(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::abort();
}

}  // namespace heddle
