// Keeps open pages up to date: renders each page that somebody looks at again when something changed,
// once for all who look at it, and sends it to them as an event.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/daemon/http_server.h"

namespace heddle::scheduler {

class LiveParts {
 public:
  struct Options {
    // A page is rendered at most this often, ...
    absl::Duration interval = absl::Seconds(1);
    // ... and at least this often, for what changes without a job's doing.
    absl::Duration refresh = absl::Seconds(5);
    // A page of one job that a refresh found unchanged waits twice as long for the next one, up to this.
    absl::Duration most_refresh = absl::Minutes(1);
    // Rendering takes at most this share of one core. With many different pages open, those whose job
    // changed go first, and each is rendered less often.
    double share = 0.1;
    // What rendering leaves of its share is saved up to this, and spent when many pages change at once.
    absl::Duration most_saved = absl::Seconds(1);
    size_t most_pages = 256;     // different ones
    size_t most_streams = 1500;  // so that a page can be opened besides (HttpServerOptions)
    double caller_share = 0.25;  // of both, for one caller
    absl::Duration beat = absl::Seconds(15);
    // Then a stream ends, and the browser opens it again. So a token that no longer counts shows
    // nothing new after that time.
    absl::Duration most_age = absl::Minutes(10);
  };
  // The content of a page. nullopt: it cannot be shown now.
  using Render = std::function<std::optional<std::string>()>;
  // A number that grows with every change of what a page shows. Called often, with a lock held.
  using Changes = std::function<int64_t()>;

  // `changes` is that of pages which show all jobs.
  LiveParts(Options options, Changes changes);
  // Ends the streams.
  ~LiveParts();

  // A stream of the page. `key` stands for the page and who looks at it: streams of one key get the
  // same. `caller`: who looks, for the limit of one caller; empty: everybody, who has no such limit.
  // `own`: the changes of a page of one job; null: the page shows all jobs.
  // Null: there are as many pages, or streams, as there may be.
  std::shared_ptr<EventStream> Open(const std::string& key, Render render,
                                    const std::string& caller = "", Changes own = nullptr);
  // Whether somebody looks at it.
  bool Has(const std::string& key);

 private:
  struct Stream {
    std::shared_ptr<EventStream> events;
    absl::Time opened;
  };
  struct OpenPage {
    Render render;
    std::string caller;
    Changes own;
    absl::Duration refresh;
    std::vector<Stream> streams{};
    std::shared_ptr<const std::string> latest{};  // event; null: not rendered yet
    int64_t changes = -1;                         // when it was rendered
    absl::Time rendered = absl::InfinitePast();
  };
  struct Turn {
    std::string key;
    int64_t changes = 0;  // before the page is rendered
  };
  void Run();
  // Whether the caller may open one more stream, of a page that is open or not.
  bool HasRoom(const std::string& caller, bool new_page) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The page whose turn it is: of those that changed, and otherwise of those to be refreshed, the one
  // that was rendered first.
  std::optional<Turn> Next(absl::Time now, int64_t changes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Update(const Turn& turn);
  // Drops streams that ended, and pages that nobody looks at.
  void Sweep(absl::Time now);

  const Options options_;
  const Changes changes_;
  absl::Mutex mutex_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, OpenPage> pages_ ABSL_GUARDED_BY(mutex_);
  size_t streams_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace heddle::scheduler
