// The loop in which bench/classical/rotate.py calls functions of C libraries. A call from Python takes about as long as
// a forest needs for one row, and so would hide what is measured.
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

constexpr size_t kMostArguments = 12;

// A function call. All arguments are integers or pointers. A function may take fewer of them: the calling conventions of x86-64
// and AArch64 let the caller pass more.
struct Step {
  int64_t (*function)(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                      int64_t, int64_t, int64_t, int64_t);
  int64_t checked;                    // not 0: it returns an int, which is 0 on success
  int64_t arguments[kMostArguments];  // for the first block
  int64_t strides[kMostArguments];    // what each argument grows by from one block to the next
  int64_t
      addresses;  // bit k: argument k is an address, and the function gets the eight bytes that are there
};

int64_t Argument(const Step& step, size_t k, int64_t block) {
  const int64_t argument = step.arguments[k] + block * step.strides[k];
  if (((step.addresses >> k) & 1) == 0) return argument;
  int64_t there;
  std::memcpy(&there, reinterpret_cast<const void*>(argument), sizeof there);
  return there;
}

int Call(const Step& step, int64_t block) {
  int64_t a[kMostArguments];
  for (size_t k = 0; k < kMostArguments; ++k) a[k] = Argument(step, k, block);
  const int64_t returned =
      step.function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
  return step.checked == 0 ? 0 : static_cast<int>(returned);
}

}  // namespace

// Does `count` times all steps in order, for the blocks `first`, `first` + 1, .. modulo `blocks`. Returns 0, or what the first step
// that failed returned.
extern "C" __attribute__((visibility("default"))) int heddle_bench_rotate(
    const Step* steps, int64_t num_steps, int64_t blocks, int64_t first, int64_t count) {
  int64_t block = first;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t s = 0; s < num_steps; ++s) {
      if (const int status = Call(steps[s], block); status != 0) return status;
    }
    block = block + 1 == blocks ? 0 : block + 1;
  }
  return 0;
}
