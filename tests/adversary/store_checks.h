// What a database must hold whoever sent its rows.
#pragma once

#include <string>

namespace heddle::scheduler {

// The file is sound, its rows refer to rows that are there, and every record is one that an import would take.
void ExpectWholeStore(const std::string& path);

}  // namespace heddle::scheduler
