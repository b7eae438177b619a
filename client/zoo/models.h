// The architectures of the zoo, by file. Each writes one whole model. Internal to the zoo.
#pragma once

#include "client/zoo/writer.h"

namespace heddle::zoo {

// zoo_plain.cc: one path through the layers
void WriteMlp(ModelWriter& m);
void WriteMobilenetV1(ModelWriter& m);
void WriteMobilenetV2(ModelWriter& m);
void WriteDqn(ModelWriter& m);
void WriteDcgan(ModelWriter& m);

// zoo_residual.cc
void WriteResnet18(ModelWriter& m);
void WriteResnet50(ModelWriter& m);
void WriteResnext50(ModelWriter& m);

// zoo_branches.cc: what joins by concatenation
void WriteSqueezenet(ModelWriter& m);
void WriteInceptionV3(ModelWriter& m);
void WriteNasnetA(ModelWriter& m);

// zoo_sequence.cc
void WriteLstmLm(ModelWriter& m);
void WriteNasRnn(ModelWriter& m);
void WriteBertBase(ModelWriter& m);

}  // namespace heddle::zoo
