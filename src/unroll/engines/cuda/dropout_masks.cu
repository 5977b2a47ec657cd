// Dropout's masks, a pure function of (run, purpose, batch, element), and the kernel that applies them.
// REAL is float or bf16. Every other text about the head is compiled behind this one.

typedef unsigned int u32;
typedef unsigned short bf16;

__device__ __forceinline__ float widen(float v) { return v; }
__device__ __forceinline__ float widen(bf16 v) { return __uint_as_float((u32)v << 16); }
__device__ __forceinline__ void store(float* to, float v) { *to = v; }
__device__ __forceinline__ void store(bf16* to, float v) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(*to) : "f"(v));
}

// Philox-4x32-10, as base/randomness.py has it: four words for the elements 4 · block … 4 · block + 3 of a run.
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
