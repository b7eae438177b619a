#include "scheduler/service/storage/stored_parts.h"

#include <memory>

#include "base/status_macros.h"
#include "proto/chunks.h"

namespace heddle::scheduler {

absl::StatusOr<std::string> StoreParts(const v1::BlobList& parts, BlobStore* blobs) {
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<BlobStore::Writer> list, blobs->NewWriter());
  HEDDLE_RETURN_IF_ERROR(list->Append(parts.SerializeAsString()));
  return list->Commit("");
}

absl::StatusOr<v1::BlobList> ReadParts(const std::string& digest, const BlobStore& blobs) {
  const absl::StatusOr<std::unique_ptr<BlobStore::Reader>> reader = blobs.NewReader(digest);
  if (absl::IsNotFound(reader.status()))
    return absl::NotFoundError("the list of the model's parts is lost; submit the model again");
  HEDDLE_RETURN_IF_ERROR(reader.status());
  std::string text;
  while (true) {
    HEDDLE_ASSIGN_OR_RETURN(const std::string piece, (*reader)->Next(kChunkBytes));
    if (piece.empty()) break;
    text += piece;
  }
  v1::BlobList parts;
  if (!parts.ParseFromString(text))
    return absl::DataLossError("the list of the model's parts is damaged; submit the model again");
  return parts;
}

}  // namespace heddle::scheduler
