// The cells' pointwise parts: from the sums of a unit's gates to its next state, and the chain rule back.
//
// CELL is given at compilation; so is APPROXIMATE, which takes the hardware's tanh, as exact as bfloat16 needs. A unit's
// four slots are i, f, g, o of the LSTM; of the GRU they are r, u, the candidate towards h·W_h, the candidate towards x.

typedef unsigned int u32;
typedef unsigned short bf16;

#define PAPER 0
#define LASAGNE 1
#define OFF 2
#define GRU 3

struct __align__(16) Gates { float i, f, g, o; };
struct Peepholes { float i, f, o; };

#if APPROXIMATE
__device__ __forceinline__ float tanh_(float x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float sigmoid(float x) { return fmaf(0.5f, tanh_(0.5f * x), 0.5f); }
#else
__device__ __forceinline__ float tanh_(float x) { return tanhf(x); }
__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
#endif

__device__ __forceinline__ u32 pack(float low, float high) {
    u32 y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}
__device__ __forceinline__ float widen(bf16 v) { return __uint_as_float((u32)v << 16); }
__device__ __forceinline__ float widen(float v) { return v; }

__device__ __forceinline__ float clipped(float x, float limit) {
    // A NaN must stay one: it is how a run that diverges is noticed.
    return x > limit ? limit : (x < -limit ? -limit : x);
}

// From the four sums of a unit to its next state; `kept` is what the way back needs.
__device__ __forceinline__ float step(const Gates& x, const Gates& a, float& state, const Peepholes& w, Gates& kept) {
#if CELL == GRU
    float r = sigmoid(x.i + a.i), u = sigmoid(x.f + a.f);
    float candidate = tanh_(fmaf(r, a.g, x.o));
    kept.i = r; kept.f = u; kept.g = candidate; kept.o = a.g;
    state = fmaf(u, candidate - state, state);
    return state;
#else
    float c = state, a_i = x.i + a.i, a_f = x.f + a.f, a_o = x.o + a.o;
#if CELL != OFF
    a_i = fmaf(w.i, c, a_i);
    a_f = fmaf(w.f, c, a_f);
#endif
    float i = sigmoid(a_i), f = sigmoid(a_f), g = tanh_(x.g + a.g);
    state = fmaf(f, c, i * g);
#if CELL == PAPER
    a_o = fmaf(w.o, c, a_o);
#elif CELL == LASAGNE
    a_o = fmaf(w.o, state, a_o);
#endif
    float o = sigmoid(a_o);
    kept.i = i; kept.f = f; kept.g = g; kept.o = o;
    return o * tanh_(state);
#endif
}

// The chain rule through it: d_h in, the four gates' gradients out, d_state taken back by one step.
__device__ __forceinline__ Gates step_back(float d_h, float& d_state, const Gates& k, float after, float before,
                                           const Peepholes& w, Peepholes& d_w, float clip) {
    Gates d;
#if CELL == GRU
    d_h += d_state;
    float d_c = clipped(d_h * k.f * (1.0f - k.g * k.g), clip);
    d.i = clipped(d_c * k.o * (k.i * (1.0f - k.i)), clip);
    d.f = clipped(d_h * (k.g - before) * (k.f * (1.0f - k.f)), clip);
    d.g = d_c * k.i;  // towards h·W_h, behind the reset gate
    d.o = d_c;        // towards the input
    d_state = d_h * (1.0f - k.f);
#else
    float t = tanh_(after);
    d.o = d_h * t * (k.o * (1.0f - k.o));
    float d_c = fmaf(d_h * k.o, 1.0f - t * t, d_state);
#if CELL == LASAGNE
    d_c = fmaf(d.o, w.o, d_c);
#endif
    d.i = d_c * k.g * (k.i * (1.0f - k.i));
    d.f = d_c * before * (k.f * (1.0f - k.f));
    d.g = d_c * k.i * (1.0f - k.g * k.g);
    d_state = d_c * k.f;
#if CELL != OFF
    d_state = fmaf(d.i, w.i, fmaf(d.f, w.f, d_state));
    d_w.i = fmaf(d.i, before, d_w.i);
    d_w.f = fmaf(d.f, before, d_w.f);
#if CELL == PAPER
    d_state = fmaf(d.o, w.o, d_state);
    d_w.o = fmaf(d.o, before, d_w.o);
#else
    d_w.o = fmaf(d.o, after, d_w.o);
#endif
#endif
    d.i = clipped(d.i, clip); d.f = clipped(d.f, clip); d.g = clipped(d.g, clip); d.o = clipped(d.o, clip);
#endif
    return d;
}
