// Every method by every role, over real gRPC with the certificates of a lab: each cell as the access
// table says. The server has no handlers, so a call that is let in ends with UNIMPLEMENTED.
#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>

#include "absl/strings/str_cat.h"
#include "proto/access/access_table.h"
#include "proto/access/channel.h"
#include "proto/access/listener.h"
#include "proto/grpc_util.h"
#include "tests/access/lab.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;

class MatrixTest : public ::testing::Test {
 protected:
  MatrixTest() : tokens_(Lab::Get().File("tokens")) {
    Start(&tokens_, &generic_, &server_, &address_);
    Start(nullptr, &daemon_generic_, &daemon_, &daemon_address_);
  }
  ~MatrixTest() override {
    for (const auto& server : {server_.get(), daemon_.get()})
      server->Shutdown(std::chrono::system_clock::now());
  }

  void Start(const TokenFile* tokens, grpc::CallbackGenericService* generic,
             std::unique_ptr<grpc::Server>* server, std::string* address) {
    grpc::ServerBuilder builder;
    ListenerOptions options;
    options.address = "127.0.0.1:0";
    options.credentials = Lab::Get().Of("scheduler");
    options.tokens = tokens;
    options.refused = [this](const Identity& caller, const std::string& method,
                             const absl::Status&) {
      std::lock_guard lock(mutex_);
      refused_.insert(ToText(caller) + " " + method);
    };
    int port = 0;
    const auto added = AddListener(options, &builder, &port);
    ASSERT_TRUE(added.ok()) << added.status();
    builder.RegisterCallbackGenericService(generic);
    *server = builder.BuildAndStart();
    ASSERT_NE(*server, nullptr);
    *address = absl::StrCat("127.0.0.1:", port);
  }

  std::shared_ptr<grpc::Channel> Connect(const Credentials& credentials) const {
    return MakeChannel(address_, PeerName(Role::kScheduler), credentials);
  }

  // Every method in proto/ and every other one with a row, and some that nobody knows.
  static std::set<std::string> Methods() {
    std::set<std::string> methods = {"heddle.v1.JobService/Unknown", "x/y",
                                     "grpc.reflection.v1.ServerReflection/ServerReflectionInfo"};
    for (const auto* method : AllMethods()) methods.insert(NameOf(*method));
    for (const AccessRow& row : AccessTable()) methods.emplace(row.method);
    return methods;
  }

  void ExpectRow(const Identity& who, const Credentials& credentials) {
    const auto channel = Connect(credentials);
    for (const std::string& method : Methods()) {
      const AccessRow* row = FindAccessRow(method);
      const bool allowed = row != nullptr && Has(row->own | row->any, who.role);
      const grpc::StatusCode expected = allowed ? grpc::StatusCode::UNIMPLEMENTED
                                        : who.role == Role::kNobody && row != nullptr
                                            ? grpc::StatusCode::UNAUTHENTICATED
                                            : grpc::StatusCode::PERMISSION_DENIED;
      const Answer answer = Call(channel, method, "");
      EXPECT_EQ(answer.status.error_code(), expected)
          << ToText(who) << " " << method << ": " << answer.status.error_message();
      std::lock_guard lock(mutex_);
      EXPECT_EQ(refused_.contains(ToText(who) + " " + method), !allowed) << method;
    }
  }

  TokenFile tokens_;
  grpc::CallbackGenericService generic_, daemon_generic_;
  std::unique_ptr<grpc::Server> server_, daemon_;  // one takes tokens, as a scheduler does
  std::string address_, daemon_address_;
  std::mutex mutex_;
  std::set<std::string> refused_;
};

TEST_F(MatrixTest, EveryRoleByItsCertificate) {
  for (const char* name : {"ann", "bob", "eve", "operator", "w1", "scheduler", "tracker"}) {
    const Credentials credentials = Lab::Get().Of(name);
    ExpectRow(credentials.tls->identity, credentials);
  }
}

TEST_F(MatrixTest, PeopleByTheirTokens) {
  const std::string file = Lab::Get().File("tokens");
  std::map<Role, std::string> tokens;
  for (const Role role : {Role::kUser, Role::kReadOnly, Role::kOperator}) {
    tokens[role] = Lab::Run({"token", file, "--role", std::string(RoleName(role)), "--name", "p"});
    ASSERT_EQ(tokens[role].size(), 7u + 64u);
  }
  for (const auto& [role, token] : tokens) ExpectRow({role, "p", "p"}, Lab::Get().Of("ann", token));
}

TEST_F(MatrixTest, WhoShowsNothingIsNobody) {
  Credentials nothing = Lab::Get().Of("ann");
  nothing.tls->certificate.clear();
  nothing.tls->key.clear();
  ExpectRow({}, nothing);
}

TEST_F(MatrixTest, AFalseTokenIsRefusedEvenBesideACertificate) {
  Credentials both = Lab::Get().Of("operator");
  both.token = "heddle_0123";
  const Answer answer = Call(Connect(both), "heddle.v1.JobService/ListJobs", "");
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(answer.status.error_message(), HasSubstr("not known here"));
}

// Tracker and worker take no tokens, so whoever has no certificate does not even get to speak.
TEST_F(MatrixTest, WithoutTokensTheCertificateIsAskedForFirst) {
  Credentials nothing = Lab::Get().Of("ann");
  nothing.tls->certificate.clear();
  nothing.tls->key.clear();
  const auto channel = MakeChannel(daemon_address_, PeerName(Role::kScheduler), nothing);
  EXPECT_EQ(Call(channel, "grpc.health.v1.Health/Check", "").status.error_code(),
            grpc::StatusCode::UNAVAILABLE);
  const auto known = MakeChannel(daemon_address_, PeerName(Role::kScheduler), Lab::Get().Of("w1"));
  EXPECT_EQ(Call(known, "grpc.health.v1.Health/Check", "").status.error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  Credentials token = Lab::Get().Of("w1");
  token.token = "x";
  const auto with_token = MakeChannel(daemon_address_, PeerName(Role::kScheduler), token);
  EXPECT_EQ(Call(with_token, "grpc.health.v1.Health/Check", "").status.error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(MatrixTest, AnotherLabIsNotThisOne) {
  const Answer answer = Call(Connect(Lab::Get().Of("stranger")), "grpc.health.v1.Health/Check", "");
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  Credentials forged = Lab::Get().Of("stranger");  // knows whom to trust, but is not trusted
  forged.tls->ca = Lab::Get().Of("ann").tls->ca;
  EXPECT_EQ(Call(Connect(forged), "grpc.health.v1.Health/Check", "").status.error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST_F(MatrixTest, PlainTextIsNotAnswered) {
  const Answer answer = Call(Connect({}), "grpc.health.v1.Health/Check", "");
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

// The client's side: it speaks only to the role, and the worker, that it means.
TEST_F(MatrixTest, AServerOfAnotherRoleIsNotBelieved) {
  const Credentials ann = Lab::Get().Of("ann");
  for (const std::string& peer : {PeerName(Role::kTracker), PeerName(Role::kWorker, "w1"),
                                  PeerName(Role::kScheduler, "other"), std::string("localhost")}) {
    const Answer answer =
        Call(MakeChannel(address_, peer, ann), "heddle.v1.JobService/ListJobs", "");
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE) << peer;
  }
  const Answer named = Call(MakeChannel(address_, PeerName(Role::kScheduler, "scheduler"), ann),
                            "heddle.v1.JobService/ListJobs", "");
  EXPECT_EQ(named.status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace
}  // namespace heddle
