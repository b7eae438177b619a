// The check of messages by the rules beside their fields (proto/check_message.h). The first byte chooses the message.
#include "proto/check_message.h"

#include <string>

#include "base/one_line.h"
#include "google/protobuf/stubs/logging.h"
#include "proto/common.pb.h"
#include "proto/jobs.pb.h"
#include "proto/tracker.pb.h"
#include "proto/worker.pb.h"
#include "tests/adversary/mutate.h"
#include "tests/fuzz/fuzz_target.h"

namespace heddle::fuzz {
namespace {

constexpr size_t kLongestRefusal = 1000;

template <typename Message>
void Take(std::string_view input) {
  Message message;
  if (!message.ParseFromArray(input.data(), static_cast<int>(input.size()))) return;
  const absl::Status checked = CheckMessage(message);
  Message trimmed = message;
  TrimLines(&trimmed);
  const std::string once = trimmed.SerializeAsString();
  TrimLines(&trimmed);
  Require(trimmed.SerializeAsString() == once, "what is trimmed needs no more of it");
  if (checked.ok()) {
    Require(AllFinite(message), "the numbers of an accepted message are finite");
    Require(message.SerializeAsString() == once, "what fits is not trimmed");
    return;
  }
  const std::string why(checked.message());
  Require(absl::IsInvalidArgument(checked) && !why.empty(), "a refusal says why");
  Require(why.size() <= kLongestRefusal && OneLine(why) == why, "a refusal is one short line");
}

}  // namespace

void Run(std::string_view input) {
  google::protobuf::SetLogHandler(nullptr);  // a line for each text that is no UTF-8
  switch (TakeByte(&input) % 7) {
    case 0:
      return Take<v1::SubmitRequest>(input);
    case 1:
      return Take<v1::StageInput>(input);
    case 2:
      return Take<v1::StageEvent>(input);
    case 3:
      return Take<v1::Record>(input);
    case 4:
      return Take<v1::RecordQuery>(input);
    case 5:
      return Take<v1::SynchronizeRequest>(input);
    default:
      return Take<v1::ListWorkersResponse>(input);
  }
}

}  // namespace heddle::fuzz
