// HEDDLE_ASSIGN_OR_RETURN and HEDDLE_RETURN_IF_ERROR for absl::Status and absl::StatusOr.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define HEDDLE_CONCAT_INNER(a, b) a##b
#define HEDDLE_CONCAT(a, b) HEDDLE_CONCAT_INNER(a, b)

#define HEDDLE_RETURN_IF_ERROR(expr)               \
  do {                                             \
    absl::Status heddle_status = (expr);           \
    if (!heddle_status.ok()) return heddle_status; \
  } while (false)

#define HEDDLE_ASSIGN_OR_RETURN(lhs, expr) \
  HEDDLE_ASSIGN_OR_RETURN_INNER(HEDDLE_CONCAT(heddle_or_, __LINE__), lhs, expr)
#define HEDDLE_ASSIGN_OR_RETURN_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                                  \
  if (!tmp.ok()) return tmp.status();                 \
  lhs = std::move(tmp).value()
