// The files that a stage may touch. Landlock and the view of namespaces enforce the same list.
#pragma once

#include <string>

namespace heddle::worker::confine {

enum class Access {
  kRead,     // a file or a folder with all that is in it: list and read
  kWrite,    // a folder: also write the files that are in it, but make, rename and remove none
  kPrivate,  // a folder: also make, write, rename and remove files and folders in it
  kDevice,   // a device: read, write, control
};

struct PathRule {
  std::string path;  // absolute; a path that does not exist gives nothing
  Access access = Access::kRead;
};

}  // namespace heddle::worker::confine
