// A step of one layer, and of the head, for a tile of rows. Follows products.cu.

struct Step {  // what all phases of a step see
    const Arguments& a;
    const Row* rows;
    const int* ids;  // in shared memory where there are few streams; else each row finds its own
    i64 now;
};

__device__ __forceinline__ int token(const Step& s, int b, i64 n) {
    if (s.ids) return s.ids[b];
    if (n < 0) return 0;  // has not begun: whatever it reads will be forgotten
    return s.now <= s.rows[b].draws ? s.a.prompts[s.rows[b].prompt + n] : __ldcg(s.a.last + b);
}

// From what the input and h bring to a unit's four columns to its next h; `state` is c, or h itself. Of one unit, or of several.
template <class T>
__device__ __forceinline__ T next(GatesOf<T> x, const GatesOf<T>& from_h, T& state, const PeepholesOf<T>& w) {
#if CELL == RNN
    return tanh_(x.i + from_h.i);
#else
    GatesOf<T> kept;
#if CELL == GRU
    x.o = x.o + from_h.o;  // what the candidate gets from the layer below
#endif
    return step(x, from_h, state, w, kept);
#endif
}
__device__ __forceinline__ float next(const float4& x4, const float4& sum, float& state, const Peepholes& w) {
    return next<float>({x4.x, x4.y, x4.z, x4.w}, {sum.x, sum.y, sum.z, sum.w}, state, w);
}

__device__ __forceinline__ Peepholes peepholes_of(const Arguments& a, const Place& p, int u) {
    Peepholes w = {0.0f, 0.0f, 0.0f};
#if CELL == PAPER || CELL == LASAGNE
    const float* w_c = a.weights + p.peepholes + u;
    w.i = w_c[0]; w.f = w_c[a.H]; w.o = w_c[2 * a.H];
#endif
    return w;
}

__device__ __forceinline__ float leaky(float x, float leak) { return x > 0 ? x : leak * x; }

__device__ __forceinline__ float4* ring_of(const Arguments& a) { return pool + a.scratch / 4 + threadIdx.x / 32 * SCRATCH; }

template <int ROWS>
__device__ __forceinline__ void layer(const Step& s, const Place& p, int number, const float4* w, int group, int tile) {
    const Arguments& a = s.a;
    const int lane = threadIdx.x % 32, l = lane % 8, total = a.streams * a.windows, H = a.H;
    const int row = tile * ROWS + l % ROWS, at = min(row, total - 1), b = at / a.windows, u = 4 * group + lane / 8;
    const i64 n = s.now - s.rows[b].begun, half = (i64)total * H;
    const bool begins = a.rolling ? n >= 0 && n % a.windows == at - b * a.windows : n == 0;
    const float* h = a.h + (2 * number + (s.now & 1)) * half;
    float* h_next = a.h + (2 * number + (~s.now & 1)) * half;
    const float* below = number ? a.h + (2 * (number - 1) + (~s.now & 1)) * half : nullptr;
    const float* first_h = a.weights + p.first_h;
    const float4* inputs = (const float4*)(a.weights + p.bias) + u;
    const float4 x4 = inputs[number ? 0 : (i64)token(s, b, n) * H];
#if CELL == GRU || CELL == RNN
    float state = begins ? first_h[u] : __ldcg(h + (i64)at * H + u);
#else
    float* c = a.c + number * half + (i64)at * H + u;
    float state = begins ? a.weights[p.first_c + u] : *c;
#endif
    const Peepholes peepholes = peepholes_of(a, p, u);
    const float4* from[SOURCES(ROWS)];
    float4* ring = ring_of(a);
    float sums[ROWS][4] = {};
    const int parts = number ? p.parts / 2 : p.parts;
#pragma unroll
    for (int i = 0; i < SOURCES(ROWS); ++i) {
        const int r = source<ROWS>(i, lane), other = __shfl_sync(FULL, at, r), anew = __shfl_sync(FULL, (int)begins, r);
        from[i] = (const float4*)(anew ? first_h : h + (i64)other * H) + l;
    }
    add_products<true>(sums, w, from, parts, lane, ring);
    if (number) {
#pragma unroll
        for (int i = 0; i < SOURCES(ROWS); ++i)
            from[i] = (const float4*)(below + (i64)__shfl_sync(FULL, at, source<ROWS>(i, lane)) * H) + l;
        add_products<true>(sums, w + parts * 128, from, parts, lane, ring);
    }
    met(sums, lane);
    if (l >= ROWS || row >= total) return;
    const float out = next(x4, four(sums[0]), state, peepholes);
    h_next[(i64)at * H + u] = out;
#if CELL != GRU && CELL != RNN
    *c = state;
#endif
}

// dense, and the last: out.
template <int ROWS>
__device__ __forceinline__ void head(const Step& s, const Place& p, bool last, const float4* w, int group, int tile) {
    const Arguments& a = s.a;
    const int lane = threadIdx.x % 32, l = lane % 8, row = tile * ROWS + l % ROWS, b = min(row, a.streams - 1);
    const int column = 16 * group + 4 * (lane / 8), total = a.streams * a.windows;
    const float4 bias = *(const float4*)(a.weights + p.bias + column);
    const float* rows = a.dense;
    int width = a.D, at = b;
    if (!last) {
        rows = a.halves ? a.top : a.h + (2 * (a.layers - 1) + (~s.now & 1)) * (i64)total * a.H;
        width = a.H;
        if (!a.halves) {
            // The oldest window predicts; before it is full, that is the first.
            const i64 n = s.now - s.rows[b].begun, whole = n + 1 - a.windows;
            at = b * a.windows + (a.rolling && whole > 0 ? (int)(whole % a.windows) : 0);
        }
    }
    const float4* from[SOURCES(ROWS)];
#pragma unroll
    for (int i = 0; i < SOURCES(ROWS); ++i)
        from[i] = (const float4*)(rows + (i64)__shfl_sync(FULL, at, source<ROWS>(i, lane)) * width) + l;
    float sums[ROWS][4] = {};
    add_products<false>(sums, w, from, p.parts, lane, ring_of(a));
    met(sums, lane);
    if (l >= ROWS || row >= a.streams) return;
    float4 v = four(sums[0]);
    v.x += bias.x; v.y += bias.y; v.z += bias.z; v.w += bias.w;
    if (last) {
        *(float4*)(a.logits + (i64)b * a.padded_V + column) = v;
    } else {
        v = make_float4(leaky(v.x, a.leak), leaky(v.y, a.leak), leaky(v.z, a.leak), leaky(v.w, a.leak));
        *(float4*)(a.dense + (i64)b * a.D + column) = v;
    }
}
