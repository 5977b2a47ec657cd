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

template <class T> struct __align__(16) GatesOf { T i, f, g, o; };
template <class T> struct PeepholesOf { T i, f, o; };
typedef GatesOf<float> Gates;
typedef PeepholesOf<float> Peepholes;

#if APPROXIMATE
__device__ __forceinline__ float tanh_(float x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float sigmoid(float x) { return fmaf(0.5f, tanh_(0.5f * x), 0.5f); }
#else
// To the last bit or two, and without branches, so that what several threads or units need is worked out side by side: a
// division keeps a detour for numbers that do not occur here, and the library's tanh one for small ones.
__device__ __forceinline__ float inverse(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float sigmoid(float x) { return inverse(1.0f + expf(-x)); }
__device__ __forceinline__ float tanh_(float x) {
    const float size = fabsf(x), square = x * x;
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(size * 2.885390082f));
    const float large = copysignf(fmaf(-2.0f, inverse(1.0f + e), 1.0f), x);  // 1 - 2 / (1 + e^2x)
    // Where that loses bits, x + x³·q(x²), fitted to a relative error of 4·10⁻⁸.
    const float q = fmaf(fmaf(fmaf(0.01645873860f, square, -0.05268413201f), square, 0.1332094222f), square, -0.3333295882f);
    return size < 0.55f ? fmaf(q * square, x, x) : large;
}
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

// Some units' values, which go through the same functions side by side: each takes its time, and need not wait for another's.
template <int N>
struct Several {
    float v[N];
    template <class F>
    __device__ static __forceinline__ Several of(F f) {
        Several made;
#pragma unroll
        for (int k = 0; k < N; ++k) made.v[k] = f(k);
        return made;
    }
};
template <int N> __device__ __forceinline__ Several<N> operator+(const Several<N>& a, const Several<N>& b) {
    return Several<N>::of([&](int k) { return a.v[k] + b.v[k]; });
}
template <int N> __device__ __forceinline__ Several<N> operator-(const Several<N>& a, const Several<N>& b) {
    return Several<N>::of([&](int k) { return a.v[k] - b.v[k]; });
}
template <int N> __device__ __forceinline__ Several<N> operator*(const Several<N>& a, const Several<N>& b) {
    return Several<N>::of([&](int k) { return a.v[k] * b.v[k]; });
}
template <int N> __device__ __forceinline__ Several<N> fmaf(const Several<N>& a, const Several<N>& b, const Several<N>& c) {
    return Several<N>::of([&](int k) { return fmaf(a.v[k], b.v[k], c.v[k]); });
}
template <int N> __device__ __forceinline__ Several<N> sigmoid(const Several<N>& x) {
    return Several<N>::of([&](int k) { return sigmoid(x.v[k]); });
}
template <int N> __device__ __forceinline__ Several<N> tanh_(const Several<N>& x) {
    return Several<N>::of([&](int k) { return tanh_(x.v[k]); });
}

// From the four sums of a unit, or of several, to its next state; `kept` is what the way back needs.
template <class T>
__device__ __forceinline__ T step(const GatesOf<T>& x, const GatesOf<T>& a, T& state, const PeepholesOf<T>& w, GatesOf<T>& kept) {
#if CELL == GRU
    T r = sigmoid(x.i + a.i), u = sigmoid(x.f + a.f);
    T candidate = tanh_(fmaf(r, a.g, x.o));
    kept.i = r; kept.f = u; kept.g = candidate; kept.o = a.g;
    state = fmaf(u, candidate - state, state);
    return state;
#else
    T c = state, a_i = x.i + a.i, a_f = x.f + a.f, a_o = x.o + a.o;
#if CELL != OFF
    a_i = fmaf(w.i, c, a_i);
    a_f = fmaf(w.f, c, a_f);
#endif
    T i = sigmoid(a_i), f = sigmoid(a_f), g = tanh_(x.g + a.g);
    state = fmaf(f, c, i * g);
#if CELL == PAPER
    a_o = fmaf(w.o, c, a_o);
#elif CELL == LASAGNE
    a_o = fmaf(w.o, state, a_o);
#endif
    T o = sigmoid(a_o);
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
