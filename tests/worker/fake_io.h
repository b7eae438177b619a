// What a stage is given and what it answers, in this process.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "worker/child/stage_child.h"
#include "worker/stages/chunks.h"

namespace heddle::worker {

class FakeIo final : public StageIo {
 public:
  bool Read(v1::StageInput* input) override {
    if (inputs.empty()) return false;
    *input = inputs.front();
    inputs.pop_front();
    return true;
  }
  void Write(const v1::StageEvent& event) override { events.push_back(event); }
  void Warn(const std::string& line) override { warnings.push_back(line); }

  // What WriteChunks makes of the bytes, as input.
  void Feed(const std::string& name, const std::string& bytes) {
    FakeIo out;
    WriteChunks(out, name, bytes);
    for (const v1::StageEvent& event : out.events) {
      v1::StageInput input;
      *input.mutable_chunk() = event.chunk();
      inputs.push_back(input);
    }
  }
  std::string Received(const std::string& name) const {
    std::string bytes;
    for (const v1::StageEvent& event : events) {
      if (event.has_chunk() && event.chunk().name() == name) bytes += event.chunk().data();
    }
    return bytes;
  }

  std::deque<v1::StageInput> inputs;
  std::vector<v1::StageEvent> events;
  std::vector<std::string> warnings;
};

}  // namespace heddle::worker
