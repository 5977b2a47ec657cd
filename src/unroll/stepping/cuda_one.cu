// One stream: values travel between blocks with the number of their step, and each kind of work has its own warps. Follows
// cuda_many.cu.
//
// Nothing is overwritten that somebody may still read. A step's tokens need all of its logits, these all of dense, that
// all of h, and h needs the token before: whoever writes the values of a step has seen that everyone is done with those of
// two steps ago, and with dense of the last. So h and logits have two places each, and dense has one. A chooser runs only
// in a block whose layers ask it, since for others nobody would wait.

__device__ __forceinline__ uint4 look(const u64* line) {
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(line) : "memory");
    return v;
}

// So many values of a step, brought to the warp's own shared memory.
__device__ __forceinline__ void hear(float4* to, const u64* line, int count, unsigned step, int lane) {
    __syncwarp();
    for (int start = 0; start < count; start += 1024) {
        uint4 v[16];
        bool all;
        do {
            all = true;
#pragma unroll
            for (int i = 0; i < 16; ++i) {
                const int k = start + 2 * (lane + 32 * i);
                if (k < count) v[i] = look(line + k);
            }
#pragma unroll
            for (int i = 0; i < 16; ++i) all &= start + 2 * (lane + 32 * i) >= count || (v[i].y == step && v[i].w == step);
        } while (!all);
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const int k = start + 2 * (lane + 32 * i);
            if (k < count) ((float2*)to)[k / 2] = make_float2(__uint_as_float(v[i].x), __uint_as_float(v[i].z));
        }
    }
    __syncwarp();
}

__device__ __forceinline__ void recall(float4* to, const float* from, int count, int lane) {
    __syncwarp();
    for (int k = lane; k < count / 4; k += 32) to[k] = __ldcg((const float4*)from + k);
    __syncwarp();
}

// As add_products, the row in shared memory.
__device__ __forceinline__ void add_row(float (&sums)[1][4], const float4* w, const float4* row, int parts, int lane) {
    w += lane;
    row += lane % 8;
#pragma unroll 8
    for (int part = 0; part < parts; ++part) {
        const float4 x = row[8 * part];
#pragma unroll
        for (int q = 0; q < 4; ++q) {
            const float4 v = w[(part * 4 + q) * 32];
            float s = sums[0][q];
            s = __fmaf_rn(x.x, v.x, s);
            s = __fmaf_rn(x.y, v.y, s);
            s = __fmaf_rn(x.z, v.z, s);
            sums[0][q] = __fmaf_rn(x.w, v.w, s);
        }
    }
}

// The same for the j-th group of columns of the block, from one part of its terms on.
__device__ __forceinline__ void add_group(float (&sums)[1][4], const Arguments& a, const Place& p, int j, int group, int start,
                                          const float4* row, int parts, int lane) {
    const i64 size = p.parts * 128;
    if (p.resident >= 0) add_row(sums, pool + p.resident / 4 + j * size + start * 128, row, parts, lane);
    else add_row(sums, (const float4*)(a.weights + p.weights) + group * size + start * 128, row, parts, lane);
}

#define FOR_LAYERS 13  // warps: 100 windows, the paper's k2, are 13 tiles of 8 rows; then a chooser, dense and out
#define CHOOSER FOR_LAYERS
#define DENSE (FOR_LAYERS + 1)

__device__ __forceinline__ const u64* nearest_copy(const Arguments& a) { return a.line + blockIdx.x % COPIES * copy_size(a); }

// Draws for each step as soon as there are logits; one warp in every block that needs to know, all alike.
__device__ __forceinline__ void choosing(const Arguments& a, const Row& row, volatile u64* told) {
    const int lane = threadIdx.x % 32, each = (a.V + 31) / 32, first = lane * each;
    const u64* line = nearest_copy(a) + 2 * a.layers * a.H + a.D;
    float4* scratch = ring_of(a);
#pragma unroll 1
    for (int t = a.quiet; t < a.steps; ++t) {
        const i64 now = a.now + t;
        const double aimed = uniform(row.seed, a.purpose, now - row.draws);
        hear(scratch, line + (now & 1) * a.padded_V, a.padded_V, (unsigned)now + 1, lane);
        float x[HELD] = {};
#pragma unroll
        for (int i = 0; i < HELD; ++i)
            if (i < each && first + i < a.V) x[i] = ((const float*)scratch)[first + i];
        double2 likelihood;
        const int id = choose<HELD>(row, nullptr, make_float4(x[0], x[1], x[2], x[3]), a.V, aimed, &likelihood);
        if (lane) continue;
        told[(now + 1) & 3] = (u64)((unsigned)now + 1) << 32 | (unsigned)id;
        if (blockIdx.x) continue;
        a.last[0] = id;
        a.ids[t] = id;
        a.logprobs[t] = likelihood.x - log(likelihood.y);
    }
}

// The layers of a stream that runs on: a warp a group of columns.
__device__ __forceinline__ void running_on(const Arguments& a, const Place* places, const Row& row, int last, const volatile u64* told) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, l = lane % 8, H = a.H;
    const u64* line = nearest_copy(a);
    float4* scratch = ring_of(a);
#pragma unroll 1
    for (int t = 0; t < a.steps; ++t) {
        const i64 now = a.now + t, n = now - row.begun;
        const bool given = t == 0 || now <= row.draws;
        const int known = n < 0 ? 0 : now <= row.draws ? a.prompts[row.prompt + n] : last;
#pragma unroll 1
        for (int number = 0; number < a.layers; ++number) {
            const Place& p = places[number];
            const int half = (2 * number + (now & 1)) * H, half_next = (2 * number + (~now & 1)) * H;
#pragma unroll 1
            for (int j = warp, group; (group = blockIdx.x + j * gridDim.x) < p.groups; j += FOR_LAYERS) {
                const int u = 4 * group + lane / 8, parts = number ? p.parts / 2 : p.parts;
                const float* first_h = a.weights + p.first_h;
                const Peepholes peepholes = peepholes_of(a, p, u);
#if CELL != GRU && CELL != RNN
                float* c = a.c + number * H + u;
                float state = n == 0 ? a.weights[p.first_c + u] : *c;
#endif
                float sums[1][4] = {};
                if (number) {
                    hear(scratch, line + (2 * (number - 1) + (~now & 1)) * H, H, (unsigned)now + 1, lane);
                    add_group(sums, a, p, j, group, 0, scratch, parts, lane);
                }
                if (n == 0) recall(scratch, first_h, H, lane);
                else if (t == 0) recall(scratch, a.h + half, H, lane);
                else hear(scratch, line + half, H, (unsigned)now, lane);
                add_group(sums, a, p, j, group, p.parts - parts, scratch, parts, lane);
#if CELL == GRU || CELL == RNN
                float state = ((const float*)scratch)[u];
#endif
                const float4 sum = met<1>(sums, lane);
                const int id = number ? 0 : given ? known : asked(told, now);  // needed only here
                const float4 x4 = ((const float4*)(a.weights + p.bias))[(i64)id * H + u];
                const float out = next(x4, sum, state, peepholes);
                tell(a.line + l * copy_size(a) + half_next + u, out, (unsigned)now + 1);  // all eight lanes have it
                if (l == 0) {
                    a.h[half_next + u] = out;
#if CELL != GRU && CELL != RNN
                    *c = state;
#endif
                }
                __syncwarp();
            }
        }
    }
}

// The layers of a stream's windows: a warp a tile of eight.
__device__ __forceinline__ void rolling(const Arguments& a, const Place* places, const Row& row, const int* last,
                                        const volatile u64* told, unsigned epoch) {
    const i64 n = a.now - row.begun;
    int begins = n % a.windows, oldest = n + 1 > a.windows ? (n + 1) % a.windows : 0;
#pragma unroll 1
    for (int t = 0; t < a.steps; ++t) {
        const i64 now = a.now + t;
        const bool given = now <= row.draws, known = given || t == 0;
        const Step s = {a, &row, given ? nullptr : last, now, known ? nullptr : told, begins, oldest};
#pragma unroll 1
        for (int number = 0; number < a.layers; ++number) {
            const Place& p = places[number];
            over<FOR_LAYERS>(a, p, (a.windows + 7) / 8, [&](const float4* w, int group, int tile) {
                layer<8, true>(s, p, number, w, group, tile);
            });
            meet<FOR_LAYERS>(a.arrived, epoch);
        }
        if (++begins == a.windows) begins = 0;
        if (n + t + 2 > a.windows && ++oldest == a.windows) oldest = 0;
    }
}

// dense, and the last: out.
__device__ __forceinline__ void heading(const Arguments& a, const Place& p, bool last) {
    const int lane = threadIdx.x % 32, of_dense = 2 * a.layers * a.H;
    const u64* line = nearest_copy(a);
    float4* scratch = ring_of(a);
#pragma unroll 1
    for (int t = a.quiet; t < a.steps; ++t) {
        const i64 now = a.now + t;
        const unsigned step = (unsigned)now + 1;
#pragma unroll 1
        for (int j = 0, group; (group = blockIdx.x + j * gridDim.x) < p.groups; ++j) {
            const int column = 16 * group + 4 * (lane / 8);
            const float4 bias = *(const float4*)(a.weights + p.bias + column);
            const int from = last ? of_dense : (2 * (a.layers - 1) + (~now & 1)) * a.H;
            hear(scratch, line + from, last ? a.D : a.H, step, lane);
            float sums[1][4] = {};
            add_group(sums, a, p, j, group, 0, scratch, p.parts, lane);
            float4 v = met<1>(sums, lane);
            v.x += bias.x; v.y += bias.y; v.z += bias.z; v.w += bias.w;
            u64* to = a.line + lane % 8 * copy_size(a) + of_dense + column;  // all eight lanes have it: a copy each
            if (last) {
                to += a.D + (now & 1) * a.padded_V;
                if (lane % 8 == 0) *(float4*)(a.logits + column) = v;
            } else {
                v = make_float4(leaky(v.x, a.leak), leaky(v.y, a.leak), leaky(v.z, a.leak), leaky(v.w, a.leak));
            }
            tell(to, v.x, step); tell(to + 1, v.y, step); tell(to + 2, v.z, step); tell(to + 3, v.w, step);
        }
    }
}

template <bool ROLLING>
__device__ __forceinline__ void alone(const Arguments& a) {
    __shared__ Place places[MOST_LAYERS + 2];
    __shared__ Row row;
    __shared__ volatile u64 told[4];
    __shared__ int last;
    const int warp = threadIdx.x / 32;
    unsigned epoch = a.arrived[blockIdx.x];
    if (threadIdx.x == 0) {
        row = a.rows[0];
        last = a.last[0];
    }
    if (threadIdx.x < 4) told[threadIdx.x] = ~0ull;
    for (int n = threadIdx.x; n < (a.layers + 2) * (int)(sizeof(Place) / 8); n += THREADS)
        ((i64*)places)[n] = ((const i64*)a.places)[n];
    __syncthreads();
    settle(a, places);
    __syncthreads();
    // A block may draw before another, that has none of the windows that predict, has seen what was drawn last.
    if (ROLLING) meet<WARPS>(a.arrived, epoch);
    // Only where somebody will ask: nobody waits for others to have heard.
    const int tiles = ROLLING ? (a.windows + 7) / 8 : 1, groups = places[0].groups;
    const bool asking = blockIdx.x < groups * splits_of(groups, tiles);
    if (warp < FOR_LAYERS) {
        if constexpr (ROLLING) rolling(a, places, row, &last, told, epoch);
        else running_on(a, places, row, last, told);
    } else if (warp == CHOOSER) {
        if (a.chooses && asking) choosing(a, row, told);
    } else {
        heading(a, places[a.layers + (warp != DENSE)], warp != DENSE);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) one(const __grid_constant__ Arguments a) { alone<false>(a); }
extern "C" __global__ void __launch_bounds__(THREADS, 1) windows(const __grid_constant__ Arguments a) { alone<true>(a); }
