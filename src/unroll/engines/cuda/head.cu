// Between the products of the model's head: bias, leaky ReLU and dropout; softmax and the negative log-likelihood.
// REAL is float or bf16, what the products multiply.

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

// The way back: d = d · leaky′ · dropout, in place; leaky ReLU keeps the sign, so its output shows the input's.
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
