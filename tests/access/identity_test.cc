// Names, roles and identities as certificates spell them.
#include "proto/access/identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "proto/access/access_table.h"
#include "proto/access/local_socket.h"

namespace heddle {
namespace {

TEST(IdentityTest, ReadsWhatHeddleCaWrites) {
  EXPECT_EQ(ParseIdentity("heddle://worker/w1").value(), (Identity{Role::kWorker, "w1", ""}));
  EXPECT_EQ(ParseIdentity("heddle://user/ann").value(), (Identity{Role::kUser, "ann", "ann"}));
  EXPECT_EQ(ParseIdentity("heddle://read-only/eve?tenant=a.b").value(),
            (Identity{Role::kReadOnly, "eve", "a.b"}));
}

TEST(IdentityTest, RefusesWhatIsNoIdentity) {
  for (const char* uri : {"",
                          "heddle://",
                          "heddle://user",
                          "heddle://user/",
                          "heddle:///ann",
                          "http://user/ann",
                          "heddle://root/ann",
                          "heddle://local/ann",
                          "heddle://nobody/ann",
                          "heddle://User/ann",
                          "heddle://user/Ann",
                          "heddle://user/ann/",
                          "heddle://user/ann/b",
                          "heddle://user/a nn",
                          "heddle://user/-ann",
                          "heddle://user/ann.",
                          "heddle://user/ann?",
                          "heddle://user/ann?tenant=",
                          "heddle://user/ann?tenant=A",
                          "heddle://user/ann?tenant=a&b=c",
                          "heddle://user/ann?role=x",
                          "heddle://worker/w1?tenant=a",
                          "heddle://user/ann?tenant=a?tenant=b",
                          " heddle://user/ann"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseIdentity(uri).status())) << uri;
  }
  const std::string with_zero("heddle://user/ann\0x", 19);
  EXPECT_FALSE(ParseIdentity(with_zero).ok());
  EXPECT_FALSE(ParseIdentity(absl::StrCat("heddle://user/", std::string(64, 'a'))).ok());
  EXPECT_TRUE(ParseIdentity(absl::StrCat("heddle://user/", std::string(63, 'a'))).ok());
}

// Whatever is read can be written again, and gives the same.
TEST(IdentityTest, RandomTextsAreReadAsWrittenOrRefused) {
  std::mt19937_64 random(7);
  const std::string letters = "heddle:/?=tenantuserwk1-. A\n";
  const char* starts[] = {"", "heddle://", "heddle://user/", "heddle://worker/",
                          "heddle://user/a?"};
  int read = 0;
  for (int i = 0; i < 100'000; ++i) {
    std::string uri = starts[random() % 5];
    for (size_t n = random() % 14; n > 0; --n) uri += letters[random() % letters.size()];
    const absl::StatusOr<Identity> identity = ParseIdentity(uri);
    if (!identity.ok()) continue;
    ++read;
    ASSERT_TRUE(IsName(identity->name)) << uri;
    std::string again = absl::StrCat("heddle://", RoleName(identity->role), "/", identity->name);
    if (uri.find('?') != std::string::npos) absl::StrAppend(&again, "?tenant=", identity->tenant);
    ASSERT_EQ(again, uri);
  }
  EXPECT_GT(read, 1000);
}

// A name cannot be chosen so that its certificate holds the host name of another role: a client that
// expects scheduler.heddle must not be served by a worker.
TEST(IdentityTest, NoNameOfOneRoleIsThatOfAnother) {
  const std::vector<std::string> names = {"scheduler", "w1", "w1.worker", "scheduler.heddle", "a"};
  const Role roles[] = {Role::kUser, Role::kWorker, Role::kScheduler, Role::kTracker};
  for (const Role role : roles) {
    for (const std::string& name : names) {
      for (const Role other : roles) {
        if (other == role) continue;
        EXPECT_NE(PeerName(role, name), PeerName(other));
        for (const std::string& their : names)
          EXPECT_NE(PeerName(role, name), PeerName(other, their));
      }
    }
  }
}

TEST(AccessTableTest, TenantsAreApart) {
  const Identity ann{Role::kUser, "ann", "vision"}, bob{Role::kUser, "bob", "sound"};
  const Identity nameless{Role::kUser, "x", ""};
  const std::string_view get = "heddle.v1.JobService/GetJob",
                         cancel = "heddle.v1.JobService/CancelJob";
  EXPECT_TRUE(MayUse(ann, get, "vision"));
  EXPECT_FALSE(MayUse(bob, get, "vision"));
  EXPECT_FALSE(MayUse(ann, get, "")) << "jobs of nobody";
  EXPECT_FALSE(MayUse(nameless, get, ""));
  EXPECT_TRUE(MayUse({Role::kOperator, "o", "o"}, cancel, "vision"));
  EXPECT_TRUE(MayUse({Role::kReadOnly, "e", "e"}, get, "vision"));
  EXPECT_FALSE(MayUse({Role::kReadOnly, "e", "vision"}, cancel, "vision"));
  EXPECT_FALSE(MayUse({}, get, ""));
  EXPECT_FALSE(MayUse(ann, "heddle.v1.JobService/NewMethod", "vision"));
}

TEST(AccessTableTest, WhatHasNoRowIsDenied) {
  for (const char* method : {"", "heddle.v1.JobService/", "heddle.v1.JobService/getjob", "x",
                             "/heddle.v1.JobService/GetJob", "heddle.v1.JobService/GetJob/"}) {
    EXPECT_TRUE(absl::IsPermissionDenied(CheckMethod({Role::kLocal, "", ""}, method))) << method;
    EXPECT_TRUE(absl::IsPermissionDenied(CheckMethod({Role::kOperator, "o", ""}, method)))
        << method;
  }
}

// The cells on which the rest rests, written out.
TEST(AccessTableTest, CodeRunsOnlyForSchedulers) {
  for (const std::string method :
       {"heddle.v1.WorkerService/RunStage", "heddle.v1.TrackerService/Acquire",
        "heddle.v1.TrackerService/RenewAll", "heddle.v1.TrackerService/Release"}) {
    // An operator holds slots so that nothing runs there, which runs no code either.
    const bool holds = method.ends_with("/Acquire") || method.ends_with("/Release");
    EXPECT_EQ(CheckMethod({Role::kOperator, "x", "x"}, method).ok(), holds) << method;
    for (const Role role :
         {Role::kNobody, Role::kUser, Role::kReadOnly, Role::kWorker, Role::kTracker})
      EXPECT_FALSE(CheckMethod({role, "x", "x"}, method).ok()) << method << " " << RoleName(role);
    EXPECT_TRUE(CheckMethod({Role::kScheduler, "x", ""}, method).ok());
  }
}

TEST(LocalSocketTest, AddressesOfThisMachine) {
  for (const char* address : {"127.0.0.1:1", "localhost:0", "[::1]:80"})
    EXPECT_TRUE(IsLoopbackAddress(address)) << address;
  for (const char* address :
       {"", "0.0.0.0:1", "10.0.0.1:1", "[::]:1", "*:1", "127.0.0.1.evil.com:1",
        "localhost.evil.com:1", ":1", "127.0.0.2:1", "dns:localhost:1"})
    EXPECT_FALSE(IsLoopbackAddress(address)) << address;
  EXPECT_TRUE(IsUnixAddress("unix:/a/b"));
  EXPECT_FALSE(IsUnixAddress("/a/b"));
}

}  // namespace
}  // namespace heddle
