#include "bench/cuda/report.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace heddle::bench {

using nlohmann::json;

absl::Status GpuReport::Save() const {
  if (path_.empty()) return absl::OkStatus();
  const std::string fresh = path_ + ".tmp";
  std::ofstream file(fresh, std::ios::trunc);
  file << fields_.dump(1) << "\n";
  file.close();
  std::error_code error;
  if (file.good()) std::filesystem::rename(fresh, path_, error);
  if (file.good() && !error) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", path_, ": name another by --json"));
}

void GpuReport::PrintHead() {
  std::printf("%-16s %10s %10s %7s %7s  %s\n", "operator", "ours us", "peer us", "ratio", "peak",
              "peer");
}

void GpuReport::Print(const json& row) {
  const std::string name = row.at("operator");
  if (row.contains("error")) {
    std::printf("%-16s not measured: %s\n", name.c_str(),
                row.at("error").get<std::string>().c_str());
  } else {
    std::printf("%-16s %10.1f %10.1f %7.2f %6.1f%%  %s\n", name.c_str(),
                row.at("ns").get<double>() * 1e-3, row.value("peer_ns", 0.0) * 1e-3,
                row.value("ratio", 0.0), row.value("part_of_peak", 0.0) * 100,
                row.value("peer", row.value("no_peer", "")).c_str());
  }
  std::fflush(stdout);
}

void GpuReport::Mean(const std::string& peer, const std::string& prefix) {
  double logs = 0;
  int count = 0;
  std::string missing;
  for (const json& row : fields_["operators"]) {
    const std::string name = row.at("operator");
    if (name.rfind(prefix, 0) != 0) continue;
    if (!row.contains("ratio")) {
      absl::StrAppend(&missing, missing.empty() ? " (without " : ", ", name);
      continue;
    }
    logs += std::log(row.at("ratio").get<double>());
    ++count;
  }
  if (count == 0) return;
  fields_["geometric_mean"] = std::exp(logs / count);
  if (!missing.empty()) missing += ")";
  std::printf("geometric mean of %d against %s: %.2f%s\n", count, peer.c_str(),
              std::exp(logs / count), missing.c_str());
}

}  // namespace heddle::bench
