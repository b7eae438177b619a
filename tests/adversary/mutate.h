// Makes a hostile message of a good one.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <string>

#include "base/splitmix.h"

namespace heddle {

// The number of mutations of each message kind: HEDDLE_MUTATIONS, or else `usual`.
int Mutations(int usual);

// Seeded: the same seed makes the same messages. Not thread-safe.
class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  // Changes one to three things, each in any field at any depth: a number becomes an extreme, negative, infinite or no number; a text
  // empty, huge, another one, or one with control characters; an enum unknown; a list empty or long; a message absent or empty. Or
  // flips bits of the serialised message, where the result is still one.
  void Mutate(google::protobuf::Message* message);
  uint64_t Below(uint64_t limit) { return random_.Next() % limit; }

 private:
  void ChangeOne(google::protobuf::Message* message);
  void ChangeField(google::protobuf::Message* message,
                   const google::protobuf::FieldDescriptor& field);
  void ChangeList(google::protobuf::Message* message,
                  const google::protobuf::FieldDescriptor& field);
  bool FlipBits(google::protobuf::Message* message);
  std::string Text(const std::string& old);
  double Real(double old);
  int64_t Whole(int64_t old);

  SplitMix random_;
};

// Whether every floating-point number of the message, at any depth, is finite: told without its rules.
bool AllFinite(const google::protobuf::Message& message);

}  // namespace heddle
