// A small network with attention over the loops of a program, as an alternative to trees. It is
// trained on one thread from the same samples, without any library.
//
//   g = relu(Wg r + bg)                    r: the features outside tokens, in standard deviations
//   e_k = relu(Wt t_k + p_k)               t_k: those of token k (ModelSpec.tokens), p_k: position
//   a = softmax(e_k . (Wq g + bq) / 4)     which loops matter, given the rest
//   score = w . relu(Wh [g; sum a_k e_k] + bh) + v . r
//
// It minimises, by Adam with decaying steps, either log(1 + exp(-d)) over pairs of a group, where d
// is the faster candidate's score plus prior minus the slower one's, or squared errors.
#pragma once

#include <cstdint>
#include <memory>

#include "cost_model/model/model.h"

namespace heddle::cost_model {

std::unique_ptr<Model> MakeAttentionModel(const ModelSpec& spec, uint64_t seed);
// DataLoss for bytes that were not made by Serialize of this version with this spec.
absl::StatusOr<std::unique_ptr<Model>> ParseAttentionModel(std::string_view bytes,
                                                           const ModelSpec& spec, uint64_t seed);

}  // namespace heddle::cost_model
