// The results of heddle-gpu-bench: a file that is kept up to date, and a table.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace heddle::bench {

class GpuReport {
 public:
  // With an empty `path` no file is written.
  explicit GpuReport(std::string path) : path_(std::move(path)) {}

  nlohmann::json& fields() { return fields_; }
  // Writes everything into the file atomically: it holds either the old or the new contents.
  absl::Status Save() const;

  static void PrintHead();
  // Adds an entry of "operators": times, or the reason why there are none ("error").
  static void Print(const nlohmann::json& row);
  // Prints and keeps the geometric mean of the ratios of the operators whose name begins with the
  // prefix, and lists those without one.
  void Mean(const std::string& peer, const std::string& prefix);

 private:
  const std::string path_;
  nlohmann::json fields_ = {{"schema_version", 1}};
};

}  // namespace heddle::bench
