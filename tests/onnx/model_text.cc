#include "tests/onnx/model_text.h"

#include <cctype>
#include <cstdlib>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/fatal.h"

namespace heddle::onnx_cases {
namespace {

using onnx::AttributeProto;
using onnx::TensorProto;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  void Graph(onnx::GraphProto& graph) {
    graph.set_name("test");
    Declarations([&] { return graph.add_input(); });
    Expect("=>");
    Declarations([&] { return graph.add_output(); });
    Expect("{");
    for (int i = 0; !Take("}"); ++i) Node(*graph.add_node());
  }

  void Model(onnx::ModelProto& model) {
    Graph(*model.mutable_graph());
    while (Peek() != '\0') Function(*model.add_functions());
  }

 private:
  [[noreturn]] void Bad(const std::string& wanted) {
    Fatal(absl::StrCat("no ", wanted, " at '", std::string(text_.substr(at_, 40)), "' of ",
                       std::string(text_)));
  }
  void Space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool Take(std::string_view token) {
    Space();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  bool At(std::string_view token) {
    Space();
    return text_.substr(at_, token.size()) == token;
  }
  void Expect(std::string_view token) {
    if (!Take(token)) Bad(absl::StrCat("'", std::string(token), "'"));
  }
  // Letters, digits and what names hold; may be empty.
  std::string Word() {
    Space();
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) ||
            std::string_view("_.?+-/:").find(text_[at_]) != std::string_view::npos)) {
      // A colon separates the name of an attribute from its type.
      if (text_[at_] == ':') break;
      ++at_;
    }
    return std::string(text_.substr(begin, at_ - begin));
  }

  int Type() {
    std::string word = Word();
    for (char& c : word) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    TensorProto::DataType type;
    if (!TensorProto::DataType_Parse(word, &type)) Bad("element type");
    return type;
  }

  void Function(onnx::FunctionProto& f) {
    const std::string name = Word();
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos) Bad("domain");
    f.set_domain(name.substr(0, dot));
    f.set_name(name.substr(dot + 1));
    Expect(":");
    f.add_opset_import()->set_version(std::atoll(Word().c_str()));
    if (Take("<")) {
      while (!Take(">")) {
        const size_t begin = at_;
        const std::string attribute = Word();
        if (At("=")) {
          at_ = begin;
          Attribute(*f.add_attribute_proto());
        } else {
          f.add_attribute(attribute);
        }
        Take(",");
      }
    }
    const auto names = [&](auto add) {
      Expect("(");
      while (!Take(")")) {
        add(Word());
        Take(",");
      }
    };
    names([&](const std::string& word) { f.add_input(word); });
    Expect("=>");
    names([&](const std::string& word) { f.add_output(word); });
    Expect("{");
    while (!Take("}")) Node(*f.add_node());
  }

  template <typename Add>
  void Declarations(Add add) {
    Expect("(");
    while (!Take(")")) {
      onnx::ValueInfoProto& info = *add();
      if (Take("seq ")) {
        info.mutable_type()->mutable_sequence_type();
        info.set_name(Word());
        Take(",");
        continue;
      }
      auto* type = info.mutable_type()->mutable_tensor_type();
      type->set_elem_type(Type());
      type->mutable_shape();
      if (Take("[")) {
        while (!Take("]")) {
          auto* dim = type->mutable_shape()->add_dim();
          const std::string word = Word();
          if (std::isdigit(static_cast<unsigned char>(word[0])))
            dim->set_dim_value(std::stoll(word));
          else if (word != "?")
            dim->set_dim_param(word);
          Take(",");
        }
      }
      info.set_name(Word());
      Take(",");
    }
  }

  void Node(onnx::NodeProto& node) {
    do {
      node.add_output(Word());
    } while (Take(","));
    Expect("=");
    const std::string op = Word();
    const size_t dot = op.rfind('.');
    if (dot != std::string::npos) node.set_domain(op.substr(0, dot));
    node.set_op_type(dot == std::string::npos ? op : op.substr(dot + 1));
    if (Take("<")) {
      while (!Take(">")) {
        Attribute(*node.add_attribute());
        Take(",");
      }
    }
    Expect("(");
    if (Take(")")) return;
    do {
      node.add_input(Word());
    } while (Take(","));
    Expect(")");
  }

  void Attribute(AttributeProto& a) {
    a.set_name(Word());
    if (Take(":")) {  // what an empty list holds
      std::string word = Word();
      for (char& c : word) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      AttributeProto::AttributeType type;
      if (!AttributeProto::AttributeType_Parse(word, &type)) Bad("attribute type");
      a.set_type(type);
    }
    Expect("=");
    if (Take("@")) {
      a.set_ref_attr_name(Word());
    } else if (At("(")) {
      a.set_type(AttributeProto::GRAPH);
      Graph(*a.mutable_g());
    } else if (Take("[")) {
      while (!Take("]")) {
        Element(a);
        Take(",");
      }
    } else if (std::isalpha(static_cast<unsigned char>(Peek()))) {
      a.set_type(AttributeProto::TENSOR);
      Tensor(*a.mutable_t());
    } else if (At("\"")) {
      a.set_type(AttributeProto::STRING);
      a.set_s(Quoted());
    } else {
      const std::string word = Word();
      const bool real = word.find_first_of(".e") != std::string::npos;
      a.set_type(real ? AttributeProto::FLOAT : AttributeProto::INT);
      if (real)
        a.set_f(std::strtof(word.c_str(), nullptr));
      else
        a.set_i(std::atoll(word.c_str()));
    }
  }

  void Element(AttributeProto& a) {
    if (At("\"")) {
      a.set_type(AttributeProto::STRINGS);
      a.add_strings(Quoted());
      return;
    }
    const std::string word = Word();
    const bool real = word.find_first_of(".e") != std::string::npos;
    a.set_type(real ? AttributeProto::FLOATS : AttributeProto::INTS);
    if (real)
      a.add_floats(std::strtof(word.c_str(), nullptr));
    else
      a.add_ints(std::atoll(word.c_str()));
  }

  void Tensor(TensorProto& t) {
    t.set_data_type(Type());
    if (Take("[")) {
      while (!Take("]")) {
        t.add_dims(std::stoll(Word()));
        Take(",");
      }
    }
    Expect("{");
    while (!Take("}")) {
      const std::string word = Word();
      if (t.data_type() == TensorProto::FLOAT)
        t.add_float_data(std::strtof(word.c_str(), nullptr));
      else if (t.data_type() == TensorProto::DOUBLE)
        t.add_double_data(std::strtod(word.c_str(), nullptr));
      else if (t.data_type() == TensorProto::INT64)
        t.add_int64_data(std::atoll(word.c_str()));
      else
        t.add_int32_data(std::atoi(word.c_str()));
      Take(",");
    }
  }

  char Peek() {
    Space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  std::string Quoted() {
    Expect("\"");
    const size_t end = text_.find('"', at_);
    if (end == std::string_view::npos) Bad("closing quote");
    std::string word(text_.substr(at_, end - at_));
    at_ = end + 1;
    return word;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

onnx::ModelProto ModelOf(int opset, const std::string& graph) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(opset);
  Parser(graph).Model(model);
  return model;
}

onnx::ModelProto ClassicalModelOf(int opset, int ml_opset, const std::string& graph) {
  onnx::ModelProto model = ModelOf(opset, graph);
  auto* classical = model.add_opset_import();
  classical->set_domain("ai.onnx.ml");
  classical->set_version(ml_opset);
  return model;
}

}  // namespace heddle::onnx_cases
