// Models in the text form of ONNX, as far as tests need it:
//
//     (float[2,N] x, int64 s) => (float[a,b] y) {
//       c = Constant<value = float[2] {1.0, 2.0}>()
//       y, z = com.example.Op<axis = 1, name = "text", list = [1, 2], none: ints = []>(x, , c)
//     }
//     com.example.Op:17 <axis, scale = 1.5> (x, y, z) => (r, s) {
//       r = Softmax<axis: int = @axis>(x)
//       s = If<then_branch = () => (float t) {t = Neg(y)}, else_branch = ..>(z)
//     }
//
// After the graph come functions, with their opset. "@" refers to an attribute of the function.
// A word as dimension is a symbolic one, "?" an unknown one. A type without brackets is a scalar, "seq" a
// sequence.
#pragma once

#include <string>

#include "compiler/onnx/format/onnx_format.pb.h"

namespace heddle::onnx_cases {

// Ends the program with a message if the text is malformed.
onnx::ModelProto ModelOf(int opset, const std::string& graph);
// The same with the operators of ai.onnx.ml, too.
onnx::ModelProto ClassicalModelOf(int opset, int ml_opset, const std::string& graph);

}  // namespace heddle::onnx_cases
