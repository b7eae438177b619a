// What a scheduler serves while it stands by: health says NOT_SERVING, /readyz is not ready, and every other
// call is answered UNAVAILABLE at once, with the address of the scheduler that leads in the message and in
// kLeaderMetadata (proto/leader_calls.h).
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/daemon/http_server.h"
#include "base/daemon/metrics.h"
#include "proto/access/credentials.h"
#include "proto/access/peer_door.h"
#include "proto/access/tokens.h"

namespace heddle::scheduler {

class StandbyServer {
 public:
  // `tokens` outlives this. `http`: HOST:PORT for health pages; empty: none. InvalidArgument: it cannot listen
  // there.
  static absl::StatusOr<std::unique_ptr<StandbyServer>> Start(const std::string& listen,
                                                              const Credentials& credentials,
                                                              const TokenFile* tokens,
                                                              const std::string& http);
  // Nobody listens any more when this returns.
  ~StandbyServer();

  int port() const { return port_; }  // 1 for a UNIX socket
  // HOST:PORT of the health pages; empty: none.
  std::string http_address() const { return http_ == nullptr ? "" : http_->address(); }
  // Empty: none leads.
  void SetLeader(const std::string& address);
  // What calls are answered.
  absl::Status answer() const;

 private:
  class Service;
  StandbyServer();

  mutable absl::Mutex mutex_;
  std::string leader_ ABSL_GUARDED_BY(mutex_);
  int port_ = 0;
  Metrics metrics_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<PeerDoor> door_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace heddle::scheduler
