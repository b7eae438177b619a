#include "tests/access/lab.h"

#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/jobs.pb.h"
#include "tests/places.h"

namespace heddle {
namespace {

constexpr auto kCallLimit = std::chrono::seconds(60);  // for a machine that does a lot besides

grpc::ByteBuffer BufferOf(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!buffer.Dump(&slices).ok()) return bytes;
  for (const grpc::Slice& slice : slices)
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

}  // namespace

std::string Lab::Run(const std::vector<std::string>& words) {
  const std::string command =
      absl::StrCat(HEDDLE_SOURCE_DIR "/deploy/heddle-ca ", absl::StrJoin(words, " "));
  FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return "";
  std::string output;
  std::array<char, 4096> piece;
  while (const size_t got = fread(piece.data(), 1, piece.size(), pipe))
    output.append(piece.data(), got);
  EXPECT_EQ(pclose(pipe), 0) << command;
  while (output.ends_with('\n')) output.pop_back();
  return output;
}

Lab::Lab() {
  std::string pattern = std::filesystem::temp_directory_path() / "heddle_lab_XXXXXX";
  folder_ = mkdtemp(pattern.data());
  const std::string ca = File("ca");
  Run({"init", ca});
  for (const char* name : {"w1", "w2"}) Run({"issue", ca, "--role", "worker", "--name", name});
  for (const char* name : {"second", "scheduler.b"})
    Run({"issue", ca, "--role", "scheduler", "--name", name});
  for (const char* name : {"ann", "carl"})
    Run({"issue", ca, "--role", "user", "--name", name, "--tenant", "vision"});
  Run({"issue", ca, "--role", "user", "--name", "bob", "--tenant", "sound"});
  Run({"issue", ca, "--role", "read-only", "--name", "eve"});
  Run({"init", File("other")});
  std::filesystem::rename(File("other/scheduler"), ca + "/stranger");
}

Lab::~Lab() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

const Lab& Lab::Get() {
  static const Lab lab;
  return lab;
}

std::string Lab::Directory(const std::string& name) const { return File("ca/" + name); }

Credentials Lab::Of(const std::string& name, const std::string& token) const {
  absl::StatusOr<Credentials> credentials = LoadCredentials(Directory(name), "");
  EXPECT_TRUE(credentials.ok()) << credentials.status();
  if (!credentials.ok()) return {};
  if (!token.empty()) {
    credentials->token = token;
    credentials->tls->certificate.clear();
    credentials->tls->key.clear();
  }
  return *std::move(credentials);
}

std::vector<const google::protobuf::MethodDescriptor*> AllMethods() {
  std::vector<const google::protobuf::MethodDescriptor*> methods;
  v1::JobSpec::descriptor();  // links the files in
  for (const char* name : {"proto/jobs.proto", "proto/tracker.proto", "proto/worker.proto"}) {
    const auto* file = google::protobuf::DescriptorPool::generated_pool()->FindFileByName(name);
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m)
        methods.push_back(file->service(s)->method(m));
    }
  }
  return methods;
}

std::string NameOf(const google::protobuf::MethodDescriptor& method) {
  return absl::StrCat(method.service()->full_name(), "/", method.name());
}

Answer Call(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
            const std::string& request, int max_messages) {
  Answer answer;
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallLimit);
  grpc::GenericStub stub(channel);
  auto stream = stub.PrepareCall(&context, "/" + method, &queue);
  // Waits for the operation in progress; false if it failed.
  const auto done = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  stream->StartCall(nullptr);
  bool open = done();
  if (open) {
    stream->Write(BufferOf(request), nullptr);
    open = done();
  }
  if (open) {
    stream->WritesDone(nullptr);
    open = done();
  }
  grpc::ByteBuffer message;
  while (open) {
    stream->Read(&message, nullptr);
    open = done();
    if (open) answer.messages.push_back(BytesOf(message));
    if (static_cast<int>(answer.messages.size()) >= max_messages) {
      context.TryCancel();
      break;
    }
  }
  stream->Finish(&answer.status, nullptr);
  done();
  queue.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) continue;
  return answer;
}

}  // namespace heddle
