// Fuzz targets: each .cc file of this folder that defines Run is one parser of bytes that a stranger may send.
//
// A target's file defines Run. Two programs can be made of it:
//   - with the preset `fuzz`, libFuzzer calls Run with inputs that it makes up, under AddressSanitizer and UBSan;
//   - in any other build, replay.cc calls it with the files of corpus/NAME, so that what was found once stays mended.
// write_seeds.cc writes the first files of each corpus; `found-*` are inputs that once broke something.
#pragma once

#include <string_view>

namespace heddle::fuzz {

// Gives `input` to the parser. It returns for every input, within seconds and a few hundred megabytes, whether the parser
// accepts or refuses; and what holds of accepted inputs is checked by Require.
void Run(std::string_view input);

// Ends the program, naming `what`, unless it holds. libFuzzer then keeps the input.
void Require(bool holds, std::string_view what);

// Cuts the first byte off `input`; 0 if there is none. For targets whose parser has several modes.
unsigned TakeByte(std::string_view* input);

}  // namespace heddle::fuzz
