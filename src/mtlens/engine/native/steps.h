// Included once per instruction set and number type, with REAL, INT, LANES, SQRT... defined by steps.c.
//
// Inside, rows of every matrix are padded with zeros to whole vectors. Zero columns receive zero gradients and stay
// zero, so padding changes no number. A member is computed alone: its companions cannot change a bit of it.

typedef REAL NAME(V) __attribute__((vector_size(LANES * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));
typedef INT NAME(I) __attribute__((vector_size(LANES * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));
#define V NAME(V)
#define I_ NAME(I)
#define LOAD(p) (*(const V *)(p))
#define STORE(p) (*(V *)(p))

// C (ROWS x COLS vectors) = A (ROWS x K, strides ar and ac) B (K rows, stride ldb), accumulated in registers.
#define MICRO(ROWS, COLS)                                                                    \
  static inline __attribute__((always_inline)) void NAME(micro_##ROWS##_##COLS)(             \
      long K, const REAL *A, long ar, long ac, const REAL *B, long ldb, REAL *C, long ldc) { \
    V acc[ROWS][COLS];                                                                       \
    for (int i = 0; i < ROWS; i++)                                                           \
      for (int j = 0; j < COLS; j++) acc[i][j] = (V){0};                                     \
    for (long k = 0; k < K; k++) {                                                           \
      V b[COLS];                                                                             \
      for (int j = 0; j < COLS; j++) b[j] = LOAD(B + k * ldb + j * LANES);                   \
      for (int i = 0; i < ROWS; i++) {                                                       \
        REAL a = A[i * ar + k * ac];                                                         \
        for (int j = 0; j < COLS; j++) acc[i][j] += a * b[j];                                \
      }                                                                                      \
    }                                                                                        \
    for (int i = 0; i < ROWS; i++)                                                           \
      for (int j = 0; j < COLS; j++) STORE(C + i * ldc + j * LANES) = acc[i][j];             \
  }
MICRO(6, 4)
MICRO(6, 3)
MICRO(6, 2)
MICRO(6, 1)
MICRO(4, 4)
MICRO(2, 4)
MICRO(1, 4)
MICRO(1, 3)
MICRO(1, 2)
MICRO(1, 1)

#define BAND(ROWS, COLS)          \
  for (; i + ROWS <= M; i += ROWS) \
    NAME(micro_##ROWS##_##COLS)(K, A + i * ar, ar, ac, B + j, ldb, C + i * ldc + j, ldc);

// C (M x N) = A (M x K, strides ar and ac) B (K x N); N is a whole number of vectors.
static void NAME(product)(long M, long N, long K, const REAL *A, long ar, long ac, const REAL *B, long ldb, REAL *C,
                          long ldc) {
  for (long j = 0; j < N;) {
    long left = (N - j) / LANES, columns = left < 4 ? left : 4, i = 0;
    if (columns == 4) {
      BAND(6, 4) BAND(4, 4) BAND(2, 4) BAND(1, 4)
    } else if (columns == 3) {
      BAND(6, 3) BAND(1, 3)
    } else if (columns == 2) {
      BAND(6, 2) BAND(1, 2)
    } else {
      BAND(6, 1) BAND(1, 1)
    }
    j += columns * LANES;
  }
}

// Z (rows x n): add b to every row (if there is one), then set what is negative to 0 (if asked); NaN stays NaN.
static void NAME(finish_layer)(long rows, long n, REAL *Z, const REAL *b, int relu) {
  for (long i = 0; i < rows; i++)
    for (long j = 0; j < n; j += LANES) {
      V z = LOAD(Z + i * n + j);
      if (b) z += LOAD(b + j);
      if (relu) z = (V)((I_)z & ~(z < (V){0}));
      STORE(Z + i * n + j) = z;
    }
}

// G := G where H > 0, else 0.
static void NAME(zero_where_off)(long count, REAL *G, const REAL *H) {
  for (long i = 0; i < count; i += LANES) STORE(G + i) = (V)((I_)LOAD(G + i) & (LOAD(H + i) > (V){0}));
}

static void NAME(column_sums)(long rows, long n, const REAL *Z, REAL *out) {
  for (long j = 0; j < n; j += LANES) {
    V s = {0};
    for (long i = 0; i < rows; i++) s += LOAD(Z + i * n + j);
    STORE(out + j) = s;
  }
}

static REAL NAME(dot)(long n, const REAL *a, const REAL *b) {
  V s = {0};
  for (long j = 0; j < n; j += LANES) s += LOAD(a + j) * LOAD(b + j);
  REAL total = 0;
  for (int j = 0; j < LANES; j++) total += s[j];
  return total;
}

// out (n x ldo) = the transpose of A (m x n); what out has beyond m stays as it is (zero).
static void NAME(transpose)(long m, long n, const REAL *A, long lda, REAL *out, long ldo) {
  for (long i = 0; i < m; i++)
    for (long j = 0; j < n; j++) out[j * ldo + i] = A[i * lda + j];
}

// One step of Adam in torch's form; `t` counts this step. Decay joins the gradient (adam) or shrinks p (adamw).
static void NAME(adam)(long count, REAL *p, const REAL *g, REAL *m, REAL *v, const Recipe *recipe, double decay,
                       double t) {
  const REAL step = (REAL)(recipe->lr / (1 - pow(recipe->beta1, t)));
  const REAL root = (REAL)sqrt(1 - pow(recipe->beta2, t)), eps = (REAL)recipe->eps;
  const REAL keep1 = (REAL)(1 - recipe->beta1), b2 = (REAL)recipe->beta2, keep2 = (REAL)(1 - recipe->beta2);
  const REAL shrink = recipe->decoupled ? (REAL)(1 - recipe->lr * decay) : 1;
  const REAL coupled = recipe->decoupled ? 0 : (REAL)decay;
  for (long i = 0; i < count; i++) {
    REAL value = p[i] * shrink, slope = g[i] + coupled * value;
    REAL first = m[i] + keep1 * (slope - m[i]), second = b2 * v[i] + keep2 * slope * slope;
    m[i] = first;
    v[i] = second;
    p[i] = value - step * first / (SQRT(second) / root + eps);
  }
}

// A member's parameters between the stack's rows and the padded form used here. Four copies: p, g, m, v.
typedef struct {
  REAL *p, *g, *m, *v;
} NAME(Four);

static void NAME(copy_rows)(long rows, long columns, const REAL *from, long ldf, REAL *to, long ldt) {
  for (long i = 0; i < rows; i++) memcpy(to + i * ldt, from + i * ldf, columns * sizeof(REAL));
}

// Everything of one member that lives for a call.
typedef struct {
  const Net *net;
  long pad[MOST_LAYERS + 1];                        // units of a layer, padded; pad[0] is the padded input width
  long weight[MOST_LAYERS], bias[MOST_LAYERS];      // where a layer begins in the trunk's padded values
  long trunk_size, heads_size, feature_pad;         // heads: T*C rows of feature_pad weights; biases apart
  long align_size;                                  // of one slot's matrix
  NAME(Four) trunk, heads, head_bias, align;         // align: T matrices, inputs x pad[0]
  REAL *given;                                      // inputs before alignment (rows x pad[0]); act[0] without it
  REAL *act[MOST_LAYERS + 1], *grad[MOST_LAYERS + 1];  // activations (rows x pad) and their gradients
  REAL *turned;                                     // a transposed weight matrix
  REAL *raw, *slope;                                // outputs (rows x width of a block) and dL/doutputs
  REAL *losses;                                     // (T)
  REAL *block;                                      // the one allocation behind all of these
} NAME(Member);

static long NAME(padded)(long n) { return (n + LANES - 1) / LANES * LANES; }

// Sizes first (with memory == NULL), then places: the same walk, so the two cannot disagree.
static long NAME(lay_out)(NAME(Member) * me, const Net *net, REAL *memory) {
  long used = 0;
#define TAKE(pointer, count)                            \
  do {                                                  \
    if (memory) (pointer) = memory + used;              \
    used += NAME(padded)(count) + 64 / sizeof(REAL);    \
  } while (0)
  long at = 0, widest = 0;
  me->net = net;
  for (long l = 0; l <= net->depth; l++) me->pad[l] = NAME(padded)(net->width[l]);
  for (long l = 0; l < net->depth; l++) {
    me->weight[l] = at;
    at += net->width[l] * me->pad[l + 1];
    me->bias[l] = at;
    at += net->bias ? me->pad[l + 1] : 0;
    long area = me->pad[l + 1] * me->pad[l];
    if ((l || net->align) && area > widest) widest = area;
  }
  me->trunk_size = at;
  me->feature_pad = me->pad[net->depth];
  long outputs = net->tasks * net->columns, rows = net->rows;
  me->heads_size = outputs * me->feature_pad;
  me->align_size = net->align ? net->width[0] * me->pad[0] : 0;
  NAME(Four) *parts[4] = {&me->trunk, &me->heads, &me->head_bias, &me->align};
  long sizes[4] = {me->trunk_size, me->heads_size, outputs, net->tasks * me->align_size};
  for (int k = 0; k < 4; k++) {
    TAKE(parts[k]->p, sizes[k]);
    TAKE(parts[k]->g, sizes[k]);
    TAKE(parts[k]->m, sizes[k]);
    TAKE(parts[k]->v, sizes[k]);
  }
  for (long l = 0; l <= net->depth; l++) {
    TAKE(me->act[l], rows * me->pad[l]);
    TAKE(me->grad[l], l || net->align ? rows * me->pad[l] : 0);
  }
  me->given = me->act[0];
  if (net->align) TAKE(me->given, rows * me->pad[0]);
  TAKE(me->turned, widest);
  TAKE(me->raw, rows * outputs);
  TAKE(me->slope, rows * outputs);
  TAKE(me->losses, net->tasks);
#undef TAKE
  return used;
}

// Move values between the stack (direction 0: in, 1: out) and the padded form.
static void NAME(move)(NAME(Member) * me, REAL *stack_trunk, REAL *stack_heads, REAL *trunk, REAL *heads, REAL *bias,
                       int out) {
  const Net *net = me->net;
  REAL *row = stack_trunk;
  for (long l = 0; l < net->depth; l++) {
    long in = net->width[l], units = net->width[l + 1], pad = me->pad[l + 1];
    if (out)
      NAME(copy_rows)(in, units, trunk + me->weight[l], pad, row, units);
    else
      NAME(copy_rows)(in, units, row, units, trunk + me->weight[l], pad);
    row += in * units;
    if (net->bias) {
      if (out)
        memcpy(row, trunk + me->bias[l], units * sizeof(REAL));
      else
        memcpy(trunk + me->bias[l], row, units * sizeof(REAL));
      row += units;
    }
  }
  long h = net->width[net->depth], outputs = net->tasks * net->columns;
  for (long o = 0; o < outputs; o++) {
    REAL *mine = heads + o * me->feature_pad, *theirs = stack_heads + o * (h + 1);
    if (out) {
      memcpy(theirs, mine, h * sizeof(REAL));
      theirs[h] = bias[o];
    } else {
      memcpy(mine, theirs, h * sizeof(REAL));
      bias[o] = theirs[h];
    }
  }
}

// The same for the alignments; they are absent (NULL) in most stacks.
static void NAME(move_align)(NAME(Member) * me, REAL *stack, REAL *mine, int out) {
  long d = me->net->width[0], pad = me->pad[0], rows = stack ? me->net->tasks * d : 0;
  if (out)
    NAME(copy_rows)(rows, d, mine, pad, stack, d);
  else
    NAME(copy_rows)(rows, d, stack, d, mine, pad);
}

static void NAME(gather)(NAME(Member) * me, const Data *data, const int *rows, long active) {
  const Net *net = me->net;
  const long d = net->width[0], pad = me->pad[0], batch = net->batch;
  const REAL *X = data->X;
  for (long r = 0; r < net->rows; r++) {
    const REAL *from = X + (long)rows[r] * d;
    REAL *to = me->given + r * pad;
    if (!data->factor) {
      memcpy(to, from, d * sizeof(REAL));
      continue;
    }
    long slot = net->mode == MIXED ? active : net->mode == EACH ? r / batch : 0;
    const REAL *factor = (const REAL *)data->factor + slot * d, *offset = (const REAL *)data->offset + slot * d;
    for (long j = 0; j < d; j++) to[j] = from[j] * factor[j] + offset[j];
  }
}

// Rows of slot t are t*batch.. for EACH; a MIXED step has only those of the active slot.
static long NAME(first_row)(const Net *net, long t) { return net->mode == EACH ? t * net->batch : 0; }

static void NAME(align_inputs)(NAME(Member) * me, long first, long slots) {
  const long d = me->net->width[0], pad = me->pad[0];
  for (long t = first; t < first + slots; t++) {
    long at = NAME(first_row)(me->net, t) * pad;
    NAME(product)(me->net->batch, pad, d, me->given + at, pad, 1, me->align.p + t * me->align_size, pad,
                  me->act[0] + at, pad);
  }
}

// dR = X^T G + 2 penalty (R - I), with G the gradient of the aligned inputs.
static void NAME(align_backward)(NAME(Member) * me, double penalty, long first, long slots) {
  const long d = me->net->width[0], pad = me->pad[0];
  for (long t = first; t < first + slots; t++) {
    long at = NAME(first_row)(me->net, t) * pad;
    REAL *slope = me->align.g + t * me->align_size, *R = me->align.p + t * me->align_size;
    NAME(product)(d, pad, me->net->batch, me->given + at, 1, pad, me->grad[0] + at, pad, slope, pad);
    if (penalty == 0) continue;
    const REAL pull = (REAL)(2 * penalty);
    for (long i = 0; i < d; i++) {
      for (long j = 0; j < d; j++) slope[i * pad + j] += pull * R[i * pad + j];
      slope[i * pad + i] -= pull;
    }
  }
}

static void NAME(forward)(NAME(Member) * me) {
  const Net *net = me->net;
  for (long l = 0; l < net->depth; l++) {
    long pad = me->pad[l + 1];
    NAME(product)(net->rows, pad, net->width[l], me->act[l], me->pad[l], 1, me->trunk.p + me->weight[l], pad,
                  me->act[l + 1], pad);
    if (net->bias || net->relu)
      NAME(finish_layer)(net->rows, pad, me->act[l + 1], net->bias ? me->trunk.p + me->bias[l] : NULL, net->relu);
  }
}

// Loss of one row of one slot; writes dl/draw (C numbers).
static REAL NAME(row_loss)(const Net *net, int kind, long classes, const REAL *raw, REAL y, REAL *slope) {
  if (kind == MULTICLASS) {
    REAL top = raw[0], sum = 0;
    for (long c = 1; c < classes; c++) top = raw[c] > top ? raw[c] : top;
    for (long c = 0; c < classes; c++) sum += slope[c] = EXP(raw[c] - top);
    for (long c = 0; c < classes; c++) slope[c] /= sum;
    long label = (long)y;
    slope[label] -= 1;
    for (long c = classes; c < net->columns; c++) slope[c] = 0;
    return LOG(sum) + top - raw[label];
  }
  for (long c = 1; c < net->columns; c++) slope[c] = 0;
  if (kind == BINARY) {
    REAL z = raw[0], small = EXP(-(z < 0 ? -z : z));
    slope[0] = (z < 0 ? small : 1) / (1 + small) - y;
    return (z > 0 ? z : 0) + LOG1P(small) - y * z;
  }
  REAL gap = raw[0] - y;
  slope[0] = 2 * gap;
  return gap * gap;
}

// Slots first .. first+count-1 on rows at .. at+rows-1: outputs, losses, gradients of the heads and of the features.
static void NAME(heads)(NAME(Member) * me, const Data *data, const int *index, long at, long rows, long first, long count,
                        const REAL *task_weights, REAL *log_var_grad) {
  const Net *net = me->net;
  const long C = net->columns, pad = me->feature_pad, outputs = count * C;
  const REAL *features = me->act[net->depth] + at * pad, *y = data->y, *weight = data->weight;
  const REAL *W = me->heads.p + first * C * pad, *b = me->head_bias.p + first * C;
  REAL *raw = me->raw, *slope = me->slope;
  for (long r = 0; r < rows; r++)
    for (long o = 0; o < outputs; o++) raw[r * outputs + o] = NAME(dot)(pad, features + r * pad, W + o * pad) + b[o];

  for (long s = 0; s < count; s++) {
    const long slot = first + s, shift = data->shift[slot];
    REAL total = 0, loss = 0;
    for (long r = 0; r < rows; r++) total += weight[index[at + r] + shift];
    const REAL divisor = total > TINY ? total : TINY;
    for (long r = 0; r < rows; r++) {
      long place = index[at + r] + shift;
      REAL share = weight[place] / divisor, *own = slope + r * outputs + s * C;
      REAL each = NAME(row_loss)(net, net->kind[slot], net->classes[slot], raw + r * outputs + s * C, y[place], own);
      loss += share * each;
      for (long c = 0; c < C; c++) own[c] *= share;
    }
    me->losses[slot] = loss;
    REAL alpha = task_weights[slot];
    if (log_var_grad) {
      REAL half = net->kind[slot] == REGRESSION ? (REAL)0.5 : 1;
      alpha = half * EXP(-task_weights[slot]);
      log_var_grad[slot] = (REAL)0.5 - alpha * loss;
    }
    for (long r = 0; r < rows; r++)
      for (long c = 0; c < C; c++) slope[r * outputs + s * C + c] *= alpha;
  }

  NAME(product)(outputs, pad, rows, slope, 1, outputs, features, pad, me->heads.g + first * C * pad, pad);
  for (long o = 0; o < outputs; o++) {
    REAL sum = 0;
    for (long r = 0; r < rows; r++) sum += slope[r * outputs + o];
    me->head_bias.g[first * C + o] = sum;
  }
  NAME(product)(rows, pad, outputs, slope, outputs, 1, W, pad, me->grad[net->depth] + at * pad, pad);
}

static void NAME(backward)(NAME(Member) * me) {
  const Net *net = me->net;
  for (long l = net->depth - 1; l >= 0; l--) {
    long in = net->width[l], pad = me->pad[l + 1], below = me->pad[l];
    REAL *upper = me->grad[l + 1];
    if (net->relu) NAME(zero_where_off)(net->rows * pad, upper, me->act[l + 1]);
    NAME(product)(in, pad, net->rows, me->act[l], 1, below, upper, pad, me->trunk.g + me->weight[l], pad);
    if (net->bias) NAME(column_sums)(net->rows, pad, upper, me->trunk.g + me->bias[l]);
    if (!l && !net->align) break;
    NAME(transpose)(in, net->width[l + 1], me->trunk.p + me->weight[l], pad, me->turned, below);
    NAME(product)(net->rows, below, net->width[l + 1], upper, pad, 1, me->turned, below, me->grad[l], below);
  }
}

static void NAME(update)(NAME(Member) * me, const Recipe *recipe, State *state, long first, long count) {
  const Net *net = me->net;
  const long C = net->columns, pad = me->feature_pad;
  state->trunk_steps[0] += 1;
  NAME(adam)(me->trunk_size, me->trunk.p, me->trunk.g, me->trunk.m, me->trunk.v, recipe, recipe->decay,
             state->trunk_steps[0]);
  for (long t = first; t < first + count; t++) {
    long w = t * C * pad, b = t * C;
    double steps = state->head_steps[t] += 1;
    NAME(adam)(C * pad, me->heads.p + w, me->heads.g + w, me->heads.m + w, me->heads.v + w, recipe, recipe->decay, steps);
    NAME(adam)(C, me->head_bias.p + b, me->head_bias.g + b, me->head_bias.m + b, me->head_bias.v + b, recipe,
               recipe->decay, steps);
    if (net->align) {
      long a = t * me->align_size;
      NAME(adam)(me->align_size, me->align.p + a, me->align.g + a, me->align.m + a, me->align.v + a, recipe, 0,
                 state->align_steps[t] += 1);
    }
    if (state->log_vars) {
      REAL *s = state->log_vars, *g = state->log_vars_grad, *m = state->log_vars_first, *v = state->log_vars_second;
      double count_ = state->log_vars_steps[t] += 1;
      NAME(adam)(1, s + t, g + t, m + t, v + t, recipe, 0, count_);
    }
  }
}

// `count` optimizer steps of one member. Returns 0, or 1 when memory could not be had.
static int NAME(mtlens_steps)(const Net *net, const Data *data, const Recipe *recipe, State *state, long count) {
  NAME(Member) me;
  memset(&me, 0, sizeof me);
  long size = NAME(lay_out)(&me, net, NULL);
  REAL *memory = NULL;
  if (posix_memalign((void **)&memory, 64, size * sizeof(REAL))) return 1;
  memset(memory, 0, size * sizeof(REAL));
  NAME(lay_out)(&me, net, memory);
  NAME(move)(&me, state->trunk, state->heads, me.trunk.p, me.heads.p, me.head_bias.p, 0);
  NAME(move)(&me, state->trunk_first, state->heads_first, me.trunk.m, me.heads.m, me.head_bias.m, 0);
  NAME(move)(&me, state->trunk_second, state->heads_second, me.trunk.v, me.heads.v, me.head_bias.v, 0);
  NAME(move_align)(&me, state->align, me.align.p, 0);
  NAME(move_align)(&me, state->align_first, me.align.m, 0);
  NAME(move_align)(&me, state->align_second, me.align.v, 0);

  REAL *log_var_grad = state->log_vars ? state->log_vars_grad : NULL, *loss = state->loss;
  for (long step = 0; step < count; step++) {
    const int *index = data->index + step * net->rows;
    const REAL *weights = state->log_vars ? state->log_vars : data->weights;
    if (data->drawn) weights = (const REAL *)data->drawn + step * net->tasks;
    long active = data->active ? data->active[step] : 0, first = 0, slots = net->tasks;
    if (net->mode == MIXED) first = active, slots = 1;

    NAME(gather)(&me, data, index, active);
    if (net->align) NAME(align_inputs)(&me, first, slots);
    NAME(forward)(&me);
    if (net->mode == EACH)
      for (long t = 0; t < net->tasks; t++)
        NAME(heads)(&me, data, index, t * net->batch, net->batch, t, 1, weights, log_var_grad);
    else
      NAME(heads)(&me, data, index, 0, net->rows, first, slots, weights, log_var_grad);
    REAL total = 0;
    for (long t = first; t < first + slots; t++) total += me.losses[t];
    loss[0] += total;
    NAME(backward)(&me);
    if (net->align) NAME(align_backward)(&me, recipe->penalty, first, slots);
    NAME(update)(&me, recipe, state, first, slots);
  }

  NAME(move)(&me, state->trunk, state->heads, me.trunk.p, me.heads.p, me.head_bias.p, 1);
  NAME(move)(&me, state->trunk_first, state->heads_first, me.trunk.m, me.heads.m, me.head_bias.m, 1);
  NAME(move)(&me, state->trunk_second, state->heads_second, me.trunk.v, me.heads.v, me.head_bias.v, 1);
  NAME(move_align)(&me, state->align, me.align.p, 1);
  NAME(move_align)(&me, state->align_first, me.align.m, 1);
  NAME(move_align)(&me, state->align_second, me.align.v, 1);
  free(memory);
  return 0;
}

#undef V
#undef I_
#undef LOAD
#undef STORE
#undef MICRO
#undef BAND
