// Backups, checks and collection of the database and the blobs, while the scheduler works.
// proto/store.proto documents what the calls promise.
#pragma once

#include <atomic>
#include <string>
#include <utility>

#include "base/files/blob_store.h"
#include "proto/access/call_limits.h"
#include "proto/store.grpc.pb.h"
#include "scheduler/service/storage/collector.h"

namespace heddle::scheduler {

// Lives as long as the server it is registered with. Stop must be called before that is shut down.
class StoreServiceImpl final : public v1::StoreService::Service {
 public:
  // `database` is the address of the scheduler's record store (open_store.h). A copy lies beside an SQLite
  // file for as long as a backup takes; one that an earlier crash left is removed.
  StoreServiceImpl(std::string database, BlobStore* blobs, Collector* collector, CallLimits* calls);
  // Ends long-running calls.
  void Stop() { stopping_ = true; }

  grpc::Status BackUp(grpc::ServerContext* context, const v1::BackUpRequest* request,
                      grpc::ServerWriter<v1::BackUpPart>* writer) override;
  grpc::Status FetchBlobs(grpc::ServerContext* context, const v1::BlobList* request,
                          grpc::ServerWriter<v1::Chunk>* writer) override;
  grpc::Status Check(grpc::ServerContext* context, const v1::CheckRequest* request,
                     grpc::ServerWriter<v1::CheckProgress>* writer) override;
  grpc::Status Collect(grpc::ServerContext* context, const v1::CollectRequest* request,
                       grpc::ServerWriter<v1::CollectProgress>* writer) override;

 private:
  void RemoveCopy() const;

  const std::string database_, copy_;
  BlobStore* const blobs_;
  Collector* const collector_;
  CallLimits* const calls_;
  std::atomic<bool> stopping_{false};
};

}  // namespace heddle::scheduler
