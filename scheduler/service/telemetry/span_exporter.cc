#include "scheduler/service/telemetry/span_exporter.h"

#include <curl/curl.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/one_line.h"
#include "base/status_macros.h"

namespace heddle::scheduler {
namespace {

constexpr size_t kMaxReply = size_t{64} << 10;  // of which more is not read
constexpr size_t kMaxWhy = 200;                 // of a collector's words in the log
constexpr char kPath[] = "/v1/traces";
// Of OTLP.
constexpr int kInternal = 1;
constexpr int kStatusOk = 1, kStatusError = 2;

// 64-bit integers are strings in the JSON of Protobuf.
nlohmann::json AttributeOf(const std::string& key,
                           const std::variant<std::string, int64_t>& value) {
  nlohmann::json typed;
  if (const auto* text = std::get_if<std::string>(&value)) {
    typed["stringValue"] = *text;
  } else {
    typed["intValue"] = absl::StrCat(std::get<int64_t>(value));
  }
  nlohmann::json attribute;
  attribute["key"] = key;
  attribute["value"] = std::move(typed);
  return attribute;
}

nlohmann::json SpanJson(const TraceSpan& span) {
  nlohmann::json attributes = nlohmann::json::array();
  for (const auto& [key, value] : span.attributes) attributes.push_back(AttributeOf(key, value));
  nlohmann::json object = {{"traceId", span.trace_id},
                           {"spanId", span.span_id},
                           {"name", span.name},
                           {"kind", kInternal},
                           {"startTimeUnixNano", absl::StrCat(span.start_unix_ns)},
                           {"endTimeUnixNano", absl::StrCat(span.end_unix_ns)},
                           {"attributes", std::move(attributes)},
                           {"status", {{"code", span.failed ? kStatusError : kStatusOk}}}};
  if (!span.parent_id.empty()) object["parentSpanId"] = span.parent_id;
  if (span.failed && !span.message.empty()) object["status"]["message"] = span.message;
  return object;
}

// The address of a collector with the path of traces.
absl::StatusOr<std::string> AddressOf(const std::string& collector) {
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> url(curl_url(), curl_url_cleanup);
  const auto part = [&](CURLUPart which) {
    char* text = nullptr;
    if (curl_url_get(url.get(), which, &text, 0) != CURLUE_OK) return std::string();
    std::string copy = text;
    curl_free(text);
    return copy;
  };
  const bool read = curl_url_set(url.get(), CURLUPART_URL, collector.c_str(), 0) == CURLUE_OK;
  const std::string scheme = read ? part(CURLUPART_SCHEME) : "";
  if ((scheme != "http" && scheme != "https") || !part(CURLUPART_QUERY).empty() ||
      !part(CURLUPART_FRAGMENT).empty() || !part(CURLUPART_USER).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--otlp ", OneLine(collector),
                     ": is no address of a collector; give one such as http://127.0.0.1:4318"));
  }
  std::string address = collector;
  while (address.ends_with('/')) address.pop_back();
  return address + kPath;
}

size_t KeepReply(char* bytes, size_t size, size_t count, void* reply) {
  auto& text = *static_cast<std::string*>(reply);
  text.append(bytes, std::min(size * count, kMaxReply - std::min(kMaxReply, text.size())));
  return size * count;
}

// What a collector says of a request that it has taken in part, or refused.
struct Words {
  int64_t rejected = 0;
  std::string message;
};
Words WordsOf(const std::string& reply) {
  Words words;
  const nlohmann::json json = nlohmann::json::parse(reply, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return words;
  const nlohmann::json part =
      json.contains("partialSuccess") ? json["partialSuccess"] : nlohmann::json();
  const nlohmann::json& told = part.is_object() ? part : json;
  const char* message = part.is_object() ? "errorMessage" : "message";
  if (told.contains(message) && told[message].is_string())
    words.message = OneLine(told[message].get<std::string>().substr(0, kMaxWhy));
  if (!told.contains("rejectedSpans")) return words;
  const nlohmann::json& count = told["rejectedSpans"];
  if (count.is_number_integer()) words.rejected = count.get<int64_t>();
  if (count.is_string()) (void)absl::SimpleAtoi(count.get<std::string>(), &words.rejected);
  return words;
}

}  // namespace

std::string OtlpJson(const std::vector<TraceSpan>& spans) {
  nlohmann::json list = nlohmann::json::array();
  for (const TraceSpan& span : spans) list.push_back(SpanJson(span));
  nlohmann::json scope;
  scope["scope"]["name"] = "heddle";
  scope["spans"] = std::move(list);
  nlohmann::json resource;
  resource["resource"]["attributes"].push_back(AttributeOf("service.name", "heddle-scheduler"));
  resource["scopeSpans"].push_back(std::move(scope));
  nlohmann::json request;
  request["resourceSpans"].push_back(std::move(resource));
  return request.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<std::unique_ptr<SpanExporter>> SpanExporter::Start(Options options) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  HEDDLE_ASSIGN_OR_RETURN(std::string address, AddressOf(options.collector));
  return std::unique_ptr<SpanExporter>(new SpanExporter(std::move(options), std::move(address)));
}

SpanExporter::SpanExporter(Options options, std::string address)
    : options_(std::move(options)), address_(std::move(address)), thread_([this] { Run(); }) {}

SpanExporter::~SpanExporter() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
    give_up_ = MonotonicNow() + options_.goodbye;
  }
  thread_.join();
}

void SpanExporter::Add(TraceSpan span) {
  absl::MutexLock lock(&mutex_);
  if (waiting_.size() < options_.most_waiting) {
    waiting_.push_back(std::move(span));
  } else {
    ++counts_.dropped;
  }
}

SpanExporter::Counts SpanExporter::counts() const {
  absl::MutexLock lock(&mutex_);
  return counts_;
}

bool SpanExporter::GivesUp() const {
  absl::MutexLock lock(&mutex_);
  return MonotonicNow() >= give_up_;
}

void SpanExporter::Run() {
  std::vector<TraceSpan> request;  // that is to be sent, or sent again
  absl::Duration pause = options_.pause;
  bool silent = false;  // the collector did not take the last request
  while (true) {
    {
      const auto full = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stop_ || (!silent && waiting_.size() >= options_.most_in_request);
      };
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(&full), pause);
      while (!waiting_.empty() && request.size() < options_.most_in_request) {
        request.push_back(std::move(waiting_.front()));
        waiting_.pop_front();
      }
      if (request.empty() && stop_) return;
      if (stop_ && MonotonicNow() >= give_up_) {
        counts_.dropped += static_cast<int64_t>(request.size() + waiting_.size());
        return;
      }
    }
    if (request.empty()) continue;
    const Reply reply = Send(request);
    const auto count = static_cast<int64_t>(request.size());
    absl::MutexLock lock(&mutex_);
    if (reply.answer == Answer::kLater) {
      if (!silent)
        spdlog::warn("spans wait for the collector {}: {}", options_.collector, reply.why);
      silent = true;
      pause = std::min(2 * pause, options_.longest_pause);
      if (!stop_) continue;
      counts_.dropped += count + static_cast<int64_t>(waiting_.size());
      return;
    }
    if (silent) spdlog::info("the collector {} answers again", options_.collector);
    silent = false;
    pause = options_.pause;
    const int64_t rejected =
        reply.answer == Answer::kRefused ? count : std::clamp<int64_t>(reply.rejected, 0, count);
    // Once: what it does not want today, it does not want tomorrow.
    if (rejected > 0 && counts_.refused == 0)
      spdlog::warn("the collector {} refuses spans: {}", options_.collector, reply.why);
    counts_.refused += rejected;
    counts_.sent += count - rejected;
    request.clear();
  }
}

SpanExporter::Reply SpanExporter::Send(const std::vector<TraceSpan>& spans) const {
  const std::string body = OtlpJson(spans);
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(),
                                                                 curl_easy_cleanup);
  if (curl == nullptr) return {Answer::kLater, 0, "there is no memory for a request"};
  const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(
      curl_slist_append(nullptr, "Content-Type: application/json"), curl_slist_free_all);
  std::string reply;
  CURL* const one = curl.get();
  curl_easy_setopt(one, CURLOPT_URL, address_.c_str());
  curl_easy_setopt(one, CURLOPT_POSTFIELDS, body.data());
  curl_easy_setopt(one, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  curl_easy_setopt(one, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(one, CURLOPT_NOSIGNAL, 1L);  // other threads run
  curl_easy_setopt(one, CURLOPT_PROXY, "");     // the collector itself
  curl_easy_setopt(one, CURLOPT_TIMEOUT_MS,
                   static_cast<long>(absl::ToInt64Milliseconds(options_.limit)));
  curl_easy_setopt(one, CURLOPT_WRITEFUNCTION, KeepReply);
  curl_easy_setopt(one, CURLOPT_WRITEDATA, &reply);
  curl_easy_setopt(one, CURLOPT_NOPROGRESS, 0L);
  using Progress = int (*)(void*, curl_off_t, curl_off_t, curl_off_t, curl_off_t);
  const Progress ended = [](void* exporter, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<const SpanExporter*>(exporter)->GivesUp() ? 1 : 0;
  };
  curl_easy_setopt(one, CURLOPT_XFERINFOFUNCTION, ended);
  curl_easy_setopt(one, CURLOPT_XFERINFODATA, this);
  const CURLcode done = curl_easy_perform(one);
  if (done != CURLE_OK) return {Answer::kLater, 0, curl_easy_strerror(done)};
  long status = 0;
  curl_easy_getinfo(one, CURLINFO_RESPONSE_CODE, &status);
  const Words words = WordsOf(reply);
  const std::string why =
      words.message.empty() ? absl::StrCat("HTTP status ", status) : words.message;
  if (status >= 200 && status < 300) return {Answer::kTaken, words.rejected, why};
  // Those that OTLP names as worth another try.
  const bool later = status == 429 || status == 502 || status == 503 || status == 504;
  return {later ? Answer::kLater : Answer::kRefused, 0, why};
}

}  // namespace heddle::scheduler
