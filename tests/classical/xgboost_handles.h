// What tests of XGBoost models need of its C API.
#pragma once

#include <gtest/gtest.h>
#include <xgboost/c_api.h>

#include <memory>

namespace heddle {

inline void CheckXgboost(int rc) { ASSERT_EQ(rc, 0) << XGBGetLastError(); }

struct MatrixDeleter {
  void operator()(void* h) const { XGDMatrixFree(h); }
};
struct BoosterDeleter {
  void operator()(void* h) const { XGBoosterFree(h); }
};
using Matrix = std::unique_ptr<void, MatrixDeleter>;
using Booster = std::unique_ptr<void, BoosterDeleter>;

}  // namespace heddle
