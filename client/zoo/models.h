// The architectures of the zoo, by file. Each writes one whole model. Internal to the zoo.
#pragma once

#include "client/zoo/writer.h"

namespace heddle::zoo {

// plain.cc: one path through the layers
void WriteMlp(ModelWriter& m);
void WriteMobilenetV1(ModelWriter& m);
void WriteMobilenetV2(ModelWriter& m);
void WriteDqn(ModelWriter& m);
void WriteDcgan(ModelWriter& m);

// residual.cc: with shortcuts around blocks
void WriteResnet18(ModelWriter& m);
void WriteResnet50(ModelWriter& m);
void WriteResnext50(ModelWriter& m);

// branches.cc: parallel paths that are concatenated
void WriteSqueezenet(ModelWriter& m);
void WriteInceptionV3(ModelWriter& m);
void WriteNasnetA(ModelWriter& m);

// sequence.cc: over sequences of tokens
void WriteLstmLm(ModelWriter& m);
void WriteNasRnn(ModelWriter& m);
void WriteBertBase(ModelWriter& m);

}  // namespace heddle::zoo
