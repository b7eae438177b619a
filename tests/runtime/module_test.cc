#include "compiler/runtime/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>

#include "base/files/trailer.h"
#include "compiler/runtime/module_check.h"
#include "compiler/runtime/module_head.h"
#include "tests/runtime/test_module.h"

namespace heddle::runtime {
namespace {

using ::testing::HasSubstr;

// Serialisation is deterministic, so equal bytes mean equal modules.
TEST(ModuleTest, ParsingTheBytesGivesTheModuleBack) {
  Module module = MakeTestModule();
  module.manifest.kernels[1].numerics.tensor_cores = true;
  module.manifest.kernels[1].warm = true;
  const std::string bytes = SerializeModule(module);
  const auto parsed = ParseModule(bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(SerializeModule(*parsed), bytes);
  EXPECT_EQ(parsed->code, module.code);
  EXPECT_EQ(*parsed->params, *module.params);
  EXPECT_EQ(parsed->manifest.kernels[1].record_ms, 0.5);
  EXPECT_FALSE(parsed->manifest.kernels[0].warm);
  EXPECT_TRUE(parsed->manifest.kernels[1].warm);
  EXPECT_FALSE(parsed->manifest.kernels[0].numerics.winograd);
  EXPECT_TRUE(parsed->manifest.kernels[1].numerics.winograd);
  EXPECT_EQ(parsed->manifest.kernels[1].numerics, module.manifest.kernels[1].numerics);
  EXPECT_EQ(parsed->manifest.calls[0].buffers[1].index, 64);
  EXPECT_EQ(parsed->manifest.inputs[0].shape, (std::vector<int64_t>{10, 100}));
}

// Who signed a module is no part of it.
TEST(ModuleTest, ATrailerBehindAModuleIsPassedOver) {
  const std::string bytes = SerializeModule(MakeTestModule());
  const auto parsed = ParseModule(bytes + TrailerOf("signed by somebody"));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(SerializeModule(*parsed), bytes);
  EXPECT_FALSE(ParseModule(bytes + "x" + TrailerOf("signed by somebody")).ok());
}

TEST(ModuleTest, NamesThatAreNotUtf8AreStored) {
  Module module = MakeTestModule();
  module.manifest.model = "caf\xe9";
  module.manifest.inputs[0].name = "\xff\xfe";
  EXPECT_TRUE(ParseModule(SerializeModule(module)).ok());
}

TEST(ModuleTest, SamplesAreStoredAndChecked) {
  Module module = MakeTestModule();
  TensorSpec& x = module.manifest.inputs[0];
  ASSERT_EQ(x.dtype, "f32");
  x.samples.assign(100, {-1.5F, 0.1F, 3e38F});
  x.samples[7].clear();
  const std::string bytes = SerializeModule(module);
  const auto parsed = ParseModule(bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->manifest.inputs[0].samples, x.samples);
  x.samples.pop_back();
  EXPECT_THAT(std::string(ParseModule(SerializeModule(module)).status().message()),
              HasSubstr("for 99 of its 100 columns"));
  x.samples.assign(100, std::vector<float>(1000));
  EXPECT_THAT(std::string(ParseModule(SerializeModule(module)).status().message()),
              HasSubstr("100000 values"));
  x.samples.assign(100, {std::numeric_limits<float>::infinity()});  // JSON has none
  EXPECT_THAT(std::string(ParseModule(SerializeModule(module)).status().message()),
              HasSubstr("'samples' is not a list of lists of numbers"));
}

TEST(ModuleTest, AnEmptyModuleIsAModule) {
  EXPECT_TRUE(ParseModule(SerializeModule(Module())).ok());
}

TEST(ModuleTest, EveryTruncationIsAnError) {
  const std::string bytes = SerializeModule(MakeTestModule());
  for (size_t size = 0; size < bytes.size(); size += size < 4096 ? 1 : 61) {
    const auto parsed = ParseModule(std::string_view(bytes).substr(0, size));
    ASSERT_FALSE(parsed.ok()) << size;
    EXPECT_EQ(std::string(parsed.status().message()).find('\n'), std::string::npos);
  }
  const auto parsed = ParseModule(std::string_view(bytes).substr(0, bytes.size() - 1));
  EXPECT_THAT(std::string(parsed.status().message()),
              HasSubstr("truncated: " + std::to_string(bytes.size()) + " bytes expected, " +
                        std::to_string(bytes.size() - 1) + " found"));
}

TEST(ModuleTest, TheHeadOfAModuleIsReadWithoutItsParameters) {
  const Module module = MakeTestModule();
  const std::string bytes = SerializeModule(module);
  const size_t end = bytes.find(module.code) + module.code.size();
  ASSERT_LT(end, bytes.size());
  for (size_t size = 0; size < end; size += size < 4096 ? 1 : 61) {
    const auto head = ParseModuleHead(std::string_view(bytes).substr(0, size));
    ASSERT_TRUE(absl::IsOutOfRange(head.status())) << size << ": " << head.status();
  }
  for (const size_t size : {end, bytes.size()}) {
    const auto head = ParseModuleHead(std::string_view(bytes).substr(0, size));
    ASSERT_TRUE(head.ok()) << head.status();
    EXPECT_EQ(head->code, module.code);
    EXPECT_EQ(head->manifest.kernels[1].task, "fedcba9876543210");
    EXPECT_TRUE(head->params->empty());
  }
  std::string damaged = bytes;
  damaged[end - 1] = static_cast<char>(~damaged[end - 1]);
  EXPECT_TRUE(absl::IsDataLoss(ParseModuleHead(damaged).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      ParseModuleHead("these bytes are of some other file, and there are enough").status()));
}

TEST(ModuleTest, EveryFlippedByteIsAnErrorOrChangesNothing) {
  const std::string good = SerializeModule(MakeTestModule());
  std::string bytes = good;
  int unchanged = 0;
  for (size_t at = 0; at < bytes.size(); at += at < 8192 ? 1 : 13) {
    for (const char mask : {'\x01', '\x80', '\xff'}) {
      bytes[at] = static_cast<char>(good[at] ^ mask);
      const auto parsed = ParseModule(bytes);
      if (parsed.ok()) {
        ++unchanged;
        ASSERT_EQ(SerializeModule(*parsed), good) << at;
      }
    }
    bytes[at] = good[at];
  }
  // Only padding may be damaged unseen: less than 64 bytes before each of the two sections.
  EXPECT_LT(unchanged, 2 * 64 * 3);
}

TEST(ModuleTest, RandomBytesNeverCrash) {
  std::mt19937 rng(1);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = round % 2 == 0 ? "HEDDLE02" : "";
    const size_t size = rng() % 300;
    while (bytes.size() < size) bytes.push_back(static_cast<char>(rng()));
    EXPECT_FALSE(ParseModule(bytes).ok());
  }
}

TEST(ModuleTest, ErrorsSayWhatIsBroken) {
  const std::string good = SerializeModule(MakeTestModule());
  const auto error = [](const std::string& bytes) {
    return std::string(ParseModule(bytes).status().message());
  };
  EXPECT_THAT(error("PNG"), HasSubstr("not a Heddle module"));
  EXPECT_THAT(error(""), HasSubstr("not a Heddle module"));
  EXPECT_THAT(error(good + "x"), HasSubstr("but the file has"));
  std::string newer = good;
  newer[7] = '5';
  EXPECT_THAT(error(newer), HasSubstr("format version 05, this runtime reads versions 02 to 04"));
  std::string params = good;
  params.back() = static_cast<char>(params.back() ^ 1);
  EXPECT_THAT(error(params), HasSubstr("checksum of section 'params'"));
  EXPECT_THAT(std::string(ReadModuleFile("/nonexistent/m.heddle").status().message()),
              HasSubstr("/nonexistent/m.heddle: No such file"));
  EXPECT_FALSE(ReadModuleFile("/").ok());
}

// The first output gets these lengths, and the module an output that can hold one.
void HoldLengths(Module& m, std::vector<DimLength> lengths) {
  m.manifest.outputs.push_back({"length", "i64", {}});
  m.manifest.outputs[0].lengths = std::move(lengths);
}

TEST(ModuleTest, LengthsOfOutputsAreKept) {
  Module module = MakeTestModule();
  EXPECT_EQ(module.manifest.NumResults(), 1);
  HoldLengths(module, {{0, 1}, {1, 1}});
  const auto parsed = ParseModule(SerializeModule(module));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->manifest.NumResults(), 1);
  const auto& lengths = parsed->manifest.outputs[0].lengths;
  ASSERT_EQ(lengths.size(), 2u);
  EXPECT_EQ(lengths[1].axis, 1);
  EXPECT_EQ(lengths[1].output, 1);
  EXPECT_TRUE(parsed->manifest.outputs[1].lengths.empty());
}

TEST(ModuleTest, BlocksOfRowsAreKept) {
  const Module module = MakeRowsModule();
  const std::string bytes = SerializeModule(module);
  EXPECT_EQ(bytes.substr(0, 8), "HEDDLE04") << "an older runtime would run one block only";
  EXPECT_EQ(SerializeModule(MakeRowsModule({3})).substr(0, 8), "HEDDLE02");
  const auto parsed = ParseModule(bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(SerializeModule(*parsed), bytes);
  ASSERT_EQ(parsed->manifest.NumBlocks(), 3u);
  EXPECT_EQ(parsed->manifest.RowsOf(0), 8);
  EXPECT_EQ(parsed->manifest.RowsOf(2), 1);
  EXPECT_EQ(parsed->manifest.CallsOf(1)[0].buffers[0].bytes, 48);
}

TEST(ModuleTest, BlocksOfRowsAreChecked) {
  const auto error = [](const std::function<void(Manifest&)>& change) {
    Module module = MakeRowsModule();
    change(module.manifest);
    return std::string(ParseModule(SerializeModule(module)).status().message());
  };
  EXPECT_EQ(error([](Manifest&) {}), "");
  EXPECT_THAT(error([](Manifest& m) { m.smaller_blocks[0].rows = 8; }), HasSubstr("block of 8"));
  EXPECT_THAT(error([](Manifest& m) { m.smaller_blocks[1].rows = 0; }), HasSubstr("block of 0"));
  EXPECT_THAT(error([](Manifest& m) { std::swap(m.smaller_blocks[0], m.smaller_blocks[1]); }),
              HasSubstr("block of 3"));
  EXPECT_THAT(error([](Manifest& m) { m.independent_rows = false; }), HasSubstr("block of"));
  EXPECT_THAT(error([](Manifest& m) { m.smaller_blocks[0].rows = 2; }), HasSubstr("outside"));
  EXPECT_THAT(error([](Manifest& m) { m.smaller_blocks[0].calls[0].kernel = 3; }),
              HasSubstr("names kernel 3"));
  EXPECT_THAT(error([](Manifest& m) {
                m.inputs[0].shape[0] = 100;
                for (TensorSpec& spec : m.outputs) spec.shape[0] = 100;
                m.calls.clear();
                m.smaller_blocks.clear();
                for (int64_t rows = 9; rows > 1; --rows) m.smaller_blocks.push_back({rows, {}});
              }),
              HasSubstr("9 blocks"));
}

TEST(ModuleTest, NamesOfColumnsAreKept) {
  Module module = MakeTestModule();
  EXPECT_EQ(SerializeModule(module).find("columns"), std::string::npos)
      << "a module without names is as it was before there were any";
  Manifest& m = module.manifest;
  for (int c = 0; c < 100; ++c) m.inputs[0].columns.push_back("größe, \"" + std::to_string(c));
  m.outputs[0].labels = {"no", "", "yes"};
  m.independent_rows = true;
  const auto parsed = ParseModule(SerializeModule(module));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->manifest.inputs[0].columns, m.inputs[0].columns);
  EXPECT_EQ(parsed->manifest.outputs[0].labels, m.outputs[0].labels);
  EXPECT_TRUE(parsed->manifest.outputs[0].columns.empty());
  EXPECT_TRUE(parsed->manifest.independent_rows);
}

TEST(ModuleTest, TextsAreBytesOfTheLastDimension) {
  Module module = MakeTestModule();
  EXPECT_EQ(SerializeModule(module).find("\"text\""), std::string::npos);
  module.manifest.inputs.push_back({"words", "u8", {2, 3, 5}});
  module.manifest.inputs.back().text = true;
  module.manifest.inputs.back().columns = {"a", "b", "c"};
  const auto parsed = ParseModule(SerializeModule(module));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->manifest.inputs.back().text);
  EXPECT_FALSE(parsed->manifest.inputs[0].text);
}

// Names that a model may have fit, even if their bytes are no UTF-8 and become longer.
TEST(ModuleTest, NamesHaveALimit) {
  Module module = MakeTestModule();
  module.manifest.outputs[0].labels = {std::string(1024, '\xff')};
  EXPECT_TRUE(ParseModule(SerializeModule(module)).ok());
  module.manifest.outputs[0].labels = {std::string(4097, 'x')};
  EXPECT_THAT(std::string(ParseModule(SerializeModule(module)).status().message()),
              HasSubstr("a name of 4097 bytes"));
  module.manifest.outputs[0].labels.assign((1 << 20) + 1, "");
  EXPECT_THAT(std::string(ParseModule(SerializeModule(module)).status().message()),
              HasSubstr("1048577 names"));
}

// Each contradiction is written with right checksums, so only the manifest's rules can find it.
TEST(ModuleTest, ContradictionsAreRefused) {
  const std::vector<std::function<void(Module&)>> lies = {
      [](Module& m) { m.manifest.threads = 0; },
      [](Module& m) { m.manifest.threads = 1 << 20; },
      [](Module& m) { m.manifest.arena_bytes = -1; },
      [](Module& m) { m.manifest.arena_bytes = kBytes - 64; },
      [](Module& m) { m.manifest.workspace_bytes = kBytes - 1; },
      [](Module& m) { m.manifest.workspace_bytes = INT64_MAX; },
      [](Module& m) { m.manifest.kernels[0].symbol = ""; },
      [](Module& m) { m.manifest.kernels[1].workspace_bytes = -1; },
      [](Module& m) { m.manifest.inputs[0].shape[0] = 9; },
      [](Module& m) { m.manifest.inputs[0].shape[0] = 0; },
      [](Module& m) { m.manifest.inputs[0].shape[0] = -1; },
      [](Module& m) {
        m.manifest.outputs[0].lengths = {{0, 1}};
      },  // held by no output
      [](Module& m) {
        m.manifest.outputs[0].lengths = {{0, -1}};
      },  // the same
      [](Module& m) {
        m.manifest.outputs[0].lengths = {{0, 0}};
      },  // held by itself
      [](Module& m) {
        HoldLengths(m, {{2, 1}});
      },  // of no dimension
      [](Module& m) {
        HoldLengths(m, {{-1, 1}});
      },
      [](Module& m) {
        HoldLengths(m, {{0, 1}});
        m.manifest.outputs[1].dtype = "i32";
      },
      [](Module& m) {
        HoldLengths(m, {{0, 1}});
        m.manifest.outputs[1].shape = {1};
      },
      [](Module& m) {
        m.manifest.inputs[0].shape = {INT64_MAX, INT64_MAX};
      },
      [](Module& m) { m.manifest.outputs[0].dtype = "f16"; },
      [](Module& m) { m.manifest.calls[0].kernel = 2; },
      [](Module& m) { m.manifest.calls[0].kernel = -1; },
      [](Module& m) { m.manifest.calls[0].buffers[0].index = 1; },
      [](Module& m) { m.manifest.calls[0].buffers[0].bytes = kBytes + 1; },
      [](Module& m) { m.manifest.calls[0].buffers[1].index = 128; },
      [](Module& m) { m.manifest.calls[0].buffers[1].index = 63; },
      [](Module& m) { m.manifest.calls[0].buffers[1].index = -64; },
      [](Module& m) { m.manifest.calls[0].buffers[1].bytes = INT64_MAX; },
      [](Module& m) { m.manifest.calls[0].buffers[2].bytes = -1; },
      [](Module& m) { m.manifest.calls[0].buffers[2].index = INT64_MAX - 63; },
      [](Module& m) { m.params = SharedBytes::Of(std::string(kBytes, '\0')); },
      [](Module& m) { m.manifest.inputs[0].columns.resize(99); },
      [](Module& m) { m.manifest.outputs[0].columns.resize(101); },
      [](Module& m) {
        m.manifest.inputs.push_back({"scalar", "f32", {}});
        m.manifest.inputs[1].columns = {"a"};
      },
      [](Module& m) {
        m.manifest.inputs.push_back({"other", "f32", {11, 100}});
        m.manifest.independent_rows = true;
      },
      [](Module& m) {
        m.manifest.inputs.push_back({"scalar", "f32", {}});
        m.manifest.independent_rows = true;
      },
      [](Module& m) {
        HoldLengths(m, {{1, 1}});
        m.manifest.independent_rows = true;
      },
      [](Module& m) { m.manifest.inputs[0].text = true; },
      [](Module& m) {
        m.manifest.inputs.push_back({"words", "u8", {2, 3, 5}});
        m.manifest.inputs[1].text = true;
        m.manifest.inputs[1].columns.resize(15);
      },
  };
  ASSERT_TRUE(CheckModule(MakeTestModule()).ok());
  for (size_t i = 0; i < lies.size(); ++i) {
    Module module = MakeTestModule();
    lies[i](module);
    EXPECT_FALSE(ParseModule(SerializeModule(module)).ok()) << "lie " << i;
  }
}

}  // namespace
}  // namespace heddle::runtime
