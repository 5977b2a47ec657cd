// One time step of a layer, without its product: a thread an element of [M, B, H]. REAL is float or bf16, what the
// products multiply; states and sums are float. Follows pointwise.cu.
//
//   pre_x     [M, I, G] float; row ids[m, t, b], or row t·B + b without ids
//   pre_h     [M, B, G] float: h·W_h
//   states    [M, T + 1, B, H] float: c of the LSTM, h of the GRU; step 0 is the first
//   h         [M, T + 1, B, H] REAL
//   saved     [M, T, B, 4, H] REAL
//   d_pre_x   [M, T, B, G] REAL, and d_pre_h the same: one buffer for the LSTM, two for the GRU

#define GATES (CELL == GRU ? 3 : 4)

__device__ __forceinline__ void store(float* to, float v) { *to = v; }
__device__ __forceinline__ void store(bf16* to, float v) { *to = (bf16)pack(v, v); }

__device__ __forceinline__ Peepholes peepholes(const float* w_c, int H, int u) {
    Peepholes w = {0.0f, 0.0f, 0.0f};
#if CELL == PAPER || CELL == LASAGNE
    w_c += (size_t)blockIdx.y * 3 * H + u;
    w.i = w_c[0]; w.f = w_c[H]; w.o = w_c[2 * H];
#endif
    return w;
}

extern "C" __global__ void forward(const float* pre_x, const int* ids, const float* pre_h, const float* w_c, float* states,
                                   REAL* h, REAL* saved, int I, int T, int B, int H, int t) {
    const int n = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, b = n / H, u = n % H;
    if (n >= B * H) return;
    const size_t before = (((size_t)m * (T + 1) + t) * B + b) * H + u, after = before + (size_t)B * H;
    const float* x = pre_x + ((size_t)m * I + (ids ? ids[((size_t)m * T + t) * B + b] : t * B + b)) * GATES * H + u;
    const float* a = pre_h + ((size_t)m * B + b) * GATES * H + u;
    Gates from_x, from_h, keep;
#if CELL == GRU
    from_x.i = x[0]; from_x.f = x[H]; from_x.g = 0.0f; from_x.o = x[2 * H];
    from_h.i = a[0]; from_h.f = a[H]; from_h.g = a[2 * H]; from_h.o = 0.0f;
#else
    from_x.i = x[0]; from_x.f = x[H]; from_x.g = x[2 * H]; from_x.o = x[3 * H];
    from_h.i = a[0]; from_h.f = a[H]; from_h.g = a[2 * H]; from_h.o = a[3 * H];
#endif
    float state = states[before];
    float out = step(from_x, from_h, state, peepholes(w_c, H, u), keep);
    states[after] = state;
    store(h + after, out);
    if (!saved) return;
    REAL* kept = saved + (((size_t)m * T + t) * B + b) * 4 * H + u;
    store(kept, keep.i); store(kept + H, keep.f); store(kept + 2 * H, keep.g); store(kept + 3 * H, keep.o);
}

extern "C" __global__ void backward(const REAL* d_top, const float* d_h, float* d_states, const REAL* saved,
                                    const float* states, const float* w_c, float* d_w_c, REAL* d_pre_x, REAL* d_pre_h,
                                    float clip, int T, int B, int H, int t) {
    const int n = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, b = n / H, u = n % H;
    if (n >= B * H) return;
    const size_t before = (((size_t)m * (T + 1) + t) * B + b) * H + u, place = ((size_t)m * B + b) * H + u;
    const REAL* kept = saved + (((size_t)m * T + t) * B + b) * 4 * H + u;
    Gates k;
    k.i = widen(kept[0]); k.f = widen(kept[H]); k.g = widen(kept[2 * H]); k.o = widen(kept[3 * H]);
    Peepholes d_w = {0.0f, 0.0f, 0.0f};
    float d_state = d_states[place], d = widen(d_top[(((size_t)m * T + t) * B + b) * H + u]) + d_h[place];
    Gates g = step_back(d, d_state, k, states[before + (size_t)B * H], states[before], peepholes(w_c, H, u), d_w, clip);
    d_states[place] = d_state;
    const size_t out = (((size_t)m * T + t) * B + b) * GATES * H + u;
#if CELL == GRU
    store(d_pre_x + out, g.i); store(d_pre_x + out + H, g.f); store(d_pre_x + out + 2 * H, g.o);
    store(d_pre_h + out, g.i); store(d_pre_h + out + H, g.f); store(d_pre_h + out + 2 * H, g.g);
#else
    store(d_pre_x + out, g.i); store(d_pre_x + out + H, g.f); store(d_pre_x + out + 2 * H, g.g); store(d_pre_x + out + 3 * H, g.o);
#endif
#if CELL == PAPER || CELL == LASAGNE
    float* w = d_w_c + ((size_t)m * B + b) * 3 * H + u;  // added up over time here, over rows afterwards
    w[0] += d_w.i; w[H] += d_w.f; w[2 * H] += d_w.o;
#endif
}
