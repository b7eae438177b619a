// A record as a line of JSON (client/views/json.h), as people keep and exchange them.
#include "client/views/json.h"
#include "proto/common.pb.h"
#include "tests/fuzz/fuzz_target.h"

namespace heddle::fuzz {

void Run(std::string_view input) {
  v1::Record record;
  if (!client::FromJsonLine(input, &record).ok()) return;
  v1::Record again;
  Require(client::FromJsonLine(client::ToJsonLine(record), &again).ok(), "a record's line is read");
  Require(again.SerializeAsString() == record.SerializeAsString(), "a record's line round-trips");
}

}  // namespace heddle::fuzz
