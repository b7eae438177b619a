#include "client/zoo/zoo.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/zoo/models.h"

namespace heddle::zoo {
namespace {

struct Entry {
  const char* name;
  void (*write)(ModelWriter& m);
};

constexpr Entry kModels[] = {
    {"mlp", WriteMlp},
    {"resnet18", WriteResnet18},
    {"resnet50", WriteResnet50},
    {"mobilenet_v1", WriteMobilenetV1},
    {"mobilenet_v2", WriteMobilenetV2},
    {"squeezenet", WriteSqueezenet},
    {"inception_v3", WriteInceptionV3},
    {"resnext50", WriteResnext50},
    {"nasnet_a", WriteNasnetA},
    {"dqn", WriteDqn},
    {"dcgan", WriteDcgan},
    {"lstm_lm", WriteLstmLm},
    {"nasrnn", WriteNasRnn},
    {"bert_base", WriteBertBase},
};

}  // namespace

std::vector<std::string> ZooNames() {
  std::vector<std::string> names;
  for (const Entry& entry : kModels) names.emplace_back(entry.name);
  return names;
}

absl::StatusOr<std::string> MakeZooModel(std::string_view name, uint64_t seed) {
  for (const Entry& entry : kModels) {
    if (name != entry.name) continue;
    ModelWriter writer(entry.name, seed);
    entry.write(writer);
    return writer.Finish();
  }
  return absl::NotFoundError(absl::StrCat("no model '", std::string(name),
                                          "' in the zoo; there are ",
                                          absl::StrJoin(ZooNames(), ", ")));
}

}  // namespace heddle::zoo
