// The list of a model's parts, as the blob store keeps it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/files/blob_store.h"
#include "proto/common.pb.h"

namespace heddle::scheduler {

// Of the disk with the blobs, kept free for the database.
inline constexpr int64_t kDiskReserveBytes = int64_t{64} << 20;

// Stores the list; returns its digest. ResourceExhausted: the disk is full.
absl::StatusOr<std::string> StoreParts(const v1::BlobList& parts, BlobStore* blobs);
// NotFound or DataLoss: the list is missing or damaged; the message says what to do.
absl::StatusOr<v1::BlobList> ReadParts(const std::string& digest, const BlobStore& blobs);

}  // namespace heddle::scheduler
