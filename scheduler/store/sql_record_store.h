// A record store in an SQL database.
#pragma once

#include <memory>

#include "scheduler/store/record_store.h"
#include "scheduler/store/sql_session.h"

namespace heddle::scheduler {

// Connections of their own to a database that has the tables of this version.
struct SqlSessions {
  std::unique_ptr<SqlSession> write;  // the only one that writes
  std::unique_ptr<SqlSession> read;   // for the scheduler
  std::unique_ptr<SqlSession> users;  // for what users ask, which may take long
  std::unique_ptr<SqlSession>
      later;  // for later pages of a query, whose reader may have little of the cores
};
std::unique_ptr<RecordStore> MakeSqlRecordStore(SqlSessions sessions);

}  // namespace heddle::scheduler
