// How a model is to be imported, as flags.
#pragma once

#include <string>
#include <vector>

namespace heddle::client {

struct ModelFlags {
  // "name=1x3x224x224", or "batch=1" for a dimension, or "rows=1,16" for decision trees of XGBoost and LightGBM
  std::vector<std::string> shapes;
  std::vector<std::string> input_values;  // "name=16000", or "name=1,0,2"
  std::vector<std::string> disabled_passes;
};

}  // namespace heddle::client
