// The client's pure parts: JSON, .npy, tables, timelines, shapes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "client/commands/job_options.h"
#include "client/commands/model_options.h"
#include "client/modules/npy.h"
#include "client/modules/output_check.h"
#include "client/modules/profile.h"
#include "client/views/explain.h"
#include "client/views/json.h"
#include "client/views/progress_view.h"
#include "client/views/terminal.h"
#include "client/views/timeline_view.h"
#include "compiler/driver/compile.h"
#include "proto/jobs.pb.h"
#include "tests/driver/onnx_models.h"

namespace heddle::client {
namespace {

using ::testing::HasSubstr;

v1::Record RandomRecord(std::mt19937_64& rng) {
  v1::Record record;
  record.set_schema_version(1);
  record.set_workload_key("0123456789abcdef");
  record.set_target("llvm -mcpu=znver5 -threads=1");
  record.set_trace("split a 4 7\nvectorize \"b\"\n");
  record.set_created_unix_ns(static_cast<int64_t>(rng() >> 2));
  record.set_candidate(static_cast<int64_t>(rng() >> 1));
  record.set_flops(std::ldexp(static_cast<double>(rng()), -20));
  v1::Measurement* m = record.mutable_measurement();
  m->set_outcome(static_cast<v1::Outcome>(1 + rng() % 7));
  for (uint64_t i = rng() % 6; i > 0; --i) m->add_samples_ns(static_cast<double>(rng()) / 7.0);
  m->mutable_evidence()->set_involuntary_switches(static_cast<int64_t>(rng() % 100));
  return record;
}

TEST(Json, RecordsSurviveTheRoundTripExactly) {
  std::mt19937_64 rng(1);
  for (int i = 0; i < 200; ++i) {
    const v1::Record record = RandomRecord(rng);
    v1::Record back;
    ASSERT_TRUE(FromJsonLine(ToJsonLine(record), &back).ok());
    EXPECT_EQ(record.SerializeAsString(), back.SerializeAsString());
  }
}

TEST(Json, NumbersAreNumbersAndEnumsAreWords) {
  v1::Job job;
  job.set_state(v1::JOB_TUNING);
  job.set_created_unix_ns(1'700'000'000'000'000'001);
  const nlohmann::json object = nlohmann::json::parse(ToJsonLine(job));
  EXPECT_EQ(object["state"], "tuning");
  EXPECT_EQ(object["created_unix_ns"].get<int64_t>(), 1'700'000'000'000'000'001);
  EXPECT_EQ(object["schema_version"], kJsonSchemaVersion);
}

TEST(Json, NamesWhatIsWrong) {
  v1::Record record;
  const auto error = [&](const char* line) {
    return std::string(FromJsonLine(line, &record).message());
  };
  EXPECT_THAT(error("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error("[]"), HasSubstr("object"));
  EXPECT_THAT(error(R"({"tarket": "x"})"), HasSubstr("unknown field 'tarket'"));
  EXPECT_THAT(error(R"({"target": 3})"), HasSubstr("'target' has the wrong type"));
  EXPECT_THAT(error(R"({"measurement": {"outcome": "fine"}})"), HasSubstr("'outcome'"));
  // A number that the field cannot hold would become another one.
  for (const char* line :
       {R"({"attempt": 2147483648})", R"({"attempt": -2147483649})", R"({"attempt": 1.5})",
        R"({"candidate": 9223372036854775808})", R"({"candidate": 1e30})"})
    EXPECT_THAT(error(line), HasSubstr("has the wrong type")) << line;
}

TEST(Json, BytesThatAreNoTextDoNotThrow) {
  v1::Job job;
  job.set_reason("ok \xff");
  EXPECT_FALSE(ToJsonLine(job).empty());
}

TEST(Npy, RoundTripsEveryTypeAndRank) {
  const std::pair<const char*, int> types[] = {{"f32", 4}, {"f64", 8}, {"i32", 4}, {"i64", 8},
                                               {"i8", 1},  {"u8", 1},  {"bool", 1}};
  for (const auto& [dtype, size] : types) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {5}, {2, 3}, {1, 2, 3, 4}}) {
      int64_t elements = 1;
      for (int64_t extent : shape) elements *= extent;
      NpyArray array{dtype, shape, std::string(static_cast<size_t>(elements * size), '\x01')};
      const std::string bytes = SerializeNpy(array);
      EXPECT_EQ(bytes.find('\n') % 64, 63u) << "data is 64-byte aligned, as the format asks";
      const auto back = ParseNpy(bytes);
      ASSERT_TRUE(back.ok()) << back.status();
      EXPECT_EQ(back->dtype, dtype);
      EXPECT_EQ(back->shape, shape);
      EXPECT_EQ(back->bytes, array.bytes);
    }
  }
}

// 1.0, -3.0 and 2^-133.
TEST(Npy, Bf16IsWrittenAsF32) {
  const std::string bytes = SerializeNpy({"bf16", {3}, std::string("\x80\x3f\x40\xc0\x01\x00", 6)});
  const auto back = ParseNpy(bytes);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->dtype, "f32");
  EXPECT_THAT(ToDoubles(back->bytes, "f32"), ::testing::ElementsAre(1, -3, 0x1p-133));
}

// A step makes everything of a move that a sum hardly shows.
TEST(OutputCheck, ConditioningIsWhatSmallMovesOfTheInputsChange) {
  const auto conditioning = [](const char* op, float input) {
    OnnxModel model;
    model.Input("x", {8}).Node(op, {"x"}, {"y"}).Output("y", {8});
    CompileOptions compile;
    compile.choice = ScheduleChoice::kDefault;
    const auto bytes = CompileModel(model.Bytes(), {}, {}, {}, compile);
    auto executor = runtime::Executor::Create(*runtime::ParseModule(*bytes));
    const std::vector<float> values(8, input);
    const GivenInputs inputs = {{std::string(reinterpret_cast<const char*>(values.data()), 32)}, 0};
    const std::vector<NpyArray> before = RunRows(inputs, **executor).value();
    const double moved = Conditioning(inputs, before, **executor)->at(0);
    EXPECT_EQ((*executor)->Output(0), before[0].bytes) << "the inputs are as they were";
    return moved;
  };
  EXPECT_GT(conditioning("Neg", 1.0F), 1e-7);
  EXPECT_LE(conditioning("Neg", 1.0F), 1e-6);
  EXPECT_EQ(conditioning("Floor", 3.5F), 0);
  EXPECT_NEAR(conditioning("Floor", 3.0F), 1.0 / 3, 1e-6);
}

TEST(Npy, FilesAreNamedSafelyAndReversibly) {
  EXPECT_EQ(NpyFileName("logits", 0), "logits.npy");
  EXPECT_EQ(NpyFileName("/model/out.0 größer", 0), "%2Fmodel%2Fout.0 größer.npy");
  EXPECT_EQ(NpyFileName("..", 0), "%2E..npy");
  EXPECT_EQ(NpyFileName("a%2Fb\n", 0), "a%252Fb%0A.npy");
  EXPECT_EQ(NpyFileName(std::string(251, 'x'), 7), std::string(251, 'x') + ".npy");
  EXPECT_EQ(NpyFileName(std::string(252, 'x'), 7), "%output-7.npy");
  // Every name comes back: the decoder of URLs inverts it.
  std::mt19937_64 rng(3);
  for (int i = 0; i < 1000; ++i) {
    std::string name(1 + rng() % 12, ' ');
    for (char& c : name) c = "/%.-:a\n2F\\"[rng() % 10];
    const std::string file = NpyFileName(name, 0);
    EXPECT_EQ(file.find_first_of("/\\:\n"), std::string::npos);
    std::string back;
    for (size_t at = 0; at < file.size() - 4; ++at) {
      const bool escaped = file[at] == '%';
      back +=
          escaped ? static_cast<char>(std::stoi(file.substr(at + 1, 2), nullptr, 16)) : file[at];
      if (escaped) at += 2;
    }
    EXPECT_EQ(back, name);
  }
}

TEST(OutputCheck, HalvesMayDifferByAUnitOfTheirLastPlace) {
  EXPECT_THAT(ToDoubles(std::string("\x00\x3c\xff\xff\x01\xbc", 6), "f16"),
              ::testing::ElementsAre(1, ::testing::IsNan(), -1 - 0x1p-10));
  EXPECT_THAT(ToDoubles(std::string("\x80\x3f", 2), "bf16"), ::testing::ElementsAre(1));
  runtime::Manifest manifest;
  manifest.target = "cuda -arch=sm_90";
  EXPECT_EQ(OutputTolerance(manifest, "f32"), 1e-4);
  EXPECT_GT(OutputTolerance(manifest, "f16"), 0x1p-10);
  EXPECT_GT(OutputTolerance(manifest, "bf16"), 0x1p-7);
  manifest.target = "cuda -arch=sm_90 -tf32=on";
  manifest.kernels = {runtime::KernelSpec()};
  EXPECT_EQ(OutputTolerance(manifest, "f32"), 1e-4) << "no kernel is less exact";
  manifest.kernels[0].numerics.tf32 = true;
  EXPECT_EQ(OutputTolerance(manifest, "f32"), 1e-3);
  manifest.kernels = {runtime::KernelSpec()};
  manifest.kernels[0].numerics.winograd = true;
  manifest.target = "llvm -mcpu=znver5 -threads=1";
  EXPECT_EQ(OutputTolerance(manifest, "f32"), 1e-3);
}

TEST(Npy, NeverCrashesOnDamage) {
  const std::string good = SerializeNpy({"f32", {2, 3}, std::string(24, 'x')});
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(ParseNpy(good.substr(0, length)).ok()) << length;
  EXPECT_THAT(std::string(ParseNpy("hello, world").status().message()),
              HasSubstr("not an .npy file"));
}

// An .npy file whose header and data are these.
std::string NpyOf(const std::string& header, const std::string& data, char version = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += version;
  bytes += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i)
    bytes += static_cast<char>(header.size() >> (8 * i));
  return bytes + header + data;
}

TEST(Npy, ReadsTheHeadersThatPythonWrites) {
  for (const char* header : {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }",
                             "{'shape':(2,),'fortran_order':False,'descr':'<f4'}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (2L,), }\n",
                             "{'descr':  '<f4', 'fortran_order':\n False, 'shape': ( 1 , 2 )}"}) {
    for (const char version : {1, 2}) {
      const auto array = ParseNpy(NpyOf(header, std::string(8, 'x'), version));
      ASSERT_TRUE(array.ok()) << header << array.status();
      EXPECT_EQ(array->shape.back(), 2) << header;
    }
  }
}

TEST(Npy, RefusesHeadersThatNobodyWrites) {
  const auto refusal = [](const std::string& descr, const std::string& shape,
                          const std::string& data) {
    const auto array = ParseNpy(
        NpyOf("{'descr': " + descr + ", 'fortran_order': False, 'shape': " + shape + "}", data, 2));
    EXPECT_FALSE(array.ok()) << shape;
    EXPECT_EQ(array.status().message().find('\n'), std::string::npos);
    return std::string(array.status().message());
  };
  for (const char* extent :
       {"x1", "1x", "-2", "99999999999999999999", "9223372036854775807, 2", "0, -1", "1 2"})
    EXPECT_THAT(refusal("'<f4'", std::string("(") + extent + ")", std::string(8, 'x')),
                HasSubstr("has the extent"))
        << extent;
  EXPECT_THAT(refusal("'<f4'", "(4611686018427387904, 4611686018427387904)", ""),
              HasSubstr("extent"));
  EXPECT_THAT(refusal("'<f4'", "(2", ""), HasSubstr("no 'shape'"));
  EXPECT_THAT(refusal("<f4", "(2,)", ""), HasSubstr("no 'descr'"));
  EXPECT_THAT(refusal("'\n" + std::string(1000, 'x') + "'", "(2,)", ""),
              HasSubstr("not supported"));
  std::string ones = "(";
  for (int i = 0; i < 65; ++i) ones += "1,";
  EXPECT_THAT(refusal("'|u1'", ones + ")", "x"), HasSubstr("more than 64 dimensions"));
  EXPECT_THAT(refusal(std::string(1 << 20, ' ') + "'<f4'", "(2,)", ""),
              HasSubstr("header has more than"));
  EXPECT_THAT(refusal(std::string(60000, ' ') + "'<f4'", "(3,)", std::string(8, 'x')),
              HasSubstr("holds 8 bytes"));
}

TEST(Shapes, AreParsedOrRefusedByExample) {
  const auto options = MakeModelOptions({.shapes = {"x=1x3x224x224", "a=b=7", "e=0x2"}});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->shapes(0).input(), "x");
  EXPECT_EQ(options->shapes(0).extents_size(), 4);
  EXPECT_EQ(options->shapes(1).input(), "a=b");
  for (const char* bad : {"x", "=3", "x=", "x=3x", "x=-1", "x=3xy", "x=99999999999999"}) {
    const auto refused = MakeModelOptions({.shapes = {bad}});
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--shape name=1x3x224x224"));
  }
  for (const char* bad : {"sr", "=16000", "sr="}) {
    const auto refused = MakeModelOptions({.input_values = {bad}});
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--input-value name=16000"));
  }
  const auto values = MakeModelOptions({.input_values = {"a=b=1,-2"}});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->input_values(0).input(), "a=b");
  EXPECT_EQ(values->input_values(0).value(), "1,-2");
  EXPECT_THAT(std::string(MakeModelOptions({.disabled_passes = {"nonsense"}}).status().message()),
              HasSubstr("unknown pass 'nonsense'"));
}

v1::StageSpan Span(const char* job, const char* slot, int64_t start_ms, int64_t end_ms) {
  v1::StageSpan span;
  span.set_job(job);
  span.set_worker("w");
  span.set_slot(slot);
  span.set_kind(v1::STAGE_BUILD);
  span.set_start_unix_ns(1'000'000'000 + start_ms * 1'000'000);
  span.set_end_unix_ns(1'000'000'000 + end_ms * 1'000'000);
  return span;
}

TEST(JobOptions, AreParsedOrRefusedByExample) {
  const absl::Time now = absl::FromUnixSeconds(1'900'000'000);
  JobOptions options;
  options.deadline = "2h";
  options.time_limit = "30m";
  options.target_latency = "5ms";
  v1::JobSpec spec;
  ASSERT_TRUE(FillJobOptions(options, now, &spec).ok());
  EXPECT_EQ(spec.deadline_unix_ns(), absl::ToUnixNanos(now + absl::Hours(2)));
  EXPECT_EQ(spec.time_limit_ms(), 30 * 60 * 1000);
  EXPECT_EQ(spec.target_latency_ns(), 5'000'000);
  EXPECT_EQ(spec.allocation(), "gradient");
  options.deadline = absl::FormatTime("%H:%M", now - absl::Hours(1), absl::LocalTimeZone());
  ASSERT_TRUE(FillJobOptions(options, now, &spec).ok());
  EXPECT_GT(spec.deadline_unix_ns(), absl::ToUnixNanos(now + absl::Hours(20))) << "the next one";
  auto refused = [&](const char* word) {
    const absl::Status status = FillJobOptions(options, now, &spec);
    EXPECT_THAT(std::string(status.message()), HasSubstr(word));
    EXPECT_FALSE(status.ok());
    options = {};
  };
  options.deadline = "tomorrow";
  refused("--deadline 'tomorrow' is not a time; write for example --deadline 2h");
  options.deadline = "-2h";
  refused("has passed");
  options.deadline = "2001-01-31 18:30";
  refused("has passed");
  options.time_limit = "inf";
  refused("--time-limit 'inf' is not a duration; write for example --time-limit 30m");
  options.target_latency = "5";
  refused("--target-latency 5ms");
  options.allocation = "fair";
  refused("it must be gradient or uniform");
}

TEST(JobOptions, ADeadlineSaysWhetherItWillBeMet) {
  const absl::Time now = absl::FromUnixSeconds(1'900'000'000);
  v1::Job job;
  EXPECT_EQ(DeadlineText(job, now), "");
  job.mutable_spec()->set_deadline_unix_ns(absl::ToUnixNanos(now + absl::Hours(1)));
  EXPECT_THAT(DeadlineText(job, now), HasSubstr("not known yet"));
  job.set_eta_ms(10 * 60 * 1000);
  EXPECT_THAT(DeadlineText(job, now), HasSubstr("will be met by 50m00s"));
  job.set_eta_ms(90 * 60 * 1000);
  EXPECT_THAT(DeadlineText(job, now), HasSubstr("will be missed by 30m00s"));
  EXPECT_THAT(DeadlineText(job, now + absl::Hours(2)), HasSubstr("missed, 1h00m ago"));
  job.set_finished_unix_ns(absl::ToUnixNanos(now));
  EXPECT_THAT(DeadlineText(job, now), HasSubstr(": met"));
  job.set_state(v1::JOB_FAILED);
  EXPECT_THAT(DeadlineText(job, now), HasSubstr(": not met, the job failed"));
  job.set_state(v1::JOB_CANCELLED);
  EXPECT_THAT(DeadlineText(job, now), HasSubstr(": not met, the job was cancelled"));
}

TEST(Timeline, ShowsWhoHeldEachSlotWhen) {
  const std::string text = DrawTimeline(
      {Span("j1", "cpu0", 0, 500), Span("j2", "cpu0", 500, 1000), Span("j1", "gpu0", 500, 1000)},
      10);
  EXPECT_THAT(text, HasSubstr("w/cpu0 |AAAAABBBBB| 100% busy"));
  EXPECT_THAT(text, HasSubstr("w/gpu0 |.....AAAAA|  50% busy"));
  EXPECT_THAT(text, HasSubstr("A = j1  B = j2"));
  EXPECT_EQ(DrawTimeline({}, 10), "no stage has run yet\n");
}

TEST(Timeline, TellsWhatEachStageTook) {
  const auto span = [](v1::StageKind kind, int64_t begin_ms, int64_t end_ms, int candidates = 0) {
    v1::StageSpan s = Span("j1", "cpu0", begin_ms, end_ms);
    s.set_kind(kind);
    s.set_candidates(candidates);
    return s;
  };
  const std::vector<v1::StageSpan> spans = {
      span(v1::STAGE_IMPORT, 0, 1000),         span(v1::STAGE_PROPOSE, 1000, 1500, 16),
      span(v1::STAGE_BUILD, 1500, 2500, 16),   span(v1::STAGE_PROFILE, 2000, 4000, 15),
      span(v1::STAGE_UPDATE, 4000, 4100),      span(v1::STAGE_PROPOSE, 4100, 4400, 16),
      span(v1::STAGE_PROFILE, 4500, 5500, 15), span(v1::STAGE_UPDATE, 5500, 5550),
      span(v1::STAGE_COMPILE, 9000, 9050)};
  EXPECT_EQ(StageTimes(spans, /*plain=*/true),
            "stage\ttimes\theld a slot\tshare\tbeside profile\n"
            "import\t1\t1.0s\t16.7 %\t-\n"
            "propose\t2\t800ms\t13.3 %\t26.7 %\n"
            "build\t1\t1.0s\t16.7 %\t33.3 %\n"
            "profile\t2\t3.0s\t50.0 %\t100.0 %\n"
            "update\t2\t150ms\t2.5 %\t5.0 %\n"
            "compile\t1\t50ms\t0.8 %\t-\n");
  EXPECT_EQ(StageTimes({}, true), "");
  EXPECT_EQ(Throughput(spans), "30 candidates profiled in 4.5s, 6.6 a second\n");
  EXPECT_EQ(Throughput({spans[0], spans[1]}), "");
  v1::StageSpan running = span(v1::STAGE_PROPOSE, 0, 0);
  running.set_end_unix_ns(0);
  EXPECT_EQ(StageTimes({running}, true), "") << "nobody knows what it will take";
}

TEST(Table, AlignsByColumnsNotBytes) {
  Table table({"a", "b"});
  table.Add({"ä", "1"});
  table.Add({"xyz", "22"});
  EXPECT_EQ(table.ToText(), "a     b\nä     1\nxyz  22\n");
  EXPECT_EQ(table.ToText(/*plain=*/true), "a\tb\nä\t1\nxyz\t22\n");
}

TEST(Units, AreReadable) {
  EXPECT_EQ(HumanDuration(absl::Milliseconds(12)), "12ms");
  EXPECT_EQ(HumanDuration(absl::Seconds(61)), "1m01s");
  EXPECT_EQ(HumanDuration(absl::Minutes(62)), "1h02m");
  EXPECT_EQ(FormatNs(0), "-");
  EXPECT_EQ(FormatNs(1.5e6), "1.500 ms");
  EXPECT_EQ(FormatGflops(2e9, 1e9), "2.0");
}

TEST(Profile, SumsTheCallsOfAKernelMostTimeFirst) {
  using runtime::Place;
  runtime::Manifest manifest;
  manifest.inputs = {{"x", "f32", {25}}};
  manifest.arena_bytes = 128;
  manifest.kernels = {{"a", "key-a", "first", 1000, 0, "tuned", 0, {.winograd = true}, 30},
                      {"b", "key-b", "second", 50, 0, "default", 0}};
  manifest.calls = {{0, {{Place::kInput, 0, 100}, {Place::kParam, 64, 36}, {Place::kArena, 0, 64}}},
                    {1, {{Place::kArena, 0, 64}, {Place::kArena, 64, 64}}},
                    {0, {{Place::kArena, 64, 64}, {Place::kParam, 0, 36}, {Place::kArena, 0, 64}}}};
  const std::vector<KernelProfile> kernels = ProfileByKernel(manifest, {10, 100, 30});
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0].label, "second");
  EXPECT_EQ(kernels[1].label, "first");
  EXPECT_EQ(kernels[1].uses, 2);
  EXPECT_EQ(kernels[1].ns, 40);
  EXPECT_EQ(kernels[1].flops, 2000);
  EXPECT_EQ(kernels[1].bytes, 364 - 2 * 30);
  EXPECT_TRUE(kernels[1].winograd);
  EXPECT_EQ(FootprintBytes(manifest), 100 + 128 + 100);
}

TEST(Profile, TheLongerOfTheTwoLeastTimesIsTheBound) {
  const MachineLimits limits = {100, 10};  // 10 operations a byte balance
  KernelProfile kernel;
  kernel.ns = 40;
  kernel.bytes = 100;
  kernel.flops = 2000;
  EXPECT_FALSE(RooflineOf(kernel, limits).memory);
  EXPECT_DOUBLE_EQ(RooflineOf(kernel, limits).share, 0.5);
  kernel.flops = 500;
  EXPECT_TRUE(RooflineOf(kernel, limits).memory);
  EXPECT_DOUBLE_EQ(RooflineOf(kernel, limits).share, 0.25);
  EXPECT_EQ(RooflineOf(kernel, {}).share, 0);
}

TEST(ExitCodes, FollowTheKindOfError) {
  EXPECT_EQ(ExitCodeFor(absl::InvalidArgumentError("")), kUsage);
  EXPECT_EQ(ExitCodeFor(absl::NotFoundError("")), kNotFound);
  EXPECT_EQ(ExitCodeFor(absl::UnavailableError("")), kUnreachable);
  EXPECT_EQ(ExitCodeFor(absl::DeadlineExceededError("")), kTimeout);
  EXPECT_EQ(ExitCodeFor(absl::InternalError("")), kInternal);
}

TEST(EstimatedModel, IsUnknownUntilEveryTaskIsMeasured) {
  v1::Job job;
  for (double best : {1e6, 2e6}) {
    v1::TaskStatus* task = job.add_tasks();
    task->mutable_info()->set_weight(2);
    task->set_best_ns(best);
  }
  EXPECT_EQ(EstimatedModelNs(job, false), 6e6);
  EXPECT_EQ(EstimatedModelNs(job, true), 0);
}

v1::Record Trial(double ns, int samples, double score) {
  v1::Record record;
  record.set_job("j1");
  record.set_median_ns(ns);
  record.mutable_measurement()->set_outcome(ns > 0 ? v1::OUTCOME_OK : v1::OUTCOME_RUN_CRASH);
  if (samples < 0) return record;
  record.mutable_prediction()->set_samples(samples);
  record.mutable_prediction()->set_score(score);
  return record;
}

TEST(Explain, ComparesEachBatchWithItsOwnPredictions) {
  std::vector<v1::Record> trials = {
      Trial(100, -1, 0),                                       // no model yet
      Trial(90, 1, 0.9), Trial(50, 1, 0.5), Trial(0, 1, 0.1),  // 90 was predicted to be the fastest
      Trial(40, 4, -3),  Trial(20, 4, -2),  Trial(20.1, 4, -9),  // 20 and 20.1 are alike
      Trial(70, 4, -8),                                          //
  };
  EXPECT_EQ(BestSoFar(trials), (std::vector<double>{100, 90, 50, 50, 40, 20, 20, 20}));
  const std::vector<BatchAccuracy> found = RankAccuracy(trials);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].trials, 3);
  EXPECT_NEAR(*found[0].pairs, 2.0 / 3, 1e-12) << "50 before 90 was predicted wrongly";
  EXPECT_EQ(found[0].rank_of_best, 2);
  EXPECT_EQ(found[1].samples, 4);
  EXPECT_NEAR(*found[1].pairs, 3.0 / 5, 1e-12) << "20.1 was expected behind 40 and 70";
  EXPECT_EQ(found[1].rank_of_best, 1);
  trials[1].mutable_measurement()->set_outcome(v1::OUTCOME_LOST);
  EXPECT_EQ(RankAccuracy(trials)[0].trials, 2) << "a lost trial says nothing";
  EXPECT_TRUE(RankAccuracy({}).empty());
  const std::vector<v1::Record> many(5000, trials[2]);
  EXPECT_EQ(RankAccuracy(many)[0].trials, 1024) << "all pairs of more would take too long";
  EXPECT_FALSE(RankAccuracy({Trial(5, 0, 1)})[0].pairs.has_value());
}

TEST(Explain, DrawsWithinItsBounds) {
  std::vector<double> values(500);
  for (size_t i = 10; i < values.size(); ++i) values[i] = static_cast<double>(i);
  const std::string curve = DrawCurve(values, "GFLOP/s", 60, 6, true);
  EXPECT_THAT(curve, HasSubstr("499.0 |"));
  EXPECT_THAT(curve, HasSubstr("500"));
  EXPECT_EQ(std::count(curve.begin(), curve.end(), '\n'), 8);
  size_t at = 0, longest = 0;
  for (size_t end; (end = curve.find('\n', at)) != std::string::npos; at = end + 1)
    longest = std::max(longest, end - at);
  EXPECT_LE(longest, 60 + 13u);
  EXPECT_EQ(DrawCurve(std::vector<double>{0, 0}, "", 60, 6, true), "");
  EXPECT_EQ(DrawCurve({}, "", 60, 6, true), "");
  EXPECT_NE(DrawCurve(std::vector<double>{3}, "", 60, 6, false), "");
}

TEST(Explain, PutsTracesBesideEachOther) {
  EXPECT_EQ(SideBySide("A", "same\nold\nend\n", "B", "same\nnew\nend\nmore\n", 80, true),
            "A\t \tB\nsame\t \tsame\nold\t|\tnew\nend\t \tend\n\t>\tmore\n");
  EXPECT_EQ(SideBySide("A", "x\ny", "B", "", 80, true), "A\t \tB\nx\t<\t\ny\t<\t\n");
  EXPECT_THAT(SideBySide("A", std::string(200, 'a'), "B", "b", 40, false), HasSubstr("a.. |"));
}

}  // namespace
}  // namespace heddle::client
