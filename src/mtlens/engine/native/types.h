// Included once per instruction set (ISA, BYTES of a vector): the steps in both number types.
#define REAL float
#define INT int32_t
#define LANES (BYTES / 4)
#define SUFFIX JOIN(f32, ISA)
#define SQRT sqrtf
#define EXP expf
#define LOG logf
#define LOG1P log1pf
#define TINY 1.17549435e-38f
#include "steps.h"
#undef REAL
#undef INT
#undef LANES
#undef SUFFIX
#undef SQRT
#undef EXP
#undef LOG
#undef LOG1P
#undef TINY

#define REAL double
#define INT int64_t
#define LANES (BYTES / 8)
#define SUFFIX JOIN(f64, ISA)
#define SQRT sqrt
#define EXP exp
#define LOG log
#define LOG1P log1p
#define TINY 2.2250738585072014e-308
#include "steps.h"
#undef REAL
#undef INT
#undef LANES
#undef SUFFIX
#undef SQRT
#undef EXP
#undef LOG
#undef LOG1P
#undef TINY
