#include "scheduler/service/standby_server.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/health_check_service_interface.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/daemon/health_pages.h"
#include "base/status_macros.h"
#include "proto/access/listener.h"
#include "proto/grpc_util.h"
#include "proto/leader_calls.h"

namespace heddle::scheduler {
namespace {

constexpr absl::Duration kStandbyDrain = absl::Milliseconds(200);  // its calls take no time
constexpr int kMaxThreads = 32;

}  // namespace

// Answers calls of all methods alike.
class StandbyServer::Service : public grpc::CallbackGenericService {
 public:
  explicit Service(const StandbyServer* owner) : owner_(owner) {}
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    class Reactor : public grpc::ServerGenericBidiReactor {
     public:
      void OnDone() override { delete this; }
    };
    {
      absl::MutexLock lock(&owner_->mutex_);
      context->AddTrailingMetadata(kLeaderMetadata, owner_->leader_);
    }
    auto* reactor = new Reactor;
    reactor->Finish(ToGrpc(owner_->answer()));
    return reactor;
  }

 private:
  const StandbyServer* const owner_;
};

StandbyServer::StandbyServer()
    : metrics_("heddle-scheduler"), service_(std::make_unique<Service>(this)) {}

absl::StatusOr<std::unique_ptr<StandbyServer>> StandbyServer::Start(const std::string& listen,
                                                                    const Credentials& credentials,
                                                                    const TokenFile* tokens,
                                                                    const std::string& http) {
  std::unique_ptr<StandbyServer> standby(new StandbyServer());
  StandbyServer* self = standby.get();
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  HEDDLE_ASSIGN_OR_RETURN(
      self->door_,
      AddListener(
          {.address = listen, .credentials = credentials, .tokens = tokens, .refused = nullptr},
          &builder, &self->port_));
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  UsePings(&builder, LeaderPings());
  LimitServer(&builder, "heddle-scheduler standby", {.threads = kMaxThreads});
  builder.RegisterCallbackGenericService(self->service_.get());
  self->server_ = StartServer(&builder, self->door_.get());
  if (self->server_ == nullptr || self->port_ == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen ", listen, ": cannot listen there (in use?)"));
  }
  self->server_->GetHealthCheckService()->SetServingStatus(false);
  if (http.empty()) return standby;
  const HealthPages pages{.metrics = &self->metrics_,
                          .live = [] { return absl::OkStatus(); },
                          .ready = [self] { return self->answer(); }};
  HEDDLE_ASSIGN_OR_RETURN(
      self->http_, HttpServer::Start({.address = http, .max_body_bytes = 0},
                                     [self, pages](const HttpRequest& request) {
                                       std::optional<HttpResponse> health =
                                           AnswerHealth(pages, request);
                                       if (health) return *std::move(health);
                                       HttpResponse response;
                                       response.status = 503;
                                       response.content_type = "text/plain; charset=utf-8";
                                       response.body = absl::StrCat(self->answer().message(), "\n");
                                       return response;
                                     }));
  return standby;
}

StandbyServer::~StandbyServer() {
  http_.reset();
  if (server_ != nullptr) {
    server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(kStandbyDrain));
    server_->Wait();
  }
}

void StandbyServer::SetLeader(const std::string& address) {
  absl::MutexLock lock(&mutex_);
  leader_ = address;
}

absl::Status StandbyServer::answer() const {
  absl::MutexLock lock(&mutex_);
  return absl::UnavailableError(
      leader_.empty()
          ? "this scheduler stands by and none leads now; try again in some seconds"
          : absl::StrCat("this scheduler stands by; the one that leads is at ", leader_,
                         "; call that one, or give clients both addresses (HEDDLE_SERVER=A,B)"));
}

}  // namespace heddle::scheduler
