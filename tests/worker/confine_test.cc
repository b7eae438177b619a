// The parts of confinement that need no child: texts, lists of paths, and folders of hostile stages.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files/blob_store.h"
#include "base/sha256.h"
#include "worker/confine/confine.h"
#include "worker/confine/landlock.h"
#include "worker/confine/loader_folders.h"
#include "worker/confine/mechanisms.h"
#include "worker/confine/policy.h"
#include "worker/confine/stage_folder.h"
#include "worker/process/stage_cgroup.h"

namespace heddle::worker::confine {
namespace {

using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(MechanismsTest, TextsGoThereAndBack) {
  for (unsigned bits = 0; bits < 32; ++bits) {
    Confinement confinement;
    confinement.user = (bits & 1) != 0;
    confinement.namespaces = (bits & 2) != 0;
    confinement.landlock = (bits & 4) != 0;
    confinement.filter = (bits & 8) != 0;
    confinement.cgroup = (bits & 16) != 0;
    if (confinement.user) confinement.uid = 1000 + bits;
    const auto parsed = ParseConfinement(ToText(confinement));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, confinement) << ToText(confinement);
    EXPECT_EQ(parsed->any(), (bits & 15) != 0) << "the process itself does nothing about its group";
  }
  EXPECT_EQ(ToText(*ParseConfinement("all")), "user=65534:65534,namespaces,landlock,filter,cgroup");
  EXPECT_EQ(ToText(*ParseConfinement("filter,user")), "user=65534:65534,filter");
  for (const char* wrong : {"", "everything", "filter,", "user=1", "user=x:1", "filter=1:1"})
    EXPECT_THAT(ParseConfinement(wrong).status().message(), HasSubstr("confines nothing")) << wrong;
}

// What /proc says in a unit of systemd, in a container, beside cgroup v1, and without cgroup v2.
TEST(CgroupTest, TheOwnGroupIsFound) {
  constexpr char kV1[] = "30 25 0:27 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n";
  constexpr char kV2[] = "35 25 0:31 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
  const auto find = [](const std::string& cgroup, const std::string& mounts) {
    const OwnCgroup own = FindOwnCgroup(cgroup, mounts);
    return own.folder + (own.topmost ? " topmost" : "");
  };
  EXPECT_EQ(find("0::/system.slice/heddle-worker.service\n", kV2),
            "/sys/fs/cgroup/system.slice/heddle-worker.service");
  EXPECT_EQ(find("0::/\n", kV2), "/sys/fs/cgroup topmost");
  EXPECT_EQ(
      find("8:pids:/a\n0::/b\n", absl::StrCat(kV1, "36 25 0:31 / /unified rw - cgroup2 c rw\n")),
      "/unified/b");
  const std::string part = "40 25 0:31 /docker/x /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
  EXPECT_EQ(find("0::/docker/x\n", part), "/sys/fs/cgroup topmost");
  EXPECT_EQ(find("0::/docker/x/y\n", part), "/sys/fs/cgroup/y");
  EXPECT_EQ(find("0::/docker/xy\n", part), "") << "the mount does not show it";
  EXPECT_EQ(find("0::/a\n", kV1), "");
  EXPECT_EQ(find("8:pids:/a\n", kV2), "");
  EXPECT_EQ(find("", ""), "");
}

TEST(CgroupTest, GroupsAreMadeInTheGroupThatWasGiven) {
  const auto place = [](const std::string& folder, bool topmost = false) {
    const auto found = PlaceOfGroups(
        {folder, topmost}, [](const std::string& group) { return group == "/sys/fs/cgroup/unit"; });
    return found.ok() ? *found : std::string(found.status().message());
  };
  EXPECT_EQ(place("/sys/fs/cgroup/unit"), "/sys/fs/cgroup/unit");
  EXPECT_EQ(place("/sys/fs/cgroup/unit/main"), "/sys/fs/cgroup/unit") << "DelegateSubgroup=main";
  EXPECT_EQ(place("/sys/fs/cgroup/unit/heddle-supervisor"), "/sys/fs/cgroup/unit");
  EXPECT_EQ(place("/sys/fs/cgroup/heddle-supervisor"), "/sys/fs/cgroup") << "of a container";
  EXPECT_EQ(place("/sys/fs/cgroup", true), "/sys/fs/cgroup");
  EXPECT_THAT(place("/sys/fs/cgroup/unit/main/more"), HasSubstr("was not given to the worker"));
  EXPECT_THAT(place("/sys/fs/cgroup/user.slice"), HasSubstr("was not given to the worker"));
  EXPECT_THAT(place(""), HasSubstr("no cgroup v2"));
}

// In folders that look like groups of the kernel.
TEST(CgroupTest, ThreadsAreLimitedWhereNobodyElseIsInTheGroup) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/group", getpid());
  std::filesystem::create_directories(folder);
  const auto can = [&](const std::string& controllers, const std::string& processes) {
    std::ofstream(folder + "/cgroup.controllers") << controllers;
    std::ofstream(folder + "/cgroup.procs") << processes;
    return CanLimitThreads(folder, 7);
  };
  EXPECT_FALSE(can("cpu pids memory\n", "7\n")) << "the topmost group of the machine";
  std::ofstream(folder + "/cgroup.type") << "domain\n";
  EXPECT_TRUE(can("cpu pids memory\n", "7\n"));
  EXPECT_TRUE(can("pids\n", "")) << "the process is in a group below";
  EXPECT_FALSE(can("pids\n", "7\n77\n")) << "another process is there";
  EXPECT_FALSE(can("pids\n", "0\n")) << "it is not even in this namespace";
  EXPECT_FALSE(can("cpu memory\n", "7\n"));
  std::filesystem::remove_all(folder);
}

// The kernel sets the limit of each group to "max" when limits are turned off and on again, as a worker does that
// starts where there is another one.
TEST(CgroupTest, StagesOfAnotherWorkerGetTheirLimitsAgain) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/limits", getpid());
  const auto write = [&](const std::string& group, const std::string& limit) {
    std::filesystem::create_directories(absl::StrCat(folder, "/", group));
    std::ofstream(absl::StrCat(folder, "/", group, "/pids.max")) << limit << "\n";
  };
  const auto read = [&](const std::string& group) {
    std::string limit;
    std::ifstream(absl::StrCat(folder, "/", group, "/pids.max")) >> limit;
    return limit;
  };
  write("heddle-stage-7-1", "64");
  write("heddle-stage-7-2", "32");
  write("heddle-stage-8-1", "max");
  write("heddle-stage-9-1", "16");
  write("heddle-supervisor", "99");
  const std::map<std::string, std::string> limits = ThreadLimits(folder);
  EXPECT_EQ(limits.size(), 3u) << "of stages that have one";
  // The kernel says "max" then. In a file, what is not written over would stay, so it gets empty.
  for (const char* group : {"heddle-stage-7-1", "heddle-stage-7-2"}) write(group, "");
  std::filesystem::remove_all(folder + "/heddle-stage-9-1");  // that stage has ended
  LimitAgain(limits);
  EXPECT_EQ(read("heddle-stage-7-1"), "64");
  EXPECT_EQ(read("heddle-stage-7-2"), "32");
  EXPECT_EQ(read("heddle-stage-8-1"), "max");
  EXPECT_FALSE(std::filesystem::exists(folder + "/heddle-stage-9-1"));
  std::filesystem::remove_all(folder);
}

// A worker that ended between turning limits off and on leaves them off, and all stages without one.
TEST(CgroupTest, LimitsThatAnotherWorkerLeftOffAreRestored) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/restore", getpid());
  std::filesystem::create_directories(folder + "/heddle-stage-7-1");
  const auto write = [&](const std::string& file, const std::string& text) {
    std::ofstream(absl::StrCat(folder, "/", file)) << text << "\n";
  };
  const auto read = [&](const std::string& file) {
    std::string word;
    std::ifstream(absl::StrCat(folder, "/", file)) >> word;
    return word;
  };
  const std::string limit = "heddle-stage-7-1/pids.max";
  const std::map<std::string, std::string> limits = {
      {absl::StrCat(folder, "/", limit), "640"},
      {absl::StrCat(folder, "/heddle-stage-7-2/pids.max"), "320"}};  // that stage ends just now
  write("cgroup.subtree_control", "");
  write(limit, "max");
  // With a process in the group itself, limits would keep processes out of all groups in it.
  write("cgroup.procs", "7");
  RestoreLimits(folder, limits);
  EXPECT_EQ(read("cgroup.subtree_control"), "");
  EXPECT_EQ(read(limit), "max");
  std::ofstream(folder + "/cgroup.procs").close();
  RestoreLimits(folder, limits);
  EXPECT_EQ(read("cgroup.subtree_control"), "+pids");  // the kernel makes it "pids"
  EXPECT_EQ(read(limit), "640");
  EXPECT_FALSE(std::filesystem::exists(folder + "/heddle-stage-7-2"));
  // What is in order is left alone.
  write("cgroup.subtree_control", "cpu pids");
  write(limit, "64");
  RestoreLimits(folder, limits);
  EXPECT_EQ(read("cgroup.subtree_control"), "cpu");
  EXPECT_EQ(read(limit), "64");
  // Another worker has turned them on meanwhile; this one's stages still lack theirs.
  write(limit, "max");
  RestoreLimits(folder, limits);
  EXPECT_EQ(read(limit), "640");
  std::filesystem::remove_all(folder);
}

TEST(CgroupTest, OnlyGroupsOfWorkersThatAreGoneAreLeft) {
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  const std::string name = absl::StrCat("heddle-stage-", gone, "-1");
  EXPECT_FALSE(IsLeft(name)) << "it is a process until somebody waits for it";
  waitpid(gone, nullptr, 0);
  EXPECT_TRUE(IsLeft(name));
  EXPECT_TRUE(IsLeft(absl::StrCat("heddle-stage-", getpid(), "-1"))) << "of an earlier process";
  EXPECT_FALSE(IsLeft("heddle-stage-1-1")) << "of another user";
  for (const char* other : {"heddle-supervisor", "heddle-stage-", "heddle-stage-x-1",
                            "heddle-stage--1-1", "heddle-stage-0-1", "user.slice", ""})
    EXPECT_FALSE(IsLeft(other)) << other;
}

// A group that a service manager has is not for those that it has started.
TEST(CgroupTest, TheGroupOfAServiceManagerIsNotGivenToTheWorker) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/given", getpid());
  std::filesystem::create_directories(folder);
  EXPECT_FALSE(IsGiven(folder));
  if (setxattr(folder.c_str(), "user.delegate", "1", 1, 0) == 0) {
    EXPECT_TRUE(IsGiven(folder));
    std::filesystem::create_directory(folder + "/init.scope");
    EXPECT_FALSE(IsGiven(folder)) << "as user@1000.service";
  }
  const bool marks = errno != ENOTSUP;
  std::filesystem::remove_all(folder);
  if (!marks) GTEST_SKIP() << "files here take no marks (user.delegate)";
}

TEST(MechanismsTest, WhatIsMissingIsNamedWithARemedy) {
  const Confinement all = ParseConfinement("all").value();
  const std::vector<Feature> features = {
      {.name = "filter", .available = true, .why = "fine"},
      {.name = "landlock", .why = "the kernel is old", .remedy = "take a newer one"},
      {.name = "user", .why = "not root", .remedy = "be root", .required = false}};
  EXPECT_EQ(ToText(Available(all, features)), "namespaces,filter,cgroup");
  EXPECT_EQ(RequireAll(features).message(),
            "stages cannot be confined by landlock: the kernel is old; take a newer one");
  EXPECT_EQ(Describe(features[0]), "filter: yes, fine");
  EXPECT_EQ(Describe(features[2]), "user: no, not root; be root");
  EXPECT_TRUE(RequireAll({features[0], features[2]}).ok()) << "that one is not required";
}

// What the probe finds is what the host has, and every line that says no says what to do.
TEST(MechanismsTest, ProbesAnswer) {
  const std::vector<Feature> features = ProbeConfinement(ParseConfinement("all").value());
  ASSERT_EQ(features.size(), 5u);
  for (const Feature& feature : features) {
    EXPECT_FALSE(feature.why.empty()) << feature.name;
    EXPECT_EQ(feature.remedy.empty(), feature.available) << Describe(feature);
  }
  for (const Feature& feature : ProbeConfinement({}))
    EXPECT_FALSE(feature.available) << "nothing was wanted: " << Describe(feature);
}

TEST(MechanismsTest, StageUsers) {
  Confinement confinement;
  EXPECT_TRUE(SetStageUser("12345", &confinement).ok());
  EXPECT_EQ(confinement.uid, 12345u);
  EXPECT_TRUE(SetStageUser("root", &confinement).ok()) << "refused by the probe, not here";
  EXPECT_EQ(confinement.uid, 0u);
  EXPECT_TRUE(absl::IsNotFound(SetStageUser("no such user", &confinement)));
  if (geteuid() != 0) return;
  confinement.user = true;
  const std::vector<Feature> features = ProbeConfinement(confinement);
  EXPECT_THAT(features, Contains(Field(&Feature::why, HasSubstr("stages do not run as root"))));
}

// The driver of a GPU does this when it starts.
bool NamesAnotherThread() {
  std::atomic<bool> end{false};
  std::thread other([&end] {
    while (!end) std::this_thread::yield();
  });
  const bool named = pthread_setname_np(other.native_handle(), "renamed") == 0;
  end = true;
  other.join();
  return named;
}

// Older kernels know less: each version is asked for what it has, and confines files.
TEST(LandlockTest, EveryVersionConfinesFiles) {
  for (int version = 1; version <= LandlockVersion(); ++version) {
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
      const std::vector<PathRule> paths = {{"/proc/self", Access::kRead},
                                           {"/proc/self/task", Access::kWrite},
                                           {"/dev/null", Access::kDevice},
                                           {"/tmp", Access::kPrivate},
                                           {"/missing", Access::kRead}};
      const auto rules = LandlockRules::Make(paths, version);
      if (!rules.ok() || !(*rules)->Apply().ok()) _exit(1);
      const bool allowed = open("/proc/self/status", O_RDONLY) >= 0 &&
                           open("/dev/null", O_RDWR) >= 0 &&
                           open("/tmp", O_TMPFILE | O_RDWR, 0600) >= 0 && NamesAnotherThread();
      const bool refused = open("/etc/passwd", O_RDONLY) < 0 && open("/dev/zero", O_RDONLY) < 0 &&
                           open("/proc/self/status", O_WRONLY) < 0;
      _exit(!allowed ? 2 : !refused ? 3 : 0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0) << "version " << version << ": exit status " << WEXITSTATUS(status);
  }
  EXPECT_TRUE(absl::IsUnavailable(LandlockRules::Make({}, 0).status()));
}

class FolderTest : public ::testing::Test {
 protected:
  FolderTest() {
    path_ = (std::filesystem::temp_directory_path() / "heddle-folder-XXXXXX").string();
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
  }
  ~FolderTest() override { std::filesystem::remove_all(path_); }
  static bool Exists(const std::string& path) {
    struct stat info;
    return lstat(path.c_str(), &info) == 0;
  }
  static void Write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }

  std::string path_;
};

// Random trees with everything that could stop or mislead the removal. Nothing of them is left, and
// what their links point to is untouched.
TEST_F(FolderTest, EmptiesWhateverAStageLeaves) {
  const std::string kept = path_ + "/kept", tree = path_ + "/tree";
  mkdir(kept.c_str(), 0755);
  Write(kept + "/precious", "x");
  std::mt19937 random(7);
  for (int round = 0; round < 5; ++round) {
    mkdir(tree.c_str(), 0755);
    std::vector<std::string> folders = {tree};
    constexpr int kEntries = 300;
    for (int i = 0; i < kEntries; ++i) {
      const std::string in = folders[random() % folders.size()];
      const std::string name = absl::StrCat(in, "/", random() % 3 == 0 ? "." : "", i);
      switch (random() % 5) {
        case 0:
          Write(name, "x");
          break;
        case 1:
          EXPECT_EQ(symlink(kept.c_str(), name.c_str()), 0);
          break;
        case 2:
          EXPECT_EQ(mkfifo(name.c_str(), 0), 0);
          break;
        default:
          if (mkdir(name.c_str(), 0755) == 0) folders.push_back(name);
      }
    }
    // Inner ones come later in the list, and are reached before the outer ones are shut.
    for (size_t i = folders.size() - 1; i > 0; --i)
      if (random() % 4 == 0) chmod(folders[i].c_str(), 0);
    EXPECT_TRUE(EmptyFolder(tree)) << "round " << round;
    EXPECT_EQ(rmdir(tree.c_str()), 0) << "round " << round;
    EXPECT_TRUE(Exists(kept + "/precious"));
  }
}

// Deeper than paths may be long, and than descriptors suffice for.
TEST_F(FolderTest, EmptiesAnyDepth) {
  constexpr int kLevels = 1500;
  int at = open(path_.c_str(), O_RDONLY | O_DIRECTORY);
  for (int level = 0; level < kLevels; ++level) {
    ASSERT_EQ(mkdirat(at, "deeper", 0700), 0) << level;
    const int next = openat(at, "deeper", O_RDONLY | O_DIRECTORY);
    ASSERT_GE(next, 0) << level;
    close(at);
    at = next;
  }
  close(at);
  EXPECT_TRUE(EmptyFolder(path_));
  EXPECT_TRUE(std::filesystem::is_empty(path_));
  EXPECT_TRUE(EmptyFolder(path_ + "/missing")) << "there is nothing to do";
}

TEST_F(FolderTest, AStageGetsItsBlobsAndNoOthers) {
  const std::string store = path_ + "/store";
  const auto blobs = BlobStore::Open(store).value();
  google::protobuf::RepeatedPtrField<v1::BlobRef> wanted;
  for (const char* text : {"first", "second"}) {
    auto writer = blobs->NewWriter().value();
    ASSERT_TRUE(writer->Append(text).ok());
    ASSERT_TRUE(writer->Commit("").ok());
  }
  wanted.Add()->set_sha256(Sha256Hex("first"));
  wanted.Add()->set_sha256(Sha256Hex("first"));  // twice
  std::string left;
  {
    const auto folder = StageFolder::Make(store, {}).value();
    left = folder->path();
    ASSERT_TRUE(folder->ShowBlobs(store, wanted).ok());
    const std::string shown = left + "/" + kBlobFolder;
    EXPECT_TRUE(Exists(BlobPath(shown, Sha256Hex("first"))));
    EXPECT_FALSE(Exists(BlobPath(shown, Sha256Hex("second"))));
    EXPECT_EQ(folder->PrivateBytes(), 0);
    Write(left + "/" + kPrivateFolder + "/f", std::string(100'000, 'x'));
    EXPECT_GE(folder->PrivateBytes(), 100'000);
    EXPECT_LT(folder->PrivateBytes(), 1'000'000);
    wanted.Add()->set_sha256("../../etc/passwd");
    EXPECT_TRUE(absl::IsInvalidArgument(folder->ShowBlobs(store, wanted)));
    wanted.RemoveLast();
    wanted.Add()->set_sha256(Sha256Hex("missing"));
    EXPECT_FALSE(folder->ShowBlobs(store, wanted).ok());
  }
  EXPECT_FALSE(Exists(left));
  EXPECT_TRUE(blobs->Has(Sha256Hex("first"), 5)) << "the store still has it";
  EXPECT_FALSE(StageFolder::Make("/proc/nowhere", {}).ok());
}

TEST_F(FolderTest, AKilledWorkersFoldersGo) {
  const std::string left = path_ + "/heddle-stage-abcdef";
  mkdir(left.c_str(), 0700);
  Write(left + "/file", "x");
  Write(path_ + "/other", "x");
  StageFolder::RemoveLeftovers(path_);
  EXPECT_FALSE(Exists(left));
  EXPECT_TRUE(Exists(path_ + "/other"));
}

TEST_F(FolderTest, EachJobHasItsOwnCode) {
  EXPECT_EQ(JobCodeFolder("", "j1", 1, {}), "") << "nothing is kept";
  EXPECT_EQ(JobCodeFolder(path_ + "/missing", "j1", 1, {}), "");
  const std::string first = JobCodeFolder(path_, "j1", 1, {});
  EXPECT_TRUE(std::filesystem::is_directory(first));
  EXPECT_EQ(JobCodeFolder(path_, "j1", 1, {}), first);
  EXPECT_NE(JobCodeFolder(path_, "j2", 1, {}), first);
  EXPECT_NE(JobCodeFolder(path_, "j1", 2, {}), first) << "of another scheduler";
  EXPECT_EQ(std::filesystem::path(JobCodeFolder(path_, "../../etc", 1, {})).parent_path(), path_);
  // The oldest go.
  const timespec long_ago[2] = {{.tv_sec = 1, .tv_nsec = 0}, {.tv_sec = 1, .tv_nsec = 0}};
  utimensat(AT_FDCWD, first.c_str(), long_ago, 0);
  constexpr int kJobs = 100;
  for (int job = 0; job < kJobs; ++job) JobCodeFolder(path_, absl::StrCat("job", job), 1, {});
  EXPECT_FALSE(Exists(first));
  int folders = 0;
  for (const auto& folder : std::filesystem::directory_iterator(path_))
    folders += folder.is_directory();
  EXPECT_LE(folders, 64);
  EXPECT_TRUE(Exists(JobCodeFolder(path_, absl::StrCat("job", kJobs - 1), 1, {})));
}

// What a confined stage of a GPU, or of none, may do with the files of its own process: a bit for each.
enum : int { kNamesThreads = 1, kWritesItself = 2, kNotConfined = 64 };

int TryOwnFiles(const std::string& device, const std::string& folder, const Confinement& how) {
  const pid_t pid = fork();
  if (pid == 0) {
    v1::StageStart start;
    start.set_kind(v1::STAGE_PROFILE);
    start.mutable_profile()->set_device(device);
    const absl::Status confined = Confine(PolicyOf(start, folder), how);
    if (!confined.ok()) {
      std::fprintf(stderr, "%s\n", std::string(confined.message()).c_str());
      _exit(kNotConfined);
    }
    int found = 0;
    if (NamesAnotherThread()) found |= kNamesThreads;
    if (open("/proc/self/oom_score_adj", O_WRONLY) >= 0) found |= kWritesItself;
    _exit(found);
  }
  int status = 0;
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Each mechanism alone, and all that this host has together.
TEST_F(FolderTest, OnlyAStageOnAGpuNamesItsThreads) {
  for (const char* name : {kPrivateFolder, kBlobFolder, kRootFolder})
    mkdir((path_ + "/" + name).c_str(), 0755);
  chmod(path_.c_str(), 0755);
  const Confinement all = ParseConfinement("all").value();
  const Confinement here = Available(all, ProbeConfinement(all));
  int tried = 0;
  for (const char* text : {"user", "namespaces", "landlock", "filter", "all"}) {
    const Confinement how = Available(ParseConfinement(text).value(), ProbeConfinement(all));
    if (!how.any()) continue;
    ++tried;
    const bool files = how.landlock || how.namespaces;
    EXPECT_EQ(TryOwnFiles("cuda:0", path_, how) & (kNamesThreads | kNotConfined), kNamesThreads)
        << text;
    if (!files) continue;
    EXPECT_EQ(TryOwnFiles("cuda:0", path_, how), kNamesThreads) << text;
    EXPECT_EQ(TryOwnFiles("", path_, how), 0) << text;
  }
  if (!here.landlock && !here.namespaces) GTEST_SKIP() << "this host confines no files";
  EXPECT_GE(tried, 2);
}

TEST_F(FolderTest, TheLoadersConfigurationNamesFolders) {
  mkdir((path_ + "/more").c_str(), 0755);
  Write(path_ + "/ld.so.conf",
        "include more/*.conf\n/opt/a  # a comment\nrelative\n/opt/b:/opt/c\n");
  Write(path_ + "/more/driver.conf", "# of the driver\n/usr/local/driver/lib64\n");
  Write(path_ + "/more/self.conf", "include ../ld.so.conf\ninclude /missing/*\n");
  Write(path_ + "/more/unread.txt", "/opt/d\n");
  const std::vector<std::string> folders = LoaderFolders(path_ + "/ld.so.conf");
  EXPECT_LE(folders.size(), 256u) << "a file that includes itself ends";
  for (const char* folder : {"/opt/a", "/opt/b", "/opt/c", "/usr/local/driver/lib64"})
    EXPECT_THAT(folders, Contains(folder));
  for (const char* folder : {"relative", "/opt/d", "#"})
    EXPECT_THAT(folders, Not(Contains(folder)));
  EXPECT_TRUE(LoaderFolders(path_ + "/missing").empty());
}

class PolicyTest : public ::testing::Test {
 protected:
  PolicyTest() {
    for (const char* name : {"LD_LIBRARY_PATH", "CUDA_HOME", "VIRTUAL_ENV", "HEDDLE_NVRTC",
                             "HEDDLE_CODE_CACHE", "HEDDLE_CUDA_DRIVER", "HEDDLE_NVML"})
      unsetenv(name);
  }
  static std::vector<PathRule> Paths(v1::StageKind kind, const std::string& device = "") {
    v1::StageStart start;
    start.set_kind(kind);
    if (kind == v1::STAGE_PROFILE) start.mutable_profile()->set_device(device);
    return PolicyOf(start, "/stage").paths;
  }
  static auto Allows(const std::string& path, Access access) {
    return Contains(
        ::testing::AllOf(Field(&PathRule::path, path), Field(&PathRule::access, access)));
  }
};

TEST_F(PolicyTest, OnlyStagesThatCompileGetCompilersAndTheirCode) {
  setenv("CUDA_HOME", "/var", 1);  // any folder that is there
  setenv("HEDDLE_CODE_CACHE", "/code/job", 1);
  for (int kind = v1::StageKind_MIN; kind <= v1::StageKind_MAX; ++kind) {
    if (!v1::StageKind_IsValid(kind)) continue;
    const auto paths = Paths(static_cast<v1::StageKind>(kind));
    const bool measures = kind == v1::STAGE_PROFILE || kind == v1::STAGE_COMPARE;
    for (const auto& rule :
         {Allows("/var", Access::kRead), Allows("/code/job", Access::kPrivate)}) {
      if (measures) {
        EXPECT_THAT(paths, Not(rule)) << v1::StageKind_Name(static_cast<v1::StageKind>(kind));
      } else {
        EXPECT_THAT(paths, rule) << v1::StageKind_Name(static_cast<v1::StageKind>(kind));
      }
    }
    EXPECT_THAT(paths, Allows("/stage/tmp", Access::kPrivate));
    EXPECT_THAT(paths, Allows("/stage/blobs", Access::kRead));
  }
}

// Writable is the stage's own folder and the job's code, whatever the environment says. A path that
// means everything means nothing.
TEST_F(PolicyTest, TheEnvironmentOpensNothingByAccident) {
  setenv("LD_LIBRARY_PATH", "::/:/.://:.:..:relative:/missing:/var", 1);
  setenv("HEDDLE_NVRTC", "libnvrtc.so.12", 1);
  setenv("HEDDLE_NVML", "/lib.so", 1);
  setenv("CUDA_HOME", "", 1);
  for (const std::string device : {"", "cuda:0"}) {
    for (const PathRule& rule : Paths(v1::STAGE_PROFILE, device)) {
      EXPECT_EQ(rule.path.front(), '/');
      std::error_code error;
      EXPECT_NE(std::filesystem::canonical(rule.path, error).string(), "/") << rule.path;
      if (rule.access == Access::kPrivate) {
        EXPECT_EQ(rule.path, "/stage/tmp");
      }
      if (rule.access == Access::kDevice) {
        EXPECT_THAT(rule.path, HasSubstr("/dev/"));
      }
      if (rule.access == Access::kWrite) {
        EXPECT_EQ(rule.path, "/proc/self/task");
        EXPECT_NE(device, "");
      }
    }
    EXPECT_THAT(Paths(v1::STAGE_PROFILE, device), Allows("/var", Access::kRead));
    EXPECT_THAT(Paths(v1::STAGE_PROFILE, device), Not(Allows("/missing", Access::kRead)));
  }
  EXPECT_THAT(Paths(v1::STAGE_PROFILE), Not(Allows("/proc/driver", Access::kRead)));
  EXPECT_THAT(Paths(v1::STAGE_PROFILE, "cuda:0"), Allows("/proc/driver", Access::kRead));
}

// A folder of links is no use to a stage that may not follow them.
TEST_F(PolicyTest, TheDriversFileIsReadWhereItLies) {
  std::string path = (std::filesystem::temp_directory_path() / "heddle-driver-XXXXXX").string();
  ASSERT_NE(mkdtemp(path.data()), nullptr);
  const std::string real = std::filesystem::canonical(path).string();
  mkdir((path + "/links").c_str(), 0755);
  mkdir((path + "/files").c_str(), 0755);
  std::ofstream(path + "/files/libcuda.so.580") << "x";
  ASSERT_EQ(symlink("../files/libcuda.so.580", (path + "/links/libcuda.so.1").c_str()), 0);
  setenv("LD_LIBRARY_PATH", (path + "/links").c_str(), 1);
  for (const std::string device : {"", "cuda:0"}) {
    EXPECT_THAT(Paths(v1::STAGE_PROFILE, device), Allows(path + "/links", Access::kRead));
    EXPECT_THAT(Paths(v1::STAGE_PROFILE, device), Allows(real + "/files", Access::kRead));
  }
  std::filesystem::remove_all(path);
  EXPECT_THAT(Paths(v1::STAGE_PROFILE), Not(Allows(real + "/files", Access::kRead)));
}

// Every process that runs a stage gets these, whoever starts it: temporary files go to the stage's own
// folder, and the driver keeps no code of one job for others.
TEST_F(PolicyTest, EveryStageGetsTheSameVariables) {
  EXPECT_THAT(StageVariables(""), ::testing::ElementsAre("TMPDIR=tmp", "CUDA_CACHE_DISABLE=1"));
  EXPECT_THAT(
      StageVariables("/code/job"),
      ::testing::ElementsAre("TMPDIR=tmp", "CUDA_CACHE_DISABLE=1", "HEDDLE_CODE_CACHE=/code/job"));
}

TEST_F(PolicyTest, LimitsGrowWithTheModel) {
  v1::StageStart start;
  EXPECT_EQ(MaxFileBytes(start), int64_t{1} << 30);
  start.add_blobs()->set_bytes(int64_t{3} << 30);
  EXPECT_EQ(MaxFileBytes(start), int64_t{12} << 30);
  EXPECT_EQ(MaxThreads(1), 1024);
  EXPECT_EQ(MaxThreads(1000), 8000);
}

}  // namespace
}  // namespace heddle::worker::confine
