// Writes a module of test_module.h to the path of the first argument, for the C program: "rows" as the second argument asks for
// the one with independent rows.
#include <fstream>
#include <string_view>

#include "tests/runtime/test_module.h"

int main(int argc, char** argv) {
  using namespace heddle::runtime;
  if (argc != 2 && !(argc == 3 && std::string_view(argv[2]) == "rows")) return 2;
  Module module = argc == 2 ? MakeTestModule() : MakeRowsModule();
  if (argc == 3) module.manifest.inputs[0].columns = {"height", "depth", "weight", "width"};
  std::ofstream file(argv[1], std::ios::binary);
  file << SerializeModule(module);
  return file.flush() ? 0 : 1;
}
