// Optimizer steps of one small dense multi-task model, fused: gather, forward, backward, Adam, all within the cache.
//
// The same numbers as the stack of `stack.py` up to rounding (a test holds them together in float64). Loaded through
// ctypes, which lets other threads run meanwhile; engine/native/__init__.py mirrors the records below.
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LAYERS = 8 };
enum { SHARED, EACH, MIXED };                // which rows meet at a step
enum { REGRESSION, BINARY, MULTICLASS };     // what a slot's label is

typedef struct {
  int64_t depth, width[MOST_LAYERS + 1];  // dense layers; width[0] inputs
  int64_t relu, bias;
  int64_t tasks, columns;                 // slots, and outputs of every head (padded to the most)
  int64_t mode, batch, rows;              // rows of a step: batch, or tasks * batch for EACH
  int64_t align;                          // 1: every slot maps its inputs by a matrix of its own (never SHARED)
  const int64_t *kind, *classes;          // per slot
} Net;

typedef struct {
  const void *X, *y, *weight;          // the store
  const int64_t *shift;                   // per slot: from a row of X to its label
  const int *index;                    // (steps, rows) rows of X
  const int64_t *active;                  // (steps) slot of a MIXED step, or NULL
  const void *weights, *drawn;         // (tasks) task weights; or (steps, tasks)
  const void *factor, *offset;         // (tasks, width[0]) scale of the inputs, or NULL
} Data;

typedef struct {
  double lr, beta1, beta2, eps, decay, penalty;
  int64_t decoupled;                      // 1: adamw
} Recipe;

typedef struct {
  void *trunk, *trunk_first, *trunk_second;
  void *heads, *heads_first, *heads_second;
  void *log_vars, *log_vars_grad, *log_vars_first, *log_vars_second;  // NULL unless learned
  void *align, *align_first, *align_second;                           // NULL unless aligned
  float *trunk_steps, *head_steps, *log_vars_steps, *align_steps;
  void *loss;                          // the sum over steps is added here
} State;

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(name) JOIN(name, SUFFIX)

// Clang ignores the pragma that GCC takes for an instruction set, so there (and off x86) only the plain variant exists.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HAS_X86_VARIANTS 1
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,fma")
#define ISA avx512
#define BYTES 64
#include "types.h"
#undef ISA
#undef BYTES
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define ISA avx2
#define BYTES 32
#include "types.h"
#undef ISA
#undef BYTES
#pragma GCC pop_options
#endif
#define ISA plain
#define BYTES 16
#include "types.h"

typedef int (*Steps)(const Net *, const Data *, const Recipe *, State *, long);

static int level(void) {  // 2: AVX-512, 1: AVX2, 0: what every machine of this kind has
#ifdef HAS_X86_VARIANTS
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    return 2;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 1;
#endif
  return 0;
}

#ifdef HAS_X86_VARIANTS
#define CHOICE(type) {mtlens_steps_##type##_plain, mtlens_steps_##type##_avx2, mtlens_steps_##type##_avx512}
#else
#define CHOICE(type) {mtlens_steps_##type##_plain}
#endif

// `count` steps of one member; `most` caps the instruction set (tests compare the variants). 0: done, 1: no memory.
int mtlens_steps_f32(const Net *net, const Data *data, const Recipe *recipe, State *state, long count, int most) {
  static const Steps variants[] = CHOICE(f32);
  int found = level();
  return variants[found < most ? found : most](net, data, recipe, state, count);
}

int mtlens_steps_f64(const Net *net, const Data *data, const Recipe *recipe, State *state, long count, int most) {
  static const Steps variants[] = CHOICE(f64);
  int found = level();
  return variants[found < most ? found : most](net, data, recipe, state, count);
}

// The module exists so that the build and the import system can find the file; ctypes calls the functions.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_steps", NULL, -1, NULL, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__steps(void) { return PyModule_Create(&module); }
