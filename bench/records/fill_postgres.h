// Fills an empty store in PostgreSQL with records that came from elsewhere, by COPY: without the store's checks, and with
// indexes that are made at the end. For sizes of which the store's own way takes hours.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "proto/common.pb.h"

namespace heddle::scheduler {

// `make` gives record i, from 0 on; `progress` is told how many there are. All or nothing: it is one transaction. The user
// must be a superuser, since references are not checked. FailedPrecondition: the database has records.
absl::Status FillPostgres(const std::string& url, int64_t records,
                          const std::function<v1::Record(int64_t)>& make,
                          const std::function<void(int64_t)>& progress);

}  // namespace heddle::scheduler
