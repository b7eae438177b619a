// What a daemon counts of itself, in the text format of Prometheus.
//
// Names begin with `heddle_`, units are base units (seconds, bytes), and what only grows ends with
// `_total`. A label takes few values, and none that grow with use: never a job, a trial, a user or a
// tenant.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace heddle {

// Handles to one time series each. Copies are the same series. They are valid as long as their
// Metrics; one that is made by default counts nothing. Thread-safe.
class Counter {
 public:
  Counter() = default;
  void Add(double by = 1) const;
  // For totals that are counted elsewhere: raises the counter to `total`. Calls for one series must
  // not overlap.
  void RaiseTo(double total) const;

 private:
  friend class Metrics;
  explicit Counter(prometheus::Counter* counter) : counter_(counter) {}
  prometheus::Counter* counter_ = nullptr;
};

class Gauge {
 public:
  Gauge() = default;
  void Set(double value) const;

 private:
  friend class Metrics;
  explicit Gauge(prometheus::Gauge* gauge) : gauge_(gauge) {}
  prometheus::Gauge* gauge_ = nullptr;
};

class Histogram {
 public:
  Histogram() = default;
  void Observe(double value) const;

 private:
  friend class Metrics;
  explicit Histogram(prometheus::Histogram* histogram) : histogram_(histogram) {}
  prometheus::Histogram* histogram_ = nullptr;
};

// Upper bounds of histogram buckets, in seconds.
inline const std::vector<double> kFastSeconds = {1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 10};
inline const std::vector<double> kSlowSeconds = {0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800};

// Thread-safe.
class Metrics {
 public:
  using Labels = std::map<std::string, std::string>;

  // Begins with heddle_build_info of this program ("heddle-worker"), and with the usual process_*
  // metrics: start time, CPU time, memory, open files.
  explicit Metrics(const std::string& program);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // The series of that name and labels, which is made if it is new. All series of a name have the
  // same kind and the same help, which says in one line what the number is.
  Counter AddCounter(const std::string& name, const std::string& help, const Labels& labels = {});
  Gauge AddGauge(const std::string& name, const std::string& help, const Labels& labels = {});
  Histogram AddHistogram(const std::string& name, const std::string& help,
                         const std::vector<double>& buckets, const Labels& labels = {});

  // `refresh` is called before each Text, one call at a time: it fills in what is read rather than
  // counted. Everything that it uses must outlive the last Text.
  void BeforeText(std::function<void()> refresh);

  // All series, in version 0.0.4 of the text format.
  std::string Text();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

// Turns names that arrive from outside, such as device keys, into label values: the first 32 stay
// what they are, and all further ones are "other". Not thread-safe.
class FewNames {
 public:
  const std::string& operator()(const std::string& name);

 private:
  std::set<std::string> names_;
};

}  // namespace heddle
