// A record store in an SQL database.
#pragma once

#include <memory>

#include "scheduler/store/record_store.h"
#include "scheduler/store/sql_session.h"

namespace heddle::scheduler {

// The database has the tables of this version. The three sessions are connections of their own: `write`
// is the only one that writes, `read` is for the scheduler, `users` for what users ask, which may
// take long.
std::unique_ptr<RecordStore> MakeSqlRecordStore(std::unique_ptr<SqlSession> write,
                                                std::unique_ptr<SqlSession> read,
                                                std::unique_ptr<SqlSession> users);

}  // namespace heddle::scheduler
