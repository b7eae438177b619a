// The page of the service in the browser: what `heddle jobs`, `show`, `explain`, `devices` and `records`
// say, rendered here, readable without scripts, and live where there are scripts.
//
//   /                        overview
//   /jobs?before=j12         all jobs
//   /jobs/ID                 a job; /jobs/ID/cancel, pause, resume, priority ask, and act when posted to
//   /jobs/ID/tasks/N         a task, by number from 1
//   /machines                slots, and what ran there in the last hours; /machines/drain?machine=NAME
//                            and /machines/resume?machine=NAME ask, and act when posted to
//   /submit                  a form for a model, and takes it when posted to
//   /records?search=TEXT     tasks; ?key=KEY the records of one
//   /compare?a=j1&b=j2       two jobs; ?device_a=KEY&device_b=KEY two devices; &after=KEY the next rows
//   /whatif                  what one more slot or another policy would do to the queue
//   /events?page=ADDRESS     new contents of that page, as server-sent events
//   /style.css, /script.js, /icon.svg
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/daemon/http_server.h"
#include "proto/access/identity.h"
#include "proto/access/revoked.h"
#include "proto/access/tokens.h"
#include "scheduler/page/live_parts.h"
#include "scheduler/page/source.h"
#include "views/accuracy.h"
#include "views/forms.h"
#include "views/html.h"

namespace heddle::scheduler {

struct PageOptions {
  // Who looks, by the token in the request: as a bearer token, or as the password that a browser asks
  // for, with any name. Null: everybody on this machine may see and do everything.
  const TokenFile* tokens = nullptr;
  // Who is refused although the token counts; null: nobody.
  const RevokedList* revoked = nullptr;
  // Called for each request with a token that does not count; may be null. A browser sends none until
  // the page has asked, so that is no refusal.
  std::function<void(const std::string& path, const absl::Status& why)> refused;
  LiveParts::Options live;
};

// Thread-safe.
class Page {
 public:
  // `source` outlives this.
  Page(PageOptions options, PageSource* source);

  HttpResponse Handle(const HttpRequest& request);
  // A form with a file begins: that of /submit. Whoever may not submit is refused before the file is
  // taken.
  std::variant<std::unique_ptr<FormUpload>, HttpResponse> BeginUpload(const HttpRequest& request);

 private:
  using Query = std::map<std::string, std::string>;
  class ModelUpload;

  absl::StatusOr<Identity> Identify(const HttpRequest& request) const;
  // The caller, or the answer to somebody who is nobody.
  std::variant<Identity, HttpResponse> Admit(const HttpRequest& request) const;
  // The page at a path.
  absl::StatusOr<views::Page> Render(const Identity& caller, const std::string& path,
                                     const Query& query) const;
  absl::StatusOr<views::Page> Overview(const Identity& caller) const;
  absl::StatusOr<views::Page> Jobs(const Identity& caller, const Query& query) const;
  absl::StatusOr<views::Page> Job(const Identity& caller, const std::string& job) const;
  absl::StatusOr<views::Page> Task(const Identity& caller, const std::string& job,
                                   const std::string& number) const;
  // The latest trials of the workload that a model predicted and whose job the caller may see, the oldest
  // first.
  absl::StatusOr<std::vector<views::PredictedTrial>> Predicted(const Identity& caller,
                                                               const WorkloadId& id) const;
  absl::StatusOr<views::Page> Confirm(const Identity& caller, const std::string& job,
                                      const std::string& action) const;
  absl::StatusOr<views::Page> Submit(const Identity& caller) const;
  // The form of /submit for the caller, as one who has entered nothing finds it.
  views::SubmitForm FormFor(const Identity& caller) const;
  absl::StatusOr<views::Page> ConfirmMachine(const Identity& caller, const std::string& action,
                                             const Query& query) const;
  absl::StatusOr<views::Page> Machines(const Identity& caller) const;
  absl::StatusOr<views::Page> Records(const Identity& caller, const Query& query) const;
  HttpResponse Post(const Identity& caller, const HttpRequest& request);
  // Does what the form says, and returns where to go on.
  absl::StatusOr<std::string> Perform(const Identity& caller, const std::string& path,
                                      const Query& fields);
  HttpResponse Events(const Identity& caller, const HttpRequest& request);
  HttpResponse Refuse(const Identity& caller, const absl::Status& status) const;
  // The form again, with what the caller has entered, and why that is refused.
  HttpResponse RefuseForm(const Identity& caller, const Query& entered,
                          const absl::Status& status) const;
  HttpResponse Refusal(const absl::Status& status, views::Page page) const;

  const PageOptions options_;
  PageSource* const source_;
  LiveParts live_;
  std::atomic<int> actions_ = 0;  // that wait for the database
  std::atomic<int> uploads_ = 0;  // of models
};

}  // namespace heddle::scheduler
