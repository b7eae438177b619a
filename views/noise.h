// How quiet the slots of workers were when they measured.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "proto/common.pb.h"

namespace heddle {

inline constexpr int64_t kNoiseRecords = 500;  // the latest, which say how quiet the slots are

struct Noise {
  int trials = 0;  // valid ones that the figures are about
  // How far the samples of one trial lie apart, (greatest - least) / median: the median over the trials.
  double spread = 0;
  // Shares of the trials: those that were measured more than once, since something disturbed them.
  double repeated = 0;
  double other_share = 0;  // time of the cores that other processes took: the mean over the trials
};

// By worker and slot. Only what a worker measured for a job of this service counts, not imports.
std::map<std::pair<std::string, std::string>, Noise> NoiseOf(
    const std::vector<v1::Record>& records);

// "1.2 %, 3 % repeated"; "-" without trials.
std::string NoiseText(const Noise& noise);

}  // namespace heddle
