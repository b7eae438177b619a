#include "scheduler/service/storage/store_service.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "proto/check_message.h"
#include "proto/chunks.h"
#include "proto/grpc_util.h"
#include "scheduler/service/storage/stored_parts.h"
#include "scheduler/store/maintenance.h"
#include "scheduler/store/open_store.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {
namespace {

constexpr int kBlobsAtATime = 10'000;  // in one message
constexpr int kMaxFindings = 100;
constexpr absl::Duration kTellEvery = absl::Milliseconds(500);

absl::Status SendFile(const std::string& path, ChunkSink sink) {
  const auto read = [](std::ifstream& file, size_t limit) {
    std::string piece(limit, '\0');
    file.read(piece.data(), static_cast<std::streamsize>(limit));
    piece.resize(static_cast<size_t>(file.gcount()));
    return piece;
  };
  std::ifstream file(path, std::ios::binary), again(path, std::ios::binary);
  Sha256 hash;
  for (std::string piece = read(file, kChunkBytes); !piece.empty(); piece = read(file, kChunkBytes))
    hash.Update(piece);
  if (file.bad() || !again.is_open())
    return absl::InternalError(absl::StrCat("cannot read ", path, "; try again"));
  return SendChunks(
      "database", hash.Hex(),
      [&](size_t limit) -> absl::StatusOr<std::string> { return read(again, limit); }, sink);
}

// The blobs that the jobs refer to, the parts of their models included, and who needs each.
absl::StatusOr<std::map<std::string, std::vector<int64_t>>> NeededBy(
    const std::vector<JobBlobs>& jobs, const BlobStore& blobs) {
  std::map<std::string, std::vector<int64_t>> needed;
  std::map<std::string, v1::BlobList> lists;  // jobs of the same model share theirs
  for (const JobBlobs& job : jobs) {
    for (const std::string& blob : job.blobs) needed[blob].push_back(job.job);
    if (job.parts_digest.empty()) continue;
    auto list = lists.find(job.parts_digest);
    if (list == lists.end()) {
      absl::StatusOr<v1::BlobList> parts = ReadParts(job.parts_digest, blobs);
      // A lost list is missing as a blob; what it named is of no use without it.
      if (absl::IsNotFound(parts.status()) || absl::IsDataLoss(parts.status()))
        parts = v1::BlobList();
      HEDDLE_RETURN_IF_ERROR(parts.status());
      list = lists.emplace(job.parts_digest, *std::move(parts)).first;
    }
    for (const v1::BlobRef& part : list->second.blobs()) needed[part.sha256()].push_back(job.job);
  }
  return needed;
}

std::map<std::string, int64_t> SizesOf(const BlobStore& blobs) {
  std::map<std::string, int64_t> sizes;
  for (const BlobStore::Entry& entry : blobs.List()) sizes[entry.digest] = entry.size_bytes;
  return sizes;
}

// "jobs j1, j2 and 3 more"
std::string Names(const std::vector<int64_t>& jobs) {
  constexpr size_t kNamed = 3;
  std::string text = jobs.size() == 1 ? "job " : "jobs ";
  for (size_t i = 0; i < std::min(jobs.size(), kNamed); ++i)
    absl::StrAppend(&text, i == 0 ? "" : ", ", JobName(jobs[i]));
  if (jobs.size() > kNamed) absl::StrAppend(&text, " and ", jobs.size() - kNamed, " more");
  return text;
}

// Sends findings and progress.
class CheckReport {
 public:
  CheckReport(CallLimits::Call* call, grpc::ServerWriter<v1::CheckProgress>* writer,
              std::function<bool()> go_on)
      : call_(call), writer_(writer), go_on_(std::move(go_on)) {}
  void Begin(const std::string& step, int64_t total) {
    progress_.set_step(step);
    progress_.set_done(0);
    progress_.set_total(total);
    Send(progress_);
    told_ = MonotonicNow();
  }
  // False: the check must end.
  bool Advance(int64_t bytes) {
    progress_.set_done(progress_.done() + bytes);
    if (MonotonicNow() - told_ < kTellEvery) return go_on_();
    told_ = MonotonicNow();
    return Send(progress_) && go_on_();
  }
  void Find(const std::string& finding) {
    if (++findings_ > kMaxFindings) return;
    v1::CheckProgress found = progress_;
    found.set_finding(
        findings_ < kMaxFindings ? finding : "there is more; mend these first, then check again");
    Send(found);
  }

 private:
  bool Send(const v1::CheckProgress& progress) {
    return call_->WithPeer([&] { return writer_->Write(progress); });
  }

  CallLimits::Call* const call_;
  grpc::ServerWriter<v1::CheckProgress>* const writer_;
  const std::function<bool()> go_on_;
  v1::CheckProgress progress_;
  absl::Time told_ = absl::InfinitePast();
  int findings_ = 0;
};

// Reads the blob and compares it with its digest. DataLoss: it was damaged, and is removed.
absl::Status ReadBlob(const BlobStore& blobs, const std::string& digest, CheckReport* report) {
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<BlobStore::Reader> reader, blobs.NewReader(digest));
  while (true) {
    HEDDLE_ASSIGN_OR_RETURN(const std::string piece, reader->Next(kChunkBytes));
    if (piece.empty()) return absl::OkStatus();
    if (!report->Advance(static_cast<int64_t>(piece.size())))
      return absl::CancelledError("the check was cancelled");
  }
}

}  // namespace

StoreServiceImpl::StoreServiceImpl(std::string database, BlobStore* blobs, Collector* collector,
                                   CallLimits* calls)
    : database_(std::move(database)),
      copy_(database_ + ".backup"),
      blobs_(blobs),
      collector_(collector),
      calls_(calls) {
  RemoveCopy();
}

void StoreServiceImpl::RemoveCopy() const {
  if (IsPostgres(database_)) return;  // it has none
  for (const char* end : {"", "-journal", "-wal", "-shm"}) {
    std::error_code error;
    std::filesystem::remove(copy_ + end, error);
  }
}

grpc::Status StoreServiceImpl::BackUp(grpc::ServerContext* context, const v1::BackUpRequest*,
                                      grpc::ServerWriter<v1::BackUpPart>* writer) {
  CallLimits::Call call(calls_, CallLimits::kBackups, context, {.role = Role::kLocal});
  if (!call.ok()) return call.status();
  if (const int64_t bytes = IsPostgres(database_) ? 0 : BytesOfDatabase(database_);
      bytes + kDiskReserveBytes > blobs_->FreeBytes()) {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED,
            absl::StrCat("the disk of the scheduler's data directory has no room for a copy of the "
                         "database, ",
                         bytes >> 20, " MiB; free some space")};
  }
  RemoveCopy();
  const absl::Cleanup remove = [this] { RemoveCopy(); };
  const auto used = BackUpDatabase(
      database_, copy_, [&](int64_t, int64_t) { return !stopping_ && !context->IsCancelled(); });
  if (!used.ok()) return ToGrpc(used.status());
  v1::BackUpPart part;
  const absl::Status sent = SendFile(copy_, [&](v1::Chunk chunk) {
    *part.mutable_database() = std::move(chunk);
    return call.WithPeer([&] { return writer->Write(part); });
  });
  if (!sent.ok()) return ToGrpc(sent);
  const auto needed = NeededBy(*used, *blobs_);
  if (!needed.ok()) return ToGrpc(needed.status());
  const std::map<std::string, int64_t> sizes = SizesOf(*blobs_);
  v1::BlobList there, missing;
  const auto send = [&](v1::BlobList* list, auto mutable_part, bool all) {
    if (list->blobs().empty() || (!all && list->blobs_size() < kBlobsAtATime)) return;
    part.Clear();
    mutable_part(&part)->Swap(list);
    list->Clear();
    call.WithPeer([&] { return writer->Write(part); });
  };
  const auto send_both = [&](bool all) {
    send(
        &there, [](v1::BackUpPart* to) { return to->mutable_blobs(); }, all);
    send(
        &missing, [](v1::BackUpPart* to) { return to->mutable_missing(); }, all);
  };
  for (const auto& [digest, jobs] : *needed) {
    const auto size = sizes.find(digest);
    v1::BlobRef& blob = *(size == sizes.end() ? missing : there).add_blobs();
    blob.set_sha256(digest);
    if (size != sizes.end()) blob.set_bytes(size->second);
    send_both(false);
  }
  send_both(true);
  return grpc::Status::OK;
}

grpc::Status StoreServiceImpl::FetchBlobs(grpc::ServerContext* context, const v1::BlobList* request,
                                          grpc::ServerWriter<v1::Chunk>* writer) {
  CallLimits::Call call(calls_, CallLimits::kCare, context, {.role = Role::kLocal});
  if (!call.ok()) return call.status();
  if (const absl::Status checked = CheckMessage(*request); !checked.ok()) return ToGrpc(checked);
  for (const v1::BlobRef& blob : request->blobs()) {
    const absl::StatusOr<std::unique_ptr<BlobStore::Reader>> reader =
        blobs_->NewReader(blob.sha256());
    if (!reader.ok()) continue;
    const absl::Status sent = SendChunks(
        blob.sha256(), blob.sha256(),
        [&](size_t limit) -> absl::StatusOr<std::string> {
          if (stopping_) return absl::UnavailableError("the scheduler is shutting down");
          return (*reader)->Next(limit);
        },
        [&](const v1::Chunk& chunk) {
          return call.WithPeer([&] { return writer->Write(chunk); });
        });
    if (!sent.ok() && !absl::IsDataLoss(sent)) return ToGrpc(sent);
    if (context->IsCancelled()) return grpc::Status::CANCELLED;
  }
  return grpc::Status::OK;
}

grpc::Status StoreServiceImpl::Check(grpc::ServerContext* context, const v1::CheckRequest* request,
                                     grpc::ServerWriter<v1::CheckProgress>* writer) {
  CallLimits::Call call(calls_, CallLimits::kChecks, context, {.role = Role::kLocal});
  if (!call.ok()) return call.status();
  const auto go_on = [&] { return !stopping_ && !context->IsCancelled(); };
  CheckReport report(&call, writer, go_on);
  report.Begin("database", 0);
  const auto wrong = CheckDatabase(database_, kMaxFindings, [&] { return report.Advance(0); });
  if (!wrong.ok()) return ToGrpc(wrong.status());
  for (const std::string& finding : *wrong) report.Find(finding);

  report.Begin("jobs", 0);
  const auto jobs = BlobsOfDatabase(database_);
  if (!jobs.ok()) return ToGrpc(jobs.status());
  const auto needed = NeededBy(*jobs, *blobs_);
  if (!needed.ok()) return ToGrpc(needed.status());
  std::map<std::string, int64_t> sizes = SizesOf(*blobs_);
  int64_t total = 0;
  for (const auto& [digest, size] : sizes) total += size;
  for (const auto& [digest, by] : *needed) {
    if (sizes.count(digest) > 0) continue;
    report.Find(absl::StrCat("blob ", digest, " is missing; ", Names(by),
                             by.size() == 1 ? " needs it" : " need it",
                             ": submit the model again"));
  }
  if (!request->read_blobs()) return grpc::Status::OK;

  report.Begin("blobs", total);
  for (const auto& [digest, size] : sizes) {
    const absl::Status read = ReadBlob(*blobs_, digest, &report);
    if (read.ok() || absl::IsNotFound(read)) continue;  // removed meanwhile: no job refers to it
    if (absl::IsCancelled(read)) return ToGrpc(read);
    const auto by = needed->find(digest);
    report.Find(absl::StrCat(
        absl::IsDataLoss(read)
            ? absl::StrCat("blob ", digest, " was damaged and is removed; ")
            : absl::StrCat("blob ", digest, " cannot be read (", read.message(), "); "),
        by == needed->end() ? std::string("no job needs it")
                            : absl::StrCat(Names(by->second), ": submit the model again")));
  }
  return grpc::Status::OK;
}

grpc::Status StoreServiceImpl::Collect(grpc::ServerContext* context,
                                       const v1::CollectRequest* request,
                                       grpc::ServerWriter<v1::CollectProgress>* writer) {
  CallLimits::Call call(calls_, CallLimits::kCare, context, {.role = Role::kLocal});
  if (!call.ok()) return call.status();
  if (const absl::Status checked = CheckMessage(*request); !checked.ok()) return ToGrpc(checked);
  v1::CollectProgress part;
  absl::Time told = MonotonicNow();
  const auto total = collector_->Collect(
      {absl::Seconds(request->older_than_s()), request->keep_jobs()}, request->dry_run(),
      absl::Now(),
      [&](const v1::CollectProgress::Job& job) {
        *part.mutable_job() = job;
        told = MonotonicNow();
        return call.WithPeer([&] { return writer->Write(part); });
      },
      [&] {
        if (stopping_ || context->IsCancelled()) return false;
        if (MonotonicNow() - told < kTellEvery) return true;
        told = MonotonicNow();  // that it still works
        return call.WithPeer([&] { return writer->Write({}); });
      });
  if (!total.ok()) return ToGrpc(total.status());
  *part.mutable_total() = *total;
  call.WithPeer([&] { return writer->Write(part); });
  return grpc::Status::OK;
}

}  // namespace heddle::scheduler
