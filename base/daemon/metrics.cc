#include "base/daemon/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace heddle {
namespace {

constexpr size_t kMostNames = 32;

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

double CpuSeconds() {
  rusage usage = {};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
}

double ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all_pages = 0, resident_pages = 0;
  if (!(file >> all_pages >> resident_pages)) return 0;
  return static_cast<double>(resident_pages) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double OpenFiles() {
  std::error_code error;
  double count = 0;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end;
       !error && entry != end; entry.increment(error))
    ++count;
  return count;
}

double MaxFiles() {
  rlimit limit = {};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<double>(limit.rlim_cur) : 0;
}

}  // namespace

void Counter::Add(double by) const {
  if (counter_ != nullptr) counter_->Increment(by);
}

void Counter::RaiseTo(double total) const {
  if (counter_ != nullptr) counter_->Increment(std::max(0.0, total - counter_->Value()));
}

void Gauge::Set(double value) const {
  if (gauge_ != nullptr) gauge_->Set(value);
}

void Histogram::Observe(double value) const {
  if (histogram_ != nullptr) histogram_->Observe(value);
}

struct Metrics::State {
  prometheus::Registry registry;
  absl::Mutex mutex;
  std::vector<std::function<void()>> refreshes ABSL_GUARDED_BY(mutex);
};

Metrics::Metrics(const std::string& program) : state_(std::make_unique<State>()) {
  AddGauge("heddle_build_info", "Always 1; the labels say which program of which version this is.",
           {{"program", program}, {"version", HEDDLE_VERSION}})
      .Set(1);
  AddGauge("process_start_time_seconds", "When the process began, in seconds since 1970.")
      .Set(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  const Counter cpu =
      AddCounter("process_cpu_seconds_total", "CPU time of the process, without its children.");
  const Gauge memory =
      AddGauge("process_resident_memory_bytes", "Memory of the process, without its children.");
  const Gauge files = AddGauge("process_open_fds", "Files that the process has open.");
  const Gauge most_files = AddGauge("process_max_fds", "How many files the process may have open.");
  BeforeText([cpu, memory, files, most_files] {
    cpu.RaiseTo(CpuSeconds());
    memory.Set(ResidentBytes());
    files.Set(OpenFiles());
    most_files.Set(MaxFiles());  // the HTTP server raises it after this was made
  });
}

Metrics::~Metrics() = default;

Counter Metrics::AddCounter(const std::string& name, const std::string& help,
                            const Labels& labels) {
  return Counter(
      &prometheus::BuildCounter().Name(name).Help(help).Register(state_->registry).Add(labels));
}

Gauge Metrics::AddGauge(const std::string& name, const std::string& help, const Labels& labels) {
  return Gauge(
      &prometheus::BuildGauge().Name(name).Help(help).Register(state_->registry).Add(labels));
}

Histogram Metrics::AddHistogram(const std::string& name, const std::string& help,
                                const std::vector<double>& buckets, const Labels& labels) {
  return Histogram(&prometheus::BuildHistogram()
                        .Name(name)
                        .Help(help)
                        .Register(state_->registry)
                        .Add(labels, buckets));
}

void Metrics::BeforeText(std::function<void()> refresh) {
  absl::MutexLock lock(&state_->mutex);
  state_->refreshes.push_back(std::move(refresh));
}

std::string Metrics::Text() {
  absl::MutexLock lock(&state_->mutex);
  for (const std::function<void()>& refresh : state_->refreshes) refresh();
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, state_->registry.Collect());
  return std::move(text).str();
}

const std::string& FewNames::operator()(const std::string& name) {
  static const std::string kOther = "other";
  if (names_.size() < kMostNames) return *names_.insert(name).first;
  const auto known = names_.find(name);
  return known == names_.end() ? kOther : *known;
}

}  // namespace heddle
