// Writes the module of test_module.h to the path of the first argument, for the C program.
#include <fstream>

#include "tests/runtime/test_module.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::ofstream file(argv[1], std::ios::binary);
  file << heddle::runtime::SerializeModule(heddle::runtime::MakeTestModule());
  return file.flush() ? 0 : 1;
}
