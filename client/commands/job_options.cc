#include "client/commands/job_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "base/status_macros.h"
#include "client/views/terminal.h"

namespace heddle::client {
namespace {

absl::Status ParseSpan(const char* flag, const std::string& text, const char* example,
                       absl::Duration* out) {
  if (absl::ParseDuration(text, out) && *out > absl::ZeroDuration() &&
      *out < absl::Hours(24 * 365 * 100))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} '{}' is not a duration; write for example {} {}", flag, text, flag, example));
}

absl::Status ParseDeadline(const std::string& text, absl::Time now, absl::Time* out) {
  const absl::TimeZone zone = absl::LocalTimeZone();
  absl::Duration span;
  std::string error;
  if (absl::ParseDuration(text, &span) && span < absl::Hours(24 * 365 * 100)) {
    *out = now + span;
  } else if (absl::ParseTime("%H:%M", text, zone, out, &error)) {
    const absl::CivilSecond clock = absl::ToCivilSecond(*out, zone);
    const absl::CivilDay today = absl::ToCivilDay(now, zone);
    for (const absl::CivilDay day : {today, today + 1}) {
      *out = absl::FromCivil(
          absl::CivilSecond(day.year(), day.month(), day.day(), clock.hour(), clock.minute(), 0),
          zone);
      if (*out > now) break;
    }
  } else if (!absl::ParseTime("%Y-%m-%d %H:%M", text, zone, out, &error) &&
             !absl::ParseTime(absl::RFC3339_full, text, out, &error)) {
    return absl::InvalidArgumentError(fmt::format(
        "--deadline '{}' is not a time; write for example --deadline 2h, --deadline 18:30 "
        "or --deadline '2030-01-31 18:30'",
        text));
  }
  if (*out > now) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("--deadline '{}' has passed; give a time in the future, for example 2h", text));
}

}  // namespace

absl::Status FillJobOptions(const JobOptions& options, absl::Time now, v1::JobSpec* spec) {
  if (!options.deadline.empty()) {
    absl::Time deadline;
    HEDDLE_RETURN_IF_ERROR(ParseDeadline(options.deadline, now, &deadline));
    spec->set_deadline_unix_ns(absl::ToUnixNanos(deadline));
  }
  absl::Duration span;
  if (!options.time_limit.empty()) {
    HEDDLE_RETURN_IF_ERROR(ParseSpan("--time-limit", options.time_limit, "30m", &span));
    spec->set_time_limit_ms(std::max<int64_t>(1, absl::ToInt64Milliseconds(span)));
  }
  if (!options.target_latency.empty()) {
    HEDDLE_RETURN_IF_ERROR(ParseSpan("--target-latency", options.target_latency, "5ms", &span));
    spec->set_target_latency_ns(std::max<int64_t>(1, absl::ToInt64Nanoseconds(span)));
  }
  if (options.allocation != "gradient" && options.allocation != "uniform") {
    return absl::InvalidArgumentError(fmt::format(
        "unknown --allocation '{}'; it must be gradient or uniform", options.allocation));
  }
  spec->set_allocation(options.allocation);
  spec->set_priority(options.priority);
  spec->set_plateau_trials(options.plateau);
  spec->set_max_devices(options.max_devices);
  return absl::OkStatus();
}

absl::StatusOr<absl::Duration> ParseTimeout(const std::string& text) {
  absl::Duration span;
  if (double seconds = 0; absl::SimpleAtod(text, &seconds)) {
    span = absl::Seconds(seconds);
  } else if (!absl::ParseDuration(text, &span)) {
    span = -absl::InfiniteDuration();
  }
  if (span < absl::ZeroDuration() || span == absl::InfiniteDuration()) {
    return absl::InvalidArgumentError(fmt::format(
        "--timeout '{}' is no time; write for example --timeout 30m, or a number of seconds",
        text));
  }
  return span == absl::ZeroDuration() ? absl::InfiniteDuration() : span;
}

std::string DeadlineText(const v1::Job& job, absl::Time now) {
  if (job.spec().deadline_unix_ns() == 0) return "";
  const absl::Time deadline = absl::FromUnixNanos(job.spec().deadline_unix_ns());
  const std::string date = FormatWallTime(job.spec().deadline_unix_ns());
  if (job.state() == v1::JOB_FAILED) return fmt::format("{}: not met, the job failed", date);
  if (job.state() == v1::JOB_CANCELLED)
    return fmt::format("{}: not met, the job was cancelled", date);
  if (job.finished_unix_ns() != 0) {
    const absl::Duration late = absl::FromUnixNanos(job.finished_unix_ns()) - deadline;
    return late > absl::ZeroDuration() ? fmt::format("{}: missed by {}", date, HumanDuration(late))
                                       : fmt::format("{}: met", date);
  }
  if (now > deadline) return fmt::format("{}: missed, {} ago", date, HumanDuration(now - deadline));
  const std::string left = fmt::format("{} (in {})", date, HumanDuration(deadline - now));
  if (job.eta_ms() == 0) return left + ": not known yet whether it will be met";
  const absl::Duration spare = deadline - now - absl::Milliseconds(job.eta_ms());
  return spare >= absl::ZeroDuration()
             ? fmt::format("{}: will be met by {}, as things stand", left, HumanDuration(spare))
             : fmt::format("{}: will be missed by {}, as things stand", left,
                           HumanDuration(-spare));
}

}  // namespace heddle::client
