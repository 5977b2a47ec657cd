// An optimiser's update of all parameters in one launch, its formula given at compilation: UPDATE turns g, rate and
// moment[] into `amount` and the moments after; BEFORE fills factor[] from `count`, once a block of threads.
//
// Every tensor is [M, size]. A block of threads takes CHUNK elements of one run of one tensor.

#define MOST 64
#define CHUNK 2048
#define THREADS 256
#define PLACES (CHUNK / (4 * THREADS))

struct Tensors {
    float* parameter[MOST];
    const float* gradient[MOST];
    float* first[MOST];
    float* second[MOST];
    int size[MOST];
    int chunks[MOST];  // of this tensor and all before it
};

struct __align__(16) Four { float v[4]; };

__device__ __forceinline__ void change(float g, float rate, const float* factor, float& parameter, float& first, float& second) {
    float amount, moment[2] = {first, MOMENTS > 1 ? second : 0.0f};
    UPDATE
    parameter -= amount;
    first = moment[0];
    if (MOMENTS > 1) second = moment[1];
}

// Which tensor a block works on; `chunk` becomes its number within that tensor.
__device__ __forceinline__ int find(const Tensors& all, int& chunk) {
    int tensor = 0;
    while (chunk >= all.chunks[tensor]) ++tensor;
    if (tensor) chunk -= all.chunks[tensor - 1];
    return tensor;
}

extern "C" __global__ void update(const __grid_constant__ Tensors all, const float* rates, const bool* alive,
                                  const long long* done) {
    __shared__ float factor[2];
    int chunk = blockIdx.x;
    const int tensor = find(all, chunk), size = all.size[tensor], m = blockIdx.y;
    const size_t own = (size_t)m * size;
    float* const parameter = all.parameter[tensor] + own;
    const float* const gradient = all.gradient[tensor] + own;
    float* const first = all.first[tensor] + own;
    float* const second = all.second[tensor] + own;
    const int begin = chunk * CHUNK, last = min(size, begin + CHUNK);
    // Four neighbours at a time, in two places. All loads are on their way before anything else is asked for.
    Four p[PLACES], g[PLACES], a[PLACES], b[PLACES];
    const bool fours = size % 4 == 0;
#pragma unroll
    for (int s = 0; s < PLACES; ++s) {
        const int at = begin + 4 * (threadIdx.x + THREADS * s);
        if (!fours || at >= last) continue;
        p[s] = *(const Four*)(parameter + at);
        g[s] = *(const Four*)(gradient + at);
        a[s] = *(const Four*)(first + at);
        if (MOMENTS > 1) b[s] = *(const Four*)(second + at);
    }
    const float rate = rates[m];
    if (threadIdx.x == 0) {
        const float count = (float)(*done + 1);
        factor[0] = factor[1] = count;
        BEFORE
    }
    if (!__syncthreads_and(alive[m])) return;
    if (!fours) {
        for (int n = begin + threadIdx.x; n < last; n += THREADS)
            change(gradient[n], rate, factor, parameter[n], first[n], second[n]);
        return;
    }
#pragma unroll
    for (int s = 0; s < PLACES; ++s) {
        const int at = begin + 4 * (threadIdx.x + THREADS * s);
        if (at >= last) continue;
#pragma unroll
        for (int v = 0; v < 4; ++v) change(g[s].v[v], rate, factor, p[s].v[v], a[s].v[v], b[s].v[v]);
        *(Four*)(parameter + at) = p[s];
        *(Four*)(first + at) = a[s];
        if (MOMENTS > 1) *(Four*)(second + at) = b[s];
    }
}

// Each run's loss, and what its weights add up to. One block of threads a run.
extern "C" __global__ void weigh(const float* nll, const float* weights, double* losses, int K, int B) {
    __shared__ double sums[THREADS][2];
    const int m = blockIdx.x, thread = threadIdx.x;
    double loss = 0.0, weight = 0.0;
    for (int n = thread; n < K * B; n += THREADS) loss += nll[(size_t)m * K * B + n] * weights[m * K + n / B];
    for (int k = thread; k < K; k += THREADS) weight += weights[m * K + k];
    sums[thread][0] = loss;
    sums[thread][1] = weight;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (thread < half)
            for (int s = 0; s < 2; ++s) sums[thread][s] += sums[thread + half][s];
    }
    if (thread) return;
    losses[2 * m] = (float)(sums[0][0] / B);
    losses[2 * m + 1] = sums[0][1];
}

// The sum over a block of threads, in thread 0.
__device__ __forceinline__ double total(double value, double* sums) {
    for (int half = 16; half; half /= 2) value += __shfl_down_sync(~0u, value, half);
    __syncthreads();
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int warp = 1; warp < THREADS / 32; ++warp) value += sums[warp];
    return value;
}

// Which runs take this update: those not ended, whose loss and gradients are finite. A run that is not one of them any more
// is noted, with the reason; the loss of one that is counts towards its mean. Every block looks at a chunk of gradients, and
// of the `expected` ones of a run the last to have looked judges. `seen` is 0 before and after: above 32 bits it counts
// chunks that are not finite, below them all. Each block leaves the sum of its squares in `squares`, at its own place, so that
// their sum over a run is taken in one order: the norm of its gradients. `largest` keeps the largest loss and norm of each run.
extern "C" __global__ void judge(const __grid_constant__ Tensors all, unsigned long long* seen, int expected,
                                 const double* losses, const long long* last_batch, const long long* done,
                                 long long* stopped, long long* reason, double* loss_sum, long long* loss_count, bool* alive,
                                 double* squares, int before_these, double* largest) {
    __shared__ double sums[THREADS / 32];
    __shared__ unsigned long long before;
    int chunk = blockIdx.x;
    const int tensor = find(all, chunk), size = all.size[tensor], m = blockIdx.y, last = min(size, (chunk + 1) * CHUNK);
    const float* const gradient = all.gradient[tensor] + (size_t)m * size;
    bool found = false;
    double square = 0.0;
    if (size % 4) {
        for (int n = chunk * CHUNK + threadIdx.x; n < last; n += THREADS) {
            found |= !isfinite(gradient[n]);
            square += (double)gradient[n] * gradient[n];
        }
    } else {
#pragma unroll
        for (int s = 0; s < PLACES; ++s) {
            const int n = chunk * CHUNK + 4 * (s * THREADS + threadIdx.x);
            if (n >= last) continue;
            const Four g = *(const Four*)(gradient + n);
#pragma unroll
            for (int v = 0; v < 4; ++v) {
                found |= !isfinite(g.v[v]);
                square += (double)g.v[v] * g.v[v];
            }
        }
    }
    found = __syncthreads_or(found);
    square = total(square, sums);
    if (threadIdx.x == 0) {
        squares[(size_t)m * expected + before_these + blockIdx.x] = square;
        __threadfence();
        before = atomicAdd(seen + m, 1ull + ((unsigned long long)found << 32));
    }
    __syncthreads();
    if ((unsigned)before + 1 < (unsigned)expected) return;
    __threadfence();
    square = 0.0;
    for (int n = threadIdx.x; n < expected; n += THREADS) square += __ldcg(squares + (size_t)m * expected + n);
    square = total(square, sums);
    if (threadIdx.x) return;
    seen[m] = 0;
    const float loss = (float)losses[2 * m];
    const bool going = stopped[m] == 0 && last_batch[m] > *done;
    const int wrong = !isfinite(loss) ? 1 : found || before >> 32 ? 2 : 0;
    if (going && wrong) {
        stopped[m] = *done + 1;
        reason[m] = wrong;
    }
    alive[m] = going && !wrong;
    if (alive[m]) {
        loss_sum[m] += loss / losses[2 * m + 1];
        loss_count[m] += 1;
        largest[m] = fmax(largest[m], loss / losses[2 * m + 1]);
        largest[gridDim.y + m] = fmax(largest[gridDim.y + m], sqrt(square));
    }
}
