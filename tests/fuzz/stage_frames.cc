// What the daemon reads from a stage's child, which runs generated code (worker/frame.h). The first byte tells how many bytes come at
// a time.
#include <memory>
#include <string>
#include <vector>

#include "google/protobuf/stubs/logging.h"
#include "proto/worker.pb.h"
#include "tests/fuzz/fuzz_target.h"
#include "worker/frame.h"

namespace heddle::fuzz {
namespace {

struct Read {
  std::vector<std::string> messages;
  bool broken = false;
};

template <typename Message>
Read ReadAll(std::string_view bytes, size_t piece) {
  Read read;
  worker::FrameDecoder decoder;
  while (!bytes.empty() && !read.broken) {
    const std::string_view part = bytes.substr(0, piece);
    bytes.remove_prefix(part.size());
    decoder.Append(part);
    while (true) {
      Message message;
      const absl::StatusOr<bool> next = decoder.Next(&message);
      read.broken = !next.ok();
      if (!next.ok() || !*next) break;
      read.messages.push_back(message.SerializeAsString());
      (void)worker::EncodeFrame(message);
    }
  }
  return read;
}

template <typename Message>
void Compare(std::string_view bytes, size_t piece) {
  const Read whole = ReadAll<Message>(bytes, bytes.size());
  const Read pieces = ReadAll<Message>(bytes, piece);
  Require(whole.messages == pieces.messages && whole.broken == pieces.broken,
          "it does not matter in which pieces the bytes come");
}

}  // namespace

void Run(std::string_view input) {
  google::protobuf::SetLogHandler(nullptr);  // a line for each text that is no UTF-8
  const size_t piece = 1 + TakeByte(&input);
  if (input.empty()) return;
  Compare<v1::StageEvent>(input, piece);
  Compare<v1::StageInput>(input, piece);
}

}  // namespace heddle::fuzz
