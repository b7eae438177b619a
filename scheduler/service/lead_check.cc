#include "scheduler/service/lead_check.h"

#include <string_view>
#include <utility>

#include "proto/grpc_util.h"

namespace heddle::scheduler {
namespace {

using grpc::experimental::InterceptionHookPoints;

class LeadCheck final : public grpc::experimental::Interceptor {
 public:
  explicit LeadCheck(const std::function<absl::Status()>* check) : check_(check) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      if (const absl::Status leads = (*check_)(); !leads.ok())
        methods->ModifySendStatus(ToGrpc(leads));
    }
    methods->Proceed();
  }

 private:
  const std::function<absl::Status()>* const check_;
};

class LeadCheckFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit LeadCheckFactory(std::function<absl::Status()> check) : check_(std::move(check)) {}
  // Health and reflection speak of this process alone.
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* call) override {
    const std::string_view name = call->method() == nullptr ? "" : call->method();
    return name.starts_with("/heddle.") ? new LeadCheck(&check_) : nullptr;
  }

 private:
  const std::function<absl::Status()> check_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeLeadCheck(
    std::function<absl::Status()> check) {
  return std::make_unique<LeadCheckFactory>(std::move(check));
}

}  // namespace heddle::scheduler
