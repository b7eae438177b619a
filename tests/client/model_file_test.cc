// Which files a model may name, and what it becomes without its large tensors.
#include "client/modules/model_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "compiler/onnx/format/onnx_format.pb.h"
#include "compiler/onnx/parts.h"

namespace heddle::client {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kElements = 64 * 1024;  // of a large tensor, as f32

class ModelFileTest : public ::testing::Test {
 protected:
  ModelFileTest() : folder_(absl::StrCat(::testing::TempDir(), "/model_file", getpid())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_ + "/model/inside");
    for (int64_t i = 0; i < 2 * kElements; ++i) {
      const float value = static_cast<float>(i % 1000) / 1000;
      weights_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    Write("model/weights.bin", weights_);
  }
  ~ModelFileTest() override { fs::remove_all(folder_); }

  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
  }

  // y = relu(x + w), where w has kElements elements.
  static onnx::ModelProto Model() {
    onnx::ModelProto m;
    m.set_ir_version(8);
    m.add_opset_import()->set_version(17);
    onnx::GraphProto& g = *m.mutable_graph();
    g.set_name("g");
    for (const auto& [op, in, out] : {std::tuple{"Add", "x", "s"}, std::tuple{"Relu", "s", "y"}}) {
      onnx::NodeProto& node = *g.add_node();
      node.set_op_type(op);
      node.add_input(in);
      if (node.op_type() == "Add") node.add_input("w");
      node.add_output(out);
    }
    for (auto [value, name] : {std::pair{g.add_input(), "x"}, std::pair{g.add_output(), "y"}}) {
      value->set_name(name);
      auto& type = *value->mutable_type()->mutable_tensor_type();
      type.set_elem_type(onnx::TensorProto::FLOAT);
      type.mutable_shape()->add_dim()->set_dim_value(kElements);
    }
    onnx::TensorProto& w = *g.add_initializer();
    w.set_name("w");
    w.set_data_type(onnx::TensorProto::FLOAT);
    w.add_dims(kElements);
    return m;
  }
  static void SetExternal(onnx::TensorProto* t, const std::string& location,
                          const std::string& offset, const std::string& length) {
    t->set_data_location(onnx::TensorProto::EXTERNAL);
    const std::pair<const char*, std::string> entries[] = {
        {"location", location}, {"offset", offset}, {"length", length}};
    for (const auto& [key, value] : entries) {
      if (value.empty()) continue;
      auto* entry = t->add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    }
  }
  absl::StatusOr<ModelFile> Open(const onnx::ModelProto& m) {
    Write("model/model.onnx", m.SerializeAsString());
    return OpenModel(folder_ + "/model/model.onnx");
  }
  absl::StatusOr<ModelFile> OpenExternal(const std::string& location,
                                         const std::string& offset = "",
                                         const std::string& length = "262144") {
    onnx::ModelProto m = Model();
    SetExternal(m.mutable_graph()->mutable_initializer(0), location, offset, length);
    return Open(m);
  }
  void ExpectRefused(const absl::StatusOr<ModelFile>& model, const std::string& why) {
    ASSERT_FALSE(model.ok());
    const std::string message(model.status().message());
    EXPECT_THAT(message, AllOf(HasSubstr("'w'"), HasSubstr(why)));
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
  std::string Imported(const ModelFile& model) {
    heddle::ModelOptions options;
    options.import.external = model.Loader();
    const auto graph = graph::ImportOnnx(model.onnx, options.import);
    EXPECT_TRUE(graph.ok()) << graph.status();
    return graph.ok() ? std::string(*graph->constants.begin()->second.bytes) : "";
  }

  const std::string folder_;
  std::string weights_;
};

TEST_F(ModelFileTest, ExternalAndInternalTensorsBecomeTheSame) {
  const std::string w = weights_.substr(256, 4 * kElements);
  const auto external = OpenExternal("weights.bin", "256");
  ASSERT_TRUE(external.ok()) << external.status();
  ASSERT_EQ(external->parts.size(), 1u);
  EXPECT_EQ(external->parts[0].digest, Sha256Hex(w));
  EXPECT_EQ(external->part_bytes, 4 * kElements);
  EXPECT_LT(external->onnx.size(), 1000u);
  EXPECT_EQ(Imported(*external), w);

  onnx::ModelProto m = Model();
  m.mutable_graph()->mutable_initializer(0)->set_raw_data(w);
  const auto internal = Open(m);
  ASSERT_TRUE(internal.ok()) << internal.status();
  EXPECT_EQ(internal->onnx, external->onnx);
  EXPECT_EQ(internal->parts[0].digest, external->parts[0].digest);
  EXPECT_EQ(Imported(*internal), w);
}

TEST_F(ModelFileTest, PlacesMayOverlapAndBeginAnywhere) {
  onnx::ModelProto m = Model();
  SetExternal(m.mutable_graph()->mutable_initializer(0), "weights.bin", "3", "262144");
  onnx::TensorProto second = m.graph().initializer(0), third = second, small = second;
  second.clear_external_data();
  SetExternal(&second, "./weights.bin", "1000", "262144");
  second.set_name("v");
  third.set_name("same");
  small.clear_external_data();
  SetExternal(&small, "weights.bin", "4", "8");
  small.set_name("small");
  small.set_dims(0, 2);
  for (const onnx::TensorProto& t : {second, third, small})
    *m.mutable_graph()->add_initializer() = t;
  const auto model = Open(m);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->parts.size(), 2u) << "equal tensors are one part";
  EXPECT_EQ(Imported(*model), weights_.substr(3, 4 * kElements)) << "misaligned";
  onnx::ModelProto made;
  ASSERT_TRUE(made.ParseFromString(model->onnx));
  EXPECT_EQ(made.graph().initializer(3).raw_data(), weights_.substr(4, 8)) << "small: in the file";
  EXPECT_EQ(made.graph().initializer(3).external_data_size(), 0);
}

TEST_F(ModelFileTest, ALengthMayBeMissing) {
  const auto model = OpenExternal("weights.bin", std::to_string(4 * kElements), "");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(Imported(*model), weights_.substr(4 * kElements));
}

TEST_F(ModelFileTest, FilesOutsideTheFolderAreRefused) {
  Write("secret.bin", weights_);
  ExpectRefused(OpenExternal("../secret.bin"), "leaves the model's folder");
  ExpectRefused(OpenExternal("inside/../../secret.bin"), "leaves the model's folder");
  ExpectRefused(OpenExternal("inside/../weights.bin"), "leaves the model's folder");
  ExpectRefused(OpenExternal(folder_ + "/secret.bin"), "relative");
  fs::create_symlink("../secret.bin", folder_ + "/model/link.bin");
  ExpectRefused(OpenExternal("link.bin"), "symbolic link leads out");
  fs::create_directory_symlink("..", folder_ + "/model/up");
  ExpectRefused(OpenExternal("up/secret.bin"), "symbolic link leads out");
  // A folder whose name begins like the model's is another one.
  fs::create_directories(folder_ + "/model2");
  Write("model2/secret.bin", weights_);
  fs::create_symlink("../model2/secret.bin", folder_ + "/model/two.bin");
  ExpectRefused(OpenExternal("two.bin"), "symbolic link leads out");
}

TEST_F(ModelFileTest, LinksInsideTheFolderAreFine) {
  Write("model/inside/w.bin", weights_);
  fs::create_symlink("inside/w.bin", folder_ + "/model/link.bin");
  const auto model = OpenExternal("link.bin");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->parts[0].digest, Sha256Hex(weights_.substr(0, 4 * kElements)));
  EXPECT_TRUE(OpenExternal("inside/w.bin").ok());
}

TEST_F(ModelFileTest, MissingAndShortFiles) {
  ExpectRefused(OpenExternal("missing.bin"), "missing.bin");
  ExpectRefused(OpenExternal("inside"), "it is a directory");
  ExpectRefused(OpenExternal("weights.bin", "300000"), "has 524288 bytes");
  ExpectRefused(OpenExternal("weights.bin", "9999999", ""), "has 524288 bytes");
  ExpectRefused(OpenExternal("weights.bin", "9223372036854775807"), "has 524288 bytes");
  ExpectRefused(OpenExternal("weights.bin", "-1"), "offset");
  ExpectRefused(OpenExternal("weights.bin", "0", "a lot"), "length");
  ExpectRefused(OpenExternal(""), "without a location");
  EXPECT_TRUE(absl::IsNotFound(OpenModel(folder_ + "/nothing.onnx").status()));
}

// What people try first is named, with the way to a file that is read.
TEST_F(ModelFileTest, OtherFormatsAreNamed) {
  using namespace std::string_literals;
  const std::pair<std::string, const char*> cases[] = {
      {"\x80\x04\x95\x10\0\0\0"s, "a Python pickle (pickle, joblib); save a model of XGBoost"},
      {"\x78\x9c\x6b"s, "as joblib writes it"},
      {"CBM1\x10"s, "a model of CatBoost; save it with save_model(.., format='onnx')"},
      {"binf\0\0"s, "an old XGBoost; save the model with save_model('model.json')"},
      {"booster[0]:\n0:[f2<2.45] yes=1"s, "a dump of XGBoost's trees"},
      {"[\n  { \"nodeid\": 0, \"depth\": 0"s, "a dump of XGBoost's trees"},
      {"{\"name\":\"tree\",\"version\":\"v4\""s, "save the model as text"},
      {"PK\x03\x04\0\0"s, "torch.onnx.export"},
      {"\x89HDF\r\n"s, "tf2onnx"},
      {"<?xml version=\"1.0\"?><PMML>"s, "such as PMML"},
      {"\x1f\x8b\x08\0"s, "unpack it with gunzip"},
  };
  for (const auto& [bytes, why] : cases) {
    Write("model/model.any", bytes);
    const auto model = OpenModel(folder_ + "/model/model.any");
    ASSERT_FALSE(model.ok()) << why;
    EXPECT_THAT(std::string(model.status().message()),
                AllOf(HasSubstr("model.any'"), HasSubstr(why)));
  }
}

TEST_F(ModelFileTest, DamagedModelsAreRefused) {
  onnx::ModelProto m = Model();
  m.mutable_graph()->mutable_initializer(0)->set_raw_data(weights_.substr(0, 4 * kElements));
  const std::string bytes = m.SerializeAsString();
  for (size_t size : {size_t{1}, size_t{100}, bytes.size() / 2, bytes.size() - 1}) {
    Write("model/model.onnx", bytes.substr(0, size));
    const auto model = OpenModel(folder_ + "/model/model.onnx");
    EXPECT_FALSE(model.ok()) << size;
    EXPECT_THAT(std::string(model.status().message()), HasSubstr("truncated"));
  }
}

TEST_F(ModelFileTest, TensorsOfAttributesAndSubgraphs) {
  onnx::ModelProto m = Model();
  onnx::NodeProto& node = *m.mutable_graph()->add_node();
  node.set_op_type("If");
  onnx::AttributeProto& branch = *node.add_attribute();
  branch.set_name("then_branch");
  onnx::NodeProto& constant = *branch.mutable_g()->add_node();
  constant.set_op_type("Constant");
  onnx::AttributeProto& value = *constant.add_attribute();
  value.set_name("value");
  value.mutable_t()->set_name("deep");
  SetExternal(value.mutable_t(), "weights.bin", "0", "262144");
  SetExternal(m.mutable_graph()->mutable_initializer(0), "weights.bin", "0", "262144");
  const auto model = Open(m);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->parts.size(), 1u);
  onnx::ModelProto made;
  ASSERT_TRUE(made.ParseFromString(model->onnx));
  const auto& deep = made.graph().node(2).attribute(0).g().node(0).attribute(0).t();
  EXPECT_EQ(onnx::PartDigest(deep.external_data(0).value()), model->parts[0].digest);
}

}  // namespace
}  // namespace heddle::client
