// Between the products of the model's head: bias, leaky ReLU and dropout; softmax and the negative log-likelihood.
// REAL is float or bf16, what the products multiply.

typedef unsigned int u32;
typedef unsigned short bf16;

__device__ __forceinline__ float widen(float v) { return v; }
__device__ __forceinline__ float widen(bf16 v) { return __uint_as_float((u32)v << 16); }
__device__ __forceinline__ void store(float* to, float v) { *to = v; }
__device__ __forceinline__ void store(bf16* to, float v) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(*to) : "f"(v));
}

// Philox-4x32-10, as randomness.py has it: four words for the elements 4 · block … 4 · block + 3 of a run.
struct Words { u32 w[4]; };
__device__ __forceinline__ Words philox(u32 block, u32 batch, u32 purpose, u32 k0, u32 k1) {
    u32 c0 = block, c1 = batch, c2 = purpose, c3 = 0;
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        u32 h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0, h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
        c0 = h1 ^ c1 ^ k0; c1 = l1; c2 = h0 ^ c3 ^ k1; c3 = l0;
        k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
    }
    Words out = {{c0, c1, c2, c3}};
    return out;
}

// What inverted dropout multiplies four elements by.
__device__ __forceinline__ void factors(float (&f)[4], float drop, const int* keys, const long long* batch, u32 purpose, int block) {
    if (drop == 0.0f) {
        f[0] = f[1] = f[2] = f[3] = 1.0f;
        return;
    }
    Words r = philox(block, (u32)*batch, purpose, keys[0], keys[1]);
#pragma unroll
    for (int k = 0; k < 4; ++k) f[k] = (double)r.w[k] >= (double)drop * 4294967296.0 ? 1.0f / (1.0f - drop) : 0.0f;
}

// x = x · dropout, for one of the head's inputs and for its gradient: [M, size].
extern "C" __global__ void drop(const REAL* from, REAL* to, const float* rates, const int* keys, const long long* batch, int purpose, int size) {
    const int m = blockIdx.y, block = blockIdx.x * blockDim.x + threadIdx.x;
    float f[4];
    factors(f, rates[m], keys + 2 * m, batch, (u32)purpose, block);
    for (int k = 0; k < 4 && block * 4 + k < size; ++k) {
        const size_t n = (size_t)m * size + block * 4 + k;
        store(to + n, widen(from[n]) * f[k]);
    }
}

// A thread takes 8 neighbouring elements, two draws of Philox; where rows are WHOLE, that is 8 divides D, of bf16 they
// are one load of 16 bytes.
struct __align__(16) Some { REAL v[8]; };
struct __align__(sizeof(REAL) * 8) Aligned { REAL v[8]; };

__device__ __forceinline__ Some take(const REAL* from, int count) {
    Some some;
#if WHOLE
    *(Aligned*)&some = *(const Aligned*)from;
#else
    for (int k = 0; k < 8; ++k) some.v[k] = k < count ? from[k] : (REAL)0;
#endif
    return some;
}
__device__ __forceinline__ void give(REAL* to, const Some& some, int count) {
#if WHOLE
    *(Aligned*)to = *(const Aligned*)&some;
#else
    for (int k = 0; k < 8 && k < count; ++k) to[k] = some.v[k];
#endif
}

// x = leaky(x + b) · dropout, in place: [M, N, D], size = N · D.
extern "C" __global__ void activate(REAL* x, const float* b, const float* rates, const int* keys, const long long* batch, int purpose, int size, int D) {
    const int m = blockIdx.y, n = (blockIdx.x * blockDim.x + threadIdx.x) * 8;
    if (n >= size) return;
    float f[2][4];
    for (int k = 0; k < 2; ++k) factors(f[k], rates[m], keys + 2 * m, batch, (u32)purpose, n / 4 + k);
    REAL* const place = x + (size_t)m * size + n;
    Some own = take(place, size - n);
    const int column = n % D;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        const float v = widen(own.v[k]) + b[m * D + (WHOLE ? column + k : (n + k) % D)];
        store(own.v + k, (v > 0.0f ? v : LEAK * v) * f[k / 4][k % 4]);
    }
    give(place, own, size - n);
}

// The way back: d = d · leaky′ · dropout, in place; leaky ReLU keeps the sign, so its output tells.
extern "C" __global__ void deactivate(REAL* d, const REAL* x, const float* rates, const int* keys, const long long* batch, int purpose, int size) {
    const int m = blockIdx.y, n = (blockIdx.x * blockDim.x + threadIdx.x) * 8;
    if (n >= size) return;
    float f[2][4];
    for (int k = 0; k < 2; ++k) factors(f[k], rates[m], keys + 2 * m, batch, (u32)purpose, n / 4 + k);
    REAL* const place = d + (size_t)m * size + n;
    Some own = take(place, size - n);
    const Some out = take(x + (size_t)m * size + n, size - n);
#pragma unroll
    for (int k = 0; k < 8; ++k)
        store(own.v + k, widen(own.v[k]) * (widen(out.v[k]) > 0.0f ? 1.0f : LEAK) * f[k / 4][k % 4]);
    give(place, own, size - n);
}

// One warp a row of logits [M, N, V]: the log of the sum of exponentials, and the target's negative log-likelihood.
extern "C" __global__ void likelihood(const float* logits, const float* b, const int* targets, float* nll, float* sums, int N, int V) {
    const int m = blockIdx.y, row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= N) return;
    const size_t place = (size_t)m * N + row;
    const float* own = logits + place * V;
    float top = __int_as_float(0xff800000), total = 0.0f;
    for (int v = lane; v < V; v += 32) top = fmaxf(top, own[v] + b[m * V + v]);
    for (int s = 16; s; s /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, s));
    for (int v = lane; v < V; v += 32) total += expf(own[v] + b[m * V + v] - top);
    for (int s = 16; s; s /= 2) total += __shfl_xor_sync(0xffffffffu, total, s);
    if (lane == 0) {
        const int target = targets[place];
        const float sum = top + logf(total);
        sums[place] = sum;
        nll[place] = sum - (own[target] + b[m * V + target]);
    }
}

// d_logits = (softmax − one-hot) · d.
extern "C" __global__ void likelihood_back(const float* logits, const float* b, const int* targets, const float* sums, const float* d, REAL* d_logits, int N, int V) {
    const int m = blockIdx.y, row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= N) return;
    const size_t place = (size_t)m * N + row;
    const float sum = sums[place], up = d[place];
    const int target = targets[place];
    for (int v = lane; v < V; v += 32)
        store(d_logits + place * V + v, (expf(logits[place * V + v] + b[m * V + v] - sum) - (v == target ? 1.0f : 0.0f)) * up);
}
