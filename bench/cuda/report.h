// What heddle-gpu-bench found: its file, kept up to date while it works, and its table.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace heddle::bench {

class GpuReport {
 public:
  // Of no file if `path` is empty.
  explicit GpuReport(std::string path) : path_(std::move(path)) {}

  nlohmann::json& fields() { return fields_; }
  // Writes all of it into the file: as it was or as it is, whatever happens meanwhile.
  absl::Status Save() const;

  static void PrintHead();
  // One of the "operators", or why it has no time ("error").
  static void Print(const nlohmann::json& row);
  // Prints and keeps the geometric mean of the ratios of the operators whose name begins so, and
  // says which have none.
  void Mean(const std::string& peer, const std::string& prefix);

 private:
  const std::string path_;
  nlohmann::json fields_ = {{"schema_version", 1}};
};

}  // namespace heddle::bench
