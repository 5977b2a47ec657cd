// An optimiser's update of all parameters in one launch, its formula given at compilation: UPDATE turns g, rate and
// moment[] into `amount` and the moments after; BEFORE fills factor[] from `count`, once a block of threads.
//
// Every tensor is [M, size]. A block of threads takes CHUNK elements of one run of one tensor.

#define MOST 64
#define CHUNK 4096

struct Tensors {
    float* parameter[MOST];
    const float* gradient[MOST];
    float* first[MOST];
    float* second[MOST];
    int size[MOST];
    int chunks[MOST];  // of this tensor and all before it
};

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
    const int m = blockIdx.y;
    if (!alive[m]) return;
    if (threadIdx.x == 0) {
        const float count = (float)(*done + 1);
        factor[0] = factor[1] = count;
        BEFORE
    }
    __syncthreads();
    int chunk = blockIdx.x;
    const int tensor = find(all, chunk), size = all.size[tensor];
    const float rate = rates[m];
    const size_t own = (size_t)m * size;
    float* const parameter = all.parameter[tensor] + own;
    const float* const gradient = all.gradient[tensor] + own;
    float* const first = all.first[tensor] + own;
    float* const second = all.second[tensor] + own;
    const int last = min(size, (chunk + 1) * CHUNK);
    for (int n = chunk * CHUNK + threadIdx.x; n < last; n += blockDim.x) {
        const float g = gradient[n];
        float amount, moment[2] = {first[n], MOMENTS > 1 ? second[n] : 0.0f};
        UPDATE
        parameter[n] -= amount;
        first[n] = moment[0];
        if (MOMENTS > 1) second[n] = moment[1];
    }
}

extern "C" __global__ void finite(const __grid_constant__ Tensors all, int* bad) {
    int chunk = blockIdx.x;
    const int tensor = find(all, chunk), size = all.size[tensor], m = blockIdx.y, last = min(size, (chunk + 1) * CHUNK);
    const float* const gradient = all.gradient[tensor] + (size_t)m * size;
    bool found = false;
    for (int n = chunk * CHUNK + threadIdx.x; n < last; n += blockDim.x) found |= !isfinite(gradient[n]);
    if (__syncthreads_or(found) && threadIdx.x == 0) atomicOr(bad + m, 1);
}
