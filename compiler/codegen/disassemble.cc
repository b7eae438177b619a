#include "compiler/codegen/disassemble.h"

#include <algorithm>
#include <map>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/codegen/backend.h"
#include "compiler/codegen/llvm/llvm_target.h"
#include "llvm/MC/MCAsmInfo.h"
#include "llvm/MC/MCContext.h"
#include "llvm/MC/MCDisassembler/MCDisassembler.h"
#include "llvm/MC/MCInst.h"
#include "llvm/MC/MCInstPrinter.h"
#include "llvm/MC/MCInstrAnalysis.h"
#include "llvm/MC/MCInstrInfo.h"
#include "llvm/MC/MCRegisterInfo.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/MCTargetOptions.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Object/ObjectFile.h"
#include "llvm/Support/MemoryBufferRef.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/TargetParser/Triple.h"

namespace heddle::codegen {

namespace {

struct Function {
  std::string name;
  uint64_t address = 0;
  llvm::ArrayRef<uint8_t> bytes;
};

absl::Status Damaged(llvm::Error error) {
  return absl::DataLossError(
      absl::StrCat("the code is damaged: ", llvm::toString(std::move(error))));
}

// The functions of an ELF file, by address. Their bytes lie in `code`.
absl::StatusOr<std::vector<Function>> FunctionsOf(const llvm::object::ObjectFile& file) {
  std::vector<Function> functions;
  for (const llvm::object::SymbolRef& symbol : file.symbols()) {
    llvm::Expected<llvm::object::SymbolRef::Type> type = symbol.getType();
    if (!type) return Damaged(type.takeError());
    if (*type != llvm::object::SymbolRef::ST_Function) continue;
    llvm::Expected<llvm::object::section_iterator> section = symbol.getSection();
    if (!section) return Damaged(section.takeError());
    if (*section == file.section_end()) continue;  // of another library
    llvm::Expected<llvm::StringRef> name = symbol.getName();
    if (!name) return Damaged(name.takeError());
    llvm::Expected<uint64_t> address = symbol.getAddress();
    if (!address) return Damaged(address.takeError());
    llvm::Expected<llvm::StringRef> content = (*section)->getContents();
    if (!content) return Damaged(content.takeError());
    const uint64_t begin = (*section)->getAddress();
    const uint64_t size = llvm::object::ELFSymbolRef(symbol).getSize();
    if (*address < begin || *address - begin > content->size() ||
        size > content->size() - (*address - begin))
      return absl::DataLossError("the code is damaged: a function lies outside of its section");
    const auto* data = reinterpret_cast<const uint8_t*>(content->data()) + (*address - begin);
    functions.push_back({name->str(), *address, {data, static_cast<size_t>(size)}});
  }
  std::sort(functions.begin(), functions.end(), [](const Function& a, const Function& b) {
    return a.address != b.address ? a.address < b.address : a.name < b.name;
  });
  return functions;
}

// LLVM's disassembler and printer for one target.
class Reader {
 public:
  static absl::StatusOr<std::unique_ptr<Reader>> For(const Target& target) {
    HEDDLE_RETURN_IF_ERROR(CheckTarget(target));
    const std::string name = TripleOf(target);
    const llvm::Triple triple(name);
    std::string ignored;  // CheckTarget has looked it up
    const llvm::Target* found = llvm::TargetRegistry::lookupTarget(name, ignored);
    std::unique_ptr<Reader> reader(new Reader);
    reader->registers_.reset(found->createMCRegInfo(name));
    reader->subtarget_.reset(found->createMCSubtargetInfo(name, target.cpu, target.attrs));
    reader->instructions_.reset(found->createMCInstrInfo());
    if (reader->registers_ != nullptr)
      reader->assembly_.reset(
          found->createMCAsmInfo(*reader->registers_, name, llvm::MCTargetOptions()));
    if (reader->subtarget_ != nullptr && reader->instructions_ != nullptr &&
        reader->assembly_ != nullptr) {
      reader->context_ = std::make_unique<llvm::MCContext>(
          triple, reader->assembly_.get(), reader->registers_.get(), reader->subtarget_.get());
      reader->decoder_.reset(found->createMCDisassembler(*reader->subtarget_, *reader->context_));
      const unsigned syntax = triple.isX86() ? 1 : 0;  // Intel's
      reader->printer_.reset(found->createMCInstPrinter(
          triple, syntax, *reader->assembly_, *reader->instructions_, *reader->registers_));
      reader->analysis_.reset(found->createMCInstrAnalysis(reader->instructions_.get()));
    }
    if (reader->decoder_ == nullptr || reader->printer_ == nullptr) {
      return absl::UnimplementedError(
          absl::StrCat("this LLVM has no disassembler for the triple ", name));
    }
    reader->printer_->setPrintBranchImmAsAddress(true);
    return reader;
  }

  // Appends the assembly of one function to `lines`. `names` maps the address of each function to its name, for calls.
  void List(const Function& function, const std::map<uint64_t, std::string>& names,
            std::vector<std::string>* lines) const {
    lines->push_back(absl::StrCat(function.name, ":"));
    for (size_t at = 0; at < function.bytes.size();) {
      const uint64_t address = function.address + at;
      const llvm::ArrayRef<uint8_t> rest = function.bytes.drop_front(at);
      llvm::MCInst instruction;
      uint64_t size = 0;
      const bool known = decoder_->getInstruction(instruction, size, rest, address,
                                                  llvm::nulls()) != llvm::MCDisassembler::Fail;
      size = std::clamp<uint64_t>(size, 1, rest.size());
      std::string text;
      if (known) {
        llvm::raw_string_ostream stream(text);
        printer_->printInst(&instruction, address, "", *subtarget_, stream);
      } else {
        text = absl::StrCat(".byte 0x", absl::Hex(rest.front(), absl::kZeroPad2));
        size = 1;
      }
      uint64_t target = 0;
      if (known && analysis_ != nullptr && analysis_->isCall(instruction) &&
          analysis_->evaluateBranch(instruction, address, size, target)) {
        if (const auto name = names.find(target); name != names.end())
          absl::StrAppend(&text, "  # ", name->second);
      }
      for (char& c : text) c = c == '\t' || c == '\n' ? ' ' : c;
      lines->push_back(absl::StrCat(absl::Hex(address, absl::kSpacePad8), ": ",
                                    absl::StripAsciiWhitespace(text)));
      at += size;
    }
  }

 private:
  Reader() = default;

  // Each refers to those above it.
  std::unique_ptr<llvm::MCRegisterInfo> registers_;
  std::unique_ptr<llvm::MCAsmInfo> assembly_;
  std::unique_ptr<llvm::MCSubtargetInfo> subtarget_;
  std::unique_ptr<llvm::MCInstrInfo> instructions_;
  std::unique_ptr<llvm::MCContext> context_;
  std::unique_ptr<llvm::MCDisassembler> decoder_;
  std::unique_ptr<llvm::MCInstPrinter> printer_;
  std::unique_ptr<llvm::MCInstrAnalysis> analysis_;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> Disassemble(std::string_view code, std::string_view symbol,
                                                     const Target& target) {
  if (target.kind != TargetKind::kLlvm) {
    return absl::UnimplementedError(absl::StrCat("LLVM reads no code for ", ToText(target),
                                                 "; the CUDA Toolkit's nvdisasm lists a cubin"));
  }
  HEDDLE_ASSIGN_OR_RETURN(const Target resolved, ResolveTarget(target));
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<Reader> reader, Reader::For(resolved));
  llvm::Expected<std::unique_ptr<llvm::object::ObjectFile>> file =
      llvm::object::ObjectFile::createObjectFile(
          llvm::MemoryBufferRef(llvm::StringRef(code.data(), code.size()), "code"));
  if (!file) return Damaged(file.takeError());
  if (!(*file)->isELF()) return absl::DataLossError("the code is no ELF file");
  if ((*file)->getArch() != llvm::Triple(TripleOf(resolved)).getArch()) {
    return absl::DataLossError(absl::StrCat("the code is of another architecture (",
                                            (*file)->getFileFormatName().str(), ") than ",
                                            ToText(target)));
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Function> functions, FunctionsOf(**file));
  std::map<uint64_t, std::string> names;
  for (const Function& function : functions) names.emplace(function.address, function.name);
  const std::string part = absl::StrCat(std::string(symbol), ".");
  std::vector<std::string> lines;
  for (const Function& function : functions) {
    if (function.name == symbol || function.name.starts_with(part))
      reader->List(function, names, &lines);
  }
  if (lines.empty())
    return absl::NotFoundError(absl::StrCat("the code has no kernel ", std::string(symbol)));
  return lines;
}

}  // namespace heddle::codegen
