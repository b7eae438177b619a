#include "compiler/onnx/node.h"
namespace heddle::graph {
void AddMicrosoftAttentionTranslations(TranslationTable& table) {}
}  // namespace heddle::graph
