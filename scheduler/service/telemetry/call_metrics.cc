#include "scheduler/service/telemetry/call_metrics.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "proto/access/access_table.h"

namespace heddle::scheduler {
namespace {

using grpc::experimental::InterceptionHookPoints;

class CallObserver final : public grpc::experimental::Interceptor {
 public:
  CallObserver(Metrics* metrics, std::string method)
      : metrics_(metrics), method_(std::move(method)) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const auto code = static_cast<absl::StatusCode>(methods->GetSendStatus().error_code());
      metrics_
          ->AddCounter("heddle_calls_total", "gRPC calls that have ended, by status.",
                       {{"method", method_}, {"code", absl::StatusCodeToString(code)}})
          .Add();
      metrics_
          ->AddHistogram("heddle_call_duration_seconds",
                         "How long gRPC calls took; those that watch last as long as their caller "
                         "wants.",
                         kSlowSeconds, {{"method", method_}})
          .Observe(absl::ToDoubleSeconds(MonotonicNow() - began_));
    }
    methods->Proceed();
  }

 private:
  Metrics* const metrics_;
  const std::string method_;
  const absl::Time began_ = MonotonicNow();
};

class CallObserverFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CallObserverFactory(Metrics* metrics) : metrics_(metrics) {}
  // Null for what is not ours, so that a stranger cannot make up label values.
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* call) override {
    std::string name = call->method() == nullptr ? "" : call->method();
    if (name.starts_with('/')) name.erase(0, 1);
    if (!name.starts_with("heddle.") || FindAccessRow(name) == nullptr) return nullptr;
    return new CallObserver(metrics_, std::move(name));
  }

 private:
  Metrics* const metrics_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeCallMetrics(
    Metrics* metrics) {
  return std::make_unique<CallObserverFactory>(metrics);
}

}  // namespace heddle::scheduler
