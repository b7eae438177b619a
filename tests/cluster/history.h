// What an outside observer was told by the service, and whether it contradicts itself: nothing that
// was told may be lost, doubled or taken back, whatever happens to the processes in between.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/jobs.pb.h"

namespace heddle {

class History {
 public:
  // The service acknowledged a submission.
  void Submitted(const std::string& job);
  // The service said that there is no such job.
  void Missing(const std::string& job);
  void Saw(const v1::Job& job);
  // All records of the job, as one query gave them.
  void SawRecords(const std::string& job, const std::vector<v1::Record>& records);
  // The tracker granted a slot with this token. Calls are in the order of the grants.
  void Granted(const std::string& slot, uint64_t token);
  // A record of the slot was stored, whose measurement was made under this token. Calls are in the order
  // in which the records were stored.
  void Stored(const std::string& slot, uint64_t token);
  // The job and its records when all is over.
  void Ended(const v1::Job& job, const std::vector<v1::Record>& records);

  // One line each; empty: all that was told agrees.
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  void Violated(const std::string& what);

  std::set<std::string> submitted_;
  std::map<std::string, v1::Job> jobs_;                             // as last seen
  std::map<std::pair<std::string, int64_t>, std::string> records_;  // by job and candidate
  uint64_t token_ = 0;
  std::map<std::string, uint64_t> stored_;  // the latest token, by slot
  std::vector<std::string> violations_;
};

}  // namespace heddle
