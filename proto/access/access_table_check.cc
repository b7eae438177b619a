// Fails the build if a method of a service in proto/ has no row in the access table, or a row names
// no such method. Usage: access_table_check PROTO..
#include <google/protobuf/descriptor.h>

#include <cstdio>
#include <set>
#include <string>

#include "proto/access/access_table.h"
#include "proto/jobs.pb.h"
#include "proto/store.pb.h"

namespace {

constexpr const char* kTableFile = "proto/access/access_table.cc";

}  // namespace

int main(int argc, char** argv) {
  // These link the descriptors of all files in.
  heddle::v1::JobSpec::descriptor();
  heddle::v1::CheckRequest::descriptor();
  std::set<std::string> methods;
  for (int i = 1; i < argc; ++i) {
    const auto* file = google::protobuf::DescriptorPool::generated_pool()->FindFileByName(argv[i]);
    if (file == nullptr) {
      std::fprintf(stderr, "access_table_check: %s is not linked in; include its .pb.h here\n",
                   argv[i]);
      return 1;
    }
    for (int s = 0; s < file->service_count(); ++s) {
      const auto* service = file->service(s);
      for (int m = 0; m < service->method_count(); ++m)
        methods.insert(service->full_name() + "/" + service->method(m)->name());
    }
  }
  int problems = 0;
  std::set<std::string> rows;
  for (const heddle::AccessRow& row : heddle::AccessTable()) {
    const std::string method(row.method);
    if (!rows.insert(method).second) {
      std::fprintf(stderr, "%s: %s has two rows; keep one\n", kTableFile, method.c_str());
      ++problems;
    }
    if (method.starts_with("heddle.") && !methods.contains(method)) {
      std::fprintf(stderr, "%s: %s is no method of proto/; remove its row\n", kTableFile,
                   method.c_str());
      ++problems;
    }
  }
  for (const std::string& method : methods) {
    if (rows.contains(method)) continue;
    std::fprintf(stderr, "%s: %s has no row; add one that says who may call it\n", kTableFile,
                 method.c_str());
    ++problems;
  }
  return problems == 0 ? 0 : 1;
}
