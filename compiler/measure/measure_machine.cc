#include "compiler/measure/measure_machine.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/substitute.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "compiler/codegen/backend.h"
#include "compiler/ir/text.h"
#include "compiler/measure/cache_size.h"
#include "compiler/measure/loaded_kernel.h"
#include "compiler/measure/scoped_pin.h"
#include "compiler/runtime/aligned_buffer.h"
#include "compiler/runtime/kernel_library.h"
#include "compiler/runtime/thread_pool.h"
#include "compiler/runtime/timing.h"

namespace heddle {
namespace {

using internal::LoadedKernel;
using machine::MeasuredMachine;

// Vectors that are added up side by side: more than any core has additions under way.
constexpr int64_t kSums = 8;
// A multiply-add takes 5 cycles at most, of which a core begins at most 4 in each.
constexpr int64_t kManyChains = 20, kFewChains = 10;  // for 32 registers, and for fewer
constexpr int64_t kTurns = 1 << 13;                   // of a loop without memory
constexpr int64_t kApart =
    17;  // f32 between the lanes of a vector that is gathered: in lines of their own
constexpr int64_t kGathered = 64;
// A call of a kernel that reads from a cache reads at least so much.
constexpr int64_t kReadBytes = int64_t{1} << 20;
constexpr int64_t kLeastMemory = int64_t{64} << 20, kMostMemory = int64_t{256} << 20;
// A call reads a piece of main memory, and the next call the next piece. It is short enough to be left
// alone by others now and then on a busy host.
constexpr int64_t kPieceBytes = int64_t{4} << 20;
constexpr int kLeastRounds = 5;
constexpr absl::Duration kProbe = absl::Microseconds(400);
// Samples in a round of what all cores do together: on a busy host they seldom run at the same time.
constexpr int kTogether = 4;
// How far a figure may exceed one that bounds it.
constexpr double kTolerance = 1.1;

// ---- programs ----

std::string Name(const char* letter, int64_t i) { return absl::StrCat(letter, i); }

// A program whose vectors a0, a1, .. stay in registers while `loop` runs. The vectors begin as the
// first elements of its input X and end in its output Y, so that nothing of the loop can be left out.
std::string WithVectors(const std::string& name, int64_t vectors, int64_t lanes, int64_t input,
                        const std::string& loop) {
  std::string text =
      absl::Substitute("program $0(X: f32[$1]) -> (Y: f32[$2]) {\n", name, input, vectors * lanes);
  for (int64_t v = 0; v < vectors; ++v)
    absl::StrAppend(&text, "alloc ", Name("a", v), ": f32[", lanes, "] local {\n");
  for (int64_t v = 0; v < vectors; ++v) {
    absl::SubstituteAndAppend(&text, "for f$0 in $1 vectorized { a$0[f$0] = X[f$0] }\n", v, lanes);
  }
  absl::StrAppend(&text, loop);
  for (int64_t v = 0; v < vectors; ++v) {
    absl::SubstituteAndAppend(&text, "for t$0 in $1 vectorized { Y[(t$0 + $2)] = a$0[t$0] }\n", v,
                              lanes, v * lanes);
  }
  for (int64_t v = 0; v < vectors; ++v) text += "}";
  return text + "}";
}

// Multiply-adds on each of `chains` vectors, kTurns times.
std::string MultiplyAdds(const std::string& name, int64_t chains, int64_t lanes) {
  std::string loop = absl::StrCat("for r in ", kTurns, " {\n");
  for (int64_t v = 0; v < chains; ++v) {
    absl::SubstituteAndAppend(
        &loop, "for l$0 in $1 vectorized { a$0[l$0] = ((a$0[l$0] * X[l$0]) + X[(l$0 + $1)]) }\n", v,
        lanes);
  }
  return WithVectors(name, chains, lanes, 2 * lanes, loop + "}\n");
}

// Adds up `count` f32, `passes` times.
std::string Reads(const std::string& name, int64_t count, int64_t passes, int64_t lanes) {
  std::string loop =
      absl::Substitute("for r in $0 { for i in $1 {\n", passes, count / (kSums * lanes));
  for (int64_t v = 0; v < kSums; ++v) {
    absl::SubstituteAndAppend(
        &loop, "for l$0 in $1 vectorized { a$0[l$0] = (a$0[l$0] + X[(((i * $2) + $3) + l$0)]) }\n",
        v, lanes, kSums * lanes, v * lanes);
  }
  return WithVectors(name, kSums, lanes, count, loop + "} }\n");
}

// Adds up f32 of `count`, of which the lanes of a vector are apart.
std::string Gathers(const std::string& name, int64_t count, int64_t passes, int64_t lanes) {
  std::string loop = absl::Substitute("for r in $0 { for i in $1 {\n", passes, kGathered);
  for (int64_t v = 0; v < kSums; ++v) {
    // The lanes of one vector lie among those of others, so that no wider load gets several at once.
    absl::SubstituteAndAppend(
        &loop,
        "for l$0 in $1 vectorized { a$0[l$0] = (a$0[l$0] + X[(((i * $2) + $3) + (l$0 * $2))]) }\n",
        v, lanes, kApart, (v * 5) % kApart);
  }
  return WithVectors(name, kSums, lanes, count, loop + "} }\n");
}

// Writes `count` f32, `passes` times.
std::string Writes(const std::string& name, int64_t count, int64_t passes, int64_t lanes) {
  std::string text = absl::Substitute(
      "program $0(X: f32[$1]) -> (Y: f32[$2]) { alloc a: f32[$1] local {\n"
      "for f in $1 vectorized { a[f] = X[f] }\n"
      "for r in $3 { for n in $1 vectorized { a[n] = (a[n] + X[n]) }\n for i in $4 {\n",
      name, lanes, count, passes, count / (kSums * lanes));
  for (int64_t v = 0; v < kSums; ++v) {
    absl::SubstituteAndAppend(&text,
                              "for l$0 in $1 vectorized { Y[(((i * $2) + $3) + l$0)] = a[l$0] }\n",
                              v, lanes, kSums * lanes, v * lanes);
  }
  return text + "} } } }";
}

// ---- what is not a loop program ----

// Additions, each of which waits for the one before: one in each cycle of the clock. A compiler would
// find their sum without a loop. An operand in a register keeps CPUs from doing them while they rename.
constexpr int kAdditions = 16;  // as in the assembly
bool AddInTurn(int64_t times) {
#if defined(__x86_64__) || defined(__aarch64__)
  uint64_t x = 1;
  const uint64_t one = 1;
  for (int64_t i = 0; i < times; ++i) {
#if defined(__x86_64__)
    asm volatile(".rept 16\n\tadd %1, %0\n\t.endr" : "+r"(x) : "r"(one));
#else
    asm volatile(".rept 16\n\tadd %0, %0, %1\n\t.endr" : "+r"(x) : "r"(one));
#endif
  }
  return true;
#else
  static_cast<void>(times);
  return false;
#endif
}

int64_t CacheBytes(int name, int64_t otherwise) {
  const int64_t bytes = sysconf(name);
  return bytes > 0 ? bytes : otherwise;
}

absl::Duration ThreadTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

void RunNothing(void* /*closure*/, int64_t /*begin*/, int64_t /*end*/, int32_t /*worker*/) {}

// ---- the rounds ----

// One thing that is measured. `work` is divided by the least time.
struct Probe {
  double work;
  bool warm;  // begins with a call that does not count
  std::function<void()> call;
  bool together = false;
  double ns = std::numeric_limits<double>::infinity();

  double Rate() const { return work / ns; }
};

class MachineBench {
 public:
  MachineBench(const Target& target, const MeasureMachineOptions& options)
      : target_(target),
        options_(options),
        workers_(std::max<int64_t>(1, static_cast<int64_t>(options.cpus.size()))),
        pool_(static_cast<int>(workers_), options.cpus) {}

  absl::StatusOr<MeasuredMachine> Run() {
    if (!AddInTurn(1)) return absl::UnimplementedError("this CPU's clock cannot be measured");
    HEDDLE_RETURN_IF_ERROR(Prepare());
    AddProbes();
    absl::Status problem;
    for (int i = 0; i <= options_.extensions; ++i) {
      const double taken = RunRounds();
      const MeasuredMachine measured = Result();
      problem = CheckConsistent(measured);
      if (problem.ok() && workers_ > 1 && taken > options_.most_taken) {
        problem = absl::UnavailableError(absl::StrFormat(
            "others took %.0f %% of the cores' time while they were measured", 100 * taken));
      }
      // The text's digits are those that count.
      if (problem.ok()) return machine::ParseMeasuredMachine(machine::ToText(measured));
    }
    return problem;
  }

 private:
  enum Kernel { kPeak, kChain, kL1, kL2, kL3, kMemory, kWrite, kGather, kCall, kKernels };

  absl::Status Prepare() {
    HEDDLE_ASSIGN_OR_RETURN(const machine::TargetInfo info, codegen::DescribeTarget(target_));
    lanes_ = info.vector_bytes / 4;
    chains_ = info.vector_registers >= 32 ? kManyChains : kFewChains;
    result_.cores = workers_;
    result_.l1_bytes = CacheBytes(_SC_LEVEL1_DCACHE_SIZE, info.l1_bytes);
    result_.l2_bytes = CacheBytes(_SC_LEVEL2_CACHE_SIZE, info.l2_bytes);
    result_.l3_bytes = ThirdLevelCacheBytes();
    // What fills half of a cache stays in it.
    bytes_[kL1] = Whole(result_.l1_bytes / 2);
    bytes_[kL2] = Whole(result_.l2_bytes / 2);
    // Clearly more than the second-level cache. All cores share the third-level one.
    l3_ = result_.l3_bytes / workers_ >= 2 * result_.l2_bytes;
    bytes_[kL3] = Whole(std::min(3 * result_.l2_bytes, result_.l3_bytes / workers_ * 3 / 4));
    if (!l3_) bytes_[kL3] = bytes_[kL2];
    bytes_[kMemory] = Whole(kPieceBytes);
    pieces_ = std::max<int64_t>(2, std::clamp(4 * result_.l3_bytes, kLeastMemory, kMostMemory) /
                                       workers_ / bytes_[kMemory]);
    bytes_[kWrite] = bytes_[kL1];
    bytes_[kPeak] = bytes_[kChain] = bytes_[kCall] = 2 * lanes_ * 4;
    bytes_[kGather] = (lanes_ + kGathered) * kApart * 4;
    HEDDLE_RETURN_IF_ERROR(Compile());
    return Load();
  }

  // Rounds down to what the vectors of one turn read.
  int64_t Whole(int64_t bytes) const {
    const int64_t turn = kSums * lanes_ * 4;
    return std::max<int64_t>(1, bytes / turn) * turn;
  }
  int64_t Passes(Kernel kernel) const { return std::max<int64_t>(1, kReadBytes / bytes_[kernel]); }

  absl::Status Compile() {
    std::string texts[kKernels];
    texts[kPeak] = MultiplyAdds("peak", chains_, lanes_);
    texts[kChain] = MultiplyAdds("chain", 1, lanes_);
    const auto reads = [&](Kernel kernel, const char* name) {
      texts[kernel] = Reads(name, bytes_[kernel] / 4, Passes(kernel), lanes_);
    };
    reads(kL1, "l1");
    reads(kL2, "l2");
    reads(kL3, "l3");
    reads(kMemory, "memory");
    texts[kWrite] = Writes("write", bytes_[kWrite] / 4, Passes(kWrite), lanes_);
    texts[kGather] = Gathers("gather", bytes_[kGather] / 4, kTurns / kGathered, lanes_);
    texts[kCall] = WithVectors("call", 1, lanes_, 2 * lanes_, "");
    std::vector<ir::Program> programs;
    for (const std::string& text : texts) {
      HEDDLE_ASSIGN_OR_RETURN(programs.emplace_back(), ir::Parse(text));
    }
    HEDDLE_ASSIGN_OR_RETURN(artifact_, codegen::BackendOf(target_).Compile(programs, target_));
    HEDDLE_ASSIGN_OR_RETURN(library_, runtime::KernelLibrary::Load(artifact_.shared_object));
    return absl::OkStatus();
  }

  // Gives each worker kernels and memory of its own. It touches the memory first, so that the memory
  // is near its core.
  absl::Status Load() {
    loaded_.resize(static_cast<size_t>(workers_));
    next_piece_.resize(static_cast<size_t>(workers_));
    memory_.resize(static_cast<size_t>(workers_));
    std::vector<absl::Status> done(static_cast<size_t>(workers_));
    OnAll([&](int64_t worker) { done[static_cast<size_t>(worker)] = LoadFor(worker); });
    for (const absl::Status& status : done) HEDDLE_RETURN_IF_ERROR(status);
    return absl::OkStatus();
  }

  absl::Status LoadFor(int64_t worker) {
    std::vector<runtime::AlignedBuffer>& memory = memory_[static_cast<size_t>(worker)];
    const auto allocate = [&](int64_t bytes) -> absl::StatusOr<internal::Memory> {
      const int colour =
          static_cast<int>(memory.size() + static_cast<size_t>(worker) * 4);  // see AlignedBuffer
      memory.push_back(
          runtime::AlignedBuffer::Allocate(bytes, colour % runtime::AlignedBuffer::kColours));
      if (!memory.back().ok())
        return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
      // 0.4999 as f32 in every element: a * 0.5 + 0.5 neither grows nor vanishes.
      auto* values = reinterpret_cast<float*>(memory.back().data());
      std::fill_n(values, bytes / 4, 0.4999F);
      return internal::Memory{memory.back().data(), bytes};
    };
    int64_t inputs = pieces_ * bytes_[kMemory], outputs = 0;
    for (const codegen::KernelInfo& info : artifact_.kernels) {
      inputs = std::max(inputs, info.arguments[0].bytes);
      outputs = std::max(outputs, info.arguments[1].bytes);
    }
    HEDDLE_ASSIGN_OR_RETURN(const internal::Memory in, allocate(inputs));
    HEDDLE_ASSIGN_OR_RETURN(const internal::Memory out, allocate(outputs));
    for (const codegen::KernelInfo& info : artifact_.kernels) {
      HEDDLE_RETURN_IF_ERROR(LoadOne(worker, info, static_cast<char*>(in.data), out.data));
    }
    for (int64_t piece = 1; piece < pieces_; ++piece) {
      HEDDLE_RETURN_IF_ERROR(LoadOne(worker, artifact_.kernels[kMemory],
                                     static_cast<char*>(in.data) + piece * bytes_[kMemory],
                                     out.data));
    }
    return absl::OkStatus();
  }

  absl::Status LoadOne(int64_t worker, const codegen::KernelInfo& info, char* in, void* out) {
    HEDDLE_ASSIGN_OR_RETURN(
        LoadedKernel kernel,
        LoadedKernel::Load(*library_, info,
                           {{info.arguments[0].name, {in, info.arguments[0].bytes}},
                            {info.arguments[1].name, {out, info.arguments[1].bytes}}}));
    loaded_[static_cast<size_t>(worker)].push_back(std::move(kernel));
    return absl::OkStatus();
  }

  void OnAll(const std::function<void(int64_t)>& work) const {
    pool_.host()->parallel_for(
        pool_.host(), workers_,
        [](void* closure, int64_t begin, int64_t end, int32_t) {
          const auto& each = *static_cast<const std::function<void(int64_t)>*>(closure);
          for (int64_t i = begin; i < end; ++i) each(i);
        },
        const_cast<std::function<void(int64_t)>*>(&work));
  }

  void CallOf(int64_t worker, Kernel kernel) {
    const auto w = static_cast<size_t>(worker);
    auto index = static_cast<size_t>(kernel);
    if (kernel == kMemory) {
      const int64_t piece = next_piece_[w]++ % pieces_;
      if (piece > 0) index = static_cast<size_t>(kKernels + piece - 1);
    }
    loaded_[w][index].Call(pool_.host());
  }

  void AddProbes() {
    const auto one = [this](Kernel kernel) { return [this, kernel] { CallOf(0, kernel); }; };
    const auto all = [this](Kernel kernel) {
      return [this, kernel] { OnAll([&](int64_t worker) { CallOf(worker, kernel); }); };
    };
    const auto read = [this](Kernel kernel) {
      return static_cast<double>(bytes_[kernel] * Passes(kernel));
    };
    const double flops = 2.0 * static_cast<double>(kTurns * chains_ * lanes_),
                 count = static_cast<double>(workers_);
    clock_ = {1.0 * kTurns * kAdditions, true, [] { AddInTurn(kTurns); }};
    peak_ = {flops, true, one(kPeak)};
    all_peak_ = {flops * count, true, all(kPeak), true};
    chain_ = {1.0 * kTurns, true, one(kChain)};
    l1_ = {read(kL1), true, one(kL1)};
    l2_ = {read(kL2), true, one(kL2)};
    l3_one_ = {read(kL3), true, one(kL3)};
    l3_all_ = {read(kL3) * count, true, all(kL3), true};
    // One core reads what lies before all of them, since its own share may fit a cache.
    memory_one_ = {read(kMemory), false, [this] { CallOf(next_owner_++ % workers_, kMemory); }};
    memory_all_ = {read(kMemory) * count, false, all(kMemory)};
    write_ = {read(kWrite), true, one(kWrite)};
    gather_ = {static_cast<double>(kTurns * kSums * lanes_), true, one(kGather)};
    call_ = {1, true, one(kCall)};
    wake_ = {1, true,
             [this] { pool_.host()->parallel_for(pool_.host(), workers_, RunNothing, nullptr); },
             true};
  }

  std::vector<Probe*> Probes() {
    return {&clock_,  &peak_,       &all_peak_,   &chain_, &l1_,     &l2_,   &l3_one_,
            &l3_all_, &memory_one_, &memory_all_, &write_, &gather_, &call_, &wake_};
  }

  // Returns the share of this thread's time that others took.
  double RunRounds() {
    const absl::Time begin = MonotonicNow();
    const absl::Duration used = ThreadTime();
    for (int round = 0; round < kLeastRounds || MonotonicNow() - begin < options_.time; ++round) {
      for (Probe* probe : Probes()) {
        runtime::TimingOptions timing;
        timing.repeats = probe->together ? kTogether : 1;
        timing.warmup_calls = probe->warm ? 1 : 0;
        timing.min_repeat = kProbe;
        probe->ns = std::min(probe->ns, runtime::TimeCalls(probe->call, timing).MinNs());
      }
    }
    if (workers_ == 1) {
      // With one core, both probes of a pair measure the same. They differ only in when they ran.
      ShareBest(peak_, all_peak_);
      ShareBest(l3_one_, l3_all_);
      ShareBest(memory_one_, memory_all_);
    }
    return 1 - absl::FDivDuration(ThreadTime() - used, MonotonicNow() - begin);
  }

  static void ShareBest(Probe& one, Probe& other) {
    one.ns = other.ns = std::min(one.ns, other.ns);
  }

  MeasuredMachine Result() const {
    MeasuredMachine m = result_;
    m.clock_ghz = clock_.Rate();
    m.gflops = peak_.Rate();
    m.multiply_add_ns = 1 / chain_.Rate();
    m.l1_gbps = l1_.Rate();
    m.l2_gbps = l2_.Rate();
    m.memory_gbps = memory_one_.Rate();
    m.l3_gbps = l3_ ? l3_one_.Rate() : m.memory_gbps;
    m.store_gbps = write_.Rate();
    m.gathered_per_ns = gather_.Rate();
    m.call_ns = call_.ns;
    m.all_gflops = all_peak_.Rate();
    m.all_memory_gbps = memory_all_.Rate();
    m.all_l3_gbps = l3_ ? l3_all_.Rate() : m.all_memory_gbps;
    m.wake_ns = std::max(wake_.ns, 0.1);
    return m;
  }

  const Target target_;
  const MeasureMachineOptions& options_;
  const int64_t workers_;
  const runtime::ThreadPool pool_;
  int64_t lanes_ = 0, chains_ = 0;
  int64_t bytes_[kKernels] = {};
  int64_t pieces_ = 0;  // of main memory, for each worker
  bool l3_ = false;     // there is a third-level cache to speak of
  codegen::Artifact artifact_;
  std::unique_ptr<runtime::KernelLibrary> library_;
  // By worker.
  std::vector<std::vector<runtime::AlignedBuffer>> memory_;
  std::vector<std::vector<LoadedKernel>> loaded_;  // the kernels; kMemory once more for each piece
  std::vector<int64_t> next_piece_;
  int64_t next_owner_ = 0;
  MeasuredMachine result_;  // what the operating system states
  Probe clock_, peak_, all_peak_, chain_, l1_, l2_, l3_one_, l3_all_, memory_one_, memory_all_,
      write_, gather_, call_, wake_;
};

}  // namespace

absl::StatusOr<MeasuredMachine> MeasureMachine(const Target& target,
                                               const MeasureMachineOptions& options) {
  if (target.kind != kHostKind)
    return absl::UnimplementedError("only CPUs are measured; GPUs have a table of architectures");
  HEDDLE_ASSIGN_OR_RETURN(const Target resolved, codegen::ResolveTarget(target));
  if (!codegen::BackendOf(resolved).RunsHere(resolved)) {
    return absl::UnimplementedError(
        absl::StrCat("code for ", ToText(resolved), " does not run on this machine"));
  }
  const internal::ScopedPin pin(options.cpus.empty() ? -1 : options.cpus[0]);
  return MachineBench(resolved, options).Run();
}

absl::Status CheckConsistent(const MeasuredMachine& m) {
  struct Bound {
    const char* what;
    double value;
    const char* bound_by;
    double bound;
  };
  const double cores = static_cast<double>(m.cores);
  const Bound bounds[] = {
      {"l2_gbps", m.l2_gbps, "l1_gbps", m.l1_gbps},
      {"l3_gbps", m.l3_gbps, "l2_gbps", m.l2_gbps},
      {"memory_gbps", m.memory_gbps, "l3_gbps", m.l3_gbps},
      {"all_memory_gbps", m.all_memory_gbps, "all_l3_gbps", m.all_l3_gbps},
      {"all_gflops", m.all_gflops, "gflops of all cores", m.gflops * cores},
      {"all_l3_gbps", m.all_l3_gbps, "l3_gbps of all cores", m.l3_gbps * cores},
      {"all_memory_gbps", m.all_memory_gbps, "memory_gbps of all cores", m.memory_gbps * cores},
      // A core does more at a time than one multiply-add after the other, but not a hundred vectors.
      {"1 / multiply_add_ns", 1 / m.multiply_add_ns, "clock_ghz", m.clock_ghz},
      {"gflops", m.gflops, "a hundred multiply-adds a cycle of 16 lanes", 3200 * m.clock_ghz},
  };
  for (const Bound& bound : bounds) {
    if (bound.value <= kTolerance * bound.bound) continue;
    return absl::UnavailableError(absl::StrFormat(
        "the machine was disturbed while it was measured: %s is %.3g, but %s is %.3g", bound.what,
        bound.value, bound.bound_by, bound.bound));
  }
  return absl::OkStatus();
}

}  // namespace heddle
